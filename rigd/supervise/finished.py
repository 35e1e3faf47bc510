"""What follows when a job ends. Pure; one row a kind of result."""

from collections.abc import Callable
from dataclasses import replace

from rigd.supervise import climb, trends, warm
from rigd.supervise.decision import Decision, Entry, Reply, UseSpecification
from rigd.supervise.failing import failed
from rigd.supervise.health import Vitals
from rigd.supervise.moves import Policy, as_wished, launch, move, moved, stop
from rigd.supervise.observations import (
    CheckDone,
    Finished,
    LaunchDone,
    LaunchFailed,
    Looked,
    MovedAside,
    StopDone,
    StopFailed,
    TrialLook,
    WarmDone,
)
from rigd.supervise.pending import looked, moved_aside
from rigd.supervise.state import Desired, PrefixWarmth, State, Status

BOOTS_KEPT = 200
"""Times of starts that are remembered; more than any budget of a window."""
UNAVAILABLE_WAIT_S = 30.0
"""Longest wait before a runtime that did not answer, or a broken host, is asked again."""
AWAY = "runtime_unavailable"
"""Class of a runtime that does not answer: it is waited for."""


def on_finished(
    status: Status, finished: Finished, policy: Policy, *, now_s: float, jitter: float
) -> Decision:
    """Return what follows from a job's end; the end of a job that is no longer in hand changes nothing."""
    job = status.job
    if job is None or job.id != finished.job:
        return Decision(status=status)
    free = replace(status, job=None)
    result = finished.result
    if isinstance(result, CheckDone):
        return _checked(free, result, job.request, policy, now_s=now_s)
    return _RESULTS[type(result)](free, result, policy, now_s, jitter)


def _launched(status: Status, result: LaunchDone, policy: Policy, now_s: float, jitter: float) -> Decision:
    del policy, jitter
    ref = result.ref
    after = replace(
        status,
        engine=ref,
        launched_s=now_s,
        healthy_s=None,
        vitals=Vitals(),
        boots=(*status.boots, now_s)[-BOOTS_KEPT:],
        reason="launched; loading",
    )
    entry = Entry(
        kind="launched",
        message=f"engine launched as start {ref.start}",
        data=(("start", ref.start), ("pid", ref.pid), ("engine", ref.id), ("digest", ref.digest)),
    )
    return Decision(status=after, entries=(entry,))


def _launch_failed(
    status: Status, result: LaunchFailed, policy: Policy, now_s: float, jitter: float
) -> Decision:
    if not result.temporary or result.failure.kind == AWAY:
        return failed(status, result.failure, policy, now_s=now_s, jitter=jitter)
    # The host itself is broken: that is no failure of the engine, and counts towards no breaker.
    streak = status.streak + 1
    wait_s = min(UNAVAILABLE_WAIT_S, 2.0 ** min(streak, 10))
    reason = f"{result.failure.sentence} Asking again in {wait_s:.0f} s."
    after = replace(
        move(status, State.BACKOFF, reason, now_s=now_s),
        retry_s=now_s + wait_s,
        streak=streak,
        failure=result.failure,
    )
    return Decision(status=after, entries=(moved(status, after, "backoff", reason),))


def _stopped(status: Status, result: StopDone, policy: Policy, now_s: float, jitter: float) -> Decision:
    report = result.report
    entry = Entry(
        kind="stopped",
        message=f"{report.processes} processes ended, {report.killed} of them by KILL",
        data=(
            ("processes", report.processes),
            ("killed", report.killed),
            ("took_s", round(report.took_s, 2)),
        ),
    )
    if result.diagnosis is not None:
        decision = failed(status, result.diagnosis, policy, now_s=now_s, jitter=jitter)
        return replace(decision, entries=(entry, *decision.entries))
    cleared = replace(status, engine=None, launched_s=None, healthy_s=None, ready_s=None, retry_s=None)
    if cleared.desired is Desired.RUNNING:
        decision = launch(cleared, "restart asked", now_s=now_s)
        return replace(decision, entries=(entry, *decision.entries))
    after = move(cleared, State.STOPPED, status.reason, now_s=now_s)
    return Decision(status=after, entries=(entry, moved(status, after, "stopped", "stopped")))


