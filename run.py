#!/usr/bin/env python3
"""The two commands: `python3 run.py` opens the courseware, `python3 run.py test` tests everything.

Standard library only, because it runs before anything is installed. It makes .venv, installs into it, starts the web
server and the compute service, watches both, and stops both.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.exit("Python 3.11 or newer is needed; this is %d.%d. Install it and start again with: python3.11 run.py" % sys.version_info[:2])

import argparse
import ctypes
import errno
import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import webbrowser
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
HEALTH_EVERY_S = 5.0
HEALTH_TIMEOUT_S = 10.0
REMOTE_TIMEOUT_S = 3.0
HEALTH_MISSES = 3  # in a row, and only once it has answered: loading a model may keep it busy
STARTUP_S = 120.0
CANNOT_START = 2  # the service's exit code when its settings are to blame, after a sentence that says which
TEST_PROCESSES = 4  # each has a browser, a web server and a compute service of its own
SERVERS = {"nginx": "nginx-light", "initdb": "postgresql"}  # a program that some tests need → Debian's package
STEADY_S = 60.0  # a service that lived this long has recovered; its back-off starts over
CHINESE = (os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or "").startswith("zh")


def words(zh: str, en: str) -> str:
    return zh if CHINESE else en


def say(zh: str, en: str) -> None:
    """A full disk under the log, or a terminal that went away, is no reason to end."""
    with suppress(OSError):
        print(words(zh, en), flush=True)


class Stop(Exception):
    """Ends the command with one clear sentence and an exit code."""

    def __init__(self, zh: str, en: str, code: int = 1):
        super().__init__(words(zh, en))
        self.code = code


# --- setting up ---------------------------------------------------------------------------------------------------


def stamp(files: list[Path]) -> str:
    """Changes when a requirements file or the Python version changes."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def make_venv() -> None:
    if PYTHON.exists() and subprocess.run([PYTHON, "-c", "import pip"], capture_output=True).returncode == 0:
        return
    say("正在建立 .venv …", "Making .venv …")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], capture_output=True, text=True)
    if made.returncode:
        print((made.stdout + made.stderr).strip())
        raise Stop(
            "无法建立 .venv。Debian/Ubuntu 上请先执行：apt install python3-venv，然后重试。",
            "Could not make .venv. On Debian or Ubuntu run `apt install python3-venv`, then try again.",
        )


def install(names: list[str]) -> None:
    """Installs requirements files into .venv as their locks say, unless their stamp says that this was done.

    First what the locks list, each archive checked by its hash; then torch, whose build differs from machine to machine.
    """
    files = [ROOT / name for name in names]
    locks = [file.with_suffix(".lock") for file in files]
    torch = ROOT / "requirements-torch.lock"
    for file in (*files, *locks, torch):
        if not file.exists():
            raise Stop(f"缺少文件 {file.name}；请从仓库恢复它。", f"{file.name} is missing; restore it from the repository.")
    make_venv()
    mark = VENV / f"installed-{'-'.join(file.stem for file in files)}"
    stamped = stamp([*files, *locks, torch])
    if mark.exists() and mark.read_text() == stamped:
        return
    say(f"正在安装 {'、'.join(names)}（第一次需要几分钟）…", f"Installing {' and '.join(names)} (the first time takes minutes) …")
    cache = VENV / "pip-cache"  # not in the home folder: what was fetched outlives a failure, and goes when all is installed
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check"]
    for command in (
        [*pip, "--require-hashes", "--no-deps", *(f"-r{lock}" for lock in locks)],
        [*pip, *(f"-r{file}" for file in files), f"-c{torch}"],
    ):
        if subprocess.run(command, cwd=ROOT, env={"PIP_CACHE_DIR": str(cache)} | os.environ).returncode:
            raise Stop(
                "安装失败，原因见上。请检查网络（或 pip 镜像设置）与磁盘空间，再执行一次同样的命令；已下载的部分会保留。",
                "Installing failed; the reason is above. Check the network (or pip's mirror) and the disk space, then run the "
                "same command again; what was fetched already is kept.",
            )
    shutil.rmtree(cache, ignore_errors=True)
    mark.write_text(stamped)
    say("安装完成。", "Installed.")


