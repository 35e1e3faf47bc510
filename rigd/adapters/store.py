"""What rigd remembers: the status, the journal of events, starts with their outcome, warm results.

    loop --(statements)--> memory queue --(one thread, one transaction)--> SQLite file
                                ^ stays here while the file cannot be written, and goes on later, in order

A write never raises: it returns whether it is on disk. While it is not (disk full, read-only, stuck),
`problem` says so, the latest status and a bounded queue stay in memory, and rigd goes on. Text in, text out:
the store knows nothing of what it keeps.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

from rigd.adapters.worker import Worker
from rigd.adapters.write_behind import EventRow, WriteBehind, event_row, in_use
from rigd.errors import RigdError

T = TypeVar("T")

DEADLINE_S = 3.0
"""Longest wait for the disk of one call; a stuck disk costs one call this, and later ones nothing."""
OPEN_DEADLINE_S = 30.0
KEEP_WARM = 2_000


class StoreInUseError(RigdError):
    """Another process has the store: there is one daemon to a state folder."""


@dataclass(frozen=True, kw_only=True)
class StartRow:
    """One start of the engine and how it went."""

    number: int
    digest: str
    runtime: str
    began_s: float
    spec_json: str
    ready_s: float | None
    ended_s: float | None
    outcome: str | None
    exit_json: str | None
    phases_json: str | None


@dataclass(frozen=True, kw_only=True)
class WarmRow:
    """One warm-up of one prefix."""

    start: int
    prefix: str
    at_s: float
    result_json: str


class Store:
    """The store of one daemon. Made with `Store.open()`; ended with `close()`."""

    def __init__(self, path: Path, *, deadline_s: float = DEADLINE_S) -> None:
        """Use `open()`."""
        self._deadline_s = deadline_s
        self._behind = WriteBehind(path)
        self._thread = Worker("rigd-store")
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, deadline_s: float = DEADLINE_S) -> Self:
        """Open or make the store. A damaged file is put aside; an unusable disk is only a `problem`.

        Raises `StoreInUseError` when another process has it.
        """
        store = cls(path, deadline_s=deadline_s)
        failure = await store._call(store._behind.begin, deadline_s=OPEN_DEADLINE_S)
        if failure is not None and in_use(failure):
            store._thread.end()
            raise StoreInUseError(
                f"cannot open the store '{path}': another process has it",
                hint="one daemon to a state folder: stop the other one, or set RIGD_STATE_DIR",
            )
        await store.flush()
        return store

    @property
    def recovered_from(self) -> Path | None:
        """Where the last damaged file was put, if one was found."""
        return self._behind.recovered_from

    @property
    def problem(self) -> str | None:
        """What keeps the store from being written, in a sentence; None while all is on disk."""
        return self._behind.problem

    # --- status ---

    async def save_status(self, text: str) -> bool:
        """Keep `text` as the latest status; return whether it is on disk."""
        self._behind.status = text
        return await self.flush()

    async def load_status(self) -> str | None:
        """Return the latest status."""
        return self._behind.status

    # --- journal ---

    async def append_events(self, entries: Iterable[tuple[float, str, str, str | None]]) -> bool:
        """Add `(at_s, kind, message, data_json)` to the journal; return whether all are on disk."""
        self._behind.append(entries)
        return await self.flush()

    async def events(self, after_id: int = 0, limit: int = 100, *, newest: bool = False) -> list[EventRow]:
        """Return entries after `after_id`, oldest first: the first `limit` of them, or the last."""
        order = "DESC" if newest else "ASC"
        rows = await self._read(
            "SELECT id, at_s, kind, message, data_json FROM events"  # noqa: S608  (one of two words)
            f" WHERE id > ? ORDER BY id {order} LIMIT ?",
            (after_id, limit),
        )
        found = {event.id: event for event in (*map(event_row, rows), *self._behind.waiting_events(after_id))}
        ordered = [found[number] for number in sorted(found)]
        return ordered[-limit:] if newest else ordered[:limit]

    # --- facts ---

    def keep_fact(self, name: str, text: str) -> None:
        """Keep `text` under a name; on disk together with whatever is written next."""
        self._behind.keep_fact(name, text)

    async def fact(self, name: str) -> str | None:
        """Return what an earlier daemon kept under a name."""
        rows = await self._read("SELECT value FROM facts WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    # --- starts and warm-ups ---

    async def next_start(self, *, minimum: int = 1) -> int:
        """Return the number of the next start: never one given before, nor less than `minimum`."""
        number = self._behind.next_start(minimum)
        await self.flush()
        return number

    async def record_start(
        self, number: int, *, digest: str, runtime: str, began_s: float, spec_json: str
    ) -> bool:
        """Record that a start began."""
        return await self._write(
            "INSERT OR REPLACE INTO starts (number, digest, runtime, began_s, spec_json)"
            " VALUES (?, ?, ?, ?, ?)",
            (number, digest, runtime, began_s, spec_json),
        )

    async def update_start(
        self,
        number: int,
        *,
        ready_s: float | None = None,
        ended_s: float | None = None,
        outcome: str | None = None,
        exit_json: str | None = None,
        phases_json: str | None = None,
    ) -> bool:
        """Add what is known by now of a start; what is None stays as it was."""
        return await self._write(
            "UPDATE starts SET ready_s = coalesce(?, ready_s), ended_s = coalesce(?, ended_s),"
            " outcome = coalesce(?, outcome), exit_json = coalesce(?, exit_json),"
            " phases_json = coalesce(?, phases_json) WHERE number = ?",
            (ready_s, ended_s, outcome, exit_json, phases_json, number),
        )

    async def starts(self, limit: int = 20) -> list[StartRow]:
        """Return the latest starts, newest first."""
        columns = [field.name for field in fields(StartRow)]
        rows = await self._read(
            f"SELECT {', '.join(columns)} FROM starts ORDER BY number DESC LIMIT ?",  # noqa: S608  (our names)
            (limit,),
        )
        return [StartRow(**dict(zip(columns, row, strict=True))) for row in rows]

    async def record_warm(self, start: int, prefix: str, at_s: float, result_json: str) -> bool:
        """Record one warm-up of one prefix."""
        return await self._write(
            "INSERT INTO warm (start, prefix, at_s, result_json) VALUES (?, ?, ?, ?)",
            (start, prefix, at_s, result_json),
        )

    async def warm(self, limit: int = 20) -> list[WarmRow]:
        """Return the latest warm-ups, newest first."""
        rows = await self._read(
            "SELECT start, prefix, at_s, result_json FROM warm ORDER BY id DESC LIMIT ?", (limit,)
        )
        return [WarmRow(start=row[0], prefix=row[1], at_s=row[2], result_json=row[3]) for row in rows]

    # --- upkeep ---

    async def prune(self, keep_events: int, keep_starts: int) -> bool:
        """Drop all but the newest entries and starts, then check the whole file and fold its log."""
        for table, key, keep in (
            ("events", "id", keep_events),
            ("starts", "number", keep_starts),
            ("warm", "id", KEEP_WARM),
        ):
            newest = f"SELECT {key} FROM {table} ORDER BY {key} DESC LIMIT 1 OFFSET ?"  # noqa: S608  (our names)
            self._behind.add(f"DELETE FROM {table} WHERE {key} <= ({newest})", (keep,))  # noqa: S608  (our names)
        return (
            await self.flush() and await self._call(self._behind.upkeep, deadline_s=OPEN_DEADLINE_S) is True
        )

    async def flush(self) -> bool:
        """Write what waits in memory; return whether all is on disk. To be called now and then."""
        return await self._call(self._behind.flush, deadline_s=self._deadline_s) is True

    async def close(self) -> None:
        """Write what waits, if the disk lets it, and let go of the file."""
        await self._call(self._behind.end, deadline_s=self._deadline_s)
        self._closed = True
        self._thread.end()

    # --- the loop's side ---

    async def _write(self, sql: str, values: tuple[Any, ...]) -> bool:
        self._behind.add(sql, values)
        return await self.flush()

    async def _read(self, sql: str, values: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        rows = await self._call(lambda: self._behind.rows(sql, values), deadline_s=self._deadline_s)
        return rows if isinstance(rows, list) else []

    async def _call(self, function: Callable[[], T], *, deadline_s: float) -> T | None:
        """Return what `function` returns on the store's thread; None when the disk did not answer in time."""
        if self._closed or self._thread.busy_s() > self._deadline_s:
            return None  # Waiting for the same stuck disk again helps nobody.
        try:
            # Not `wait_for`: until Python 3.12 it loses a cancellation that comes together with its result.
            async with asyncio.timeout(deadline_s):
                return await asyncio.wrap_future(self._thread.run(function))
        except TimeoutError:
            self._behind.problem = f"its disk has not answered for {deadline_s:.0f} s; see `dmesg`"
            return None
