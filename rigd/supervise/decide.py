"""`decide`: from a status and an observation to the next status and what it calls for.

Pure: no I/O, no clock, no randomness, no logging; `now_s` and `jitter` come in. `loop.py` applies the result.

    request          -> requests.on_request
    a job's end      -> finished.on_finished
    an exit          -> stop the rest of the tree, diagnose, back off or give up
    a probe's result -> vitals -> verdict
    only time        -> deadlines, backoff, canary, warmth
"""

from dataclasses import replace

from rigd.runtime.base import EngineExit, Presence
from rigd.supervise import climb, health, pending, pool, trend_track, trends, warm
from rigd.supervise.decision import Decision, Entry, RememberGood, SendCanary
from rigd.supervise.finished import on_finished
from rigd.supervise.health import Answer, Sample, Verdict, Vitals
from rigd.supervise.moves import Policy, begin_warm, launch, move, moved, stop
from rigd.supervise.observations import Observation, TrialLook
from rigd.supervise.overdue import on_overdue
from rigd.supervise.overlay import RAISED
from rigd.supervise.requests import on_request
from rigd.supervise.state import SERVING, Failure, KnownGood, State, Status

FAILING_SHOWS = 2
"""Consecutive failed health probes that make a ready engine degraded: one may be a connection's bad luck."""


NO_TEXT = frozenset({Answer.EMPTY, Answer.DEGENERATE, Answer.WRONG})
"""Answers that came, and are none."""


def decide(
    status: Status, seen: Observation, policy: Policy, *, now_s: float, jitter: float = 0.0
) -> Decision:
    """Return the next status and the actions, journal entries and replies that it calls for."""
    decision = _decided(status, seen, policy, now_s=now_s, jitter=jitter)
    told = trends.told(status, decision, now_s=now_s)
    return replace(told, entries=(*told.entries, *pool.slow_start(status, told.status, policy)))


def _decided(status: Status, seen: Observation, policy: Policy, *, now_s: float, jitter: float) -> Decision:
    if seen.request is not None:
        return on_request(status, seen.request, policy, now_s=now_s)
    if status.state is State.MAINTENANCE:
        return Decision(status=status)
    if seen.finished is not None:
        decision = on_finished(status, seen.finished, policy, now_s=now_s, jitter=jitter)
        if isinstance(seen.finished.result, TrialLook) and not decision.actions:
            # No trial: what was put off while the engine was asked is judged now.
            later = _as_time_passes(decision.status, policy, now_s=now_s)
            return replace(later, entries=(*decision.entries, *later.entries))
        return decision
    gone = _gone(status, seen)
    if gone is not None and status.state is not State.STOPPING:
        return _after_exit(status, gone, policy, now_s=now_s)
    folded = _fold(status, seen, policy)
    late = on_overdue(folded, policy, now_s=now_s, jitter=jitter)
    return late if late is not None else _as_time_passes(folded, policy, now_s=now_s)


def _gone(status: Status, seen: Observation) -> EngineExit | None:
    """Return how the current engine ended, if the observation says that it did."""
    engine = status.engine
    if engine is None:
        return None
    if seen.exited is not None and seen.exited.engine == engine.id:
        return seen.exited.exit
    if seen.seen is not None and seen.seen.ref is not None and seen.seen.ref.id == engine.id:
        if seen.seen.presence is Presence.EXITED:
            return seen.seen.exit or EngineExit(code=None)
        if seen.seen.presence is Presence.ABSENT:
            return EngineExit(code=None, detail="it is not there any more")
    return None


def _fold(status: Status, seen: Observation, policy: Policy) -> Status:
    """Fold probe results of the current engine into the vitals; those of another one are dropped."""
    engine = status.engine
    if engine is None:
        return status
    vitals = status.vitals
    if seen.sample is not None and seen.sample.engine == engine.id:
        vitals = health.after_sample(vitals, seen.sample, policy.supervision)
        vitals = _tracked(status, vitals, seen.sample, policy)
        if seen.sample.load is not None and status.ready_s is not None:
            vitals = climb.seen(replace(status, vitals=vitals), policy).vitals
    if seen.canary is not None and seen.canary.engine == engine.id:
        vitals = health.after_canary(vitals, seen.canary)
    if seen.memory is not None and seen.memory.engine == engine.id and status.ready_s is not None:
        against = trends.standard(status, policy)
        vitals = replace(vitals, track=trend_track.after_memory(vitals.track, seen.memory, against))
    if seen.gpu_free_mib is not None:
        vitals = climb.seen(replace(status, vitals=vitals), policy, gpu_free_mib=seen.gpu_free_mib).vitals
    return status if vitals is status.vitals else replace(status, vitals=vitals)


