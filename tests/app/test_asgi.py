"""The server around Streamlit: documents, unknown addresses, headers, and what the web process may not load."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app import asgi, shell
from components import text
from tests.conftest import ROOT


async def inner(request):
    return PlainTextResponse(f"inner {request.url.path}")


@pytest.fixture()
def client(sample_lessons):
    app = Starlette(routes=[Route("/{path:path}", inner, methods=["GET", "POST"])], middleware=[Middleware(asgi.Documents)])
    return TestClient(app, follow_redirects=False)


@pytest.mark.parametrize("path,lang,title", [
    ("/", "zh-CN", "推理实验室"),
    ("/?lang=en", "en", "Inference Lab"),
    ("/?lang=xx", "zh-CN", "推理实验室"),
    ("/roofline?lang=en", "en", "The account of one forward pass · Inference Lab"),
])
def test_documents_are_ours_before_any_script_runs(client, path, lang, title):
    reply = client.get(path)
    assert reply.status_code == 200 and f'<html lang="{lang}">' in reply.text and f"<title>{title}</title>" in reply.text
    for gone in ("<title>Streamlit</title>", "SourceSans", "service-desc", "window.prerenderReady", "<!--", "agent"):
        assert gone not in reply.text, gone
    for kept in ('id="root"', "style.css?v=", "fonts/fonts.css", "static/js/index."):
        assert kept in reply.text, kept


@pytest.mark.parametrize("path,to", [
    ("/nope", "/?lesson=nope"),
    ("/nope?lang=en&x=1", "/?lesson=nope&lang=en&x=1"),
    ("/a/b", "/?lesson=a%2Fb"),
    ("/%3Cscript%3E", "/?lesson=%3Cscript%3E"),
    ("/index.html?lang=en", "/?lang=en"),
    ("/evil?lesson=roofline", "/?lesson=evil"),
])
def test_unknown_addresses_go_to_our_own_answer(client, path, to):
    reply = client.get(path)
    assert reply.status_code == 302 and reply.headers["location"].replace("/", "%2F").endswith(to.replace("/", "%2F")), reply.headers["location"]


@pytest.mark.parametrize("path,to", [
    ("/roofline/", "/roofline"),
    ("/roofline//?lang=en&roofline-placer.batch=4", "/roofline?lang=en&roofline-placer.batch=4"),
    ("/roof%6Cine", "/roofline"),
    ("/roofline%2F?lang=en", "/roofline?lang=en"),
    ("/%2F", "/"),
])
def test_a_page_has_one_address(client, path, to):
    """Catches: a document whose relative scripts and styles lead nowhere, so that the page stays blank."""
    reply = client.get(path)
    assert reply.status_code == 302 and reply.headers["location"] == to
    assert client.get(to).status_code == 200


@pytest.mark.parametrize("path", ["/%FF%FE", "/%00", "/%E4%B8", "/%zz", "/roofline/%FF", "/%2e%2e%2f%2e%2e%2fetc", "/roofline%0d%0aset-cookie:x"])
def test_garbage_in_an_address_is_an_unknown_page(client, path):
    """Catches: an error of the server, or a header made from the address."""
    reply = client.get(path)
    assert reply.status_code == 302 and reply.headers["location"].startswith("/?lesson=") and "set-cookie" not in reply.headers


@pytest.mark.parametrize("path", ["/static/nothing", "/app/%FF", "/_stcore/nothing"])
def test_a_file_that_is_not_there_is_an_unknown_page(sample_lessons, path):
    """Catches: Streamlit's own document in place of a file, blank since its relative scripts are not there."""
    app = Starlette(routes=[Route("/{path:path}", lambda request: HTMLResponse("<html>"))], middleware=[Middleware(asgi.Documents)])
    reply = TestClient(app, follow_redirects=False).get(path)
    assert reply.status_code == 302 and reply.headers["location"].startswith("/?lesson=") and "<html>" not in reply.text


@pytest.mark.parametrize("path", ["/_stcore/health", "/roofline/_stcore/host-config", "/static/js/x.js", "/app/static/icon.svg", "/healthz", "/media/x", "/component/x"])
def test_the_frameworks_paths_are_left_alone(client, path):
    assert client.get(path).text == f"inner {path}"
    assert client.post("/anything").text == "inner /anything"


