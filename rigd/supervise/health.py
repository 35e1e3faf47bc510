"""Is the engine alive, does it move, does it answer? Pure folds of probe results, and a verdict.

Three layers, because each alone lies: `/health` stays 200 over a frozen core; token counters stand still when
nothing is asked; a canary waits in a full queue. So: work in flight without any sign of progress for
`stall_deadline_s` is a stall, and when the engine looks idle a canary puts work in flight.
"""

import enum
from dataclasses import dataclass, replace

from rigd.rig.schema import Supervision
from rigd.supervise.load import Load
from rigd.supervise.room import Room
from rigd.supervise.trend_track import Track

PAUSE_FACTOR = 5
"""Samples this many intervals apart: the daemon itself was paused, nothing is held against the engine."""
FORCED_CANARY_FACTOR = 4
"""A busy engine is asked for text all the same after this many stall deadlines, to catch garbage."""
LOOK_S = 1.0
"""What the loop itself may take to notice, in seconds."""
DEGENERATE_LENGTH = 4
"""Answers of at least this many characters that repeat one character are degenerate (`!!!!`)."""


class Health(enum.StrEnum):
    """What `/health` said."""

    UNKNOWN = "unknown"
    """No answer in time, or the prober itself failed: says nothing about the engine."""
    PASSING = "passing"
    FAILING = "failing"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at `/health` and `/metrics` of one engine."""

    engine: str
    at_s: float
    health: Health
    detail: str = ""
    load: Load | None = None


class Answer(enum.StrEnum):
    """What came of a canary."""

    GOOD = "good"
    EMPTY = "empty"
    DEGENERATE = "degenerate"
    WRONG = "wrong"
    REFUSED = "refused"
    """HTTP 4xx: the engine is fine, the rig's own request is not (API key, model name)."""
    ERROR = "error"
    """HTTP 5xx."""
    NONE = "none"
    """No answer: time ran out or the connection broke; the stall rule and the exit decide."""


@dataclass(frozen=True, kw_only=True)
class CanaryResult:
    """One canary's end."""

    engine: str
    at_s: float
    answer: Answer
    took_s: float
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class CacheMark:
    """Prefix-cache counters at the last look whether hits are being lost."""

    queries: float
    hits: float


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """What the probes have said of the current engine so far."""

    sample_s: float | None = None
    failing: int = 0
    """Consecutive failed health probes."""
    passing: int = 0
    health_detail: str = ""
    load: Load | None = None
    progress_s: float | None = None
    """Last sign of progress: a counter moved, or a canary was answered."""
    canary_sent_s: float | None = None
    """When the canary in flight was sent."""
    answered_s: float | None = None
    """When a canary was last answered well."""
    canary_failures: int = 0
    canary: CanaryResult | None = None
    cache_mark: CacheMark | None = None
    track: Track = Track()  # noqa: RUF009  (frozen)
    """What trends are judged by."""
    room: Room = Room()  # noqa: RUF009  (frozen)
    trial_look_s: float | None = None
    """When the engine was last asked whether a trial may cut in."""


class Verdict(enum.StrEnum):
    """What the vitals come to."""

    FINE = "fine"
    SUSPECT = "suspect"
    """A canary failed, not yet often enough."""
    DOWN = "down"
    STALLED = "stalled"
    GARBAGE = "garbage"
    """Canaries keep coming back empty, degenerate, wrong or as HTTP 500."""
    REFUSING = "refusing"
    """Canaries keep coming back as HTTP 4xx: a restart would not help."""


def judge_text(text: str, expect: str | None) -> Answer:
    """Say whether an answer is text at all; and the expected one, when the rig file says what to expect."""
    if not text:
        return Answer.EMPTY
    visible = "".join(text.split())
    if len(visible) >= DEGENERATE_LENGTH and len(set(visible)) == 1:
        return Answer.DEGENERATE
    if expect is not None and expect.casefold() not in text.casefold():
        return Answer.WRONG
    return Answer.GOOD