def _tracked(status: Status, vitals: Vitals, sample: Sample, policy: Policy) -> Vitals:
    """Fold the counters of a serving engine into its track; those of a start are no work."""
    if sample.load is None or status.state not in SERVING:
        return vitals
    rules = policy.supervision
    track = trend_track.after_load(
        vitals.track,
        sample.load,
        trends.standard(status, policy),
        at_s=sample.at_s,
        pause_s=health.PAUSE_FACTOR * rules.probe_interval_s,
    )
    return replace(vitals, track=track)


def _after_exit(status: Status, gone: EngineExit, policy: Policy, *, now_s: float) -> Decision:
    what = f"{gone.member} of the engine" if gone.member else "the engine"
    code = "" if gone.code is None else f" with exit code {gone.code}"
    detail = f" ({gone.detail})" if gone.detail else ""
    oom, hint = _killed_for_memory(policy) if gone.oom_killed else ("", "rigd logs")
    sentence = f"{what[0].upper()}{what[1:]} ended{code}{oom}{detail} {_when(status)}."
    kind = "host_oom_kill" if gone.oom_killed else "worker_died" if gone.member else "engine_exited"
    if status.state is State.STARTING and status.healthy_s is not None and not gone.oom_killed:
        end = f"{what} ended{code} at its first real request{detail}"
        sentence = f"The engine answers /health but cannot serve: {end}."
        kind = "cannot_serve"
    return _fail(status, kind, sentence, policy, now_s=now_s, gone=gone, hint=hint)


def _killed_for_memory(policy: Policy) -> tuple[str, str]:
    """Return whose memory ran out, and what gives the engine more."""
    docker = policy.engine.docker
    if docker is None or docker.memory is None:
        return (
            ", killed for memory: the host's ran out,",
            "free -h (give the host more memory, or the engine less)",
        )
    return (
        f", killed for memory at the container's limit of {docker.memory}",
        f"raise engine.docker.memory (now {docker.memory}) in the rig file, or leave it out; then: rigd start",
    )


def _when(status: Status) -> str:
    return f"while {status.state}"


def _fail(
    status: Status,
    kind: str,
    sentence: str,
    policy: Policy,
    *,
    now_s: float,
    gone: EngineExit | None = None,
    hint: str | None = None,
    retry_helps: bool = True,
) -> Decision:
    failure = Failure(
        kind=kind,
        sentence=sentence,
        hint=hint,
        retry_helps=retry_helps,
        exit=gone,
        at_s=now_s,
        start=status.engine.start if status.engine is not None else 0,
    )
    return stop(status, sentence, policy, now_s=now_s, failure=failure)


def _as_time_passes(status: Status, policy: Policy, *, now_s: float) -> Decision:
    if status.state is State.BACKOFF:
        return _backoff(status, now_s=now_s)
    if status.state is State.STARTING:
        return _starting(status, policy, now_s=now_s)
    if status.state in SERVING:
        return _serving(status, policy, now_s=now_s)
    if status.state is State.STOPPING and status.job is None:
        return _try_stop_again(status, policy, now_s=now_s)
    return Decision(status=status)


def _backoff(status: Status, *, now_s: float) -> Decision:
    if status.job is not None or status.retry_s is None or now_s < status.retry_s:
        return Decision(status=status)
    if status.pending is not None:
        return pending.begin(status, status.pending, now_s=now_s)
    return launch(status, "the wait after the last failure is over", now_s=now_s)


def _try_stop_again(status: Status, policy: Policy, *, now_s: float) -> Decision:
    if status.retry_s is not None and now_s < status.retry_s:
        return Decision(status=status)
    again = stop(status, status.reason, policy, now_s=now_s, failure=status.ending)
    return replace(again, entries=())


def _starting(status: Status, policy: Policy, *, now_s: float) -> Decision:
    if status.engine is None or status.launched_s is None:
        return Decision(status=status)  # The launch job has deadlines of its own.
    limits = policy.supervision.deadlines
    if status.healthy_s is None:
        if status.vitals.passing >= policy.supervision.success_threshold:
            after = replace(status, healthy_s=now_s, reason="/health answers; waiting for a real completion")
            entry = moved(
                status, after, "healthy", "/health answers", took_s=round(now_s - status.launched_s, 1)
            )
            return Decision(
                status=_canary_sent(after, now_s=now_s),
                actions=(SendCanary(engine=status.engine.id, timeout_s=policy.supervision.canary.timeout_s),),
                entries=(entry,),
            )
        # An adopted engine that is still loading gets its time again, counted from the adoption.
        if now_s - max(status.launched_s, status.since_s) >= limits.load_s:
            return _fail(
                status,
                "ready_timeout",
                f"The engine did not answer /health within {limits.load_s:.0f} s of its start.",
                policy,
                now_s=now_s,
                hint="rigd logs; if it was still loading, raise supervision.deadlines.load_s",
            )
        return Decision(status=status)
    return _first_answer(status, policy, now_s=now_s)


