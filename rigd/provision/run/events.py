"""What a run tells while it goes: frozen events, read by a person's printer, by `--json`, and by tests."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class Outcome(enum.Enum):
    """How a task, or one item of its loop, ended."""

    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, kw_only=True)
class PlayStarted:
    """A play begins."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaskStarted:
    """A host begins a task."""

    host: str
    name: str
    place: str
    action: str
    handler: bool = False


@dataclass(frozen=True, kw_only=True)
class ItemEnded:
    """One item of a loop has ended."""

    host: str
    name: str
    label: str
    outcome: Outcome
    result: Mapping[str, Any] = field(default_factory=dict)
    """As it may be shown: nothing secret in it."""
    ignored: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskEnded:
    """A host is through with a task."""

    host: str
    name: str
    place: str
    outcome: Outcome
    result: Mapping[str, Any] = field(default_factory=dict)
    """As it may be shown: nothing secret in it."""
    took_s: float = 0.0
    ignored: bool = False
    looped: bool = False


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a box is doing right now, or a try that will be repeated."""

    host: str
    text: str
    lasting: bool = False
    """True: worth a line of its own in a log."""


@dataclass(frozen=True, kw_only=True)
class Noted:
    """Something a person should know that belongs to no task."""

    text: str
    host: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """The recap."""

    hosts: Mapping[str, Mapping[str, int]]
    took_s: float
    exit_code: int
    check: bool = False
    run: str | None = None
    """The journal's number of this run."""


Event = PlayStarted | TaskStarted | ItemEnded | TaskEnded | Progress | Noted | RunEnded
Tell = Callable[[Event], None]

COUNTED = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored")


class Recap:
    """Counts what became of each host's tasks, in Ansible's words. A changed task counts as ok, too."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}

    def open(self, host: str) -> None:
        """Show this host in the recap even if it does nothing."""
        self._counts.setdefault(host, dict.fromkeys(COUNTED, 0))

    def count(self, host: str, outcome: Outcome, *, ignored: bool = False, changed: bool = False) -> None:
        """Count a task's outcome. A failure that is ignored counts as ok, and as changed if it `changed`."""
        self.open(host)
        counts = self._counts[host]
        if ignored:
            counts["ok"] += 1
            counts["ignored"] += 1
        elif outcome is Outcome.CHANGED:
            counts["ok"] += 1
        else:
            counts[outcome.value] += 1
        if outcome is Outcome.CHANGED or (ignored and changed):
            counts["changed"] += 1

    def rescued(self, host: str) -> None:
        """Count a failed task as rescued, and no longer as failed."""
        self.open(host)
        self._counts[host]["failed"] -= 1
        self._counts[host]["rescued"] += 1

    def counts(self) -> dict[str, dict[str, int]]:
        """Return host -> word -> number."""
        return {host: dict(counts) for host, counts in self._counts.items()}

    def any(self, word: str) -> bool:
        """Return whether some host counted this word."""
        return any(counts[word] for counts in self._counts.values())
