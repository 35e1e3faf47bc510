"""The runtime protocol and the frozen values that cross it. No effects here."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rigd.engine.spec import LaunchSpec
from rigd.errors import RigdError
from rigd.rig.schema import RuntimeKind


class LaunchError(RigdError):
    """The engine's container or process could not be made; `detail` is the runtime's own text.

    `temporary` says that the same call may succeed later (Docker not answering), and is no fault of the rig.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, detail: str = "", temporary: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.detail = detail
        self.temporary = temporary


class RuntimeUnavailableError(RigdError):
    """The runtime itself does not answer (Docker daemon down): nothing is known about the engine."""


@dataclass(frozen=True, kw_only=True)
class EngineRef:
    """Identity of one running engine; survives the daemon.

    `id` is the container id, or `PID:START_TICKS:BOOT` of the process, which no other process can have; `pid`
    is the root process on the host (the API server; with Docker the container's first process).
    """

    runtime: RuntimeKind
    id: str
    pid: int
    start: int
    """Number of the start that made it."""
    digest: str
    """Digest of the specification that it was launched from."""
    created_s: float
    """Unix time of its creation."""


class Presence(enum.StrEnum):
    """What there is of an engine."""

    ABSENT = "absent"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, kw_only=True)
class EngineExit:
    """How an engine, or one process of it, ended.

    `member` names the process that ended first when it was not the root (`VLLM::EngineCor`): the engine is
    broken although its root may live on. `code` is None when it cannot be known; a signal n is 128 + n.
    """

    code: int | None
    oom_killed: bool = False
    member: str | None = None
    detail: str = ""
    """The runtime's own words, for example Docker's `State.Error`."""
    at_s: float = 0.0
    """Unix time at which it was noticed."""


@dataclass(frozen=True, kw_only=True)
class EngineSeen:
    """One fresh look at an engine."""

    presence: Presence
    ref: EngineRef | None = None
    exit: EngineExit | None = None


@dataclass(frozen=True, kw_only=True)
class StopReport:
    """How a stop went: which members there were, whether KILL was needed, how long it took in seconds."""

    processes: int
    killed: int
    """Processes that ignored TERM and were killed."""
    survivors: tuple[str, ...]
    """Processes that are still there after KILL (state D); the gates will name them again."""
    took_s: float


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What the engine's own parser says of a configuration; `accepted` None: it could not be asked."""

    accepted: bool | None
    message: str
    took_s: float


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """One gate: open or not, and what holds it, in a sentence with what to do."""

    name: str
    open: bool
    detail: str
    hint: str | None = None


Progress = Callable[[str, float | None], None]
"""Called with a line for a person and a share of 0..1 where one is known. Any thread may call it."""


class Runtime(Protocol):
    """What supervision needs of a runtime. Every call has a deadline of its own and raises `RigdError`."""

    @property
    def state_dir(self) -> Path:
        """Folder that the starts' logs are kept in."""
        ...

    async def find(self) -> tuple[EngineRef, ...]:
        """Return the running engines of this rig, newest first; ended ones are not among them."""
        ...

    async def launch(self, spec: LaunchSpec, *, start: int, folder: Path, progress: Progress) -> EngineRef:
        """Create and start the engine; its output goes to `folder`/engine.log. Raises `LaunchError`."""
        ...

    async def look(self, ref: EngineRef) -> EngineSeen:
        """Look afresh. Raises `RuntimeUnavailableError` when the runtime does not answer."""
        ...

    async def follow(self, ref: EngineRef, folder: Path) -> None:
        """Take up an engine again that an earlier daemon launched: its output keeps going to `folder`."""
        ...

    async def wait_exit(self, ref: EngineRef) -> EngineExit:
        """Return when the engine, or any lasting process of it, has ended; by event, not by polling."""
        ...

    async def stop(self, ref: EngineRef, *, grace_s: float, deadline_s: float) -> StopReport:
        """End the whole tree: TERM, `grace_s`, KILL; remove the container. Absent is no error."""
        ...

    async def sweep(self) -> tuple[str, ...]:
        """End what is left of earlier engines of this rig (orphans, dead containers); name what was ended.

        Never touches processes that are not marked as this rig's.
        """
        ...

    async def check(self, spec: LaunchSpec, *, deadline_s: float) -> CheckReport:
        """Ask the engine's own argument parser, without a GPU and without touching a running engine."""
        ...

    async def close(self) -> None:
        """Let go of clients and watchers; the engine stays."""
        ...