def _first_answer(status: Status, policy: Policy, *, now_s: float) -> Decision:
    rules = policy.supervision
    engine = status.engine
    healthy_s = status.healthy_s
    if engine is None or healthy_s is None:
        return Decision(status=status)
    if status.vitals.answered_s is not None:
        return _serves(status, policy, now_s=now_s)
    verdict = health.judge(status.vitals, rules, now_s=now_s)
    refusing, garbage = verdict is Verdict.REFUSING, verdict is Verdict.GARBAGE
    # Answers that are no text are the same failure before ready as after it; an HTTP 500 is not one of them.
    answer = None if status.vitals.canary is None else status.vitals.canary.answer
    rubbish = garbage and answer in NO_TEXT
    if refusing and status.ready_s is not None:
        # It served before this daemon came: that the rig's own key or name no longer fits is no fault of the engine.
        reason = f"serving, but the canary is refused: {_canary_detail(status)}"
        after = move(status, State.DEGRADED, reason, now_s=now_s)
        return Decision(status=after, entries=(moved(status, after, "degraded", reason),))
    if verdict is Verdict.DOWN or refusing or garbage or now_s - healthy_s >= rules.deadlines.first_answer_s:
        return _fail(
            status,
            "canary_refused" if refusing else "garbage_output" if rubbish else "cannot_serve",
            f"/health answers, but no completion came back right: {_canary_detail(status)}.",
            policy,
            now_s=now_s,
            hint="check served_model_name and api_key" if refusing else "rigd logs",
            retry_helps=not refusing,
        )
    pause_over = status.vitals.canary is None or now_s - status.vitals.canary.at_s >= rules.probe_interval_s
    if status.vitals.canary_sent_s is None and pause_over:
        left_s = healthy_s + rules.deadlines.first_answer_s - now_s
        return Decision(
            status=_canary_sent(status, now_s=now_s),
            actions=(SendCanary(engine=engine.id, timeout_s=max(1.0, min(rules.canary.timeout_s, left_s))),),
        )
    return Decision(status=status)


def _canary_detail(status: Status) -> str:
    return status.vitals.canary.detail if status.vitals.canary is not None else "no answer"


def _serves(status: Status, policy: Policy, *, now_s: float) -> Decision:
    status, again = pool.after_start(status, policy, now_s=now_s)
    if again is not None:  # No failure: it would serve as it is, and counts towards no breaker.
        decision = stop(status, again, policy, now_s=now_s)
        entry = Entry(kind="pool-restart", message=again, data=(("class", pool.KIND),))
        return replace(decision, entries=(entry, *decision.entries))
    took_s = round(now_s - (status.launched_s or now_s), 1)
    if policy.prefixes and not warm.all_proved(status.warm, policy.prefixes):
        return begin_warm(
            status, State.WARMING, f"first answer after {took_s} s; warming prefixes", now_s=now_s
        )
    ready_s = status.ready_s if status.ready_s is not None else now_s
    state, kind, reason = trends.serving_state(status)
    after = replace(move(status, state, reason, now_s=now_s), ready_s=ready_s)
    said = "ready" if state is State.READY else reason
    return Decision(status=after, entries=(moved(status, after, kind, said, took_s=took_s),))


def _canary_sent(status: Status, *, now_s: float) -> Status:
    return replace(status, vitals=replace(status.vitals, canary_sent_s=now_s))


