"""The store's SQLite file: schema, opening, noticing damage. `store.py` gives it a thread.

One process has the file to itself (exclusive locking): a second daemon on the same state is refused, and
there is no shared-memory file beside it, through which a full disk would turn an access into a crash.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

APPLICATION_ID = 0x52494744
"""`RIGD` in the file's header; a database without it is another program's."""

MAGIC = b"SQLite format 3\0"
WAL_LIMIT_BYTES = 4 << 20
BUSY_TIMEOUT_S = 3.0
COMPANIONS = ("", "-wal", "-shm", "-journal")
"""What SQLite may keep beside the file, by the end of its name."""

SCHEMA = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, data_json TEXT
    );
    CREATE TRIGGER events_stay_as_they_are BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
    CREATE TABLE starts (
        number INTEGER PRIMARY KEY, digest TEXT NOT NULL, runtime TEXT NOT NULL, began_s REAL NOT NULL,
        spec_json TEXT NOT NULL, ready_s REAL, ended_s REAL, outcome TEXT, exit_json TEXT, phases_json TEXT
    );
    CREATE TABLE warm (
        id INTEGER PRIMARY KEY, start INTEGER NOT NULL, prefix TEXT NOT NULL, at_s REAL NOT NULL,
        result_json TEXT NOT NULL
    );
    """,
)
"""The schema, step by step. A released step is never edited: a change is a new step."""

Statement = tuple[str, tuple[Any, ...]]


class DamagedError(Exception):
    """The file is not a store of ours, or no longer one."""


class MovedError(Exception):
    """Another file, or none, is where the open store was."""


class Database:
    """An open store file. Calls raise `sqlite3.Error`, `OSError`, or one of the two errors above."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, check all of it and bring its schema up to date."""
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Kept open: SQLite's locks would be lost when any descriptor of its file is closed in this process.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(self._descriptor, 0o600)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        except BaseException:
            os.close(self._descriptor)
            raise
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        for pragma in (
            "locking_mode = EXCLUSIVE",
            "mmap_size = 0",  # A failing disk must give an error code, not a signal.
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"journal_size_limit = {WAL_LIMIT_BYTES}",
            "trusted_schema = OFF",
        ):
            self.read(f"PRAGMA {pragma}")
        ((application,),) = self.read("PRAGMA application_id")
        ((objects,),) = self.read("SELECT count(*) FROM sqlite_schema")
        if objects and application != APPLICATION_ID:
            raise DamagedError("it is a database of another program")
        self._size_bytes = 0
        self.check()
        self._migrate()
        self.shrink()

    def _migrate(self) -> None:
        with self.transaction():
            self.read("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
            ((version,),) = self.read("SELECT coalesce(max(version), 0) FROM schema_version")
            if version > len(SCHEMA):
                raise DamagedError(f"a newer rigd wrote it (schema {version}, this one knows {len(SCHEMA)})")
            if version == len(SCHEMA):
                return
            for step in SCHEMA[version:]:
                for statement in statements(step):
                    self.read(statement)
            self.read("INSERT INTO schema_version VALUES (?)", (len(SCHEMA),))
            self.read(f"PRAGMA application_id = {APPLICATION_ID}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing."""
        self.read("BEGIN IMMEDIATE")
        try:
            yield
            self.read("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # A full disk ends the transaction by itself.
                with contextlib.suppress(sqlite3.Error):
                    self.read("ROLLBACK")
            raise

    def read(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Carry out one statement; return its rows."""
        return self._connection.execute(sql, values).fetchall()

    def write(self, writes: Sequence[Statement]) -> None:
        """Carry out all of them, or none."""
        self.check_place()
        with self.transaction():
            for sql, values in writes:
                self.read(sql, values)

    def check_place(self) -> None:
        """Raise unless the open file is still at its place and begins as a store. Cheap: for each write."""
        ours = os.fstat(self._descriptor)
        try:
            here = self._path.stat()
        except FileNotFoundError as error:
            raise MovedError("the file was deleted") from error
        if (here.st_dev, here.st_ino) != (ours.st_dev, ours.st_ino):
            raise MovedError("the file was replaced by another")
        if ours.st_size < self._size_bytes or os.pread(self._descriptor, len(MAGIC), 0) != MAGIC:
            raise DamagedError("it was cut off or overwritten")

    def check(self) -> None:
        """Read the whole file again; raise `DamagedError` with the first thing that is wrong."""
        self.read("PRAGMA shrink_memory")  # What is cached would hide what the disk holds.
        rows = self.read("PRAGMA quick_check(1)")
        if rows != [("ok",)]:
            raise DamagedError(str(rows[0][0]) if rows else "its check gives no answer")

    def shrink(self) -> None:
        """Fold the write-ahead log into the file."""
        self.read("PRAGMA wal_checkpoint(TRUNCATE)")
        self._size_bytes = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close, whatever state the file is in."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says a statement is complete; `executescript` would commit in between."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if statement.strip() and sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def move_aside(path: Path, stamp: str) -> Path:
    """Rename the file and what SQLite keeps beside it to `NAME.corrupt-STAMP`; return the new path."""
    number, aside = 1, path.with_name(f"{path.name}.corrupt-{stamp}")
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    for ending in COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").rename(f"{aside}{ending}")
    return aside
