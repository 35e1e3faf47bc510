"""What the API needs of the supervisor. The daemon hands the real one to `make_app`; tests hand in a fake."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from rigd.supervise.decision import Reply
from rigd.supervise.observations import RequestKind
from rigd.supervise.state import State

Document = dict[str, Any]
"""A JSON object as it goes over the wire; the README describes each."""


class Backend(Protocol):
    """A supervisor, seen from the API: it reads, and it posts requests to the one loop that decides."""

    @property
    def healthy(self) -> bool:
        """Whether the loop's own heartbeat is fresh."""
        ...

    def status(self) -> Document:
        """Return the status document; cheap enough for every watcher, every half second."""
        ...

    async def act(self, kind: RequestKind, *, reload: bool) -> Reply:
        """Post a request to the loop and return its answer; `reload` reads the rig file again first."""
        ...

    async def set_knob(self, knob: str, value: str) -> Reply:
        """Change one setting on top of the rig file, if the engine's own parser accepts it."""
        ...

    async def wait(self, states: frozenset[State], timeout_s: float) -> bool:
        """Return True as soon as the state is one of `states`, False when the time is over."""
        ...

    async def events(self, after_id: int | None, limit: int) -> list[Document]:
        """Return journal entries after `after_id`, oldest first; None: the newest `limit` ones."""
        ...

    def subscribe(self) -> AsyncIterator[Document]:
        """Yield what happens from now on: `{"type": "event" | "live", ...}`.

        The queue is bounded: a slow reader loses the oldest items and gets another type in their place.
        """
        ...

    async def starts(self, limit: int) -> list[Document]:
        """Return the last starts and their outcome, newest first."""
        ...

    @property
    def incidents(self) -> "IncidentReader":
        """What was kept of each failure."""
        ...

    @property
    def alerts(self) -> Callable[[], Document]:
        """Returns who is told of what: receivers (masked), open problems, what waits."""
        ...

    @property
    def test_alerts(self) -> Callable[[], Awaitable[Document]]:
        """Sends a test message to every receiver and returns what came of each."""
        ...

    @property
    def look_at_drift(self) -> Callable[[], str | None]:
        """Has the host held against its playbook now, or returns why not."""
        ...

    def log_path(self, start: int | None) -> Path | None:
        """Return the engine's log of a start (None: of the last one), or None when there is none."""
        ...

    def metrics(self) -> str:
        """Return the daemon's own metrics as Prometheus text."""
        ...


class IncidentReader(Protocol):
    """The incidents, seen from the API."""

    async def newest(self, limit: int) -> list[Document]:
        """Return the incidents, newest first."""
        ...

    async def show(self, number: int) -> Document | None:
        """Return one incident with its trail, the end of its log, and what to do next; None: there is none."""
        ...

    async def bundle(self, number: int) -> bytes | None:
        """Return one incident as a tar.gz; None: there is none."""
        ...
