"""Question notes: what is kept, for whom, within which limits, what each failure says, and how notes come out."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from markdown_it import MarkdownIt

from app import notes
from app.lesson import words
from app.notes import NotKept, Postgres, Sqlite, Store
from components.text import LANGUAGES
from compute import turns
from tests.conftest import ROOT

ANNA, BEN = "a" * 32, "b" * 32
NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
SECRET = "s3cr/t@7"


def debian(program: str) -> str | None:
    """A program of PostgreSQL, which Debian keeps off the path."""
    return shutil.which(program) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), reverse=True)), None)


@pytest.fixture(scope="module")
def postgres():
    """A real PostgreSQL with a password, on a socket in a folder of its own: the address of a database in it. It refuses to run as root."""
    if not debian("initdb"):
        pytest.skip("no PostgreSQL here: `python3 run.py test` installs it where apt may be used, or apt install postgresql")
    import pwd  # as PostgreSQL's socket, not on Windows

    who = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with tempfile.TemporaryDirectory(prefix="notes-") as folder:
        Path(folder, "password").write_text(SECRET)
        for path in (folder, f"{folder}/password"):
            os.chown(path, who.pw_uid, who.pw_gid)
        as_who = dict(cwd=folder, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, stderr=subprocess.PIPE)
        if os.geteuid() == 0:
            as_who |= dict(user=who.pw_uid, group=who.pw_gid, extra_groups=[])
        made = subprocess.run([debian("initdb"), "-D", f"{folder}/data", "-U", "lab", "-E", "UTF8", "-A", "scram-sha-256", "--pwfile", f"{folder}/password",
                               "--no-sync", "--no-instructions"], stdout=subprocess.PIPE, **as_who)
        assert made.returncode == 0, made.stderr.decode()
        server = subprocess.Popen([debian("postgres"), "-D", f"{folder}/data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=12"], **as_who)
        address = f"postgresql://lab:{quote(SECRET, safe='')}@/postgres?host={folder}"
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    psycopg.connect(address).close()
                    break
                except psycopg.OperationalError:
                    assert server.poll() is None and time.monotonic() < deadline, server.stderr.read().decode()
                    time.sleep(0.05)
            yield address
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)
            server.stderr.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, monkeypatch, tmp_path) -> Store:
    """An empty store of each kind, which is also the one that is set."""
    address = str(tmp_path / "deeper" / "notes.sqlite")
    if request.param == "postgresql":
        address = request.getfixturevalue("postgres")
        ask(address, "DROP TABLE IF EXISTS notes")
    monkeypatch.setenv(notes.SETTING, address)
    return notes.store()


@pytest.fixture()
def in_file(tmp_path) -> Store:
    return Store(Sqlite(tmp_path / "deeper" / "notes.sqlite"))


def ask(address: str, statement: str) -> list[tuple]:
    with psycopg.connect(address) as connection:
        asked = connection.execute(statement)
        return asked.fetchall() if asked.description else []


def everything(store: Store) -> str:
    """What is kept, as whoever has the database reads it; empty when there is nothing, not even a table."""
    if isinstance(store.database, Sqlite):
        folder = store.database.path.parent
        return "".join(file.read_bytes().decode("utf-8", "replace") for file in folder.iterdir()) if folder.exists() else ""
    address = os.environ[notes.SETTING]
    there = ask(address, "SELECT to_regclass('notes') IS NOT NULL")[0][0]
    return f"table {ask(address, 'SELECT * FROM notes')}" if there else ""


def refused(act) -> str:
    with pytest.raises(NotKept) as caught:
        act()
    return caught.value.key


def test_a_note_comes_back_to_its_browser_only(store):
    """Catches notes that every learner sees, and a deletion by somebody else."""
    assert store.of(ANNA) == [] and not everything(store), "looking makes nothing"
    kept = store.add(ANNA, "roofline", "zh", "  为什么 <b>慢</b>？\r\n第二行\x00 ", NOON)
    assert (kept.text, kept.written) == ("为什么 <b>慢</b>？\n第二行", "2026-11-30T12:00:00+00:00")
    store.add(ANNA, "serving", "en", "And p99?", NOON)
    assert store.of(ANNA, "roofline") == [kept] and len(store.of(ANNA)) == 2 and store.of(BEN) == []
    assert not store.delete(BEN, kept.id) and store.of(ANNA, "roofline") == [kept]
    assert store.delete(ANNA, kept.id) and store.of(ANNA, "roofline") == [] and not store.delete(ANNA, kept.id)
    assert "And p99?" in everything(store) and ANNA not in everything(store), "the browser's name is not kept"


def test_limits_refuse_and_keep_what_was_there(store, monkeypatch):
    """Catches an empty note kept, a limit off by one, and a rate that counts yesterday."""
    assert refused(lambda: store.add(ANNA, "roofline", "zh", " \n\t ", NOON)) == "empty"
    assert refused(lambda: store.add(ANNA, "roofline", "zh", "x" * (notes.LONGEST + 1), NOON)) == "too_long"
    store.add(ANNA, "roofline", "zh", "字" * notes.LONGEST, NOON - timedelta(hours=1))
    for second in range(notes.MOST_A_MINUTE):
        store.add(ANNA, "roofline", "zh", "q", NOON + timedelta(seconds=second))
    assert refused(lambda: store.add(ANNA, "roofline", "zh", "q", NOON + timedelta(seconds=30))) == "too_fast"
    store.add(BEN, "roofline", "zh", "another browser", NOON + timedelta(seconds=30))
    store.add(ANNA, "roofline", "zh", "q", NOON + timedelta(seconds=90))
    monkeypatch.setattr(notes, "MOST_OF_ONE", len(store.of(ANNA)))
    assert refused(lambda: store.add(ANNA, "roofline", "zh", "q", NOON + timedelta(hours=1))) == "too_many"
    monkeypatch.setattr(notes, "MOST_OF_ALL", len(store.all()))
    assert refused(lambda: store.add(BEN, "roofline", "zh", "q", NOON + timedelta(hours=1))) == "full"
    assert len(store.all()) == notes.MOST_A_MINUTE + 3


def test_two_servers_write_the_same_notes(store):
    """Catches notes lost, a lock refused, or a table made twice, when several processes write at once and the first ones too."""
    script = ("from app import notes\n"
              "for n in range(5): notes.store().add('c' * 32, 'roofline', 'zh', f'c {n}')")
    other = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    failed = []

    def write(letter: str) -> None:
        try:
            for n in range(5):
                store.add(letter * 32, "roofline", "zh", f"{letter} {n}")
        except NotKept as reason:
            failed.append(reason)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _, complaint = other.communicate(timeout=60)
    assert other.returncode == 0 and not failed, (complaint, failed)
    assert sorted(note.text for note in store.all()) == sorted(f"{letter} {n}" for letter in "abc" for n in range(5))


def test_a_database_that_keeps_one_page_waiting_keeps_no_other(in_file, monkeypatch):
    """Catches a store that does not answer, for which the pages of the whole class wait one after the other."""
    held, opened = [], Sqlite.open
    monkeypatch.setattr(Sqlite, "open", lambda self, write: held.append(turns.held()) or opened(self, write))
    with turns.taken():
        kept = in_file.add(ANNA, "roofline", "en", "q", NOON)
        assert in_file.of(ANNA) == [kept] and in_file.delete(ANNA, kept.id) and turns.held()
        assert refused(lambda: in_file.add(ANNA, "roofline", "en", "")) == "empty" and turns.held()
    assert held == [False] * 3 and not turns.held()


def test_a_lock_a_full_disk_and_a_broken_file_are_told_apart(in_file, monkeypatch):
    """Catches a traceback on a learner's page, and one sentence for everything. The failures are real ones of SQLite."""
    store, path = in_file, in_file.database.path
    store.add(ANNA, "roofline", "zh", "kept", NOON)
    monkeypatch.setattr(notes, "WAIT_SECONDS", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    assert refused(lambda: store.add(ANNA, "roofline", "zh", "q", NOON)) == "locked"
    assert [note.text for note in store.of(ANNA)] == ["kept"], "reading goes on beside a writer"
    blocker.execute("ROLLBACK")
    pages = blocker.execute("PRAGMA page_count").fetchone()[0]
    blocker.close()

    connect = sqlite3.connect

    def small(*arguments, **more):
        opened = connect(*arguments, **more)
        opened.execute(f"PRAGMA max_page_count = {pages}")  # what a full disk does, without filling one
        return opened

    monkeypatch.setattr(notes.sqlite3, "connect", small)
    assert refused(lambda: [store.add(ANNA, "roofline", "zh", "字" * notes.LONGEST, NOON + timedelta(minutes=n)) for n in range(20)]) == "disk_full"
    monkeypatch.setattr(notes.sqlite3, "connect", connect)
    assert [note.text for note in store.of(ANNA)][0] == "kept"
    broken = Store(Sqlite(path.with_name("broken.sqlite")))
    broken.database.path.write_bytes(b"not a database at all, but long enough to be read as one" * 40)
    assert refused(lambda: broken.add(ANNA, "roofline", "zh", "q", NOON)) == "broken" == refused(lambda: broken.of(ANNA))
    occupied = path.with_name("file")
    occupied.write_text("in the way of a folder")
    assert refused(lambda: Store(Sqlite(occupied / "notes.sqlite")).add(ANNA, "roofline", "zh", "q", NOON)) == "unwritable"


def refuses(address: str, condition: str) -> None:
    """Makes PostgreSQL answer every new note with that error."""
    ask(address, f"""CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE '{SECRET}' USING ERRCODE = '{condition}'; END $$;
        CREATE OR REPLACE TRIGGER fails BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION fails()""")


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_failures_of_postgresql_are_told_apart_as_well(store, monkeypatch, postgres):
    """Catches a traceback, one sentence for everything, and a page that waits for ever. Full and broken are PostgreSQL's own codes, raised on demand."""
    def add():
        return store.add(ANNA, "roofline", "zh", "q", NOON)

    add()
    monkeypatch.setattr(notes, "WAIT_SECONDS", 0.05)
    with psycopg.connect(postgres) as blocker:
        blocker.execute("SELECT pg_advisory_xact_lock(%s)", [notes.WRITERS])
        assert refused(add) == "locked"
        assert [note.text for note in store.of(ANNA)] == ["q"], "reading goes on beside a writer"
        blocker.execute("LOCK TABLE notes")
        assert refused(lambda: store.of(ANNA)) == "locked"
    for code, said in (("53100", "disk_full"), ("XX001", "broken"), ("57014", "locked"), ("22000", "unwritable")):
        refuses(postgres, code)
        with monkeypatch.context() as patient:
            patient.setattr(notes, "WAIT_SECONDS", 10)  # a busy machine takes longer than a blink
            assert refused(add) == said, code
    with ExitStack() as many:
        with pytest.raises(psycopg.OperationalError):
            while True:
                many.enter_context(psycopg.connect(postgres))
        assert refused(add) == "locked"


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_role_that_may_only_write_notes_is_enough(store, monkeypatch, postgres):
    """Catches a store that needs to own its table, and one that calls a right which is missing a broken network."""
    ask(postgres, "DROP ROLE IF EXISTS pages; CREATE ROLE pages LOGIN PASSWORD 'p'")
    pages = Store(Postgres(postgres.replace(f"lab:{quote(SECRET, safe='')}", "pages:p")))
    assert pages.all() == [] and refused(lambda: pages.add(ANNA, "roofline", "zh", "q", NOON)) == "unwritable", "it may make no table"
    store.add(ANNA, "roofline", "zh", "q", NOON)
    assert refused(pages.all) == "unwritable"
    ask(postgres, "GRANT SELECT, INSERT, DELETE ON notes TO pages")
    assert pages.delete(ANNA, pages.add(ANNA, "roofline", "zh", "q", NOON).id) and len(pages.all()) == 1
    ask(postgres, "DROP OWNED BY pages; DROP ROLE pages")


@pytest.mark.parametrize("change,said", [
    (("%407", "x"), "turned_away"), ((":s3cr%2Ft%407", ""), "turned_away"), (("/postgres?", "/nowhere?"), "turned_away"), (("lab:", "nobody:"), "turned_away"),
    (("?host=/", "?host=/nowhere/"), "unreachable"), (("@/postgres?host=", "@127.0.0.1:9/postgres?application_name="), "unreachable"),
    (("%407", "%@7"), "bad_address"), (("?host=", "?bogus=s3cr/t&host="), "bad_address"), (("%407", "@7"), "turned_away"), (("://", ":/"), "bad_address"),
    (("%2Ft%407@/postgres?host=", "@t@7@127.0.0.1/postgres?application_name="), "unreachable")])
def test_no_word_of_the_address_is_shown(postgres, monkeypatch, capsys, caplog, tmp_path, change, said):
    """Catches a password on a page, in the log or in a traceback: the driver's own errors quote from a mistyped address."""
    assert change[0] in postgres
    monkeypatch.setenv(notes.SETTING, postgres.replace(*change))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror(-2, "unknown")))  # no question leaves this machine
    with pytest.raises(NotKept) as caught:
        notes.store().add(ANNA, "roofline", "zh", "q", NOON)
    assert caught.value.key == said
    shown = "".join(traceback.format_exception(caught.value)) + str(caught.value.values) + "".join(words(lang)(f"notes.{said}", **caught.value.values) for lang in LANGUAGES)
    assert notes.main(["export", str(tmp_path / "out")]) == 2
    shown += "".join(capsys.readouterr()) + caplog.text
    assert not [part for part in ("s3cr", "t@7", "%407", "@7", "/nowhere") if part in shown], shown


