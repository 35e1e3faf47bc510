"""A stopped core or worker: health stays good, requests hang, and the counters tell it only to who looks closely."""

import asyncio
import contextlib
import os
import signal

import pytest

from rigd.adapters.vllm import AnswerKind, Counters, HealthKind

ASK_S = 10.0
WORK_S = 90.0
HANG_S = 1.5
MEMBERS = [pytest.param("VLLM::EngineCor", id="core"), pytest.param("VLLM::Worker", id="worker")]


@contextlib.contextmanager
def stopped(pid: int):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("member", MEMBERS)
async def test_frozen_idle_engine_looks_healthy_and_idle_but_answers_nothing(engine, client, member):
    await client.complete("The capital of France is", 2, WORK_S)
    with stopped(engine.named(member)[-1].pid):
        before = await client.counters(ASK_S)
        answer = await client.complete("Are you there?", 2, HANG_S)
        health = await client.health(ASK_S)
        after = await client.counters(ASK_S)
        models = await client.models(ASK_S)

    assert answer.kind is AnswerKind.TIMEOUT
    assert health.kind is HealthKind.PASSING
    assert (after.running, after.waiting) == (0, 0)
    assert after.fingerprint == before.fingerprint
    assert models is not None


@pytest.mark.parametrize("member", MEMBERS)
async def test_frozen_busy_engine_still_says_running_and_moves_nothing(engine, client, wait_until, member):
    body = {"messages": [{"role": "user", "content": "go on"}], "max_tokens": 4000, "ignore_eos": True}
    work = asyncio.create_task(client.chat(body, WORK_S))

    async def running() -> bool:
        return (await client.counters(ASK_S)).running == 1

    async def still() -> Counters | None:
        # What was on its way when the core stopped may still come through; after that nothing moves.
        first = await client.counters(ASK_S)
        await client.complete("Are you there?", 2, HANG_S)
        second = await client.counters(ASK_S)
        return second if second.fingerprint == first.fingerprint else None

    await wait_until(running, 30)
    with stopped(engine.named(member)[-1].pid):
        stood = await wait_until(still, 30)
        health = await client.health(ASK_S)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)

    assert health.kind is HealthKind.PASSING
    assert stood.running == 1


async def test_engine_that_goes_on_answers_again(engine, client):
    with stopped(engine.core.pid):
        await client.complete("Are you there?", 2, HANG_S)

    answer = await client.complete("And now?", 2, WORK_S)

    assert answer.kind is AnswerKind.ANSWERED
