"""What follows a failure whose remains are cleared away: a rung of the ladder, a wait, or giving up. Pure.

    failure -> ladder.next_rung -> turn a knob | wait (`pending`) | move a cache (`pending`) | back off | give up

A failed trial is taken back before anything else; a changed rig file that fails makes way for what last worked.
"""

from dataclasses import replace

from rigd.supervise import slow_answers
from rigd.supervise.conditions import CONDITIONS
from rigd.supervise.ladder import REPEATED, Move, Remedy, Rung, Tried, next_rung
from rigd.supervise.moves import Policy, move, moved
from rigd.supervise.overlay import OPERATOR, RAISED, KnobStep
from rigd.supervise.state import (
    Aside,
    Decision,
    Desired,
    Failure,
    GiveUp,
    KnownGood,
    Pending,
    State,
    Status,
    UseKnownGood,
    UseOverlay,
)

ANSWERED_KEPT = 64
"""Marks of rungs that are remembered; more than any budget of a window."""
ASIDES_KEPT = 32


def failed(status: Status, failure: Failure, policy: Policy, *, now_s: float, jitter: float) -> Decision:
    """Count a failure whose remains are cleared away, and answer it; or give up with a typed reason."""
    rules = policy.supervision
    streak = 1 if _was_healthy(status, policy, failure.at_s) else status.streak + 1
    window = (*(at for at in status.failures if now_s - at < rules.attempts_window_s), now_s)
    rung = rung_for(status, failure.kind, failure.remedies, policy)
    outside = rung.move is Move.WAIT and status.launched_s is None
    cleared = replace(
        status,
        engine=None,
        job=None,
        launched_s=None,
        healthy_s=None,
        ready_s=None,
        # Nothing was launched, and nothing will be before the machine is as it must be: no attempt is spent.
        failures=status.failures if outside else window[-rules.attempts :],
        streak=status.streak if outside else streak,
        failure=failure,
        ending=None,
        pending=None,
        slow_answers=slow_answers.with_answer(
            slow_answers.recent(status.slow_answers, rules.trends, now_s=now_s),
            failure.kind,
            at_s=failure.at_s,
        ),
    )
    if status.desired is Desired.STOPPED:
        after = move(cleared, State.STOPPED, "stop asked", now_s=now_s)
        return Decision(status=after, entries=(moved(status, after, "stopped", "stopped"),))
    if status.trial is not None and not outside:
        return take_back(status, cleared, status.trial, _FAILED_AGAIN.format(trial=status.trial), now_s=now_s)
    boots = tuple(at for at in status.boots if now_s - at < rules.attempts_window_s)
    if len(boots) >= rules.ladder.boots:
        said = f"{len(boots)} starts within {rules.attempts_window_s:.0f} s did not help"
        said = f"gave up: {said}; the last failure: {failure.sentence}"
        return give_up(status, cleared, GiveUp.BOOTS, said, policy, now_s=now_s)
    served = not _failed_start(status, policy, failure.at_s)
    if rung.move is Move.STOP and not served:
        return _spent(status, cleared, failure, policy, now_s=now_s, jitter=jitter)
    if rung.move in {Move.TURN, Move.MOVE_ASIDE} or outside:
        return _take(status, cleared, failure, rung, policy, served=served, now_s=now_s, jitter=jitter)
    return _within_attempts(status, cleared, failure, rung, policy, served=served, now_s=now_s, jitter=jitter)


_FAILED_AGAIN = "without the change {trial} it failed again; the change is back"