def test_without_the_driver_there_is_a_sentence(monkeypatch):
    monkeypatch.setenv(notes.SETTING, "postgresql://u@host/db")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert refused(lambda: notes.store().all()) == "no_driver"


@pytest.mark.parametrize("address,found", [("/data/q.sqlite", "/data/q.sqlite"), ("sqlite:////data/q.sqlite", "/data/q.sqlite"),
                                           ("sqlite:///q.sqlite", str(ROOT / "q.sqlite")), ("q.sqlite", str(ROOT / "q.sqlite")), ("", str(ROOT / "var" / "notes.sqlite"))])
def test_the_store_is_chosen_by_its_address(monkeypatch, address, found):
    """Catches a path that is read relative to wherever the server was started."""
    monkeypatch.setenv(notes.SETTING, address)
    assert str(notes.store().database.path) == found


@pytest.mark.parametrize("address", ["postgres//lab:s3cret@host/lab", "postgresql//host/lab", "postgresql:/host/lab", "postgres:host", "Postgres//host/lab"])
def test_a_mistyped_address_of_postgresql_is_no_file(monkeypatch, tmp_path, capsys, address):
    """Catches notes that go into a file named after a mistyped address, with the password in its name, while the operator believes them in PostgreSQL."""
    monkeypatch.setenv(notes.SETTING, address)
    assert refused(lambda: notes.store().add(ANNA, "roofline", "zh", "q", NOON)) == "bad_address" == refused(lambda: notes.store().all())
    assert notes.main(["export", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cannot be read; it should be postgresql://" in said and "s3cret" not in said


@pytest.mark.parametrize("address,said", [
    ("postgresql://lab@10.0.0.8/lab", "postgresql://lab@10.0.0.8/lab"), ("postgresql://lab:s3cret@h:5432/lab?sslmode=require", "postgresql://lab@h:5432/lab"),
    ("postgresql://10.0.0.8:5432/lab", "postgresql://10.0.0.8:5432/lab"), ("postgresql://:s3cret@[::1]/lab", "postgresql://[::1]/lab"),
    ("postgresql:///lab?password=s3cret", "postgresql:///lab"), ("postgresql://lab:s3cret/lab", "postgresql://…"), ("postgresql://lab:a@s3cret@h/lab", "postgresql://…"),
    ("postgres//lab:s3cret@h", "postgresql://…"), ("host=h dbname=lab password = s3cret user=u", "host=h dbname=lab password =…"),
    ("mysql://u:s3cret@h/lab", "mysql://…"), ("/data/q.sqlite", "/data/q.sqlite"), ("sqlite:///q.sqlite", "sqlite:///q.sqlite")])
def test_the_log_names_the_store_without_its_password(address, said):
    """Catches a password in the log, also out of a mistyped address, and a sentence that leaves it open which setting it means."""
    assert notes.shown(address) == said


def test_the_words_of_libpq_are_no_file(monkeypatch, postgres, tmp_path):
    """Catches notes in a file called "host=… password=…", while the operator believes them in PostgreSQL."""
    folder = postgres.partition("host=")[2]
    monkeypatch.setenv(notes.SETTING, f"host={folder} dbname=postgres user=lab password={SECRET}")
    notes.store().add(ANNA, "roofline", "zh", "libpq", NOON)
    assert [note.text for note in Store(Postgres(postgres)).of(ANNA) if note.text == "libpq"] and not list(ROOT.glob("host=*"))
    assert notes.complaints() == []


@pytest.mark.parametrize("address,why,value", [
    ("postgresql://lab:s3cret@127.0.0.1:9/lab", "unreachable", "postgresql://lab@127.0.0.1:9/lab"), ("mysql://u:s3cret@h/lab", "unknown_store", "mysql://…"),
    ("{file}/notes.sqlite", "unwritable", "{file}/notes.sqlite"), ("postgresql:/lab:s3cret@h", "bad_address", "postgresql://…")])
def test_a_setting_that_keeps_nothing_is_told_at_the_start(monkeypatch, tmp_path, caplog, address, why, value):
    """Catches a wrong setting that only a learner finds, with a note in hand; one that is told without the value or the way out, or with
    the password; and a start that waits for the database or ends without it."""
    from app import asgi

    (file := tmp_path / "file").write_text("")
    monkeypatch.setenv(notes.SETTING, address.format(file=file))

    monkeypatch.setattr(asgi.gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    began = time.monotonic()

    async def started() -> None:
        async with asgi.lifespan(None):
            assert time.monotonic() - began < notes.CONNECT_SECONDS, "a database that does not answer keeps nobody"
            end = time.monotonic() + 10
            while len(caplog.messages) < len(LANGUAGES) and time.monotonic() < end:
                await asyncio.sleep(0.05)

    asyncio.run(started())
    reason = NotKept(why, where="PostgreSQL" if "postgres" in address else "notes.sqlite", scheme="mysql", setting=notes.SETTING)
    for lang, said in zip(LANGUAGES, caplog.messages, strict=True):
        assert said.startswith(f"{notes.SETTING}={value.format(file=file)}") and words(lang)(f"notes.{why}", **reason.values) in said
        assert "var/notes.sqlite" in said and "s3cret" not in said and "\n" not in said


def test_a_setting_under_which_notes_are_kept_and_none_are_passed_over(monkeypatch, tmp_path):
    """Catches a complaint about a file that the first note would make, and a file that is made though nobody named one."""
    monkeypatch.setenv(notes.SETTING, str(tmp_path / "new" / "notes.sqlite"))
    assert notes.complaints() == []
    monkeypatch.setenv(notes.SETTING, "")
    monkeypatch.setattr(notes, "ROOT", tmp_path)
    assert notes.complaints() == [] and not (tmp_path / "var").exists()


def test_an_unknown_kind_of_store_is_refused(monkeypatch):
    """Catches an address of another database taken for the name of a file."""
    monkeypatch.setenv(notes.SETTING, "mysql://u@host/db")
    assert refused(notes.store) == "unknown_store"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_failure_has_its_sentence(lang):
    """Catches a failure without words; a note unkept with no word of where its text is, and talk of a box to somebody who only reads or
    exports."""
    say, values = words(lang), {"n": 3, "most": 2, "where": "f", "scheme": "s", "setting": "S"}
    still = {"zh": "还在框里", "en": "still in the box"}[lang]
    for key in ("too_long", "too_many", "too_fast", "no_browser", "in_box", "in_box_again"):
        assert still in say(f"notes.{key}", **values), key
    for key in ("full", "locked", "disk_full", "broken", "unwritable", "unknown_store", "unreachable", "turned_away", "bad_address", "no_driver"):
        assert say(f"notes.{key}", **values).endswith(("。", ".")) and still not in say(f"notes.{key}", **values), key
    assert say("notes.empty") and "{" not in say("notes.too_long", **values)


# ---- as Markdown


class Text(HTMLParser):
    """The text of a page, and the tags that were in it."""

    def __init__(self):
        super().__init__()
        self.said, self.tags = "", []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "br":
            self.said += "\n"

    def handle_endtag(self, tag):
        if tag == "p":
            self.said += "\n\n"

    def handle_data(self, data):
        data = data.removeprefix("\n")  # of the source, behind a tag
        self.said += data if data.strip() else ""


NASTY = ["# no heading", "<script>alert(1)</script> & <b>x</b>", "- no list\n+ nor this\n1. nor that\n2) nor this", "*a* _b_ `c` ~~d~~ [e](http://x) ![f](g) \\ | $x$",
         "two\n\nparagraphs\nand lines", "> no quote", "---", "```\nno fence", "    four spaces", "=== under\n===", "&amp; stays", "中文，“引号”和 *星*"]


@pytest.mark.parametrize("text", NASTY)
def test_markdown_shows_a_note_as_it_was_typed(text):
    """Catches a note that becomes a heading, a list, HTML or a link in the file. Referee: a Markdown reader that knows nothing of us."""
    note = notes.Note(1, "roofline", "zh", "2026-11-30T12:00:00+00:00", text)
    found = Text()
    found.feed(MarkdownIt("gfm-like", {"linkify": False}).render(notes.markdown([note], "读得快 · Fast")))
    _, _, said = found.said.partition("UTC · zh")
    assert said.replace("\xa0", " ").rstrip("\n").removeprefix("\n") == text
    assert set(found.tags) <= {"h1", "h2", "blockquote", "p", "br"}


def test_export_writes_one_file_a_lesson_and_tells_what_is_wrong(in_file, monkeypatch, tmp_path, capsys):
    """Catches lessons mixed in one file, an exit code of zero for a broken file, and a note of a lesson that is gone."""
    store, path = in_file, in_file.database.path
    store.add(ANNA, "roofline", "zh", "甲", NOON)
    store.add(BEN, "roofline", "en", "second", NOON + timedelta(minutes=1))
    store.add(BEN, "gone-lesson", "en", "third", NOON)
    monkeypatch.setenv(notes.SETTING, str(path))
    assert notes.main(["export", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gone-lesson.md", "roofline.md"]
    text = (tmp_path / "out" / "roofline.md").read_text(encoding="utf-8")
    assert text.startswith("# 读得快，写得慢 · Fast to read, slow to write\n") and text.index("> 甲") < text.index("> second") and "third" not in text
    with zipfile.ZipFile(io.BytesIO(notes.archive(notes.files(store.of(BEN), {})))) as bundle:
        assert bundle.namelist() == ["gone-lesson.md", "roofline.md"] and "甲" not in bundle.read("roofline.md").decode()
    path.write_bytes(b"damaged" * 1000)
    assert notes.main(["export", str(tmp_path / "out")]) == 2 and "damaged" in capsys.readouterr().err
