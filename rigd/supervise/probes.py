"""Probes: ask the engine and report what it said. No judgement here; `health` judges.

startup     `/health` four times a second until it answers
liveness    `/health` and the counters of `/metrics`, every `probe_interval_s`
canary      one small completion, when `decide` asks for it
"""

import asyncio
from collections.abc import Callable

from rigd.adapters.vllm import AnswerKind, Counters, HealthKind, VllmClient
from rigd.rig.schema import Supervision
from rigd.supervise.health import Answer, CanaryResult, Health, Sample, judge_text
from rigd.supervise.load import Load

STARTUP_INTERVAL_S = 0.25

_HEALTH: dict[HealthKind, Health] = {
    HealthKind.PASSING: Health.PASSING,
    HealthKind.FAILING: Health.FAILING,
    HealthKind.REFUSED: Health.FAILING,
    HealthKind.TIMEOUT: Health.UNKNOWN,
    HealthKind.ERROR: Health.UNKNOWN,
}
"""A prober that gets no answer knows nothing: the stall rule and the exit decide then."""


async def watch_health(
    client: VllmClient,
    engine: str,
    policy: Supervision,
    *,
    now: Callable[[], float],
    report: Callable[[Sample], None],
) -> None:
    """Report samples of one engine until cancelled."""
    started = False
    while True:
        answer = await client.health(policy.probe_timeout_s)
        health = _HEALTH[answer.kind]
        started = started or health is Health.PASSING
        counters = await client.counters(policy.probe_timeout_s) if started else None
        report(
            Sample(
                engine=engine,
                at_s=now(),
                health=health,
                detail=answer.detail,
                load=None if counters is None else load_of(counters),
            )
        )
        await asyncio.sleep(policy.probe_interval_s if started else STARTUP_INTERVAL_S)


async def send_canary(
    client: VllmClient, engine: str, policy: Supervision, *, timeout_s: float, now: Callable[[], float]
) -> CanaryResult:
    """Ask for one small completion and return what came of it."""
    canary = policy.canary
    done = await client.complete(canary.prompt, canary.max_tokens, timeout_s)
    answer, detail = Answer.NONE, done.detail
    if done.kind is AnswerKind.ANSWERED:
        answer = judge_text(done.text, canary.expect)
        detail = repr(done.text[:60])
    elif done.kind is AnswerKind.EMPTY:
        answer, detail = Answer.EMPTY, "an empty answer"
    elif done.kind is AnswerKind.HTTP_ERROR:
        refused = done.status is not None and 400 <= done.status < 500  # noqa: PLR2004  (HTTP's own classes)
        answer = Answer.REFUSED if refused else Answer.ERROR
    return CanaryResult(engine=engine, at_s=now(), answer=answer, took_s=done.took_s, detail=detail)


def load_of(counters: Counters) -> Load:
    """Return the counters as the supervisor's judgements use them."""
    return Load(
        running=int(counters.running),
        waiting=int(counters.waiting),
        progress=counters.fingerprint,
        kv_usage=counters.kv_usage,
        generation_tokens=counters.generation_tokens,
        prompt_tokens=counters.prompt_tokens,
        prefix_queries=counters.prefix_queries,
        prefix_hits=counters.prefix_hits,
        drafts=counters.drafts,
        draft_tokens=counters.draft_tokens,
        accepted_tokens=counters.accepted_tokens,
        preemptions=counters.preemptions,
        successes=counters.successes,
        pool_tokens=counters.pool_tokens,
    )