def go_on(
    status: Status, pending: Pending, mark: str, said: str, policy: Policy, *, now_s: float, jitter: float
) -> Decision:
    """Take the next rung after a wait or a move that did not help; `mark` keeps it from being taken again.

    `said` completes "gave up: ..." where there is no other rung.
    """
    failure = status.failure
    if failure is None:  # Never so: what is pending answers a failure.
        return _back_off_now(status, said, now_s=now_s)
    cleared = replace(status, pending=None, answered=(*status.answered, mark)[-ANSWERED_KEPT:])
    rung = rung_for(cleared, failure.kind, failure.remedies, policy)
    # What was waited for in vain is still wanting: the same start again would only find it so.
    useless = {Move.STOP, *REPEATED} if said else {Move.STOP}
    if rung.move not in useless:
        return _take(
            status, cleared, failure, rung, policy, served=pending.served, now_s=now_s, jitter=jitter
        )
    if said:
        return give_up(
            status, cleared, GiveUp.WAITED, f"gave up: {said}. {failure.sentence}", policy, now_s=now_s
        )
    if pending.served:
        return _within_attempts(
            status, cleared, failure, rung, policy, served=True, now_s=now_s, jitter=jitter
        )
    return _spent(status, cleared, failure, policy, now_s=now_s, jitter=jitter)


def rung_for(status: Status, kind: str, remedies: tuple[Remedy, ...], policy: Policy) -> Rung:
    """Return the next rung for a class of failure, after all that was tried."""
    own = (step for step in status.overlay if step.kind != OPERATOR)
    slow = slow_answers.marks(status.slow_answers, kind)
    tried = Tried(
        answered=status.answered if slow is None else slow,
        moved=frozenset(
            aside.cache for aside in status.asides if (aside.kind, aside.basis) == (kind, policy.basis)
        ),
        values=frozenset((step.knob, value) for step in own for value in (step.old, step.new)),
    )
    return next_rung(kind, remedies, policy.engine, policy.wished, policy.supervision.ladder, tried=tried)


def _take(
    status: Status,
    cleared: Status,
    failure: Failure,
    rung: Rung,
    policy: Policy,
    *,
    served: bool,
    now_s: float,
    jitter: float,
) -> Decision:
    """Take a rung."""
    if rung.move is Move.TURN:
        return _turned(status, cleared, failure, rung, policy, now_s=now_s)
    if rung.move is Move.MOVE_ASIDE:
        return _moving(status, cleared, failure, rung, policy, served=served, now_s=now_s)
    cleared = replace(cleared, answered=(*cleared.answered, rung.mark(failure.kind))[-ANSWERED_KEPT:])
    if rung.move is Move.WAIT:
        return _waiting(status, cleared, failure, rung, policy, served=served, now_s=now_s)
    return _back_off(status, cleared, failure, policy, now_s=now_s, jitter=jitter)


def _within_attempts(
    status: Status,
    cleared: Status,
    failure: Failure,
    rung: Rung,
    policy: Policy,
    *,
    served: bool,
    now_s: float,
    jitter: float,
) -> Decision:
    """Take a rung that starts the same settings again, unless that has failed too often."""
    rules = policy.supervision
    if len(cleared.failures) >= rules.attempts:
        said = f"gave up after {len(cleared.failures)} failures within {rules.attempts_window_s:.0f} s"
        said = f"{said}; the last one: {failure.sentence}"
        return give_up(status, cleared, GiveUp.ATTEMPTS, said, policy, now_s=now_s)
    return _take(status, cleared, failure, rung, policy, served=served, now_s=now_s, jitter=jitter)


def _spent(
    status: Status, cleared: Status, failure: Failure, policy: Policy, *, now_s: float, jitter: float
) -> Decision:
    """Give up where the road has ended and no start succeeded; else try the same settings within the attempts."""
    # What was changed for another class says nothing of this one: it may pass by itself.
    if any(step.kind == failure.kind for step in status.overlay):
        said = f"{failure.sentence} Every change that may help was tried: {_listed(status.overlay)}."
        return give_up(status, cleared, GiveUp.LADDER, said, policy, now_s=now_s)
    if not failure.retry_helps:
        said = f"{failure.sentence} Trying again would not help."
        return give_up(status, cleared, GiveUp.USELESS, said, policy, now_s=now_s)
    rung = Rung(move=Move.STOP)
    return _within_attempts(status, cleared, failure, rung, policy, served=False, now_s=now_s, jitter=jitter)


