"""/metrics: the names that rigd reads, and that they move when the engine works and only then."""

import asyncio
from collections.abc import Callable

import pytest_asyncio
from contract_engine import CONTEXT, MODEL, SLOTS

from rigd.adapters.vllm import Counters
from rigd.adapters.vllm_metrics import METRICS

ASK_S = 10.0
WORK_S = 300.0
SEEN_S = 120.0
"""A machine of two cores that runs two ranks, and other things beside them, is slow to show what goes on."""

LONG = CONTEXT - 200
"""Tokens of an answer that outlasts every look: it fills the context."""


@pytest_asyncio.fixture
async def look(client, wait_until):
    """Give the counters as soon as they are as wished; a page that did not come in time is asked for again."""

    async def until(wished: Callable[[Counters], object]) -> Counters:
        async def seen() -> Counters | None:
            counters = await client.counters(ASK_S)
            return counters if counters is not None and wished(counters) else None

        found: Counters = await wait_until(seen, SEEN_S)
        return found

    return until


@pytest_asyncio.fixture
async def work(client, look):
    """Start long requests; afterwards their client hangs up, and no test inherits another's work."""
    tasks: list[asyncio.Task[object]] = []

    def begin(count: int) -> list[asyncio.Task[object]]:
        body = {"messages": [{"role": "user", "content": "go on"}], "max_tokens": LONG, "ignore_eos": True}
        tasks.extend(asyncio.create_task(client.chat(body, WORK_S)) for _ in range(count))
        return tasks

    yield begin
    await hang_up(tasks)
    await look(lambda counters: counters.running + counters.waiting == 0)


async def hang_up(tasks: list[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_every_counter_is_there_under_a_known_name(engine, client):
    await client.complete("The capital of France is", 2, WORK_S)
    page = engine.ask("GET", "/metrics").text

    missing = [names for names in METRICS.values() if not any(f"\n{name}{{" in page for name in names)]
    assert missing == []
    assert f'model_name="{MODEL}"' in page
    assert 'engine="0"' in page


async def test_pool_and_blocks_are_described(client):
    counters = await client.counters(ASK_S)

    assert counters.block_size is not None
    assert counters.block_size % 16 == 0
    assert counters.pool_tokens is not None
    assert counters.pool_tokens > 10_000


async def test_idle_engine_moves_nothing(client, look):
    await look(lambda counters: counters.running + counters.waiting == 0)
    first = await client.counters(ASK_S)
    await client.health(ASK_S)
    await client.models(ASK_S)
    await client.tokenize({"prompt": "some words"}, ASK_S)
    second = await client.counters(ASK_S)

    assert first.fingerprint == second.fingerprint


async def test_completion_moves_tokens_drafts_and_successes(client):
    before = await client.counters(ASK_S)
    answer = await client.complete("The capital of France is", 8, WORK_S)
    after = await client.counters(ASK_S)

    assert after.fingerprint != before.fingerprint
    assert after.generation_tokens - before.generation_tokens == answer.completion_tokens == 8
    assert after.prompt_tokens > before.prompt_tokens
    assert after.successes - before.successes == 1
    assert after.drafts > before.drafts
    assert after.draft_tokens > before.draft_tokens
    assert after.steps > before.steps


async def test_request_in_flight_is_running_and_moves_the_fingerprint(work, look):
    work(1)

    first = await look(lambda counters: counters.running == 1)

    assert await look(lambda counters: counters.fingerprint != first.fingerprint)


async def test_client_that_hangs_up_frees_its_place(work, look):
    tasks = work(1)
    await look(lambda counters: counters.running == 1)

    await hang_up(tasks)

    assert await look(lambda counters: counters.running == 0)


async def test_requests_beyond_the_slots_wait(work, look):
    work(SLOTS + 3)

    seen = await look(lambda counters: counters.waiting)

    # How many of them run already differs from step to step; the slots and the requests bound both.
    assert seen.running <= SLOTS
    assert seen.running + seen.waiting <= SLOTS + 3
