"""Question notes: what is kept, for whom, within which limits, what each failure says, and how notes come out."""

from __future__ import annotations

import io
import sqlite3
import subprocess
import sys
import threading
import zipfile
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from app import notes
from app.lesson import words
from app.notes import NotKept, Store
from components.text import LANGUAGES
from tests.conftest import ROOT

ANNA, BEN = "a" * 32, "b" * 32
NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


@pytest.fixture()
def store(tmp_path) -> Store:
    return Store(tmp_path / "deeper" / "notes.sqlite")


def refused(act) -> str:
    with pytest.raises(NotKept) as caught:
        act()
    return caught.value.key


def test_a_note_comes_back_to_its_browser_only(store):
    """Catches notes that every learner sees, and a deletion by somebody else."""
    assert store.of(ANNA) == [] and not store.path.exists(), "looking makes no file"
    kept = store.add(ANNA, "roofline", "zh", "  为什么 <b>慢</b>？\r\n第二行\x00 ", NOON)
    assert (kept.text, kept.written) == ("为什么 <b>慢</b>？\n第二行", "2026-11-30T12:00:00+00:00")
    store.add(ANNA, "serving", "en", "And p99?", NOON)
    assert store.of(ANNA, "roofline") == [kept] and len(store.of(ANNA)) == 2 and store.of(BEN) == []
    assert not store.delete(BEN, kept.id) and store.of(ANNA, "roofline") == [kept]
    assert store.delete(ANNA, kept.id) and store.of(ANNA, "roofline") == [] and not store.delete(ANNA, kept.id)
    assert ANNA.encode() not in b"".join(file.read_bytes() for file in store.path.parent.iterdir()), "the file does not hold the name"


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


def test_two_servers_write_the_same_file(store):
    """Catches notes lost or a lock refused when several processes write at once."""
    script = ("import sys; from pathlib import Path; from app.notes import Store\n"
              "store = Store(Path(sys.argv[1]))\n"
              "for n in range(5): store.add(sys.argv[2] * 32, 'roofline', 'zh', f'{sys.argv[2]} {n}')")
    other = subprocess.Popen([sys.executable, "-c", script, str(store.path), "c"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
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


def test_a_lock_a_full_disk_and_a_broken_file_are_told_apart(store, monkeypatch):
    """Catches a traceback on a learner's page, and one sentence for everything. The failures are real ones of SQLite."""
    store.add(ANNA, "roofline", "zh", "kept", NOON)
    monkeypatch.setattr(notes, "WAIT_SECONDS", 0.05)
    blocker = sqlite3.connect(store.path, isolation_level=None)
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
    broken = Store(store.path.with_name("broken.sqlite"))
    broken.path.write_bytes(b"not a database at all, but long enough to be read as one" * 40)
    assert refused(lambda: broken.add(ANNA, "roofline", "zh", "q", NOON)) == "broken" == refused(lambda: broken.of(ANNA))
    occupied = store.path.with_name("file")
    occupied.write_text("in the way of a folder")
    assert refused(lambda: Store(occupied / "notes.sqlite").add(ANNA, "roofline", "zh", "q", NOON)) == "unwritable"


@pytest.mark.parametrize("address,found", [("/data/q.sqlite", "/data/q.sqlite"), ("sqlite:////data/q.sqlite", "/data/q.sqlite"),
                                           ("sqlite:///q.sqlite", str(ROOT / "q.sqlite")), ("q.sqlite", str(ROOT / "q.sqlite")), ("", str(ROOT / "var" / "notes.sqlite"))])
def test_the_store_is_chosen_by_its_address(monkeypatch, address, found):
    """Catches a path that is read relative to wherever the server was started."""
    monkeypatch.setenv(notes.SETTING, address)
    assert str(notes.store().path) == found


def test_an_unknown_kind_of_store_is_refused(monkeypatch):
    """Catches a PostgreSQL address taken for the name of a file."""
    monkeypatch.setenv(notes.SETTING, "postgresql://u@host/db")
    assert refused(notes.store) == "unknown_store"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_failure_has_its_sentence(lang):
    """Catches a failure without words; and every one that leaves a note unkept says that the text is still there."""
    say, values = words(lang), {"n": 3, "most": 2, "file": "f", "scheme": "s", "setting": "S"}
    still = {"zh": "还在框里", "en": "still in the box"}[lang]
    for key in ("too_long", "too_many", "too_fast", "full", "locked", "disk_full", "broken", "unwritable", "unknown_store", "no_browser"):
        assert still in say(f"notes.{key}", **values), key
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


def test_export_writes_one_file_a_lesson_and_tells_what_is_wrong(store, monkeypatch, tmp_path, capsys):
    """Catches lessons mixed in one file, an exit code of zero for a broken file, and a note of a lesson that is gone."""
    store.add(ANNA, "roofline", "zh", "甲", NOON)
    store.add(BEN, "roofline", "en", "second", NOON + timedelta(minutes=1))
    store.add(BEN, "gone-lesson", "en", "third", NOON)
    monkeypatch.setenv(notes.SETTING, str(store.path))
    assert notes.main(["export", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gone-lesson.md", "roofline.md"]
    text = (tmp_path / "out" / "roofline.md").read_text(encoding="utf-8")
    assert text.startswith("# 读得快，写得慢 · Fast to read, slow to write\n") and text.index("> 甲") < text.index("> second") and "third" not in text
    with zipfile.ZipFile(io.BytesIO(notes.archive(notes.files(store.of(BEN), {})))) as bundle:
        assert bundle.namelist() == ["gone-lesson.md", "roofline.md"] and "甲" not in bundle.read("roofline.md").decode()
    store.path.write_bytes(b"damaged" * 1000)
    assert notes.main(["export", str(tmp_path / "out")]) == 2 and "damaged" in capsys.readouterr().err