def may_use_apt() -> list[str] | None:
    """The prefix for apt-get, or None where apt is missing or needs a password."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def chromium() -> str | None:
    asked = os.environ.get("INFERENCE_LAB_CHROMIUM")
    return asked or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def has_cjk_font() -> bool:
    if not shutil.which("fc-list"):
        return bool(list(Path("/usr/share/fonts").rglob("*CJK*"))) or sys.platform == "darwin"
    return bool(subprocess.run(["fc-list", ":lang=zh", "family"], capture_output=True, text=True).stdout.strip())


def install_browser() -> None:
    missing = ([] if chromium() else ["chromium"]) + ([] if has_cjk_font() else ["fonts-noto-cjk"])
    if not missing:
        return
    prefix = may_use_apt()
    if prefix is None:
        raise Stop(
            f"浏览器测试还缺少：{'、'.join(missing)}。请安装（Debian/Ubuntu：sudo apt install {' '.join(missing)}），"
            "或用环境变量 INFERENCE_LAB_CHROMIUM 指出 Chromium 的路径，再重试。",
            f"The browser tests need {' and '.join(missing)}. Install it (Debian/Ubuntu: sudo apt install {' '.join(missing)}), "
            "or set INFERENCE_LAB_CHROMIUM to the path of a Chromium, and try again.",
        )
    apt_install(prefix, missing)


def install_servers() -> None:
    """nginx and PostgreSQL for the tests that need them, which say so and are skipped where neither can be had. Where systemd runs, Debian
    would start both as services of the machine: that is left to whoever owns it."""
    missing = [package for program, package in SERVERS.items() if not has_server(program)]
    prefix = None if os.path.isdir("/run/systemd/system") else may_use_apt()
    if missing and prefix is not None:
        apt_install(prefix, missing)
    elif missing:
        say(f"没有 {'、'.join(missing)}：用到它们的测试会跳过（Debian/Ubuntu：sudo apt install {' '.join(missing)}）。",
            f"Without {' and '.join(missing)}, the tests that need them are skipped (Debian/Ubuntu: sudo apt install {' '.join(missing)}).")


def has_server(program: str) -> bool:
    return bool(shutil.which(program) or shutil.which(f"/usr/sbin/{program}") or list(Path("/usr/lib/postgresql").glob(f"*/bin/{program}")))


def apt_install(prefix: list[str], packages: list[str]) -> None:
    say(f"正在用 apt 安装 {' '.join(packages)} …", f"Installing {' '.join(packages)} with apt …")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        if subprocess.run([*prefix, "apt-get", "-qq", *arguments], env=environment).returncode:
            raise Stop(
                f"apt-get {arguments[0]} 失败，原因见上。请手动安装 {' '.join(packages)}，再重试。",
                f"apt-get {arguments[0]} failed; the reason is above. Install {' '.join(packages)} by hand and try again.",
            )


# --- running ------------------------------------------------------------------------------------------------------


def start(command: list, environment: dict[str, str]) -> subprocess.Popen:
    """Starts a program in its own process group, so that stopping it also stops whatever it started."""
    if os.name == "nt":
        return subprocess.Popen(command, cwd=ROOT, env=environment, creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def in_child() -> None:
        libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: go when the watcher is killed outright

    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, preexec_fn=in_child if libc else None)


def stop(process: subprocess.Popen, patience_s: float = 5.0) -> None:
    """Asks the whole group to end, then insists."""

    def send(number: int) -> None:
        if os.name == "nt":
            process.terminate()
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:  # the group is gone already
            pass

    send(signal.SIGTERM)
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        pass
    send(getattr(signal, "SIGKILL", signal.SIGTERM))
    process.wait()


def answers(url: str, timeout_s: float, host: str | None = None) -> bool:
    """host: the name to ask for, where the server may not go by that of the address."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host} if host else {}), timeout=timeout_s) as reply:
            return reply.status == 200
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):  # ValueError: no address at all
        return False


