"""run.py: its units by import, and the real command in a scratch tree whose servers are stand-ins of a few lines."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
run = importlib.util.module_from_spec(spec)
sys.modules["run"] = run
spec.loader.exec_module(run)

STAND_IN = """
import http.server, os, sys, pathlib
port = int(sys.argv[sys.argv.index("--port") + 1])
here = pathlib.Path(__file__).parent
name = {name!r}
(here / (name + ".log")).open("a").write(f"{{os.getpid()}} {{os.nice(0)}} {{os.environ.get('OMP_WAIT_POLICY')}} {{os.environ.get('INFERENCE_LAB_COMPUTE')}} {{os.environ.get('INFERENCE_LAB_DEVICE')}} {{' '.join(sys.argv[1:])}}\\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die": os._exit(3)
        self.send_response(500 if (here / (name + ".sick")).exists() else 200); self.end_headers()
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def requirements(tree: Path, *sets: str) -> list[Path]:
    """What the stamp covers, in its order: requirements files, their locks, torch's."""
    sets = sets or ("requirements",)
    return [tree / f"{each}.txt" for each in sets] + [tree / f"{each}.lock" for each in sets] + [tree / "requirements-torch.lock"]


@pytest.fixture()
def scratch(tmp_path) -> Path:
    """A tree with run.py and stand-ins for uvicorn and compute; its .venv is this Python, marked as installed."""
    shutil.copy(ROOT / "run.py", tmp_path)
    for file in requirements(tmp_path):
        file.write_text("")
    (tmp_path / "compute").mkdir()
    (tmp_path / "compute" / "__init__.py").write_text("")
    (tmp_path / "compute" / "__main__.py").write_text(STAND_IN.format(name="compute"))
    (tmp_path / "uvicorn.py").write_text(STAND_IN.format(name="web"))
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / "installed-requirements").write_text(run.stamp(requirements(tmp_path)))
    return tmp_path


class Started:
    def __init__(self, tree: Path, *arguments: str):
        self.tree, self.port = tree, free_port()
        self.process = subprocess.Popen(
            [sys.executable, "run.py", "--port", str(self.port), *arguments], cwd=tree, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=os.environ | {"LC_ALL": "C.UTF-8"}, start_new_session=True,
            # A test run in the background inherits an ignored Ctrl-C, and so would run.py.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def log(self, name: str) -> list[list[str]]:
        path = self.tree / name
        path = path if path.exists() else path.parent / "compute" / path.name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition, seconds: float = 30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            assert self.process.poll() is None, self.process.stdout.read()
            time.sleep(0.1)
        raise AssertionError("waited in vain")

    def stop(self, number: int = signal.SIGINT) -> str:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=20)
        return out


@pytest.fixture()
def started(scratch):
    running = []

    def start(*arguments: str) -> Started:
        running.append(Started(scratch, *arguments))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


def alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]


def answers(port: int) -> bool:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1).status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_both_processes_start_and_ctrl_c_leaves_none(started, number):
    lab = started("--device", "cpu")
    (web,) = lab.until(lambda: lab.log("web.log"))
    (compute,) = lab.until(lambda: lab.log("compute.log"))
    lab.until(lambda: answers(lab.port))
    time.sleep(0.5)
    assert compute[2] == "PASSIVE", "two processes on two cores: torch's threads must not spin"
    compute_port = compute[compute.index("--port") + 1]
    assert web[3] == f"http://127.0.0.1:{compute_port}" and web[4] == "cpu"
    assert compute[compute.index("--device") + 1] == "cpu"
    out = lab.stop(number)
    assert lab.process.returncode == 0 and f"http://127.0.0.1:{lab.port}" in out and "Traceback" not in out
    assert not alive(web[0]) and not alive(compute[0])


def test_nothing_survives_when_the_watcher_is_killed_outright(started):
    if sys.platform != "linux":
        pytest.skip("needs the parent-death signal of Linux")
    lab = started()
    pids = [lab.until(lambda name=name: lab.log(name))[0][0] for name in ("web.log", "compute.log")]
    lab.process.kill()
    lab.process.wait()
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, pids))