def _waiting(
    status: Status,
    cleared: Status,
    failure: Failure,
    rung: Rung,
    policy: Policy,
    *,
    served: bool,
    now_s: float,
) -> Decision:
    """Launch nothing until a condition holds; the first look comes at once."""
    condition, limits = CONDITIONS[rung.knob], policy.supervision.ladder
    limit_s = limits.wait_memory_s if condition.brief else limits.wait_s
    pending = Pending(
        move=Move.WAIT,
        what=rung.knob,
        since_s=now_s,
        until_s=now_s + limit_s,
        wanting=status.state is State.STARTING and status.launched_s is None,
        served=served,
    )
    reason = f"{failure.sentence} Waiting for {condition.words} before the next start."
    return _pend(status, cleared, pending, "waiting", reason, now_s=now_s)


def _moving(
    status: Status,
    cleared: Status,
    failure: Failure,
    rung: Rung,
    policy: Policy,
    *,
    served: bool,
    now_s: float,
) -> Decision:
    """Have a cache moved aside before the next start: noted first, so that it is never done twice."""
    aside = Aside(cache=rung.knob, kind=failure.kind, basis=policy.basis, stamp=int(now_s))
    pending = Pending(move=Move.MOVE_ASIDE, what=rung.knob, since_s=now_s, until_s=now_s, served=served)
    cleared = replace(cleared, asides=(*cleared.asides, aside)[-ASIDES_KEPT:])
    reason = f"{failure.sentence} Moving {rung.knob} aside before the next start."
    return _pend(status, cleared, pending, "aside", reason, now_s=now_s)


def _pend(
    status: Status,
    cleared: Status,
    pending: Pending,
    kind: str,
    reason: str,
    *,
    now_s: float,
) -> Decision:
    after = replace(
        move(cleared, State.BACKOFF, reason, now_s=now_s), retry_s=now_s, pending=pending, job=None
    )
    entry = moved(status, after, kind, reason, failure=_kind(cleared), what=pending.what)
    return Decision(status=after, entries=(entry,))


def _kind(status: Status) -> str | None:
    return None if status.failure is None else status.failure.kind


def _back_off_now(status: Status, reason: str, *, now_s: float) -> Decision:
    after = replace(move(status, State.BACKOFF, reason, now_s=now_s), retry_s=now_s, pending=None)
    return Decision(status=after, entries=(moved(status, after, "backoff", reason),))


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


def give_up(
    status: Status, cleared: Status, why: GiveUp, reason: str, policy: Policy, *, now_s: float
) -> Decision:
    """Stop trying, and say why; a rig file that was changed and failed makes way for what last worked."""
    good = cleared.good
    if good is not None and good.basis != policy.basis and not status.fallback_from:
        return _fall_back(status, cleared, good, reason, policy, now_s=now_s)
    after = replace(move(cleared, State.FAILED, reason, now_s=now_s), gave_up=why)
    entry = moved(status, after, "gave-up", reason, failure=_kind(cleared), why=str(why))
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
        evidence=failure.evidence[0] if failure.evidence else "",
        version=policy.engine.version,
        basis=policy.basis,
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
    use = UseOverlay(steps=after.overlay, on_good=bool(after.fallback_from))
    return Decision(status=after, actions=(use,), entries=(entry,))


def take_back(status: Status, cleared: Status, trial: KnobStep, reason: str, *, now_s: float) -> Decision:
    """Take back what was changed or undone on trial, and wait twice as long for the next one."""
    beyond = trial.kind == RAISED
    kept = tuple(step for step in status.overlay if step != trial)
    overlay = kept if beyond else (*status.overlay, trial)
    after = replace(
        move(cleared, State.BACKOFF, reason, now_s=now_s),
        retry_s=now_s,
        overlay=overlay,
        trial=None,
        trial_speed=None,
        trials_failed=status.trials_failed + 1,
        too_high=trial.new if beyond and isinstance(trial.new, int) else status.too_high,
        streak=status.streak,
        failures=status.failures,
    )
    entry = moved(status, after, "overlay", reason)
    use = UseOverlay(steps=overlay, on_good=bool(after.fallback_from))
    return Decision(status=after, actions=(use,), entries=(entry,))


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
