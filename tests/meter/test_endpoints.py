"""Where requests may go, and that nothing goes anywhere else: not one packet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compute.errors import BadInput, UnknownName
from compute.meter import endpoints
from compute.meter.endpoints import checked, find, listing

ROOT = Path(__file__).parents[2]
GOOD = """
[vllm]
url = "http://10.0.0.5:8000/v1/"
model = "Qwen3-8B"
api = "chat"
key = "THE_KEY"
[plain]
url = "https://example.org"
"""


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """listed(text): the operator's list."""

    def write(text: str) -> Path:
        file = tmp_path / "endpoints.toml"
        file.write_text(text, "utf-8")
        monkeypatch.setenv(endpoints.VARIABLE, str(file))
        return file

    return write


def test_an_entry_of_the_list(listed, monkeypatch):
    """Catches a line of the list that is read and not used."""
    listed(GOOD)
    monkeypatch.setenv("THE_KEY", "secret")
    found = find("vllm")
    assert (found.name, found.url, found.model, found.api, found.key, found.key_from) == ("vllm", "http://10.0.0.5:8000/v1", "Qwen3-8B", "chat", "secret", "THE_KEY")
    assert find("plain").url == "https://example.org/v1" and find("plain").api is None
    assert [(one.name, one.url, one.trouble) for one in listing()] == [
        ("own", "", None), ("vllm", "http://10.0.0.5:8000/v1", None), ("plain", "https://example.org/v1", None),
    ]  # fmt: skip


def test_what_cannot_be_measured_is_listed_with_its_reason(listed, monkeypatch):
    """Catches a whole list lost to one bad entry, and a key on a page."""
    listed(GOOD + '[bad]\nurl = "ftp://user:password@example.org"\n')
    monkeypatch.delenv("THE_KEY", raising=False)
    own, vllm, plain, bad = listing()
    assert own.trouble is None and plain.trouble is None
    assert "THE_KEY" in vllm.trouble["en"] and vllm.trouble["zh"] and "ftp" not in bad.url and "password" not in str(bad)
    listed('[a]\nurl = "http://a/v1"\nkey = "sk-0123abc"\n[b]\nurl = "http://b/v1"\napi_key = "sk-0123abc"\n[c]\nkey = "sk-0123abc"\n')  # the key itself, put there by mistake
    assert all(one.trouble and "sk-0123abc" not in str(one) for one in listing()[1:]) and len(listing()) == 4
    listed("not toml [")
    assert [one.name for one in listing()][0] == "own" and listing()[1].trouble


def test_own_needs_no_list_and_cannot_be_taken(listed, monkeypatch):
    """Catches prompts for "own" that go elsewhere."""
    listed('[own]\nurl = "http://elsewhere.example"\n')
    with pytest.raises(BadInput):
        find("vllm")
    monkeypatch.delenv(endpoints.VARIABLE)
    monkeypatch.setattr(endpoints, "ROOT", Path("/nowhere"))
    assert [one.name for one in listing()] == ["own"]
    with pytest.raises(UnknownName) as unknown:
        find("vllm")
    assert "own" in unknown.value.message("en") and "端点" in unknown.value.message("zh")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://127.0.0.1:8502", "http://127.0.0.1:8502/v1"),
        ("http://127.0.0.1:8502/", "http://127.0.0.1:8502/v1"),
        ("https://example.org/api/v1/", "https://example.org/api/v1"),
        ("http://[::1]:80/v1/chat/completions", "http://[::1]:80/v1"),
        ("http://h/v1/completions", "http://h/v1"),
        ("HTTP://h/v1", "http://h/v1"),
    ],
)
def test_addresses_as_people_write_them(given, meant):
    """Catches /v1/v1 and /completions/completions."""
    assert checked(given) == meant


BAD = ["ftp://example.org", "file:///etc/passwd", "example.org", "//example.org", "http://", "http:///v1", "http://user@example.org", "http://u:p@example.org",
       "http://example.org@evil.example", "http://example.org/v1#x", "http://example.org/v1?x=1", "http://example.org/#", "http://example.org:99999",
       "http://example.org:0", "http://[::1", "http://example.org\\@evil.example", "http://exa mple.org", "http://ex\tample.org", "http://exämple.org", "gopher://x", "",
       "javascript:alert(1)", "http+unix://x", "http://example.org\r\nHost: evil"]  # fmt: skip


@pytest.mark.parametrize("url", BAD)
def test_addresses_that_are_refused(url):
    """Catches another scheme, a password in the address, and an address that two readers read differently."""
    with pytest.raises(BadInput) as wrong:
        checked(url)
    assert "u:p" not in wrong.value.message("en")


WATCH = """
import json, sys
seen = []
sys.addaudithook(lambda name, args: seen.append([name, str(args)]) if name.split(".")[0] in ("socket", "subprocess") and name not in ("socket.__new__",) else None)
from compute import functions
from compute.errors import LabError
told = []
for name in json.loads(sys.argv[1]):
    try:
        functions.call("meter.run", {"endpoint": name})
        told.append("ran")
    except LabError as error:
        told.append(error.code)
functions.call("meter.endpoints", {})
print(json.dumps({"seen": seen, "told": told}))
"""


def watched(names: list[str], file: Path) -> dict:
    ran = subprocess.run([sys.executable, "-c", WATCH, json.dumps(names)], cwd=ROOT, capture_output=True, text=True, timeout=120,
                         env=os.environ | {endpoints.VARIABLE: str(file)})  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_what_is_refused_sends_nothing(tmp_path):
    """Catches a look-up, a connection or a process before the refusal. Python's own audit events are the referee, and they see a
    good entry."""
    file = tmp_path / "list.toml"
    bad = {f"bad{n}": url for n, url in enumerate(BAD)}
    entries = "".join(f"[{name}]\nurl = {json.dumps(url)}\n" for name, url in bad.items())
    file.write_text(entries + '[keyless]\nurl = "http://127.0.0.1:9"\nkey = "NO_SUCH_VARIABLE"\n[typo]\nurl = "http://127.0.0.1:9"\nmodle = "m"\n', "utf-8")
    names = [*bad, "keyless", "typo", "nosuch", "http://127.0.0.1:9/v1", "https://example.org", "OWN", "../own"]
    found = watched(names, file)
    assert set(found["told"]) <= {"bad_input", "unknown_name"} and len(found["told"]) == len(names)
    assert found["seen"] == []
    file.write_text('[good]\nurl = "http://127.0.0.1:9"\n', "utf-8")
    assert any(name == "subprocess.Popen" for name, _ in watched(["good"], file)["seen"]), "the referee is blind"


def test_the_command_line_checks_the_address_too(tmp_path):
    """Catches a typed address that goes through unchecked."""
    code = WATCH.replace("told = []\n", "told = []\nfrom compute.__main__ import main\n").replace(
        'functions.call("meter.run", {"endpoint": name})\n        told.append("ran")', 'told.append(main(["meter", name]))')  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", code, json.dumps(["ftp://127.0.0.1", "http://u:p@127.0.0.1:9"])], cwd=ROOT, capture_output=True, text=True, timeout=120)
    found = json.loads(ran.stdout)
    assert found == {"seen": [], "told": [2, 2]} and len(ran.stderr.splitlines()) == 2 and "u:p" not in ran.stderr
