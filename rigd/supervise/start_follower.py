"""Follows the log of the engine that is loading, and learns from it how long each phase takes."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from rigd.adapters.store import Store
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef
from rigd.supervise.live import Board, StartTail

HISTORY_STARTS = 10
"""Earlier starts that the estimate of the time left is learned from."""


class StartFollower:
    """Shows the progress of one start at a time."""

    def __init__(self, store: Store, board: Board, *, state_dir: Path, now: Callable[[], float]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._store = store
        self._board = board
        self._state_dir = state_dir
        self._now = now
        self._tail: StartTail | None = None

    def begin(self, ref: EngineRef) -> None:
        """Follow the start of an engine, with an estimate learned from earlier ones."""
        self.leave()
        self.task = asyncio.create_task(self._follow(ref), name="tail")

    def finish(self, ref: EngineRef, healthy_s: float) -> dict[str, float]:
        """Return the seconds of each phase of the start, now that its engine is healthy; follow nothing any more.

        Empty where the start was not seen from its beginning: one that was adopted teaches nothing.
        """
        tail = self._tail
        self.leave()
        if tail is None:
            return {}
        tail.read(self._now())
        phases = tail.phases(healthy_s - ref.created_s)
        return phases if len(phases) > 1 else {}

    def leave(self) -> None:
        """Follow nothing any more."""
        if self.task is None:
            return
        self.task.cancel()
        self.task, self._tail = None, None
        self._board.show(None)

    async def _follow(self, ref: EngineRef) -> None:
        rows = await self._store.starts(HISTORY_STARTS)
        history = [json.loads(row.phases_json) for row in rows if row.phases_json]
        path = startlog.folder_of(self._state_dir, ref.start) / startlog.LOG_NAME
        self._tail = StartTail(path, ref.created_s, history)
        await self._tail.run(self._board, self._now)
