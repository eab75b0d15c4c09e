"""Questions that learners note at the end of a lesson: where they are kept, and how they are taken out.

    python -m app.notes export FOLDER      all of them, one Markdown file a lesson

One SQLite file (var/notes.sqlite, or what INFERENCE_LAB_NOTES names) in write-ahead mode, so that several servers on one
machine share it; postgresql://… there, or libpq's "host=… dbname=…", for servers on several. There are no accounts: a note belongs to the browser that wrote
it, by the SHA-256 of a random name which that browser keeps; whoever reads the file cannot act for anybody. Another database
would be another class with the one method of `Sqlite` and `Postgres`, chosen in `store()` by the scheme of its address.

Whatever fails is a `NotKept`: a word of app/text.toml under `notes.` and the values that fill it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compute import turns

if TYPE_CHECKING:
    import psycopg

ROOT = Path(__file__).resolve().parent.parent
SETTING = "INFERENCE_LAB_NOTES"
LONGEST = 2_000  # characters of a note
MOST_OF_ONE = 200  # notes of one browser
MOST_A_MINUTE = 6  # notes of one browser
MOST_OF_ALL = 100_000  # notes in the file: what fits into some hundred megabytes, whoever writes
MOST_OF_ALL_A_MINUTE = 300
WAIT_SECONDS = 5.0  # for another writer
CONNECT_SECONDS = 5  # for a database on another machine
WRITERS = 0x6E6F746573  # "notes": the lock that writers of PostgreSQL take
SCHEMA = """CREATE TABLE IF NOT EXISTS notes (
  id {id}, owner TEXT NOT NULL, lesson TEXT NOT NULL, lang TEXT NOT NULL, written TEXT NOT NULL, text TEXT NOT NULL)"""
INDEX = "CREATE INDEX IF NOT EXISTS by_owner ON notes (owner, lesson)"


class NotKept(Exception):
    """key: of the sentence in app/text.toml, without `notes.`; values: what fills it."""

    def __init__(self, key: str, **values):
        super().__init__(f"{key} {values or ''}".strip())
        self.key, self.values = key, values


@dataclass(frozen=True)
class Note:
    """written: UTC, ISO 8601, to the second. lang: of the page on which it was written."""

    id: int
    lesson: str
    lang: str
    written: str
    text: str


def owner_of(browser: str) -> str:
    return hashlib.sha256(browser.encode()).hexdigest()


def cleaned(text: str) -> str:
    """What is kept of a text: no control characters, no blank lines around it."""
    return re.sub(r"[^\S\n]", " ", "".join(c for c in text.replace("\r\n", "\n").replace("\r", "\n") if c in "\n\t" or c.isprintable())).strip()


class Store:
    """The rules of the notes, the same wherever they are kept. While a database keeps one page waiting, others are made."""

    def __init__(self, database: Sqlite | Postgres):
        self.database = database

    def add(self, browser: str, lesson: str, lang: str, text: str, now: datetime | None = None) -> Note:
        """Keeps a note. NotKept: empty, too_long, too_many, too_fast, full, or what is wrong with the database."""
        text = cleaned(text)
        if not text:
            raise NotKept("empty")
        if len(text) > LONGEST:
            raise NotKept("too_long", n=len(text), most=LONGEST)
        now, owner = now or datetime.now(timezone.utc), owner_of(browser)
        written, minute_ago = now.isoformat(timespec="seconds"), (now - timedelta(minutes=1)).isoformat(timespec="seconds")

        with turns.lent(), self.database.open(write=True) as execute:
            def count(condition: str, *values: str) -> int:
                return execute(f"SELECT COUNT(*) FROM notes WHERE {condition}", values).fetchone()[0]

            if count("owner = ?", owner) >= MOST_OF_ONE:
                raise NotKept("too_many", most=MOST_OF_ONE)
            lately = "written > ? AND written <= ?"  # a clock that was set back has left notes of the future
            if count(f"owner = ? AND {lately}", owner, minute_ago, written) >= MOST_A_MINUTE or count(lately, minute_ago, written) >= MOST_OF_ALL_A_MINUTE:
                raise NotKept("too_fast")
            if count("TRUE") >= MOST_OF_ALL:
                raise NotKept("full")
            [id] = execute("INSERT INTO notes (owner, lesson, lang, written, text) VALUES (?, ?, ?, ?, ?) RETURNING id",
                           (owner, lesson, lang, written, text)).fetchone()
        return Note(id, lesson, lang, written, text)

    def of(self, browser: str, lesson: str | None = None) -> list[Note]:
        """One browser's notes, of one lesson or of all, oldest first."""
        where, values = ("owner = ? AND lesson = ?", (owner_of(browser), lesson)) if lesson else ("owner = ?", (owner_of(browser),))
        return self._read(where, values)

    def all(self) -> list[Note]:
        return self._read("TRUE", ())

    def delete(self, browser: str, id: int) -> bool:
        """False when there is no such note of this browser."""
        with turns.lent(), self.database.open(write=True) as execute:
            return execute("DELETE FROM notes WHERE id = ? AND owner = ?", (id, owner_of(browser))).rowcount > 0

    def _read(self, where: str, values: tuple) -> list[Note]:
        with turns.lent(), self.database.open(write=False) as execute:
            if not execute:
                return []
            rows = execute(f"SELECT id, lesson, lang, written, text FROM notes WHERE {where} ORDER BY written, id", values).fetchall()
        return [Note(*row) for row in rows]


