"""The vocabulary of what comes in: requests, ends of jobs, exits, probes. Frozen values."""

import enum
from dataclasses import dataclass

from rigd.runtime.base import EngineExit, EngineRef, EngineSeen, StopReport
from rigd.supervise.health import CanaryResult, Sample
from rigd.supervise.load import Load
from rigd.supervise.memory_trend import MemorySample
from rigd.supervise.overlay import KnobStep
from rigd.supervise.state import Failure, PrefixWarmth


class RequestKind(enum.StrEnum):
    """What an operator, or a timer, may ask of the loop."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    WARM = "warm"
    MAINTENANCE_ON = "maintenance-on"
    MAINTENANCE_OFF = "maintenance-off"
    SET = "set"
    OVERLAY_CLEAR = "overlay-clear"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A wish; `digest` is that of the specification to use from now on, where the rig file was read again."""

    id: int
    kind: RequestKind
    digest: str | None = None
    found: tuple[EngineRef, ...] = ()
    """Engines of this rig that ran when maintenance was asked to end."""
    step: KnobStep | None = None
    """The knob that an operator turns; the engine's parser has accepted it."""
    sections: tuple[str, ...] = ()
    """Parts of the rig file that were read again and differ, while the engine's specification does not."""
    why: str = "asked"


@dataclass(frozen=True, kw_only=True)
class LaunchDone:
    """The engine exists."""

    ref: EngineRef


@dataclass(frozen=True, kw_only=True)
class LaunchFailed:
    """No engine exists. `temporary`: the runtime did not answer, which is no fault of the rig."""

    failure: Failure
    temporary: bool = False


@dataclass(frozen=True, kw_only=True)
class StopDone:
    """The tree is gone. `diagnosis` is what the log says of a failure, None where nothing was asked."""

    report: StopReport
    diagnosis: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class StopFailed:
    """The runtime did not answer; the engine may still be there."""

    message: str


@dataclass(frozen=True, kw_only=True)
class WarmDone:
    """What each prefix came to; `complete` is False when time ran out first."""

    results: tuple[PrefixWarmth, ...]
    complete: bool = True
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckDone:
    """What the engine's parser says; `accepted` None: it could not be asked."""

    accepted: bool | None
    message: str


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Whether a condition holds now, and what was seen."""

    holds: bool
    detail: str = ""
    hint: str | None = None
    unexpected: bool = False
    """Whether nothing on this host means to bring it about, so that waiting long is of no use."""
    whole: bool = False
    """Whether the engine can do without it: what it needs of the network is here."""


@dataclass(frozen=True, kw_only=True)
class MovedAside:
    """What came of moving a cache; not `moved`: there was nothing to move, or it may not be moved."""

    moved: bool
    detail: str
    finding: str = ""
    """What was found out of the failure: a sentence that completes its own."""


@dataclass(frozen=True, kw_only=True)
class TrialLook:
    """The engine's counters right before a trial (None: they could not be had), and whether its condition holds."""

    load: Load | None
    holds: bool = True
    detail: str = ""


Result = (
    LaunchDone | LaunchFailed | StopDone | StopFailed | WarmDone | CheckDone | Looked | MovedAside | TrialLook
)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A job's end. Ends of jobs that are no longer in hand are ignored."""

    job: int
    result: Result


@dataclass(frozen=True, kw_only=True)
class Exited:
    """An engine, or a lasting process of it, ended."""

    engine: str
    """`EngineRef.id`."""
    exit: EngineExit


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What was learnt since the last decision. All None: only time has passed."""

    request: Request | None = None
    finished: Finished | None = None
    exited: Exited | None = None
    seen: EngineSeen | None = None
    sample: Sample | None = None
    canary: CanaryResult | None = None
    memory: MemorySample | None = None
    gpu_free_mib: float | None = None
    """Memory free on the fullest card of the engine."""

    @property
    def told_once(self) -> bool:
        """Whether nobody says it again: an end. Probes come anew, and who asks is answered."""
        return any((self.finished, self.exited, self.seen))