def _stop_failed(status: Status, result: StopFailed, policy: Policy, now_s: float, jitter: float) -> Decision:
    del policy, jitter
    # The longer it has not worked, the rarer the tries; what is said once is not said again.
    wait_s = min(UNAVAILABLE_WAIT_S, max(2.0, (now_s - status.since_s) / 4))
    reason = f"{result.message}; trying again"
    after = replace(status, retry_s=now_s + wait_s, reason=reason)
    entry = Entry(kind="stop-failed", message=result.message)
    return Decision(status=after, entries=() if status.reason == reason else (entry,))


def _warmed(status: Status, result: WarmDone, policy: Policy, now_s: float, jitter: float) -> Decision:
    del jitter
    cold = tuple(name for name in policy.prefixes if name not in warm.proved_names(result.results))
    ready_s = status.ready_s if status.ready_s is not None else now_s
    warmed = replace(status, warm=result.results, warmed_s=now_s, ready_s=ready_s)
    warmed = replace(warmed, vitals=warm.marked(warmed.vitals))
    if cold:
        why = result.detail or "the hit could not be proved"
        reason = f"serving, but not warm: {', '.join(cold)} ({why})"
        after = move(warmed, State.DEGRADED, reason, now_s=now_s)
        kind, message = "degraded", reason
    else:
        state, kind, message = trends.serving_state(warmed)
        after = move(warmed, state, message, now_s=now_s)
        if state is State.READY:
            message = f"ready; prefixes warm: {', '.join(policy.prefixes)}"
    if status.state is after.state and kind != "degraded":
        kind, message = "warmed", "prefixes proved warm again"
    since_launch = now_s - status.launched_s if status.launched_s is not None else None
    took = round(since_launch, 1) if kind == "ready" and since_launch is not None else None
    entries = (*map(_warmth, result.results), moved(status, after, kind, message, took_s=took))
    return Decision(status=after, entries=entries)


def _warmth(result: PrefixWarmth) -> Entry:
    """Return the journal's line about one prefix."""
    seen = f"{result.hit:.1%} of {result.prefix_tokens:,} tokens cached after {result.sightings} sightings"
    message = f"prefix '{result.prefix}': {seen}" + (f" ({result.detail})" if result.detail else "")
    data: tuple[tuple[str, str | float | None], ...] = (
        ("prefix", result.prefix),
        ("proved", result.proved),
        ("cached_tokens", result.cached_tokens),
        ("cold_ttft_s", result.cold_ttft_s),
        ("warm_ttft_s", result.warm_ttft_s),
    )
    return Entry(kind="warmth", message=message, data=data)


def _checked(
    status: Status, result: CheckDone, request: int | None, policy: Policy, *, now_s: float
) -> Decision:
    """Go on with a restart whose new specification the engine's parser has seen."""
    digest = status.candidate
    status = replace(status, candidate=None)
    if result.accepted is False or digest is None:
        message = f"the engine's parser refuses the new configuration: {result.message}"
        reply = Reply(request=request or 0, ok=False, message=message, hint="rigd engine check RIG")
        entry = Entry(kind="check-refused", message=message)
        return Decision(status=status, entries=(entry,), replies=() if request is None else (reply,))
    use = UseSpecification(digest=digest)
    status = as_wished(status)
    reply = Reply(request=request or 0, ok=True, message="restarting with the new configuration")
    decision = stop(status, "restart with the new configuration asked", policy, now_s=now_s)
    return replace(
        decision,
        actions=(use, *decision.actions),
        replies=() if request is None else (reply,),
    )


_RESULTS: dict[type, Callable[..., Decision]] = {
    LaunchDone: _launched,
    LaunchFailed: _launch_failed,
    StopDone: _stopped,
    StopFailed: _stop_failed,
    WarmDone: _warmed,
    Looked: looked,
    MovedAside: moved_aside,
    TrialLook: climb.looked,
}
