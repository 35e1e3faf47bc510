"""The moves that every decision is made of: change state, begin a job, launch, stop, warm. Pure."""

from dataclasses import dataclass, replace

from rigd.rig.schema import Engine, Supervision, Warm
from rigd.supervise.decision import Action, CancelJob, Decision, Entry, Launch, StopEngine, WarmPrefixes
from rigd.supervise.state import TRANSITIONS, Failure, Job, JobKind, State, Status

BROKEN_GRACE_S = 0.5
"""From TERM to KILL for a tree that is already broken: there is nothing left to shut down cleanly."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a decision goes by: the rig file's policies, and the digest of the specification wanted now."""

    supervision: Supervision
    warm: Warm
    digest: str
    """Digest of the specification in effect: rig file and overlay."""
    engine: Engine
    """The engine in effect."""
    wished: Engine
    """The engine as the rig file wishes it."""
    basis: str = ""
    """Digest of the specification that the rig file alone gives."""
    prefixes: tuple[str, ...] = ()


class IllegalTransitionError(RuntimeError):
    """A decision made a move that the transition table does not know: a bug."""


def move(status: Status, state: State, reason: str, *, now_s: float) -> Status:
    """Return `status` in `state`, for `reason`; the table must know the transition."""
    if state is status.state:
        return replace(status, reason=reason)
    if (status.state, state) not in TRANSITIONS:
        raise IllegalTransitionError(f"no transition from {status.state} to {state} ({reason})")
    return replace(status, state=state, reason=reason, since_s=now_s)


def moved(before: Status, after: Status, kind: str, message: str, **data: str | float | None) -> Entry:
    """Return the journal's line about a change of state."""
    facts = {"from": str(before.state), "to": str(after.state), **data}
    return Entry(kind=kind, message=message, data=tuple(facts.items()))


def with_job(
    status: Status, kind: JobKind, *, now_s: float, request: int | None = None
) -> tuple[Status, int]:
    """Return `status` with a new job in hand, and the job's number."""
    number = status.jobs + 1
    job = Job(id=number, kind=kind, began_s=now_s, request=request)
    return replace(status, job=job, jobs=number), number


def without_pending(status: Status) -> Status:
    """Return `status` with nothing to do before a start. A cache noted as moved stays so: its job may have begun."""
    return status if status.pending is None else replace(status, pending=None)


def cancelled(status: Status) -> tuple[Action, ...]:
    """Return what cancels the job in hand, if there is one."""
    return () if status.job is None else (CancelJob(job=status.job.id),)


def launch(status: Status, reason: str, *, now_s: float) -> Decision:
    """Begin a start."""
    after = replace(
        move(without_pending(status), State.STARTING, reason, now_s=now_s),
        engine=None,
        launched_s=None,
        healthy_s=None,
        ready_s=None,
        retry_s=None,
        warm=(),
        warmed_s=None,
        gave_up=None,
    )
    after, job = with_job(after, JobKind.LAUNCH, now_s=now_s)
    entry = moved(status, after, "starting", reason)
    return Decision(status=after, actions=(*cancelled(status), Launch(job=job)), entries=(entry,))


def stop(
    status: Status, reason: str, policy: Policy, *, now_s: float, failure: Failure | None = None
) -> Decision:
    """Begin to end the engine's tree; `failure` when that is why."""
    grace_s = policy.supervision.stop_grace_s if failure is None else BROKEN_GRACE_S
    after = replace(move(status, State.STOPPING, reason, now_s=now_s), retry_s=None, ending=failure)
    if failure is not None:
        after = replace(after, failure=failure)
    after, job = with_job(after, JobKind.STOP, now_s=now_s)
    action = StopEngine(job=job, ref=status.engine, grace_s=grace_s, failure=failure)
    kind = "stopping" if failure is None else "failure"
    entry = moved(status, after, kind, reason, failure=failure.kind if failure else None)
    return Decision(status=after, actions=(*cancelled(status), action), entries=(entry,))


def begin_warm(status: Status, state: State, reason: str, *, now_s: float) -> Decision:
    """Begin to warm the prefixes, in `state`."""
    after, job = with_job(move(status, state, reason, now_s=now_s), JobKind.WARM, now_s=now_s)
    entry = moved(status, after, "warming", reason)
    return Decision(status=after, actions=(WarmPrefixes(job=job),), entries=(entry,))


def as_wished(status: Status) -> Status:
    """Return `status` with nothing changed on top of the rig file, and no fallback."""
    cleared = replace(status, overlay=(), overlay_basis="", trial=None, trial_speed=None, too_high=None)
    return replace(
        cleared, trials_failed=0, climb_from_s=None, answered=(), slow_answers=(), fallback_from=""
    )
