"""What follows a failure whose remains are cleared away: a rung of the ladder, or giving up. Pure.

    failure -> ladder.next_rung -> rungs.take: turn a knob | wait | move a cache | back off
            -> give up | the last known good settings

A failed trial is taken back before anything else; a changed rig file that fails makes way for what last worked.
"""

from dataclasses import replace

from rigd.supervise import knobs, slow_answers
from rigd.supervise.decision import Decision, UseKnownGood, UseOverlay
from rigd.supervise.ladder import REPEATED, UTILIZATION, Move, Rung, Tried, next_rung
from rigd.supervise.moves import Policy, move, moved
from rigd.supervise.overlay import OPERATOR, RAISED, KnobStep
from rigd.supervise.rungs import ANSWERED_KEPT, Case, take
from rigd.supervise.state import Desired, Failure, GiveUp, KnownGood, Pending, State, Status


def failed(status: Status, failure: Failure, policy: Policy, *, now_s: float, jitter: float) -> Decision:
    """Count a failure whose remains are cleared away, and answer it; or give up with a typed reason."""
    rules = policy.supervision
    streak = 1 if _was_healthy(status, policy, failure.at_s) else status.streak + 1
    window = (*(at for at in status.failures if now_s - at < rules.attempts_window_s), now_s)
    failure = _with_what_fits(failure, policy)
    rung = rung_for(status, failure, policy)
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
        return _take_back(status, cleared, status.trial, now_s=now_s)
    case = Case(
        before=status,
        cleared=cleared,
        failure=failure,
        policy=policy,
        served=not _failed_start(status, policy, failure.at_s),
        now_s=now_s,
        jitter=jitter,
    )
    boots = tuple(at for at in status.boots if now_s - at < rules.attempts_window_s)
    if len(boots) >= rules.ladder.boots:
        said = f"{len(boots)} starts within {rules.attempts_window_s:.0f} s did not help"
        return _give_up(case, GiveUp.BOOTS, f"gave up: {said}; the last failure: {failure.sentence}")
    if rung.move is Move.STOP and not case.served:
        return _spent(case)
    if rung.move in {Move.TURN, Move.MOVE_ASIDE} or outside:
        return take(case, rung)
    return _within_attempts(case, rung)


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
    rung = rung_for(cleared, failure, policy)
    case = Case(
        before=status,
        cleared=cleared,
        failure=failure,
        policy=policy,
        served=pending.served,
        now_s=now_s,
        jitter=jitter,
    )
    # What was waited for in vain is still wanting: the same start again would only find it so.
    useless = {Move.STOP, *REPEATED} if said else {Move.STOP}
    if rung.move not in useless:
        return take(case, rung)
    if said:
        return _give_up(case, GiveUp.WAITED, f"gave up: {said}. {failure.sentence}")
    return _within_attempts(case, rung) if case.served else _spent(case)


def rung_for(status: Status, failure: Failure, policy: Policy) -> Rung:
    """Return the next rung for a failure, after all that was tried."""
    kind, limits = failure.kind, policy.supervision.ladder
    if failure.fits is not None:
        most = min(limits.most_gpu_memory_utilization, failure.fits)
        limits = limits.model_copy(update={"most_gpu_memory_utilization": most})
    own = (step for step in status.overlay if step.kind != OPERATOR)
    slow = slow_answers.marks(status.slow_answers, kind)
    tried = Tried(
        answered=status.answered if slow is None else slow,
        moved=frozenset(
            aside.cache for aside in status.asides if (aside.kind, aside.basis) == (kind, policy.basis)
        ),
        values=frozenset((step.knob, value) for step in own for value in (step.old, step.new)),
    )
    return next_rung(kind, failure.remedies, policy.engine, policy.wished, limits, tried=tried)


def _with_what_fits(failure: Failure, policy: Policy) -> Failure:
    """Return the failure with a word on the cards, where they have no room for a larger share."""
    now = knobs.in_effect(policy.engine, UTILIZATION)
    if failure.fits is None or not isinstance(now, float) or failure.fits > now:
        return failure
    said = f"Of the cards' memory no more than {failure.fits:.2f} is free beside what other processes hold."
    return replace(failure, sentence=f"{failure.sentence} {said}")


def _within_attempts(case: Case, rung: Rung) -> Decision:
    """Take a rung that starts the same settings again, unless that has failed too often."""
    rules, failures = case.policy.supervision, case.cleared.failures
    if len(failures) >= rules.attempts:
        said = f"gave up after {len(failures)} failures within {rules.attempts_window_s:.0f} s"
        return _give_up(case, GiveUp.ATTEMPTS, f"{said}; the last one: {case.failure.sentence}")
    return take(case, rung)


def _spent(case: Case) -> Decision:
    """Give up where the road has ended and no start succeeded; else try the same settings within the attempts."""
    failure, overlay = case.failure, case.before.overlay
    # What was changed for another class says nothing of this one: it may pass by itself.
    if any(step.kind == failure.kind for step in overlay):
        listed = ", ".join(map(str, overlay))
        said = f"{failure.sentence} Every change that may help was tried: {listed}."
        return _give_up(case, GiveUp.LADDER, said)
    if not failure.retry_helps:
        return _give_up(case, GiveUp.USELESS, f"{failure.sentence} Trying again would not help.")
    return _within_attempts(replace(case, served=False), Rung(move=Move.STOP))


def _back_off_now(status: Status, reason: str, *, now_s: float) -> Decision:
    after = replace(move(status, State.BACKOFF, reason, now_s=now_s), retry_s=now_s, pending=None)
    return Decision(status=after, entries=(moved(status, after, "backoff", reason),))


def _give_up(case: Case, why: GiveUp, reason: str) -> Decision:
    """Stop trying, and say why; a rig file that was changed and failed makes way for what last worked."""
    good = case.cleared.good
    if good is not None and good.basis != case.policy.basis and not case.before.fallback_from:
        return _fall_back(case, good, reason)
    after = replace(move(case.cleared, State.FAILED, reason, now_s=case.now_s), gave_up=why)
    entry = moved(case.before, after, "gave-up", reason, failure=case.failure.kind, why=str(why))
    return Decision(status=after, entries=(entry,))


def _fall_back(case: Case, good: KnownGood, reason: str) -> Decision:
    said = f"{reason} Going back to the last known good settings (start {good.start})."
    after = replace(
        move(case.cleared, State.BACKOFF, said, now_s=case.now_s),
        retry_s=case.now_s,
        overlay=(),
        overlay_basis="",
        answered=(),
        failures=(),
        boots=(),
        trial=None,
        fallback_from=case.policy.basis,
    )
    entry = moved(case.before, after, "fallback", said, good=good.digest)
    return Decision(status=after, actions=(UseKnownGood(),), entries=(entry,))


def _take_back(status: Status, cleared: Status, trial: KnobStep, *, now_s: float) -> Decision:
    """Take back what was changed or undone on trial, and wait twice as long for the next one."""
    beyond = trial.kind == RAISED
    reason = (
        f"with {trial}, beyond the wish, it failed; that is taken back"
        if beyond
        else f"without the change {trial} it failed again; the change is back"
    )
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


def _failed_start(status: Status, policy: Policy, at_s: float) -> bool:
    """Return whether the engine never got ready, or ended so soon after that it counts as that."""
    return status.ready_s is None or at_s - status.ready_s < policy.supervision.early_crash_s


def _was_healthy(status: Status, policy: Policy, at_s: float) -> bool:
    return status.ready_s is not None and at_s - status.ready_s >= policy.supervision.healthy_stretch_s
