"""A queue in memory before the store's file: what cannot be written now is written later, in order.

The loop's side adds (`add`, `append`, `status`), the store's thread flushes. `problem` says what keeps the
file from being written; a damaged file is put aside and a new one begun with the latest status.
"""

import collections
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.adapters.database import DamagedError, Database, MovedError, Statement, move_aside

PENDING_LIMIT = 5_000
"""Writes kept in memory while the file cannot be written; the oldest go first."""
KIND = "store"
"""Kind of the journal entries that the store makes about itself."""

REASONS = {
    "SQLITE_FULL": "its disk is full; free some space",
    "SQLITE_READONLY": "its file or disk is read-only; remount it, or give rigd the folder",
    "SQLITE_CANTOPEN": "it cannot be opened; see who owns the folder",
    "SQLITE_IOERR": "its disk reports errors; see `dmesg`",
    "SQLITE_BUSY": "another process has it; end that one",
    "SQLITE_LOCKED": "another process has it; end that one",
}
DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
MALFORMED = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, OverflowError, UnicodeError)
"""A value's own fault: no other file would take it."""
FAILURES = (sqlite3.Error, OSError, DamagedError, MovedError)
INSERT_EVENT = "INSERT INTO events (id, at_s, kind, message, data_json) VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, kw_only=True)
class EventRow:
    """One entry of the journal."""

    id: int
    at_s: float
    kind: str
    message: str
    data_json: str | None


@dataclass(frozen=True, kw_only=True)
class _Write:
    statement: Statement
    event: EventRow | None = None


