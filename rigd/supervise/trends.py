"""Failures that only the numbers show: when one begins, when it is over, and which is to be answered now. Pure.

    Track (counters, memory) -> noted: troubles begin and end -> answer: the one that a restart or a knob may help
                                                              -> told: each begin and each end, once, to the journal

An engine in such trouble serves: it is degraded and says why. Answers that cost a restart wait until nothing runs.
"""

from dataclasses import replace

from rigd.supervise import memory_trend, slow_answers
from rigd.supervise.baselines import of_digest
from rigd.supervise.decision import Decision, Entry
from rigd.supervise.failing import rung_for
from rigd.supervise.ladder import Move
from rigd.supervise.moves import Policy
from rigd.supervise.pool import accepted_pool
from rigd.supervise.state import Failure, State, Status, Trouble
from rigd.supervise.trend_rules import RULES, Grade, Rule, Standard, Trend
from rigd.supervise.trend_track import Gauge

BLOCKS = 2
"""Blocks in a row before a trend is told: one may be an odd text."""
RESTS = frozenset({State.READY, State.DEGRADED})
"""States in which a trend may be answered."""


def standard(status: Status, policy: Policy) -> Standard:
    """Return what the present engine is measured against."""
    engine = status.engine
    digest = "" if engine is None else engine.digest
    # Of an engine that runs with other settings than those in effect nothing is known but its counters.
    same = digest == policy.digest
    return Standard(
        limits=policy.supervision.trends,
        speculative=policy.engine.arguments.speculative if same else None,
        baseline=of_digest(status.baselines, digest),
    )


def degrading(status: Status) -> tuple[Trouble, ...]:
    """Return the troubles that keep a serving engine from being ready."""
    return tuple(one for one in status.troubles if one.degrades)


def serving_state(status: Status) -> tuple[State, str, str]:
    """Return the state of an engine that serves well but for trends, the journal's kind for it, and the reason."""
    ails = degrading(status)
    if ails:
        return State.DEGRADED, "trend-lasts", ails[0].sentence
    return State.READY, "ready", "serving"


def noted(status: Status, policy: Policy, *, now_s: float) -> Status:
    """Return the status with the troubles that the numbers show at `now_s`."""
    if status.engine is None or not policy.supervision.trends.enabled:
        return status
    against = standard(status, policy)
    troubles = {one.kind: one for one in status.troubles}
    for rule in RULES:
        gauge = status.vitals.track.gauge(rule.trend)
        if gauge is not None and gauge.block is not None:
            _by_gauge(troubles, rule, gauge, against, status, now_s=now_s)
    _by_memory(troubles, against, status, now_s=now_s)
    found = tuple(troubles.values())
    after = status if found == status.troubles else replace(status, troubles=found)
    return accepted_pool(after, policy, now_s=now_s)


def _by_gauge(
    troubles: dict[str, Trouble], rule: Rule, gauge: Gauge, against: Standard, status: Status, *, now_s: float
) -> None:
    if gauge.block is None:
        return
    if gauge.poor == 0:
        troubles.pop(rule.trend, None)
    elif gauge.poor >= BLOCKS:
        sentence = rule.sentence(gauge.block, against)
        grave = gauge.grave >= BLOCKS
        _begin(troubles, rule.trend, sentence, rule.hint, status, grave=grave, now_s=now_s)


def _by_memory(troubles: dict[str, Trouble], against: Standard, status: Status, *, now_s: float) -> None:
    points, limits = status.vitals.track.memory, against.limits
    if not memory_trend.judged(points, limits):
        return
    found = memory_trend.growth(points, limits)
    grade = memory_trend.grade(found, limits)
    if found is None or grade is Grade.FINE:
        troubles.pop(Trend.MEMORY, None)
        return
    hint = "restart when it suits you: rigd restart; a newer vLLM may have fixed it"
    _begin(
        troubles,
        Trend.MEMORY,
        memory_trend.sentence(found),
        hint,
        status,
        grave=grade is Grade.GRAVE,
        degrades=False,
        now_s=now_s,
    )