Execute = Callable[[str, Sequence], Any]
"""A statement with ? for its values, and the values; the cursor of its rows. Of one transaction."""


class Sqlite:
    """One file. A connection for each call: nothing is shared between threads, and a lock lasts as long as one call."""

    def __init__(self, path: Path):
        self.path = path

    @contextmanager
    def open(self, write: bool) -> Iterator[Execute | None]:
        """A transaction, kept unless something is raised; None when there is nothing to read yet."""
        if not write and not self.path.exists():
            yield None
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(SCHEMA.format(id="INTEGER PRIMARY KEY"))
                connection.execute(INDEX)
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield connection.execute
                connection.execute("COMMIT")
            finally:
                connection.close()  # what was not committed is undone
        except sqlite3.Error as reason:
            raise NotKept(trouble(reason), where=self.path.name) from reason
        except OSError as reason:
            raise NotKept("unwritable", where=self.path.name) from reason


def trouble(reason: sqlite3.Error) -> str:
    """Which sentence tells an error of SQLite."""
    name = getattr(reason, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "locked"
    if name == "SQLITE_FULL":
        return "disk_full"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return "broken"
    return "unwritable"


class Postgres:
    """A PostgreSQL database. A connection for each call, as above; writers come one after the other, so that the limits are kept.

    The address may hold a password, and the driver's errors may quote from it: neither is shown, logged or chained."""

    def __init__(self, address: str):
        self._address = address

    @contextmanager
    def open(self, write: bool) -> Iterator[Execute | None]:
        """As Sqlite.open. The table is made by the first who writes; a role that may not make one can use one that is there."""
        try:
            import psycopg
        except ImportError:
            raise NotKept("no_driver") from None
        wait_ms = int(1000 * WAIT_SECONDS)
        try:
            with psycopg.connect(self._address, connect_timeout=CONNECT_SECONDS, tcp_user_timeout=1000 * CONNECT_SECONDS,
                                 application_name="inference-lab") as connection:  # commits, or undoes what raised, and closes
                connection.execute(f"SET LOCAL lock_timeout = {wait_ms}; SET LOCAL statement_timeout = {wait_ms}")
                if write:
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [WRITERS])
                there = connection.execute("SELECT to_regclass('notes') IS NOT NULL").fetchone()[0]
                if write and not there:
                    connection.execute(SCHEMA.format(id="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"))
                    connection.execute(INDEX)
                yield (lambda statement, values: connection.execute(statement.replace("?", "%s"), values)) if write or there else None
        except psycopg.Error as reason:
            raise NotKept(trouble_of(reason), where="PostgreSQL", setting=SETTING) from None


def trouble_of(reason: psycopg.Error) -> str:
    """Which sentence tells an error of PostgreSQL: by its SQLSTATE, which a failure to connect does not have."""
    if reason.sqlstate:
        return {"55P03": "locked", "57014": "locked", "40P01": "locked",  # lock or statement timed out, deadlock
                "53100": "disk_full", "XX001": "broken", "XX002": "broken"}.get(reason.sqlstate, "unwritable")
    if type(reason).__name__ == "ProgrammingError":
        return "bad_address"
    if "too many" in str(reason):  # connections
        return "locked"
    login = reason.pgconn and (reason.pgconn.used_password or reason.pgconn.needs_password)
    return "turned_away" if login or "FATAL" in str(reason) else "unreachable"


# Also with a colon or a slash too few: it must not pass as the name of a file.
POSTGRES = re.compile(r"postgres(ql)?(:|//)|\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options)\s*=", re.IGNORECASE)
PLAIN = re.compile(r"postgres(ql)?://((?P<user>[\w.-]*)(:[^\s/?#@]*)?@)?(?P<where>([\w.-]*|\[[\da-f:]+\])(:\d+)?(/[\w.-]*)?)(\?.*)?", re.IGNORECASE)