class WriteBehind:
    """The file and what waits for it. The store's thread alone flushes and reads; any thread adds."""

    def __init__(self, path: Path) -> None:
        """Touch nothing yet."""
        self.path = path
        self.recovered_from: Path | None = None
        self._lock = threading.Lock()
        self._pending: collections.deque[_Write] = collections.deque()
        self._lost = 0
        self._status: str | None = None
        self._status_on_disk: str | None = None
        self._next_start = 1
        # Until a file says which numbers it holds: above all that it may.
        self._next_event = int(time.time() * 1000)
        self._numbered = False
        self._problem: str | None = None
        self._database: Database | None = None  # The thread's alone.

    # --- for any thread ---

    @property
    def status(self) -> str | None:
        """The latest status."""
        with self._lock:
            return self._status

    @status.setter
    def status(self, text: str) -> None:
        with self._lock:
            self._status = _clean(text)

    @property
    def problem(self) -> str | None:
        """What keeps the file from being written; None while all is on disk."""
        with self._lock:
            if self._problem is None:
                return None
            waiting = len(self._pending)
            return f"cannot write the store '{self.path}': {self._problem} ({waiting} writes wait in memory)"

    @problem.setter
    def problem(self, reason: str) -> None:
        with self._lock:
            self._problem = reason

    def add(self, sql: str, values: tuple[Any, ...]) -> None:
        """Queue one statement."""
        with self._lock:
            self._add(_Write(statement=(sql, values)))

    def keep_fact(self, name: str, text: str) -> None:
        """Queue a fact of somebody else's; `status`, `next_start` and `written_s` are the store's own."""
        self.add(*_set_fact(name, _clean(text)))

    def append(self, entries: Iterable[tuple[float, str, str, str | None]]) -> None:
        """Queue journal entries `(at_s, kind, message, data_json)` under the next numbers."""
        with self._lock:
            self._append(entries)

    def next_start(self, minimum: int) -> int:
        """Take the next number of a start and queue its record."""
        with self._lock:
            number = max(self._next_start, minimum)
            self._next_start = number + 1
            self._add(_Write(statement=_set_fact("next_start", str(number + 1))))
            return number

    def waiting_events(self, after_id: int) -> list[EventRow]:
        """Return the journal entries that are in memory only."""
        with self._lock:
            events = [write.event for write in self._pending if write.event is not None]
        return [event for event in events if event.id > after_id]

    def _add(self, write: _Write) -> None:
        self._pending.append(write)
        self._shorten()

    def _shorten(self) -> None:
        while len(self._pending) > PENDING_LIMIT:
            self._pending.popleft()
            self._lost += 1

    def _append(self, entries: Iterable[tuple[float, str, str, str | None]]) -> None:
        for at_s, kind, message, data_json in entries:
            values = (self._next_event, at_s, kind, _clean(message), data_json and _clean(data_json))
            self._next_event += 1
            self._add(_Write(statement=(INSERT_EVENT, values), event=event_row(values)))

    # --- for the store's thread ---

    def begin(self) -> Exception | None:
        """Open the file; return what keeps it from being opened."""
        try:
            self._opened()
        except FAILURES as error:
            self.problem = _reason(error)
            return error
        return None

    def _opened(self) -> Database:
        """Return the open file; opened now if need be, a damaged one put aside."""
        if self._database is None:
            try:
                database = Database(self.path)
            except FAILURES as error:
                if not _is_damage(error):
                    raise
                self._put_aside(error)
                database = Database(self.path)
            self._database = database
            self._catch_up(database)
        return self._database

    def _catch_up(self, database: Database) -> None:
        """Take over what the file knows; what memory knows is newer."""
        facts = dict(database.read("SELECT name, value FROM facts"))
        ((last_start,),) = database.read("SELECT coalesce(max(number), 0) FROM starts")
        ((last_event,),) = database.read("SELECT coalesce(max(id), 0) FROM events")
        known_start = max(last_start + 1, int(facts.get("next_start", "1")))
        with self._lock:
            self._status_on_disk = facts.get("status")
            if self._status is None:
                self._status = self._status_on_disk
            if not self._numbered and self.recovered_from is None and not self._pending:
                self._next_event = last_event + 1
            self._numbered = True
            self._next_event = max(self._next_event, last_event + 1)
            if self._next_start > known_start:
                self._add(_Write(statement=_set_fact("next_start", str(self._next_start))))
            self._next_start = max(self._next_start, known_start)

    def _put_aside(self, error: Exception) -> None:
        now_s = time.time()
        aside = move_aside(self.path, time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_s)))
        self._drop()
        with self._lock:
            self.recovered_from = aside
            self._note(now_s, f"the store was damaged ({error}); it is kept as '{aside}' and a new one begun")

    def _drop(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def flush(self) -> bool:
        """Write all that waits in one transaction; what cannot be written waits on."""
        with self._lock:
            taken, self._pending = self._pending, collections.deque()
            status, lost = self._status, self._lost
            idle = not taken and not lost and status == self._status_on_disk
            if idle and self._problem is None and self._database is not None:
                return True
        error = self._try_writing([write.statement for write in taken], status, lost)
        with self._lock:
            if error is not None:
                self._pending.extendleft(reversed(taken))
                self._shorten()
                self._problem = _reason(error)
                return False
            self._status_on_disk, self._problem = status, None
            self._lost -= lost
            more = bool(self._pending)
        return self.flush() if more else True  # Opening a new file has something to say itself.

    def _try_writing(self, waiting: list[Statement], status: str | None, lost: int) -> Exception | None:
        try:
            self._write_all(waiting, status, lost)
        except FAILURES as error:
            if not self._after(error):
                return error
        else:
            return None
        try:
            self._write_all(waiting, status, lost)
        except FAILURES as error:
            self._after(error)
            return error
        return None

    def _write_all(self, waiting: list[Statement], status: str | None, lost: int) -> None:
        database = self._opened()
        extra = [_set_fact("written_s", str(time.time()))]
        if status is not None:
            extra.append(_set_fact("status", status))
        if lost:
            with self._lock:
                values = (self._next_event, time.time(), KIND, f"{lost} writes were lost", None)
                self._next_event += 1
            extra.append((INSERT_EVENT, values))
        try:
            database.write([*waiting, *extra])
        except MALFORMED:
            self._write_one_by_one(database, waiting)
            database.write(extra)

    def _write_one_by_one(self, database: Database, statements: list[Statement]) -> None:
        """Write one at a time: a value that SQLite will never take must not hold up all others for ever."""
        for statement in statements:
            try:
                database.write([statement])
            except MALFORMED:
                with self._lock:
                    self._lost += 1

    def _after(self, error: Exception) -> bool:
        """Let go of what is broken; return whether to try again at once with a new file."""
        if _is_damage(error):
            self._put_aside(error)
            return True
        if isinstance(error, MovedError):
            self._drop()
            with self._lock:
                self._note(
                    time.time(), f"{error} under the running daemon; the store goes on in '{self.path}'"
                )
            return True
        if not _name(error).startswith(("SQLITE_FULL", "SQLITE_BUSY")):
            self._drop()  # The next write opens it afresh.
        return False

    def rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return what the file answers; nothing while it cannot be read."""
        try:
            return self._opened().read(sql, values)
        except FAILURES as error:
            self._after(error)
            with self._lock:
                self._problem = _reason(error)
            return []

    def upkeep(self) -> bool:
        """Fold the file's log, check all of it; return whether it is sound, or was made anew."""
        try:
            database = self._opened()
            database.shrink()
            database.check()
        except FAILURES as error:
            self._after(error)
            return self.flush()
        return True

    def end(self) -> None:
        """Write what waits, let go of the file."""
        self.flush()
        self._drop()

    def _note(self, at_s: float, message: str) -> None:
        self._append([(at_s, KIND, message, None)])


def _set_fact(name: str, value: str) -> Statement:
    return ("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def event_row(row: tuple[Any, ...]) -> EventRow:
    return EventRow(id=row[0], at_s=row[1], kind=row[2], message=row[3], data_json=row[4])


def _clean(text: str) -> str:
    """Return text that can be stored: half characters from a broken log line are replaced."""
    return text.encode("utf-8", "replace").decode()


def _name(error: Exception) -> str:
    return str(getattr(error, "sqlite_errorname", ""))


def in_use(error: Exception) -> bool:
    """Return whether the error says that another process has the file."""
    return _name(error).startswith("SQLITE_BUSY")


def _is_damage(error: Exception) -> bool:
    return isinstance(error, DamagedError) or _name(error).startswith(DAMAGE)


def _reason(error: Exception) -> str:
    for name, reason in REASONS.items():
        if _name(error).startswith(name):
            return reason
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
