"""What is done between a failure and the next start: looks at a condition, and the moving of a cache. Pure.

    backoff, pending -> LookAt    -> Looked     -> launch | look again, later | next rung | give up
                     -> MoveAside -> MovedAside -> launch | next rung

Both are jobs: a daemon that is killed while one runs begins it again, and neither does harm twice.
"""

from dataclasses import replace

from rigd.supervise.conditions import CONDITIONS, look_s
from rigd.supervise.decision import Decision, Entry, LookAt, MoveAside, UseOverlay
from rigd.supervise.failing import go_on, rung_for
from rigd.supervise.ladder import OFFLINE_KNOB, WHOLE, Move, Rung, found, spent
from rigd.supervise.moves import Policy, launch, moved, with_job
from rigd.supervise.observations import Looked, MovedAside
from rigd.supervise.overlay import OPERATOR
from rigd.supervise.rungs import wait_s
from rigd.supervise.state import JobKind, Pending, Status

NETWORK = "network"


def begin(status: Status, pending: Pending, *, now_s: float) -> Decision:
    """Begin the job that what is pending calls for."""
    if pending.move is Move.WAIT:
        after, job = with_job(status, JobKind.LOOK, now_s=now_s)
        return Decision(status=after, actions=(LookAt(job=job, condition=pending.what),))
    after, job = with_job(status, JobKind.ASIDE, now_s=now_s)
    action = MoveAside(job=job, cache=pending.what, stamp=status.asides[-1].stamp)
    return Decision(status=after, actions=(action,))


def looked(status: Status, result: Looked, policy: Policy, now_s: float, jitter: float) -> Decision:
    """Return what follows from a look: a start, another look, the next rung, or giving up."""
    pending = status.pending
    if pending is None:
        return Decision(status=status)
    condition, kind = CONDITIONS[pending.what], status.failure.kind if status.failure is not None else ""
    mark = spent(kind, pending.what)
    back: tuple[UseOverlay, ...] = ()
    if result.holds and pending.what == NETWORK:
        status, back = _online(status, policy)
    meanwhile = _without_it(status, pending, result, policy, now_s=now_s, jitter=jitter)
    if meanwhile is not None:
        return meanwhile
    if result.unexpected:
        soon_s = pending.since_s + policy.supervision.ladder.wait_path_s
        pending = replace(pending, until_s=min(pending.until_s, soon_s))
    if not result.holds and now_s < pending.until_s:
        return _look_again(status, pending, result, now_s=now_s)
    if not result.holds:
        said = f"waited {pending.until_s - pending.since_s:.0f} s for {condition.words}: {result.detail}"
        return go_on(status, pending, mark, said, policy, now_s=now_s, jitter=jitter)
    if pending.looks or pending.wanting:
        held_s = now_s - pending.since_s
        reason = f"waited {held_s:.0f} s for {condition.words}, which came true"
        decision = launch(status, reason, now_s=now_s)
        return replace(decision, actions=(*back, *decision.actions))
    if condition.explains:
        return go_on(status, pending, mark, "", policy, now_s=now_s, jitter=jitter)
    # It holds already: it passed by itself, so the start waits no longer than after any other failure.
    retry_s = now_s + wait_s(max(1, status.streak), policy, jitter=jitter)
    said = status.failure.sentence if status.failure is not None else ""
    reason = f"{said} There is no more waiting for {condition.words}; next start in {retry_s - now_s:.0f} s."
    after = replace(status, pending=None, retry_s=retry_s, reason=reason.strip())
    return Decision(status=after, actions=back, entries=(moved(status, after, "backoff", after.reason),))


def _without_it(
    status: Status, pending: Pending, result: Looked, policy: Policy, *, now_s: float, jitter: float
) -> Decision | None:
    """Return the knob to turn so that the engine can do without what is waited for, None where there is none.

    Where the condition holds, that is the answer only to a failure that a start like it did not end.
    """
    failure = status.failure
    if not result.whole or failure is None:
        return None
    waits = status.answered.count(Rung(move=Move.WAIT, knob=pending.what).mark(failure.kind))
    if result.holds and waits <= 1:
        return None
    marks = (spent(failure.kind, pending.what), found(failure.kind, WHOLE))
    known = replace(failure, sentence=f"{failure.sentence} All that it needs is on this box.")
    marked = replace(status, failure=known, answered=(*status.answered, *marks))
    if rung_for(marked, failure, policy).move is not Move.TURN:
        return None
    return go_on(marked, pending, marks[0], "", policy, now_s=now_s, jitter=jitter)


def _online(status: Status, policy: Policy) -> tuple[Status, tuple[UseOverlay, ...]]:
    """Return the status without a start offline that rigd has chosen, and what puts that into effect."""
    kept = tuple(step for step in status.overlay if step.knob != OFFLINE_KNOB or step.kind == OPERATOR)
    if kept == status.overlay:
        return status, ()
    use = UseOverlay(steps=kept, on_good=bool(status.fallback_from))
    return replace(status, overlay=kept, overlay_basis=policy.basis), (use,)


def _look_again(status: Status, pending: Pending, result: Looked, *, now_s: float) -> Decision:
    condition = CONDITIONS[pending.what]
    wait = min(look_s(pending.looks), max(0.0, pending.until_s - now_s))
    reason = f"waiting for {condition.words}: {result.detail or 'not yet'}"
    after = replace(
        status,
        pending=replace(pending, looks=pending.looks + 1, detail=result.detail),
        retry_s=now_s + wait,
        reason=reason,
    )
    # Said once, unless the failure said it: what each look sees is in the status.
    said = pending.looks or (status.failure is not None and result.detail in status.failure.sentence)
    entry = moved(status, after, "waiting", reason, what=pending.what)
    return Decision(status=after, entries=() if said else (entry,))


def moved_aside(status: Status, result: MovedAside, policy: Policy, now_s: float, jitter: float) -> Decision:
    """Return what follows from the moving of a cache: a start, or the next rung where there was nothing to move."""
    pending = status.pending
    if pending is None or not status.asides:
        return Decision(status=status)
    *earlier, aside = status.asides
    failure = status.failure
    if failure is not None and result.finding:
        failure = replace(failure, sentence=f"{failure.sentence} {result.finding}")
    asides = (*earlier, replace(aside, done=True, detail=result.detail))
    done = replace(status, asides=asides, failure=failure)
    message = f"{pending.what}: {result.detail}"
    entry = Entry(kind="moved-aside", message=message, data=(("moved", result.moved), ("what", pending.what)))
    decision = (
        launch(done, f"{message}; starting without it", now_s=now_s)
        if result.moved
        else go_on(done, pending, spent(aside.kind, aside.cache), "", policy, now_s=now_s, jitter=jitter)
    )
    return replace(decision, entries=(entry, *decision.entries))