@dataclass
class Compute:
    """The compute service as the watcher sees it: restarted with back-off when it dies or stops answering."""

    port: int
    device: str | None
    environment: dict[str, str]
    process: subprocess.Popen | None = None
    started: float = 0.0
    ready: bool = False
    was_ready: bool = False
    misses: int = 0
    back_off_s: float = 1.0
    start_at: float = 0.0
    check_at: float = field(default=0.0)

    def start(self, now: float) -> None:
        command = [PYTHON, "-m", "compute", "serve", "--port", str(self.port)]
        command += ["--device", self.device] if self.device else []
        self.process = start(command, self.environment)  # it lowers its own priority
        self.started, self.ready, self.misses, self.check_at = now, False, 0, now + 1

    def failed(self, now: float, zh: str, en: str) -> None:
        stop(self.process)
        self.process = None
        if self.ready and now - self.started > STEADY_S:
            self.back_off_s = 1.0
        say(f"{zh}{self.back_off_s:.0f} 秒后重启；其间页面改用已存的结果。",
            f"{en} Starting it again in {self.back_off_s:.0f} s; until then the pages use stored results.")
        self.start_at, self.back_off_s = now + self.back_off_s, min(60.0, 2 * self.back_off_s)

    def watch(self, now: float) -> None:
        if self.process is None:
            if now >= self.start_at:
                self.start(now)
            return
        code = self.process.poll()
        if code == CANNOT_START and not self.was_ready and is_free(self.port):  # it would say the same at every try
            raise Stop("计算服务无法这样启动，原因见上。", "The compute service cannot start like this; the reason is above.", 2)
        if code is not None:
            self.failed(now, f"计算服务退出了（退出码 {code}）。", f"The compute service ended (exit code {code}).")
            return
        if now < self.check_at:
            return
        if answers(f"http://127.0.0.1:{self.port}/healthz", HEALTH_TIMEOUT_S if self.ready else 1.0):
            if not self.ready:
                say("计算服务已就绪。", "The compute service is ready.")
            self.ready, self.was_ready, self.misses = True, True, 0
            self.check_at = now + HEALTH_EVERY_S
            return
        self.misses += 1
        self.check_at = now + (HEALTH_EVERY_S if self.ready else 1.0)
        if (self.ready and self.misses >= HEALTH_MISSES) or (not self.ready and now - self.started > STARTUP_S):
            self.failed(now, "计算服务没有响应。", "The compute service does not answer.")

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)


def check_port(host: str, port: int) -> None:
    if not 1 <= port <= 65535:
        raise Stop(f"端口 {port} 不在 1 到 65535 之间。", f"Port {port} is not between 1 and 65535.", 2)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            if os.name != "nt":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror:
        raise Stop(f"不认识主机 {host}；请用 127.0.0.1 或 0.0.0.0。", f"Host {host} is not known; use 127.0.0.1 or 0.0.0.0.", 2) from None
    except OSError as error:
        free = port + 1 if port < 65535 else 8501
        if error.errno == errno.EADDRINUSE:
            raise Stop(
                f"端口 {port} 已被别的程序占用。请关掉那个程序，或换一个端口：python3 run.py --port {free}",
                f"Port {port} is in use by another program. Stop that program, or choose another port: python3 run.py --port {free}",
            ) from None
        raise Stop(
            f"无法在 {host} 的端口 {port} 上监听（{error.strerror}）。请换一个：python3 run.py --host 127.0.0.1 --port 8501",
            f"Cannot listen on {host}, port {port} ({error.strerror}). Choose another: python3 run.py --host 127.0.0.1 --port 8501",
        ) from None


def is_free(port: int) -> bool:
    try:
        check_port("127.0.0.1", port)
    except Stop:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gone(code: int) -> tuple[str, str]:
    """What is said of a web server that ended with that code; a negative one is a signal's, as subprocess tells it."""
    zh, en = f"退出了（退出码 {code}），原因见上", f"ended (exit code {code}); the reason is above"
    if code < 0:
        zh, en = f"被信号 {-code} 结束了", f"was ended by signal {-code}"
        if code == -signal.SIGKILL:
            zh, en = f"{zh}，那是有人要它停，或内存不够", f"{en}, which somebody sent, or the system for want of memory"
    return f"网页服务{zh}。其余也已停下；要再打开，请执行同样的命令。", f"The web server {en}. All else is stopped too; the same command starts it again."


def open_browser(url: str) -> None:
    on_screen = os.name == "nt" or sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if on_screen and sys.stdout.isatty():
        webbrowser.open(url)


