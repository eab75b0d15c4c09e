"""`python -m tests.lock` writes the lock files again, for Linux, macOS and Windows and every Python from 3.11.

Each requirements file has a lock beside it: the version of everything that it needs, with the hashes that pip checks.
`requirements-torch.lock` has versions only: which build of torch is the right one depends on the machine, and only some
builds need the CUDA wheels. Versions that are locked stay; `--upgrade` takes the newest that the requirements allow.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "requirements-torch.lock"
BY_MACHINE = re.compile(r"(torch|triton|cuda-[a-z0-9-]+|nvidia-[a-z0-9-]+)==")
COMPILE = ["pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]


def pins(text: str) -> list[str]:
    """A lock's entries: `name==version ; marker \\`, then a line for each hash."""
    return re.findall(r"^[a-z0-9].*(?:\n +--hash.*)*", text, re.MULTILINE)


def resolve(sources: list[Path], out: Path, *options: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", *COMPILE, *sources, "-o", out, *options], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def write(path: Path, comment: str, entries: list[str]) -> None:
    path.write_text("\n".join([f"# {comment} Written by: python -m tests.lock", *entries]) + "\n", encoding="utf-8", newline="\n")


def main(options: list[str]) -> None:
    sources = sorted(ROOT.glob("requirements*.txt"))
    with tempfile.TemporaryDirectory() as folder:
        together = Path(folder) / "all.txt"  # one version of everything, whichever sets are installed; its old lines are kept
        together.write_text("\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("requirements*.lock"))))
        resolve(sources, together, *options)
        for source in sources:
            out = Path(folder) / source.name
            resolve([source], out, "--generate-hashes", "--constraint", str(together))
            write(source.with_suffix(".lock"), f"What {source.name} needs, but for {TORCH}.",
                  [pin for pin in pins(out.read_text(encoding="utf-8")) if not BY_MACHINE.match(pin)])
        write(ROOT / TORCH, "torch and the CUDA wheels of its build for Linux: versions only.",
              [pin for pin in pins(together.read_text(encoding="utf-8")) if BY_MACHINE.match(pin)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.lock", description="Writes the lock files again; locked versions stay.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that the requirements allow")
    main(["--upgrade"] if parser.parse_args().upgrade else [])
