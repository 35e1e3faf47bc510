"""What the runner asks of a box, and what comes back, as values; and the small interface that carries them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rigd.provision.target.contract import Module


@dataclass(frozen=True, kw_only=True)
class Call:
    """One use of a module, every value of it known."""

    id: str
    """Of the task, its way through includes, and its item: the same over runs of the same files."""
    module: Module
    short: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    check: bool = False
    timeout_s: float = 0.0
    handlers: tuple[str, ...] = ()
    """What it notifies if it changes something."""
    secret: bool = False
    """Whether no_log stands on the task: nothing of it is shown anywhere."""
    user: str | None = None
    """Who to become; None: the login's user."""
    on: str | None = None
    """Host it is delegated to; None: the task's own."""
    diff: bool = False
    """Whether somebody will look at the texts before and after."""
    blobs: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Digest -> content that the controller holds and the box may ask for."""
    job: str | None = None
    """Name under which it was only begun, and goes on by itself."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a probe or an apply found."""

    changes: tuple[Mapping[str, Any], ...] = ()
    """Each: what, subject, before, after, counts."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Goes into the task's result."""
    failed: str | None = None
    """Why it cannot be done, in a sentence."""
    skipped: bool = False
    """Check mode cannot foretell it."""
    counted: bool | None = None
    """Whether the module itself says that something changed; None: the changes say it."""

    @property
    def changed(self) -> bool:
        """Return whether the task counts as changed."""
        if self.counted is not None:
            return self.counted
        return any(change.get("counts", True) for change in self.changes)


class Link(Protocol):
    """One helper: one host and user. Raises `UnreachableError` when it is gone."""

    @property
    def boot_id(self) -> str:
        """What the box's kernel calls this boot."""

    @property
    def local(self) -> bool:
        """Whether the box is this machine."""

    def probe(self, calls: Sequence[Call], *, stop_at_change: bool) -> list[Answer]:
        """Return an answer for each call up to the first that fails, or that differs if asked to stop there."""

    def apply(self, call: Call, then: Sequence[Call]) -> tuple[Answer, list[Answer]]:
        """Carry out a call, then probe others; their answers end as those of `probe` do."""

    def facts(self, subset: Sequence[str]) -> Mapping[str, Any]:
        """Return the facts of the box."""

    def close(self) -> None:
        """End the helper and what it started."""


class HostOver(BaseException):
    """A host's part of the run ends here, whatever its tasks ignore or rescue; other hosts go on.

    No `Exception`, so that no template that asks for a fact takes it for an error of its own.
    """

    told = False
    """Whether the task in which it happened has told and counted it."""


class Lost(HostOver):
    """The host does not answer, or no longer."""


class Busy(HostOver):
    """Another run is at work on the host."""