def test_every_answer_has_the_security_headers(client):
    for path in ("/", "/nope", "/_stcore/health"):
        headers = client.get(path).headers
        for name, value in asgi.HEADERS.items():
            assert headers[name] == value, (path, name)
    policy = asgi.HEADERS["content-security-policy"]
    assert "default-src 'self'" in policy and "http" not in policy and "*" not in policy, "no other host may be asked for anything"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_the_web_process_never_loads_torch_and_starts_lean():
    # Not getrusage: its peak is inherited from the process that forked this one, a test runner with torch inside.
    code = ("import sys, json, re, app.asgi; status = open('/proc/self/status').read(); "
            "print(json.dumps({'torch': 'torch' in sys.modules, 'first': sys.path[0], "
            "'mib': int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) / 1024}))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
                          env=os.environ | {"INFERENCE_LAB_COMPUTE": "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert not told["torch"]
    assert told["first"] == str(ROOT), "a dependency's own `app` must not come first"
    assert told["mib"] < 300


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the libraries of a process are read from Linux's /proc")
def test_the_web_process_multiplies_matrices_on_one_thread():
    """Catches: threads of the linear algebra that wait for each other where other work wants the cores too; the first view of the
    low-rank instrument then took twenty times its processor time."""
    code = ("import re, ctypes, app.asgi; libraries = set(re.findall(r'/\\S*openblas\\S*\\.so\\S*', open('/proc/self/maps').read())); "
            "asked = [getattr(ctypes.CDLL(each), name, None) for each in libraries for name in "
            "('scipy_openblas_get_num_threads64_', 'scipy_openblas_get_num_threads', 'openblas_get_num_threads')]; print([ask() for ask in asked if ask])")
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
    assert set(json.loads(done.stdout.splitlines()[-1])) <= {1}, done.stdout + done.stderr[-2000:]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator: it has no heaps of its own for threads")
def test_the_threads_of_the_web_process_share_one_heap(tmp_path):
    """Catches: a heap for each thread that makes pages, which keeps what its pages gave back: memory that grows with a class by the minute."""
    code = """
import ctypes, sys, threading
import app.asgi
ready = threading.Barrier(6)
def make():
    kept = [bytes(2000 + n % 7) for n in range(2000)]
    ready.wait()
threads = [threading.Thread(target=make) for _ in range(6)]
for each in threads: each.start()
for each in threads: each.join()
libc = ctypes.CDLL(None)
libc.fopen.restype, libc.malloc_info.argtypes, libc.fclose.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p), (ctypes.c_void_p,)
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "heaps.xml")], cwd=ROOT, check=True, timeout=120)
    assert (tmp_path / "heaps.xml").read_text().count("<heap nr=") == 1


def test_a_failing_page_says_one_sentence_and_shows_no_traceback(monkeypatch):
    from app.lesson import words
    from compute.errors import BadInput

    said = []
    monkeypatch.setattr(asgi.st, "html", said.append)
    monkeypatch.setattr(asgi.st, "session_state", {"lang": "en"})
    assert asgi.explain(ZeroDivisionError("secret detail")) is True
    assert asgi.explain(BadInput("batch", "<b>", "too large", "太大")) is True
    assert words("en")("script_error") in said[0] and "secret" not in said[0]
    assert "batch" in said[1] and "<b>" not in said[1]


@pytest.mark.parametrize("content,said", [(b"[[", ""), (b"\xff\xfe", ""), (b'[zh]\nmodel = "x"\n', "lacks en"), (b'zh = 1\n[en]\n', "lacks zh"), (None, "")])
@pytest.mark.parametrize("name", ["app/text.toml", "components/given.toml"])
def test_broken_words_are_one_sentence_at_start(monkeypatch, name, content, said):
    """Catches: a traceback at start-up, or a server that starts and then fails at every request."""
    read = Path.read_text

    def read_text(self, encoding=None, errors=None):
        if self != ROOT / name:
            return read(self, encoding, errors)
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return content.decode(encoding)

    monkeypatch.setattr(Path, "read_text", read_text)
    for kept in (text.load_words, text._given):
        kept.cache_clear()
    with pytest.raises(SystemExit) as ended:
        asgi.require()
    assert f"data file {name} is broken" in ended.value.code and said in ended.value.code and str(ROOT) not in ended.value.code
    assert ended.value.code.count("\n") == 1, "one sentence in each language"


def test_data_that_an_instrument_needs_at_import_is_one_sentence(monkeypatch):
    """Catches: a traceback where the data file is to blame, not the widget."""
    from compute.errors import BrokenData

    def widgets():
        raise BrokenData("data/chips.toml", "no table")

    monkeypatch.setattr(asgi, "widgets", widgets)
    with pytest.raises(SystemExit, match="data/chips.toml"):
        asgi.require()


@pytest.mark.parametrize("error", ["BrokenData", "BadInput", "ValueError"])
def test_broken_data_does_not_stop_the_start(sample_lessons, monkeypatch, error):
    """Catches: a start that ends in a traceback because one number cannot be had."""
    from compute import errors, numbers

    def resolve(name):
        raise {"BrokenData": errors.BrokenData("data/chips.toml", "x"), "BadInput": errors.BadInput("chip", -1, "x", "x"),
               "ValueError": ValueError("x")}[error]

    monkeypatch.setattr(numbers, "resolve", resolve)
    assert len(shell.problems()) == 6, "each lesson in each language"


@pytest.mark.parametrize("content", [b"[[lesson", b"\xff\xfe", b'[[lesson]]\nslug = 5\n', b'[[lesson]]\nslug = "a"\n[[lesson]]\nslug = "a"\n', None])
def test_a_broken_order_of_lessons_is_logged_and_the_server_starts(tmp_path, monkeypatch, client, content):
    """Catches: a traceback at start-up, and a server error at every address."""
    from app import lesson

    if content is not None:
        (tmp_path / "order.toml").write_bytes(content)
    monkeypatch.setattr(lesson, "LESSONS", tmp_path)
    (problem,) = shell.problems()
    assert "lessons/order.toml" in problem and str(tmp_path) not in problem
    assert client.get("/").status_code == 200 and client.get("/roofline").headers["location"] == "/?lesson=roofline"


def test_known_addresses_are_the_lessons_that_exist(sample_lessons):
    assert [slug for slug in shell.slugs() if slug not in shell.BESIDE] == ["roofline", "sampling", "batching"]