def _begin(
    troubles: dict[str, Trouble],
    trend: Trend,
    sentence: str,
    hint: str,
    status: Status,
    *,
    grave: bool,
    now_s: float,
    degrades: bool = True,
) -> None:
    """Note a trouble once, with the numbers of its beginning; and once more where it gets grave."""
    known = troubles.get(trend)
    if known is not None and (not grave or known.grave_s is not None):
        return
    engine = status.engine.id if status.engine is not None else ""
    troubles[trend] = Trouble(
        kind=trend.value,
        engine=engine,
        sentence=sentence,
        hint=hint,
        since_s=now_s if known is None else known.since_s,
        grave_s=now_s if grave else None,
        degrades=degrades,
    )


def answer(status: Status, policy: Policy, *, now_s: float) -> Failure | None:
    """Return the trouble to answer now by ending the engine, as a failure: its road leads on, and nothing runs.

    None also where one more failure would use up the budgets: an engine that serves badly is better than none.
    """
    rules = policy.supervision
    if status.state not in RESTS or status.job is not None or not rules.trends.enabled:
        return None
    if not _affordable(status, policy, now_s=now_s):
        return None
    status = answerable(status, policy, now_s=now_s)
    for trouble in status.troubles:
        if trouble.grave_s is None or trouble.kind not in slow_answers.ANSWERED:
            continue
        if not idle(status) and now_s - trouble.grave_s < rules.trends.idle_wait_s:
            continue
        failure = _failure(trouble, status, now_s=now_s)
        if rung_for(status, failure, policy).move is not Move.STOP:
            return failure
    return None


def answerable(status: Status, policy: Policy, *, now_s: float) -> Status:
    """Return the status without the answers that no longer count."""
    limits = policy.supervision.trends
    return replace(status, slow_answers=slow_answers.recent(status.slow_answers, limits, now_s=now_s))


def _failure(trouble: Trouble, status: Status, *, now_s: float) -> Failure:
    start = status.engine.start if status.engine is not None else 0
    return Failure(kind=trouble.kind, sentence=trouble.sentence, hint=trouble.hint, at_s=now_s, start=start)


def idle(status: Status) -> bool:
    """Return whether nothing runs or waits, rigd's own canary included."""
    load = status.vitals.load
    return load is not None and load.running + load.waiting == 0 and status.vitals.canary_sent_s is None


def _affordable(status: Status, policy: Policy, *, now_s: float) -> bool:
    rules = policy.supervision
    failures = sum(now_s - at < rules.attempts_window_s for at in status.failures)
    boots = sum(now_s - at < rules.attempts_window_s for at in status.boots)
    return failures + 1 < rules.attempts and boots + 1 < rules.ladder.boots


def told(before: Status, decision: Decision, *, now_s: float) -> Decision:
    """Return the decision with a journal entry for each trouble that begins and each that is over.

    A trouble is over with its engine, whatever ended that.
    """
    after = decision.status
    engine = "" if after.engine is None else after.engine.id
    there = tuple(one for one in after.troubles if one.engine == engine)
    if there == before.troubles and there == after.troubles:
        return decision
    old = {one.kind for one in before.troubles if one.engine == engine}
    new = {one.kind for one in there}
    begun = tuple(_entry("trend", one.sentence, one) for one in there if one.kind not in old)
    over = tuple(
        _entry("trend-over", _how_over(one, engine, now_s=now_s), one)
        for one in before.troubles
        if one.kind not in new
    )
    # What began comes before the entries of what it leads to.
    return replace(
        decision, status=replace(after, troubles=there), entries=(*begun, *over, *decision.entries)
    )


def _how_over(trouble: Trouble, engine: str, *, now_s: float) -> str:
    lasted = f"{max(0.0, now_s - trouble.since_s) / 60:.0f} min"
    why = "" if trouble.engine == engine else " with its engine"
    return f"over{why} after {lasted}: {trouble.sentence}"


def _entry(kind: str, message: str, trouble: Trouble) -> Entry:
    data = (("class", str(trouble.kind)), ("hint", trouble.hint), ("degrades", trouble.degrades))
    return Entry(kind=kind, message=message, data=data)