def store() -> Store:
    """The store that is set: a path, sqlite:///path, postgresql://… or "host=… dbname=…"; any other scheme is one we cannot speak yet."""
    address = os.environ.get(SETTING) or str(ROOT / "var" / "notes.sqlite")
    if POSTGRES.match(address):
        return Store(Postgres(address))
    scheme, separator, rest = address.partition("://")
    if separator and scheme != "sqlite":
        raise NotKept("unknown_store", scheme=scheme, setting=SETTING)
    path = Path(rest.removeprefix("/") if separator and rest.startswith("/") else rest if separator else address)
    return Store(Sqlite(path if path.is_absolute() else ROOT / path))


def shown(address: str) -> str:
    """An address for the log: of PostgreSQL's user, host and database where these are plainly what they seem, and nothing that a
    password might be."""
    if not POSTGRES.match(address):
        return address if "://" not in address or address.startswith("sqlite:") else f"{address.partition('://')[0]}://…"
    if not address.lower().startswith("postgres"):
        return re.sub(r"(password\s*=).*", r"\1…", address, flags=re.IGNORECASE | re.DOTALL)
    plain = PLAIN.fullmatch(address)
    if not plain:
        return "postgresql://…"
    return f"postgresql://{plain['user'] + '@' if plain['user'] else ''}{plain['where']}"


def complaints() -> list[str]:
    """What keeps the store that is set from keeping notes, a sentence in each language; none where it would, or nothing is set. It asks the
    store, which may take as long as a database that does not answer."""
    from app.lesson import words

    address = os.environ.get(SETTING)
    if not address:
        return []
    try:
        with store().database.open(write=True):
            return []
    except NotKept as reason:
        return [words(lang)("notes.at_start", setting=SETTING, value=shown(address), reason=words(lang)(f"notes.{reason.key}", **reason.values))
                for lang in ("zh", "en")]


# ---- as Markdown


def escaped(line: str) -> str:
    """A line of text that Markdown shows as it was typed."""
    body = line.lstrip(" ")
    spaces = "&nbsp;" * (len(line) - len(body))
    body = re.sub(r"([\\`*_{}\[\]<>#|~$!&])", r"\\\1", body)
    body = re.sub(r"^([-+=])", r"\\\1", body)
    return spaces + re.sub(r"^(\d+)([.)])", r"\1\\\2", body)


def quoted(text: str) -> str:
    """A text as a block quote, with its lines and paragraphs."""
    lines = text.split("\n")
    return "\n".join(
        ">" if not line.strip() else f"> {escaped(line)}" + ("\\" if after.strip() else "")
        for line, after in zip(lines, [*lines[1:], ""]))


def markdown(notes: Iterable[Note], title: str) -> str:
    """The notes of one lesson as a file."""
    parts = [f"# {escaped(title)}"]
    for note in notes:
        parts.append(f"## {note.written.replace('T', ' ').replace('+00:00', '')} UTC · {note.lang}\n\n{quoted(note.text)}")
    return "\n\n".join(parts) + "\n"


def files(notes: Iterable[Note], titles: Mapping[str, str]) -> dict[str, str]:
    """File name → content, one file a lesson. titles: of the lessons that exist; a note of another goes by its slug."""
    by_lesson: dict[str, list[Note]] = {}
    for note in notes:
        by_lesson.setdefault(note.lesson, []).append(note)
    return {f"{slug}.md": markdown(found, titles.get(slug, slug)) for slug, found in sorted(by_lesson.items())}


def archive(contents: Mapping[str, str]) -> bytes:
    """The files as a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in contents.items():
            bundle.writestr(name, content)
    return packed.getvalue()


def titles() -> dict[str, str]:
    """Lessons' titles in both languages."""
    from app import lesson

    return {entry.slug: " · ".join(lesson.load(entry.slug, lang).title for lang in ("zh", "en")) for entry in lesson.existing()}


def export(folder: Path) -> list[Path]:
    """Writes every note, one file a lesson; returns the files."""
    contents = files(store().all(), titles())
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in contents]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m app.notes", description="Questions that learners noted.")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("export", help="all notes as Markdown, one file a lesson")
    command.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    try:
        written = export(asked.folder)
    except NotKept as reason:
        from app.lesson import words

        print(words("en")(f"notes.{reason.key}", **reason.values), file=sys.stderr)
        return 2
    except OSError as reason:
        print(f"cannot write to {asked.folder}: {reason.strerror}", file=sys.stderr)
        return 2
    print("\n".join(map(str, written)) if written else "no notes yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
