"""Those who watch exchanges pass by: what they are shown, and in which order."""

import enum
from dataclasses import dataclass
from typing import Protocol


class End(enum.StrEnum):
    """How an exchange ended."""

    DONE = "done"
    HANG_UP = "hang-up"
    """The client went away; the engine's work was cancelled."""
    REFUSED = "refused"
    """It was answered here, with an error of our own."""
    BROKEN = "broken"
    """The engine's answer broke off."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request as it came in. Headers are left out on purpose: they hold keys."""

    number: int
    method: str
    path: str
    encoding: str
    """Content encoding of the request's body, or an empty text."""
    begun_s: float
    """On the monotonic clock."""


class Watcher(Protocol):
    """Sees one exchange, in this order. What it raises ends its watching, never the exchange."""

    def asked(self, chunk: bytes) -> None:
        """Take a piece of the request's body."""
        ...

    def asked_all(self) -> None:
        """Hear that the request's body is complete."""
        ...

    def answered(self, status: int) -> None:
        """Take the status of the answer, before its body."""
        ...

    def told(self, chunk: bytes) -> None:
        """Take a piece of the answer's body, as it goes on to the client."""
        ...

    def ended(self, end: End) -> None:
        """Hear that it is over, and how."""
        ...


class Tap(Protocol):
    """Decides which exchanges it watches."""

    def watch(self, exchange: Exchange) -> Watcher | None:
        """Return who watches this exchange; None: nobody."""
        ...
