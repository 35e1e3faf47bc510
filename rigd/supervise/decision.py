"""The vocabulary of what goes out: actions, journal entries, replies, the next status. Frozen values."""

from dataclasses import dataclass

from rigd.runtime.base import EngineRef
from rigd.supervise.overlay import KnobStep
from rigd.supervise.state import Failure, Status


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer to a request."""

    request: int
    ok: bool
    message: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Open the gates, pull, create, start. The effect takes the next start number from the store."""

    job: int


@dataclass(frozen=True, kw_only=True)
class StopEngine:
    """End the engine's whole tree and whatever else is left of this rig's engines."""

    job: int
    ref: EngineRef | None
    grace_s: float
    failure: Failure | None
    """Why, when it is a failure: its log is then diagnosed."""


@dataclass(frozen=True, kw_only=True)
class WarmPrefixes:
    """Send the prefixes in order until each is proved or its sightings are used up."""

    job: int


@dataclass(frozen=True, kw_only=True)
class CheckConfiguration:
    """Ask the engine's parser about the specification with this digest."""

    job: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class LookAt:
    """Look whether a condition holds."""

    job: int
    condition: str


@dataclass(frozen=True, kw_only=True)
class LookBeforeTrial:
    """Ask the engine for its counters once more, and look whether a condition holds, where one is named."""

    job: int
    condition: str = ""


@dataclass(frozen=True, kw_only=True)
class MoveAside:
    """Rename a cache of the engine; one that already bears the new name was moved before."""

    job: int
    cache: str
    stamp: int


@dataclass(frozen=True, kw_only=True)
class SendCanary:
    """Send one small completion to the engine."""

    engine: str
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class CancelJob:
    """Stop waiting for a job; its result would be ignored."""

    job: int


@dataclass(frozen=True, kw_only=True)
class EndExtra:
    """End an engine of this rig that should not be: two never run at once."""

    ref: EngineRef


@dataclass(frozen=True, kw_only=True)
class UseSpecification:
    """From now on launch the specification with this digest."""

    digest: str


@dataclass(frozen=True, kw_only=True)
class RememberGood:
    """Keep the specification with this digest as the last known good one."""

    digest: str


@dataclass(frozen=True, kw_only=True)
class UseKnownGood:
    """From now on launch the last known good specification in the rig file's place."""


@dataclass(frozen=True, kw_only=True)
class UseOverlay:
    """From now on launch the rig file's specification with these changes on top."""

    steps: tuple[KnobStep, ...]
    on_good: bool = False
    """On top of the last known good settings, which run in the rig file's place."""


@dataclass(frozen=True, kw_only=True)
class UseRules:
    """From now on go by the rig file as it was read again; the engine's specification is the same as before."""

    steps: tuple[KnobStep, ...]
    """The changes on top, which stay."""
    on_good: bool = False


Action = (
    Launch
    | StopEngine
    | WarmPrefixes
    | CheckConfiguration
    | LookAt
    | LookBeforeTrial
    | MoveAside
    | SendCanary
    | CancelJob
    | EndExtra
    | UseSpecification
    | UseOverlay
    | RememberGood
    | UseKnownGood
    | UseRules
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the journal."""

    kind: str
    message: str
    data: tuple[tuple[str, str | int | float | bool | None], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The next status and what it calls for, fully spelled out."""

    status: Status
    actions: tuple[Action, ...] = ()
    entries: tuple[Entry, ...] = ()
    replies: tuple[Reply, ...] = ()
