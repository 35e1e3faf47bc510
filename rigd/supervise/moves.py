"""The moves that every decision is made of: change state, begin a job, fail, back off. Pure."""

from dataclasses import dataclass, replace

from rigd.rig.schema import Engine, Supervision, Warm
from rigd.supervise.ladder import Move, Rung, next_rung
from rigd.supervise.overlay import KnobStep
from rigd.supervise.state import (
    TRANSITIONS,
    Action,
    CancelJob,
    Decision,
    Desired,
    Entry,
    Failure,
    GiveUp,
    Job,
    JobKind,
    KnownGood,
    Launch,
    State,
    Status,
    StopEngine,
    UseKnownGood,
    UseOverlay,
    WarmPrefixes,
)

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


def cancelled(status: Status) -> tuple[Action, ...]:
    """Return what cancels the job in hand, if there is one."""
    return () if status.job is None else (CancelJob(job=status.job.id),)


def launch(status: Status, reason: str, *, now_s: float) -> Decision:
    """Begin a start."""
    after = replace(
        move(status, State.STARTING, reason, now_s=now_s),
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


def failed(status: Status, failure: Failure, policy: Policy, *, now_s: float, jitter: float) -> Decision:
    """Count a failure whose remains are cleared away: back off, or give up with a typed reason."""
    rules = policy.supervision
    streak = 1 if _was_healthy(status, policy, failure.at_s) else status.streak + 1
    window = (*(at for at in status.failures if now_s - at < rules.attempts_window_s), now_s)
    cleared = replace(
        status,
        engine=None,
        job=None,
        launched_s=None,
        healthy_s=None,
        ready_s=None,
        failures=window[-rules.attempts :],
        streak=streak,
        failure=failure,
        ending=None,
    )
    if status.desired is Desired.STOPPED:
        after = move(cleared, State.STOPPED, "stop asked", now_s=now_s)
        return Decision(status=after, entries=(moved(status, after, "stopped", "stopped"),))
    if status.trial is not None:
        return _trial_failed(status, cleared, status.trial, now_s=now_s)
    boots = tuple(at for at in status.boots if now_s - at < rules.attempts_window_s)
    if len(boots) >= rules.ladder.boots:
        said = f"{len(boots)} starts within {rules.attempts_window_s:.0f} s did not help"
        return give_up(
            status,
            cleared,
            GiveUp.BOOTS,
            f"gave up: {said}; the last failure: {failure.sentence}",
            policy,
            now_s=now_s,
        )
    rung = next_rung(
        failure.kind,
        failure.remedies,
        policy.engine,
        policy.wished,
        rules.ladder,
        restarts=status.answered.count(failure.kind),
    )
    if rung.move is Move.TURN:
        return _turned(status, cleared, failure, rung, policy, now_s=now_s)
    if rung.move is Move.STOP and _failed_start(status, policy, failure.at_s):
        if status.overlay:
            said = f"{failure.sentence} Every change that may help was tried: {_listed(status.overlay)}."
            return give_up(status, cleared, GiveUp.LADDER, said, policy, now_s=now_s)
        if not failure.retry_helps:
            said = f"{failure.sentence} Trying again would not help."
            return give_up(status, cleared, GiveUp.USELESS, said, policy, now_s=now_s)
    if len(window) >= rules.attempts:
        said = f"gave up after {len(window)} failures within {rules.attempts_window_s:.0f} s"
        said = f"{said}; the last one: {failure.sentence}"
        return give_up(status, cleared, GiveUp.ATTEMPTS, said, policy, now_s=now_s)
    cleared = replace(cleared, answered=(*status.answered, failure.kind)[-rules.attempts :])
    return _back_off(status, cleared, failure, policy, now_s=now_s, jitter=jitter)


def _back_off(
    status: Status, cleared: Status, failure: Failure, policy: Policy, *, now_s: float, jitter: float
) -> Decision:
    retry_s = max(now_s, failure.at_s + wait_s(cleared.streak, policy, jitter=jitter))
    reason = f"{failure.sentence} Next start in {max(0.0, retry_s - now_s):.0f} s."
    after = replace(move(cleared, State.BACKOFF, reason, now_s=now_s), retry_s=retry_s)
    entry = moved(
        status,
        after,
        "backoff",
        reason,
        failure=failure.kind,
        streak=cleared.streak,
        wait_s=round(retry_s - now_s, 1),
    )
    return Decision(status=after, entries=(entry,))


def as_wished(status: Status) -> Status:
    """Return `status` with nothing changed on top of the rig file, and no fallback."""
    return replace(status, overlay=(), overlay_basis="", trial=None, answered=(), fallback_from="")


def give_up(
    status: Status, cleared: Status, why: GiveUp, reason: str, policy: Policy, *, now_s: float
) -> Decision:
    """Stop trying, and say why; a rig file that was changed and failed makes way for what last worked."""
    good = cleared.good
    if good is not None and good.basis != policy.basis and not status.fallback_from:
        return _fall_back(status, cleared, good, reason, policy, now_s=now_s)
    after = replace(move(cleared, State.FAILED, reason, now_s=now_s), gave_up=why)
    kind = cleared.failure.kind if cleared.failure is not None else None
    entry = moved(status, after, "gave-up", reason, failure=kind, why=str(why))
    return Decision(status=after, entries=(entry,))


def _fall_back(
    status: Status, cleared: Status, good: KnownGood, reason: str, policy: Policy, *, now_s: float
) -> Decision:
    said = f"{reason} Going back to the last known good settings (start {good.start})."
    after = replace(
        move(cleared, State.BACKOFF, said, now_s=now_s),
        retry_s=now_s,
        overlay=(),
        overlay_basis="",
        answered=(),
        failures=(),
        boots=(),
        trial=None,
        fallback_from=policy.basis,
    )
    entry = moved(status, after, "fallback", said, good=good.digest)
    return Decision(status=after, actions=(UseKnownGood(),), entries=(entry,))


def _turned(
    status: Status, cleared: Status, failure: Failure, rung: Rung, policy: Policy, *, now_s: float
) -> Decision:
    """Turn one knob for the next start; the count of failures begins anew with the new settings."""
    step = KnobStep(
        knob=rung.knob,
        old=rung.old,
        new=rung.new,
        kind=failure.kind,
        sentence=failure.sentence,
        at_s=now_s,
        start=failure.start,
    )
    reason = f"{failure.sentence} Changed {step} for the next start."
    after = replace(
        move(cleared, State.BACKOFF, reason, now_s=now_s),
        retry_s=now_s + min(policy.supervision.backoff.initial_s, policy.supervision.backoff.max_s),
        overlay=(*status.overlay, step),
        overlay_basis=policy.basis,
        failures=(),
        streak=0,
        answered=(),
    )
    entry = moved(status, after, "overlay", f"changed {step}: {failure.sentence}", failure=failure.kind)
    return Decision(status=after, actions=(UseOverlay(steps=after.overlay),), entries=(entry,))


def _trial_failed(status: Status, cleared: Status, trial: KnobStep, *, now_s: float) -> Decision:
    """Take back what was undone on trial, and wait twice as long for the next one."""
    overlay = (*status.overlay, trial)
    reason = f"without the change {trial} it failed again; the change is back"
    after = replace(
        move(cleared, State.BACKOFF, reason, now_s=now_s),
        retry_s=now_s,
        overlay=overlay,
        trial=None,
        trials_failed=status.trials_failed + 1,
        streak=status.streak,
        failures=status.failures,
    )
    entry = moved(status, after, "overlay", reason)
    return Decision(status=after, actions=(UseOverlay(steps=overlay),), entries=(entry,))


def _listed(overlay: tuple[KnobStep, ...]) -> str:
    return ", ".join(map(str, overlay))


def _failed_start(status: Status, policy: Policy, at_s: float) -> bool:
    """Return whether the engine never got ready, or ended so soon after that it counts as that."""
    return status.ready_s is None or at_s - status.ready_s < policy.supervision.early_crash_s


def wait_s(streak: int, policy: Policy, *, jitter: float) -> float:
    """Return the wait before the next start, in seconds; `jitter` is within -1..1."""
    backoff = policy.supervision.backoff
    # The exponent is bounded so that a long streak cannot overflow.
    wait: float = min(backoff.max_s, backoff.initial_s * backoff.factor ** min(max(streak - 1, 0), 64))
    return wait * (1 + backoff.jitter * jitter)


def _was_healthy(status: Status, policy: Policy, at_s: float) -> bool:
    return status.ready_s is not None and at_s - status.ready_s >= policy.supervision.healthy_stretch_s