def _serving(status: Status, policy: Policy, *, now_s: float) -> Decision:
    rules = policy.supervision
    verdict = health.judge(status.vitals, rules, now_s=now_s)
    if verdict is Verdict.DOWN:
        said = status.vitals.health_detail or "no answer"
        sentence = f"/health failed {status.vitals.failing} times in a row: {said}."
        return _fail(status, "health_failing", sentence, policy, now_s=now_s)
    if verdict is Verdict.STALLED:
        silent_s = health.silent_s(status.vitals, now_s=now_s)
        sentence = f"The engine made no progress for {silent_s:.0f} s although it had work."
        return _fail(status, "engine_stalled", sentence, policy, now_s=now_s)
    if verdict is Verdict.GARBAGE:
        sentence = f"The engine answers, but not with text: {_canary_detail(status)}."
        return _fail(status, "garbage_output", sentence, policy, now_s=now_s)
    status = trends.noted(_forget_streak(status, policy, now_s=now_s), policy, now_s=now_s)
    failure = trends.answer(status, policy, now_s=now_s)
    if failure is not None:
        answered = trends.answerable(status, policy, now_s=now_s)
        return stop(answered, failure.sentence, policy, now_s=now_s, failure=failure)
    if status.engine is not None and health.canary_due(status.vitals, rules, now_s=now_s):
        return Decision(
            status=_canary_sent(status, now_s=now_s),
            actions=(SendCanary(engine=status.engine.id, timeout_s=rules.stall_deadline_s),),
        )
    if status.job is None:
        return _settle(status, verdict, policy, now_s=now_s)
    return Decision(status=status)


def _proved_good(status: Status, policy: Policy, *, now_s: float) -> Decision | None:
    """Remember settings that have stayed healthy for the configured stretch, once."""
    engine, ready_s = status.engine, status.ready_s
    if engine is None or ready_s is None or status.state is not State.READY or engine.digest != policy.digest:
        return None
    known = status.good is not None and status.good.digest == engine.digest
    if known or status.fallback_from or now_s - ready_s < policy.supervision.healthy_stretch_s:
        return None
    good = KnownGood(digest=engine.digest, basis=policy.basis, start=engine.start, at_s=now_s)
    entry = Entry(kind="known-good", message=f"the settings of start {engine.start} are known good")
    return Decision(
        status=replace(status, good=good),
        actions=(RememberGood(digest=engine.digest),),
        entries=(entry,),
    )


def _forget_streak(status: Status, policy: Policy, *, now_s: float) -> Status:
    """After a healthy stretch the backoff and the ladder start from their beginning again."""
    stretch_s = policy.supervision.healthy_stretch_s
    if status.ready_s is None or now_s - status.ready_s < stretch_s:
        return status
    if status.trial is not None and status.trial.kind != RAISED:
        # A trial that has lasted a healthy stretch has held: the change stays undone. One beyond the wish is judged
        # by what it costs (`climb`).
        status = replace(status, trial=None, trials_failed=0)
    if status.streak or status.answered:
        status = replace(status, streak=0, answered=())
    return status


def _settle(status: Status, verdict: Verdict, policy: Policy, *, now_s: float) -> Decision:
    """With nothing in hand: ready or degraded, and whether the prefixes need another look."""
    proved = _proved_good(status, policy, now_s=now_s)
    if proved is not None:
        return proved
    why = warm.due(status, policy.prefixes, now_s=now_s)
    if why is not None:
        marked = replace(status, vitals=warm.marked(status.vitals))
        return begin_warm(marked, status.state, why, now_s=now_s)
    climbing = climb.step(status, policy, now_s=now_s)
    if climbing is not None:
        return climbing
    learnt = pool.learnt(status, policy, now_s=now_s)
    if learnt is not None:
        return learnt
    cold = tuple(name for name in policy.prefixes if name not in warm.proved_names(status.warm))
    suspect = verdict in {Verdict.SUSPECT, Verdict.REFUSING} or status.vitals.failing >= FAILING_SHOWS
    if status.state is State.READY and (suspect or cold):
        reason = _trouble(status, cold)
        after = move(status, State.DEGRADED, reason, now_s=now_s)
        return Decision(status=after, entries=(moved(status, after, "degraded", reason),))
    if not suspect and not cold:
        lasting = _as_the_numbers_say(status, now_s=now_s)
        if lasting is not None:
            return lasting
    return Decision(status=replace(status, vitals=warm.first_mark(status.vitals)))


def _as_the_numbers_say(status: Status, *, now_s: float) -> Decision | None:
    """Return the move to ready, or to degraded by a trend, where that is not so already."""
    state, kind, reason = trends.serving_state(status)
    said = state is State.READY or status.reason == reason
    if status.state not in trends.RESTS or (status.state is state and said):
        return None
    after = move(status, state, reason, now_s=now_s)
    message = "good again" if state is State.READY else reason
    return Decision(status=after, entries=(moved(status, after, kind, message),))


def _trouble(status: Status, cold: tuple[str, ...]) -> str:
    vitals = status.vitals
    if vitals.canary_failures and vitals.canary is not None:
        return f"the canary came back {vitals.canary.answer}: {vitals.canary.detail}"
    if vitals.failing:
        return f"/health failed: {vitals.health_detail}"
    return f"serving, but not warm: {', '.join(cold)}"
