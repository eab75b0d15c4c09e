"""Contact sheets to look at: every page in both languages, both themes and both widths, as PNG under build/gallery/.

    python -m tests.gallery                      all pages
    python -m tests.gallery roofline             one page
    python -m tests.gallery --sample             the small course of tests/app/lessons
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from playwright.sync_api import sync_playwright

from app import shell
from tests.browser.conftest import SIZES, end, start_service, start_web, visit
from tests.conftest import FLAGS, ROOT, SAMPLE_LESSONS

OUT = ROOT / "build" / "gallery"
THEMES = ("light", "dark")
LONGEST = 12_000  # px; a longer page is cut there


def whole_page(page, width: int, target: Path) -> None:
    """The app scrolls inside itself, so the window is made as tall as its content."""
    for _ in range(3):  # charts grow while they draw
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": min(max(height, 800), LONGEST)})
        page.wait_for_timeout(500)
    page.screenshot(path=target)


def sheet(browser, pictures: list[tuple[str, Path]], target: Path) -> None:
    """The pictures of one page side by side, each with its name."""
    figures = "".join(f'<figure><figcaption>{name}</figcaption><img src="{path.as_uri()}"></figure>' for name, path in pictures)
    source = target.with_suffix(".html")
    source.write_text(f"<meta charset=utf-8><style>body{{margin:24px;display:flex;gap:24px;align-items:start;background:#888;width:max-content}}"
                      f"figure{{margin:0}}figcaption{{font:16px sans-serif;padding:4px 0}}img{{height:auto;zoom:.4}}</style>{figures}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 3200, "height": 800})
    page.goto(source.as_uri())
    page.screenshot(path=target, full_page=True)
    page.close()
    source.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gallery", description="Pictures of every page, to be looked at.")
    parser.add_argument("pages", nargs="*", help="slugs; all pages when none is named")
    parser.add_argument("--sample", action="store_true", help="the small course of tests/app/lessons")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    extra = {"INFERENCE_LAB_LESSONS": str(SAMPLE_LESSONS)} if options.sample else {}
    compute, service = (os.environ["INFERENCE_LAB_COMPUTE"], None) if "INFERENCE_LAB_COMPUTE" in os.environ else start_service()
    url, web = start_web(compute, **extra)
    slugs = options.pages or (["", "roofline", "sampling", "batching"] if options.sample else ["", *shell.slugs()])
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=os.environ.get("INFERENCE_LAB_CHROMIUM", "/usr/bin/chromium"), args=[*FLAGS, "--allow-file-access-from-files"])
            for slug in slugs:
                pictures = []
                for size, (width, height) in SIZES.items():
                    for theme in THEMES:
                        for lang in ("zh", "en"):
                            name = f"{slug or 'contents'}-{lang}-{theme}-{width}"
                            page = visit(browser, url, f"/{slug}", lang=lang, width=width, height=height, theme=theme)
                            page.wait_for_timeout(1500)
                            whole_page(page, width, OUT / f"{name}.png")
                            pictures.append((name, OUT / f"{name}.png"))
                            page.context.close()
                sheet(browser, pictures, OUT / f"{slug or 'contents'}.png")
                print(OUT / f"{slug or 'contents'}.png", flush=True)
            browser.close()
    finally:
        end(web)
        end(service)


if __name__ == "__main__":
    main()
