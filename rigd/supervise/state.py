"""The vocabulary of what is known: states, status and their parts. Frozen values, no behaviour.

What comes in is in `observations`, what goes out in `decision`.
"""

import enum
from dataclasses import dataclass

from pydantic import TypeAdapter

from rigd.runtime.base import EngineExit, EngineRef
from rigd.supervise.baselines import Baseline, PoolRestart
from rigd.supervise.health import Vitals
from rigd.supervise.ladder import Move, Remedy
from rigd.supervise.overlay import KnobStep
from rigd.supervise.slow_answers import SlowAnswer


class State(enum.StrEnum):
    """Where an engine is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    FAILED = "failed"
    MAINTENANCE = "maintenance"


SERVING = frozenset({State.WARMING, State.READY, State.DEGRADED})
"""States in which the engine has answered a real request and is watched."""


TRANSITIONS: dict[tuple[State, State], str] = {
    (State.STOPPED, State.STARTING): "start asked",
    (State.FAILED, State.STARTING): "start asked",
    (State.BACKOFF, State.STARTING): "wait over, or start asked",
    (State.STOPPING, State.STARTING): "restart asked, or a failure's wait is already over",
    (State.STARTING, State.WARMING): "first real completion",
    (State.STARTING, State.READY): "first real completion, nothing to warm",
    (State.STARTING, State.DEGRADED): "adopted, and its prefixes were never proved",
    (State.WARMING, State.READY): "every prefix proved",
    (State.WARMING, State.DEGRADED): "a prefix could not be proved",
    (State.READY, State.DEGRADED): "canary or a prefix's hit lost, or the numbers show trouble",
    (State.DEGRADED, State.READY): "canary, prefixes and numbers good again",
    (State.STARTING, State.STOPPING): "failure, deadline, or stop asked",
    (State.WARMING, State.STOPPING): "failure, or stop asked",
    (State.READY, State.STOPPING): "failure, or stop asked",
    (State.DEGRADED, State.STOPPING): "failure, or stop asked",
    (State.STARTING, State.BACKOFF): "nothing was launched",
    (State.STARTING, State.FAILED): "nothing was launched, and trying again is useless",
    (State.STOPPING, State.BACKOFF): "failure cleaned up",
    (State.STOPPING, State.FAILED): "given up",
    (State.STOPPING, State.STOPPED): "stop asked",
    (State.BACKOFF, State.FAILED): "waited in vain",
    (State.BACKOFF, State.STOPPED): "stop asked",
    (State.FAILED, State.STOPPED): "stop asked",
    (State.STOPPED, State.STOPPING): "an engine of ours runs although stopped",
    **{(state, State.MAINTENANCE): "maintenance on" for state in State if state is not State.MAINTENANCE},
    (State.MAINTENANCE, State.STARTING): "maintenance off",
    (State.MAINTENANCE, State.STOPPED): "maintenance off, and nothing is wanted",
}
"""Every transition that `decide` may make, and why. The README's drawing is generated from this table."""


class Desired(enum.StrEnum):
    """What the operator wants of the engine."""

    RUNNING = "running"
    STOPPED = "stopped"


class JobKind(enum.StrEnum):
    """Slow work that runs outside the loop; one at a time."""

    LAUNCH = "launch"
    STOP = "stop"
    WARM = "warm"
    CHECK = "check"
    LOOK = "look"
    ASIDE = "aside"


@dataclass(frozen=True, kw_only=True)
class Job:
    """The slow work in hand; persisted before it begins, as the intent that a restarted daemon resolves."""

    id: int
    kind: JobKind
    began_s: float
    request: int | None = None
    """Request that waits for its end."""


class GiveUp(enum.StrEnum):
    """Why rigd stopped trying."""

    USELESS = "retrying is useless"
    LADDER = "every change that may help was tried"
    BOOTS = "starts used up"
    ATTEMPTS = "attempts used up"
    WAITED = "waited in vain"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What went wrong, in the catalogue's vocabulary and in a sentence for a person."""

    kind: str
    sentence: str
    hint: str | None = None
    retry_helps: bool = True
    evidence: tuple[str, ...] = ()
    exit: EngineExit | None = None
    remedies: tuple[Remedy, ...] = ()
    """What may help, in the order to try, with the numbers that the log states."""
    at_s: float = 0.0
    """When it was noticed."""
    start: int = 0
    """Start that it ended; its log is `rigd logs --start N`."""
    fits: float | None = None
    """Share of the cards that is free beside what others hold, where a larger one may help; None: nobody knows."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What is done before the next start: a condition waited for, or a cache moved aside."""

    move: Move
    what: str
    """Name of the condition, or of the cache."""
    since_s: float
    until_s: float
    """When a condition is given up."""
    looks: int = 0
    """How often it was found wanting."""
    detail: str = ""
    """What the last look saw."""
    wanting: bool = False
    """Whether the condition was found wanting before the first look: nothing was launched for its sake."""
    served: bool = False
    """Whether the engine that failed had served: it may do so again with the same settings."""


