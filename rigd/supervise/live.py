"""What is going on right now, for people who watch: phase, share, estimate. Never decides."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rigd.supervise.phases import Progress, after_line, durations, remaining_s

if TYPE_CHECKING:
    from rigd.runtime.base import GateReport

POLL_S = 0.25
READ_BYTES = 1 << 20
"""Most of a log read at a time."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """One line of progress. `since_s` and `eta_s` are Unix times; `fraction` is 0..1."""

    phase: str
    detail: str = ""
    fraction: float | None = None
    since_s: float = 0.0
    eta_s: float | None = None


class Board:
    """Holds the present `Live` and tells whoever subscribed."""

    def __init__(self) -> None:
        self.live: Live | None = None
        self.hold: GateReport | None = None
        """What the host's watch says against a start; a launch waits while it says something."""
        self.waiting = False
        """Whether a launch waits at a shut gate, and so creates nothing."""
        self._listeners: list[Callable[[Live | None], None]] = []

    def on_change(self, listener: Callable[[Live | None], None]) -> None:
        """Call `listener` whenever something else is shown."""
        self._listeners.append(listener)

    def show(self, live: Live | None) -> None:
        """Replace what is shown; call it from the event loop's own thread."""
        if live != self.live:
            self.live = live
            for listener in self._listeners:
                listener(live)


class StartTail:
    """Follows the log of one start and keeps its progress; asynchronous, and cheap when nothing is written."""

    def __init__(self, log: Path, created_s: float, history: Sequence[Mapping[str, float]]) -> None:
        self.progress = Progress()
        self._log = log
        self._created_s = created_s
        self._history = history
        self._position = 0
        self._rest = b""

    async def run(self, board: Board, now: Callable[[], float]) -> None:
        """Show the start's progress until cancelled."""
        while True:
            self.read(now())
            self._show(board, now())
            await asyncio.sleep(POLL_S)

    def read(self, now_s: float) -> None:
        """Take in what was written since the last read."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._position)
                part = file.read(READ_BYTES)
        except OSError:
            return
        self._position += len(part)
        *lines, self._rest = (self._rest + part).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-READ_BYTES:]
        for line in lines:
            text = line.decode("utf-8", errors="replace")
            self.progress = after_line(self.progress, text, elapsed_s=now_s - self._created_s)

    def phases(self, ready_s: float) -> dict[str, float]:
        """Return the seconds of each phase, the engine being healthy `ready_s` seconds after its creation."""
        return durations(self.progress, ready_s=ready_s)

    def _show(self, board: Board, now_s: float) -> None:
        elapsed_s = now_s - self._created_s
        left_s = remaining_s(self.progress, self._history, elapsed_s=elapsed_s)
        phase_began_s = self._created_s + self.progress.began_s[-1][1]
        board.show(
            Live(
                phase=str(self.progress.phase),
                fraction=self.progress.fraction,
                since_s=round(phase_began_s, 1),
                eta_s=None if left_s is None else float(round(now_s + left_s)),
            )
        )