def test_a_dead_compute_service_is_started_again_at_the_same_address(started):
    lab = started()
    first = lab.until(lambda: lab.log("compute.log"))[0]
    lab.until(lambda: answers(int(first[first.index("--port") + 1])))
    os.kill(int(first[0]), signal.SIGKILL)
    second = lab.until(lambda: len(lab.log("compute.log")) > 1 and lab.log("compute.log"))[1]
    assert second[second.index("--port") + 1] == first[first.index("--port") + 1]
    out = lab.stop()
    assert "exit code -9" in out and "Starting it again in 1 s" in out


def test_embedded_and_remote_start_no_second_process(started):
    for arguments, told in ((["--embedded"], "embedded"), (["--compute", "http://10.0.0.7:9000/"], "http://10.0.0.7:9000")):
        lab = started(*arguments)
        lab.until(lambda: answers(lab.port))
        assert lab.log("web.log")[-1][3] == told
        lab.stop()
        assert not lab.log("compute.log")


def test_a_remote_service_that_does_not_answer_is_said_once(started):
    """Catches: a wrong address noticed only at the first live run; a complaint about one that does answer."""
    dead = started("--compute", f"http://127.0.0.1:{free_port()}")
    dead.until(lambda: answers(dead.port))
    assert dead.stop().count("No compute service answers at http://127.0.0.1:") == 1
    lab = started("--compute", f"http://127.0.0.1:{started('--embedded').port}")  # the stand-in answers to /healthz like a service
    lab.until(lambda: answers(int(lab.process.args[-1].rpartition(":")[2])))
    again = started("--compute", lab.process.args[-1])
    again.until(lambda: answers(again.port))
    assert "No compute service" not in again.stop()


@pytest.mark.parametrize("address", ["http://", "http://127.0.0.1:many", "http://[", "http://no.such.host.invalid"])
def test_an_address_that_is_none_does_not_answer(address):
    """Catches: a traceback from the library that asks."""
    assert run.answers(address, 1.0) is False


def test_a_service_that_cannot_start_is_not_tried_again(started, scratch):
    """Catches: a device that is not there, asked for every minute for ever."""
    (scratch / "compute" / "__main__.py").write_text("import sys\nprint('no cuda here', file=sys.stderr)\nsys.exit(2)\n")
    lab = started("--device", "cuda")
    out, _ = lab.process.communicate(timeout=30)
    assert lab.process.returncode == 2 and "no cuda here" in out and "cannot start like this" in out
    assert "Starting it again" not in out and "Traceback" not in out and not answers(lab.port)


def test_when_the_web_server_dies_so_does_the_rest(started):
    lab = started()
    lab.until(lambda: answers(lab.port))
    compute = lab.until(lambda: lab.log("compute.log"))[0]
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"http://127.0.0.1:{lab.port}/die", timeout=5)
    out, _ = lab.process.communicate(timeout=20)
    assert lab.process.returncode == 1 and "The web server ended (exit code 3)" in out and not alive(compute[0])


def test_a_web_server_that_was_killed_is_told_as_such(started):
    """Catches a sentence that points to a reason above where there is none, and an exit code after which systemd starts nothing again."""
    lab = started()
    lab.until(lambda: answers(lab.port))
    os.kill(int(lab.log("web.log")[0][0]), signal.SIGKILL)
    out, _ = lab.process.communicate(timeout=20)
    assert lab.process.returncode == 1 and out.count("The web server was ended by signal 9, which somebody sent") == 1 and "above" not in out and "Traceback" not in out


# ---- the watcher's judgement, on a clock of our own


