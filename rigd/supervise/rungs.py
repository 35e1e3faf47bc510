"""Taking a rung of the ladder: turn a knob, wait (`pending`), move a cache (`pending`), or back off. Pure."""

from dataclasses import dataclass, replace

from rigd.supervise.conditions import CONDITIONS
from rigd.supervise.decision import Decision, UseOverlay
from rigd.supervise.ladder import Move, Rung
from rigd.supervise.moves import Policy, move, moved
from rigd.supervise.overlay import KnobStep
from rigd.supervise.state import Aside, Failure, Pending, State, Status

ANSWERED_KEPT = 64
"""Marks of rungs that are remembered; more than any budget of a window."""
ASIDES_KEPT = 32


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure that has to be answered, and everything that its answer goes by."""

    before: Status
    """The status in which it was heard of: what the journal calls the state before."""
    cleared: Status
    """The status with the failure counted and its remains cleared away: what the answer starts from."""
    failure: Failure
    policy: Policy
    served: bool
    """Whether the engine had served: it may do so again with the same settings."""
    now_s: float
    jitter: float
    """Within -1..1; spreads the waits."""


def take(case: Case, rung: Rung) -> Decision:
    """Return the decision that takes a rung."""
    if rung.move is Move.TURN:
        return _turned(case, rung)
    if rung.move is Move.MOVE_ASIDE:
        return _moving(case, rung)
    mark = rung.mark(case.failure.kind)
    cleared = replace(case.cleared, answered=(*case.cleared.answered, mark)[-ANSWERED_KEPT:])
    marked = replace(case, cleared=cleared)
    return _waiting(marked, rung) if rung.move is Move.WAIT else _back_off(marked)


def _waiting(case: Case, rung: Rung) -> Decision:
    """Launch nothing until a condition holds; the first look comes at once."""
    condition, limits = CONDITIONS[rung.knob], case.policy.supervision.ladder
    limit_s = limits.wait_memory_s if condition.brief else limits.wait_s
    pending = Pending(
        move=Move.WAIT,
        what=rung.knob,
        since_s=case.now_s,
        until_s=case.now_s + limit_s,
        wanting=case.before.state is State.STARTING and case.before.launched_s is None,
        served=case.served,
    )
    reason = f"{case.failure.sentence} Waiting for {condition.words} before the next start."
    return _pend(case, pending, "waiting", reason)


def _moving(case: Case, rung: Rung) -> Decision:
    """Have a cache moved aside before the next start: noted first, so that it is never done twice."""
    now_s = case.now_s
    aside = Aside(cache=rung.knob, kind=case.failure.kind, basis=case.policy.basis, stamp=int(now_s))
    pending = Pending(move=Move.MOVE_ASIDE, what=rung.knob, since_s=now_s, until_s=now_s, served=case.served)
    noted = replace(case.cleared, asides=(*case.cleared.asides, aside)[-ASIDES_KEPT:])
    reason = f"{case.failure.sentence} Moving {rung.knob} aside before the next start."
    return _pend(replace(case, cleared=noted), pending, "aside", reason)


def _pend(case: Case, pending: Pending, kind: str, reason: str) -> Decision:
    after = replace(
        move(case.cleared, State.BACKOFF, reason, now_s=case.now_s),
        retry_s=case.now_s,
        pending=pending,
        job=None,
    )
    entry = moved(case.before, after, kind, reason, failure=case.failure.kind, what=pending.what)
    return Decision(status=after, entries=(entry,))


def _back_off(case: Case) -> Decision:
    """Start the same settings again, after a wait that grows with the streak."""
    failure, now_s = case.failure, case.now_s
    retry_s = max(now_s, failure.at_s + wait_s(case.cleared.streak, case.policy, jitter=case.jitter))
    reason = f"{failure.sentence} Next start in {max(0.0, retry_s - now_s):.0f} s."
    after = replace(move(case.cleared, State.BACKOFF, reason, now_s=now_s), retry_s=retry_s)
    entry = moved(
        case.before,
        after,
        "backoff",
        reason,
        failure=failure.kind,
        streak=case.cleared.streak,
        wait_s=round(retry_s - now_s, 1),
    )
    return Decision(status=after, entries=(entry,))


def _turned(case: Case, rung: Rung) -> Decision:
    """Turn one knob for the next start; the count of failures begins anew with the new settings."""
    failure, policy = case.failure, case.policy
    step = KnobStep(
        knob=rung.knob,
        old=rung.old,
        new=rung.new,
        kind=failure.kind,
        sentence=failure.sentence,
        at_s=case.now_s,
        start=failure.start,
        evidence=failure.evidence[0] if failure.evidence else "",
        version=policy.engine.version,
        basis=policy.basis,
    )
    reason = f"{failure.sentence} Changed {step} for the next start."
    backoff = policy.supervision.backoff
    after = replace(
        move(case.cleared, State.BACKOFF, reason, now_s=case.now_s),
        retry_s=case.now_s + min(backoff.initial_s, backoff.max_s),
        overlay=(*case.before.overlay, step),
        overlay_basis=policy.basis,
        failures=(),
        streak=0,
        answered=(),
    )
    message = f"changed {step}: {failure.sentence}"
    entry = moved(case.before, after, "overlay", message, failure=failure.kind)
    use = UseOverlay(steps=after.overlay, on_good=bool(after.fallback_from))
    return Decision(status=after, actions=(use,), entries=(entry,))


def wait_s(streak: int, policy: Policy, *, jitter: float) -> float:
    """Return the wait before the next start, in seconds; `jitter` is within -1..1."""
    backoff = policy.supervision.backoff
    # The exponent is bounded so that a long streak cannot overflow.
    wait: float = min(backoff.max_s, backoff.initial_s * backoff.factor ** min(max(streak - 1, 0), 64))
    return wait * (1 + backoff.jitter * jitter)