def after_sample(vitals: Vitals, sample: Sample, policy: Supervision) -> Vitals:
    """Fold one look into the vitals."""
    paused = (
        vitals.sample_s is not None
        and sample.at_s - vitals.sample_s
        > PAUSE_FACTOR * policy.probe_interval_s + 2 * policy.probe_timeout_s
    )
    moved = sample.load is not None and (vitals.load is None or sample.load.progress != vitals.load.progress)
    first = vitals.progress_s is None
    return replace(
        vitals,
        sample_s=sample.at_s,
        failing=_count(vitals.failing, counts=sample.health is Health.FAILING, health=sample.health),
        passing=_count(vitals.passing, counts=sample.health is Health.PASSING, health=sample.health),
        health_detail=sample.detail,
        load=sample.load if sample.load is not None else vitals.load,
        progress_s=sample.at_s if moved or paused or first else vitals.progress_s,
        canary_sent_s=sample.at_s if paused and vitals.canary_sent_s is not None else vitals.canary_sent_s,
    )


def after_canary(vitals: Vitals, result: CanaryResult) -> Vitals:
    """Fold a canary's end into the vitals; one without an answer counts neither way."""
    done = replace(vitals, canary_sent_s=None, canary=result)
    if result.answer is Answer.GOOD:
        return replace(done, canary_failures=0, answered_s=result.at_s, progress_s=result.at_s)
    if result.answer is Answer.NONE:
        return done
    # Wrong text is an answer all the same: the engine moves, it is not stalled.
    return replace(done, canary_failures=vitals.canary_failures + 1, progress_s=result.at_s)


def judge(vitals: Vitals, policy: Supervision, *, now_s: float) -> Verdict:
    """Return what the vitals come to at `now_s`."""
    if vitals.failing >= policy.failure_threshold:
        return Verdict.DOWN
    if in_flight(vitals) and silent_s(vitals, now_s=now_s) >= patience_s(policy):
        return Verdict.STALLED
    if vitals.canary_failures >= policy.failure_threshold:
        refused = vitals.canary is not None and vitals.canary.answer is Answer.REFUSED
        return Verdict.REFUSING if refused else Verdict.GARBAGE
    return Verdict.SUSPECT if vitals.canary_failures else Verdict.FINE


def in_flight(vitals: Vitals) -> bool:
    """Return whether the engine has work that it should be making progress on."""
    load = vitals.load
    busy = load is not None and load.running + load.waiting > 0
    return busy or vitals.canary_sent_s is not None or _unanswered(vitals)


def _unanswered(vitals: Vitals) -> bool:
    """Return whether the last canary got no answer, and nothing has moved since."""
    canary = vitals.canary
    return canary is not None and canary.answer is Answer.NONE and canary.at_s > (vitals.progress_s or 0.0)


def silent_s(vitals: Vitals, *, now_s: float) -> float:
    """Return the seconds since the last sign of progress."""
    return 0.0 if vitals.progress_s is None else now_s - vitals.progress_s


def patience_s(policy: Supervision) -> float:
    """Return how long work may go without progress, in seconds.

    A little less than the stall deadline: a look and a probe later it is noticed, and still within the deadline.
    """
    return policy.stall_deadline_s - min(policy.probe_interval_s + LOOK_S, policy.stall_deadline_s / 4)


def canary_every_s(policy: Supervision) -> float:
    """Return how long the engine may look idle before a canary is sent.

    Half the stall deadline at most, so that the answer has the other half.
    """
    half = policy.stall_deadline_s / 2
    return half if policy.canary.every_s is None else min(policy.canary.every_s, half)


def canary_due(vitals: Vitals, policy: Supervision, *, now_s: float) -> bool:
    """Return whether it is time for a canary: the engine looks idle, or was long not asked for text."""
    if vitals.canary_sent_s is not None or vitals.progress_s is None:
        return False
    if vitals.canary_failures or _unanswered(vitals):  # Suspect: ask again soon.
        last = vitals.canary.at_s if vitals.canary is not None else 0.0
        return now_s - last >= policy.probe_interval_s
    if silent_s(vitals, now_s=now_s) >= canary_every_s(policy):
        return True
    asked_s = vitals.answered_s if vitals.answered_s is not None else vitals.progress_s
    return now_s - asked_s >= FORCED_CANARY_FACTOR * policy.stall_deadline_s


def _count(before: int, *, counts: bool, health: Health) -> int:
    if health is Health.UNKNOWN:  # The prober's own trouble changes nothing.
        return before
    return before + 1 if counts else 0