class Sleeper:
    """A process that does not end by itself."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


@pytest.fixture()
def watcher(monkeypatch):
    begun = []

    def start(command, environment):
        begun.append(Sleeper().process)
        return begun[-1]

    monkeypatch.setattr(run, "start", start)
    monkeypatch.setattr(run, "say", lambda zh, en: said.append(en))
    said: list[str] = []
    healthy = {"now": True}
    monkeypatch.setattr(run, "answers", lambda url, timeout: healthy["now"])
    compute = run.Compute(9999, None, {})
    yield compute, begun, said, healthy
    for process in begun:
        run.stop(process)


def test_a_hung_service_is_restarted_after_three_misses(watcher):
    compute, begun, said, healthy = watcher
    compute.watch(0)
    compute.watch(2)
    assert compute.ready and len(begun) == 1
    healthy["now"] = False
    for now in (10, 20):
        compute.watch(now)
        assert compute.process is begun[0], "a miss or two may be a long computation"
    compute.watch(30)
    assert compute.process is None and begun[0].poll() is not None and any("does not answer" in s for s in said)
    compute.watch(30.5)
    assert len(begun) == 1, "the back-off is waited for"
    compute.watch(31.5)
    assert len(begun) == 2


def test_back_off_doubles_up_to_a_minute_and_starts_over_after_a_steady_run(watcher):
    compute, begun, said, _ = watcher
    waits, now = [], 0.0
    for _ in range(8):
        compute.watch(now)
        begun[-1].kill()
        begun[-1].wait()
        compute.watch(now + 1)
        waits.append(compute.start_at - (now + 1))
        now = compute.start_at
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    compute.watch(now)
    compute.watch(now + 2)
    begun[-1].kill()
    begun[-1].wait()
    compute.watch(now + 100)
    assert compute.start_at == now + 101


def test_exit_code_2_after_a_good_start_is_a_failure_like_others(watcher, monkeypatch):
    """Catches: pages that end because the service could not have its address back at once."""
    compute, begun, said, _ = watcher
    compute.watch(0)
    compute.watch(2)
    assert compute.was_ready
    for now in (3, 10):
        monkeypatch.setattr(compute.process, "poll", lambda: 2)
        compute.watch(now)
        assert compute.process is None and "exit code 2" in said[-1]
        compute.watch(now + 5)
    assert len(begun) == 3


# ---- setting up


def test_the_stamp_follows_the_requirements(tmp_path):
    a, b = tmp_path / "requirements.txt", tmp_path / "requirements-test.txt"
    a.write_text("x==1\n")
    b.write_text("y==1\n")
    before = run.stamp([a, b])
    assert run.stamp([a, b]) == before != run.stamp([a])
    a.write_text("x==2\n")
    assert run.stamp([a, b]) != before


@pytest.fixture()
def empty(tmp_path, monkeypatch) -> Path:
    """A tree with empty requirements files and locks, where making .venv is making a folder."""
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(run, "CHINESE", False)
    monkeypatch.setattr(run, "make_venv", lambda: (tmp_path / ".venv").mkdir(exist_ok=True))
    for file in requirements(tmp_path, "requirements", "requirements-test"):
        file.write_text("")
    return tmp_path


def test_setup_installs_once_and_again_when_a_requirement_or_a_lock_changes(empty, monkeypatch):
    """Catches: a new lock that nobody gets; an archive that is not checked; a dependency outside the lock taken with the hashed ones."""
    calls = []
    monkeypatch.setattr(run.subprocess, "run", lambda command, **k: calls.append(command[4:]) or subprocess.CompletedProcess(command, 0))
    run.install(["requirements.txt"])
    run.install(["requirements.txt"])
    hashed, torch = calls
    assert {"--require-hashes", "--no-deps", f"-r{empty / 'requirements.lock'}"} < set(hashed) and "--require-hashes" not in torch
    assert {f"-r{empty / 'requirements.txt'}", f"-c{empty / 'requirements-torch.lock'}"} < set(torch)
    for count, file in enumerate(requirements(empty), start=2):
        file.write_text("x==2\n")
        run.install(["requirements.txt"])
        assert len(calls) == 2 * count, file.name
    run.install(["requirements.txt", "requirements-test.txt"])
    assert {f"-r{empty / 'requirements.lock'}", f"-r{empty / 'requirements-test.lock'}"} < set(calls[-2])


def test_what_was_fetched_is_kept_in_the_folder_until_all_is_installed(empty, monkeypatch):
    """Catches: gigabytes left in the reader's home; gigabytes fetched again after a failure, or kept for nothing."""
    cache = empty / ".venv" / "pip-cache"
    code = 1

    def pip(command, env, **_):
        assert env["PIP_CACHE_DIR"] == str(cache)
        cache.mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    monkeypatch.setattr(run.subprocess, "run", pip)
    with pytest.raises(run.Stop, match="run the same command again"):
        run.install(["requirements.txt"])
    assert [path.name for path in (empty / ".venv").iterdir()] == ["pip-cache"], "no stamp after a failure"
    code = 0
    run.install(["requirements.txt"])
    assert not cache.exists()