def serve(options: argparse.Namespace) -> int:
    check_port(options.host, options.port)
    install(["requirements.txt"])
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    if options.device:
        environment["INFERENCE_LAB_DEVICE"] = options.device
    compute = None
    if options.embedded:
        environment["INFERENCE_LAB_COMPUTE"] = "embedded"
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    elif options.compute:
        address = environment["INFERENCE_LAB_COMPUTE"] = options.compute.rstrip("/")
        if not answers(f"{address}/healthz", REMOTE_TIMEOUT_S):
            say(f"{address} 没有计算服务应答；页面先用已存的结果，等它应答后会自动接上。",
                f"No compute service answers at {address}; the pages use stored results and connect once it does.")
    else:
        compute = Compute(free_port(), options.device, environment | {"OMP_WAIT_POLICY": "PASSIVE"})
        environment["INFERENCE_LAB_COMPUTE"] = f"http://127.0.0.1:{compute.port}"

    say("正在启动 …", "Starting …")
    web = start([PYTHON, "-m", "uvicorn", "app.asgi:app", "--host", options.host, "--port", str(options.port),
                 "--log-level", "warning", "--timeout-graceful-shutdown", "2"], environment)
    local = "127.0.0.1" if options.host in ("0.0.0.0", "::", "localhost") else options.host
    address = f"http://[{local}]:{options.port}" if ":" in local else f"http://{local}:{options.port}"
    deadline, told = time.monotonic() + STARTUP_S, False
    try:
        while True:
            now = time.monotonic()
            if web.poll() is not None:
                raise Stop(*gone(web.returncode))
            if not told and answers(f"{address}/healthz", 1.0, "localhost"):
                told = True
                say(f"\n  课件已打开：{address}\n  按 Ctrl-C 结束。\n", f"\n  The courseware is open: {address}\n  Ctrl-C ends it.\n")
                open_browser(address)
            if not told and now > deadline:
                raise Stop(f"网页服务 {STARTUP_S:.0f} 秒内没有就绪。", f"The web server was not ready within {STARTUP_S:.0f} s.")
            if compute and (told or compute.process):  # the page first, then the service: two cores load one at a time
                compute.watch(now)
            time.sleep(0.1 if not told else 0.5)
    finally:
        if compute:
            compute.stop()
        stop(web)


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py", description=words("打开课件。", "Opens the courseware."),
        epilog=words("其他命令：run.py setup 只做安装；run.py models 取可选模型；run.py test [pytest 参数] 测试全部。",
                     "Other commands: run.py setup only installs; run.py models fetches optional models; run.py test [pytest arguments] tests everything."))
    parser.add_argument("--port", type=int, default=8501, help=words("网页端口（默认 8501）", "port of the pages (8501)"))
    parser.add_argument("--host", default="127.0.0.1", help=words("监听地址（默认 127.0.0.1）", "address to listen on (127.0.0.1)"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), help=words("模型用的设备", "where the model runs"))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--embedded", action="store_true", help=words("不另开计算进程", "no second process"))
    where.add_argument("--compute", metavar="URL", help=words("使用这个地址上的计算服务", "use the compute service at this address"))
    options = parser.parse_args(argv)
    if options.compute and not options.compute.startswith(("http://", "https://")):
        parser.error(words(f"--compute {options.compute} 应以 http:// 或 https:// 开头", f"--compute {options.compute} must start with http:// or https://"))
    return options


def main(argv: list[str]) -> int:
    command, rest = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else ("serve", argv)
    if command == "serve":
        return serve(arguments(rest))
    if command == "setup":
        if rest:
            raise Stop(f"setup 不带参数，却收到 {' '.join(rest)}；请执行：python3 run.py setup",
                       f"setup takes no arguments, and was given {' '.join(rest)}; run: python3 run.py setup", 2)
        install(["requirements.txt"])
        say("准备就绪。打开课件：python3 run.py", "Ready. Open the courseware with: python3 run.py")
        return 0
    if command == "models":
        install(["requirements.txt"])
        return subprocess.run([PYTHON, "-m", "compute", "models", *rest], cwd=ROOT).returncode
    if command == "test":
        install(["requirements.txt", "requirements-test.txt"])
        install_browser()
        install_servers()
        if not rest:  # everything: a file at a time to each of a few processes, in order, as files with a browser come last
            rest = ["-n", str(min(os.cpu_count() or 1, TEST_PROCESSES)), "--dist", "loadfile", "--no-loadscope-reorder"]
        return subprocess.run([PYTHON, "-m", "pytest", *rest], cwd=ROOT, env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}).returncode
    raise Stop(f"没有命令 {command}；可用：（无）、setup、models、test。", f"There is no command {command}; known: (none), setup, models, test.", 2)


def interrupt(*_) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, interrupt)
    try:
        sys.exit(main(sys.argv[1:]))
    except Stop as reason:
        print(reason, file=sys.stderr)
        sys.exit(reason.code)
    except KeyboardInterrupt:
        say("\n已结束。", "\nStopped.")
        sys.exit(0)