@dataclass(frozen=True, kw_only=True)
class Aside:
    """A cache moved aside, once for each class of failure under a rig file; noted before it is done."""

    cache: str
    kind: str
    """Class of the failure."""
    basis: str
    """Digest of the specification that the rig file alone gave."""
    stamp: int
    """Ends the new name: a move that was interrupted is found again, and not done twice."""
    done: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class PrefixWarmth:
    """How warm one prefix is. Tokens of the prefix, and of them how many the last sighting found cached."""

    prefix: str
    proved: bool
    sightings: int
    prefix_tokens: int
    cached_tokens: int
    hit: float
    """Share of the prefix's tokens found cached at the last sighting."""
    cold_ttft_s: float | None = None
    """Time to first token of the first sighting."""
    warm_ttft_s: float | None = None
    """Time to first token of the proof."""
    detail: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class KnownGood:
    """Settings that stayed healthy for the configured stretch; kept whole in `known-good.json`."""

    digest: str
    """Digest of the specification in effect then, overlay included."""
    basis: str
    """Digest of what the rig file alone gave."""
    start: int
    at_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What only the numbers show is wrong with an engine that serves; it is over with its engine at the latest."""

    kind: str
    """Class of the failure catalogue."""
    engine: str
    """`EngineRef.id`."""
    sentence: str
    """With the numbers of its beginning."""
    hint: str
    since_s: float
    grave_s: float | None = None
    """Since when it is grave enough to be answered."""
    degrades: bool = True
    """Whether the engine serves worse than it should; False: it only will."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """Everything the supervisor knows and has decided; written by the loop alone."""

    state: State = State.STOPPED
    since_s: float = 0.0
    reason: str = "never started"
    desired: Desired = Desired.STOPPED
    engine: EngineRef | None = None
    launched_s: float | None = None
    """When the engine was created."""
    healthy_s: float | None = None
    """When `/health` first answered 200."""
    ready_s: float | None = None
    """When it became ready."""
    job: Job | None = None
    jobs: int = 0
    """Number of the last job."""
    failures: tuple[float, ...] = ()
    """Times of the failures within the attempts window."""
    streak: int = 0
    """Failures since the last healthy stretch; the backoff grows with it."""
    candidate: str | None = None
    """Digest of the specification that the engine's parser is being asked about."""
    ending: Failure | None = None
    """The failure that the present stop clears up after; None for a stop that was asked."""
    retry_s: float | None = None
    """When the next start, or the next try to stop, is due."""
    failure: Failure | None = None
    """The last failure; kept for show after recovery."""
    gave_up: GiveUp | None = None
    warm: tuple[PrefixWarmth, ...] = ()
    warmed_s: float | None = None
    """When the prefixes were last warmed or proved."""
    overlay: tuple[KnobStep, ...] = ()
    """What rigd changed on top of the rig file, oldest first."""
    overlay_basis: str = ""
    """Digest of the specification that the rig file alone gives; another one clears the overlay."""
    answered: tuple[str, ...] = ()
    """Marks of the rungs (restarts, waits) that answered failures since the last knob was turned."""
    pending: Pending | None = None
    """What the next start waits for, in backoff."""
    asides: tuple[Aside, ...] = ()
    """Caches moved aside, oldest first."""
    boots: tuple[float, ...] = ()
    """Times of the starts by rigd itself within the attempts window."""
    trial: KnobStep | None = None
    """The change that is undone on trial, or made on trial beyond the wish; taken back when the trial fails."""
    trial_speed: float | None = None
    """Tokens a second and stream before a trial beyond the wish."""
    trials_failed: int = 0
    """Trials that failed since the last one that held; each doubles the time to the next."""
    climb_from_s: float | None = None
    """Where the stretch to the next trial begins, when an earlier one was skipped; else it is `ready_s`."""
    too_high: int | None = None
    """The least `max_num_seqs` beyond the wish that failed on trial."""
    good: KnownGood | None = None
    """The settings that last stayed healthy for the configured stretch."""
    fallback_from: str = ""
    """Basis of the rig file that failed, while the last known good settings run in its place."""
    troubles: tuple[Trouble, ...] = ()
    """What only the numbers show is wrong."""
    baselines: tuple[Baseline, ...] = ()
    """What sets of settings come to when they are healthy."""
    pool_restart: PoolRestart | None = None
    """The restart that a shrunken KV pool was answered with; it is earned again once the pool is whole."""
    slow_answers: tuple[SlowAnswer, ...] = ()
    """Answers to trends, latest last."""
    boot: str = ""
    """The kernel's id of the boot in which this was written."""
    vitals: Vitals = Vitals()


STATUS = TypeAdapter(Status)
"""Writes a status as JSON and reads it back, for the store."""