def test_a_missing_lock_is_named(empty):
    (empty / "requirements.lock").unlink()
    with pytest.raises(run.Stop, match="requirements.lock is missing"):
        run.install(["requirements.txt"])


def test_a_missing_browser_without_apt_says_what_to_install(monkeypatch):
    monkeypatch.setattr(run, "CHINESE", False)
    monkeypatch.setattr(run, "chromium", lambda: None)
    monkeypatch.setattr(run, "has_cjk_font", lambda: False)
    monkeypatch.setattr(run, "may_use_apt", lambda: None)
    with pytest.raises(run.Stop, match="sudo apt install chromium fonts-noto-cjk"):
        run.install_browser()


@pytest.mark.parametrize("apt,systemd,installed", [([], False, [["nginx-light", "postgresql"]]), (None, False, []), ([], True, [])])
def test_servers_for_tests_are_installed_where_they_start_nothing(monkeypatch, capsys, apt, systemd, installed):
    """Catches tests that are skipped in silence, and a test run that leaves a web server and a database running on somebody's machine."""
    calls = []
    monkeypatch.setattr(run, "CHINESE", False)
    monkeypatch.setattr(run, "has_server", lambda program: False)
    monkeypatch.setattr(run, "may_use_apt", lambda: apt)
    monkeypatch.setattr(run.os.path, "isdir", lambda path: systemd)
    monkeypatch.setattr(run, "apt_install", lambda prefix, packages: calls.append(packages))
    run.install_servers()
    assert calls == installed and ("are skipped" in capsys.readouterr().out) == (not installed)


# ---- what is said when something is wrong


def command(*arguments: str, language: str = "C.UTF-8") -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(ROOT / "run.py"), *arguments], capture_output=True, text=True, timeout=30,
                          env=os.environ | {"LC_ALL": language})


def test_a_busy_port_is_named_with_the_way_out():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        english, chinese = command("--port", str(port)), command("--port", str(port), language="zh_CN.UTF-8")
    assert english.returncode == chinese.returncode == 1
    assert f"Port {port} is in use" in english.stderr and "--port" in english.stderr and "Traceback" not in english.stderr
    assert f"端口 {port} 已被别的程序占用" in chinese.stderr


@pytest.mark.parametrize("arguments,said", [
    (["--port", "99999"], "99999"),
    (["--port", "eighty"], "eighty"),
    (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
    (["--device", "tpu"], "tpu"),
    (["--compute", "localhost:9"], "http://"),
    (["--embedded", "--compute", "http://x"], "--embedded"),
    (["dance"], "dance"),
    (["setup", "--foo"], "--foo"),
])
def test_wrong_arguments_are_answered_with_the_value(arguments, said):
    done = command(*arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_chinese_messages_have_chinese_punctuation():
    """Catches: a half-width comma, colon, semicolon or bracket between Chinese words."""
    literals = [node.value for node in ast.walk(ast.parse((ROOT / "run.py").read_text(encoding="utf-8")))
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and any("\u4e00" <= c <= "\u9fff" for c in node.value)]
    assert len(literals) > 30
    assert not [text for text in literals if any(mark in text.replace("://", "") for mark in ",;:()!?")]


def test_an_older_python_gets_one_sentence():
    source = (ROOT / "run.py").read_text(encoding="utf-8").replace("sys.version_info < (3, 11)", "sys.version_info < (9, 9)")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "Python 3.11 or newer is needed" in done.stderr and done.stderr.count("\n") == 1


def test_run_py_needs_nothing_installed():
    names = {line.split()[1].split(".")[0] for line in (ROOT / "run.py").read_text(encoding="utf-8").splitlines()
             if line.startswith(("import ", "from "))}
    assert len(names) > 10 and names <= set(sys.stdlib_module_names)


def test_ci_calls_the_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    assert "python3 run.py test" in script and os.access(ROOT / ".ci" / "run", os.X_OK)
