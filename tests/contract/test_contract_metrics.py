"""/metrics: the names that rigd reads, and that they move when the engine works and only then."""

import asyncio

from contract_engine import MODEL, SLOTS

from rigd.adapters.vllm import Counters
from rigd.adapters.vllm_metrics import METRICS

ASK_S = 10.0
WORK_S = 90.0


def long_body(tokens: int) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "go on"}], "max_tokens": tokens, "ignore_eos": True}


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


async def test_idle_engine_moves_nothing(client, wait_until):
    async def idle() -> bool:
        counters = await client.counters(ASK_S)
        return counters.running + counters.waiting == 0

    await wait_until(idle, 30)
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


async def test_request_in_flight_is_running_and_moves_the_fingerprint(client, wait_until):
    work = asyncio.create_task(client.chat(long_body(1500), WORK_S))

    async def running() -> Counters | None:
        counters = await client.counters(ASK_S)
        return counters if counters.running == 1 else None

    first = await wait_until(running, 30)

    async def moved() -> bool:
        return (await client.counters(ASK_S)).fingerprint != first.fingerprint

    assert await wait_until(moved, 10)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_client_that_hangs_up_frees_its_place(client, wait_until):
    work = asyncio.create_task(client.chat(long_body(4000), WORK_S))

    async def running(count: int) -> bool:
        return (await client.counters(ASK_S)).running == count

    async def some() -> bool:
        return (await client.counters(ASK_S)).running >= 1

    await wait_until(some, 60)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)

    assert await wait_until(lambda: running(0), 120)


async def test_requests_beyond_the_slots_wait(client, wait_until):
    work = [asyncio.create_task(client.chat(long_body(1500), WORK_S)) for _ in range(SLOTS + 3)]

    async def queued() -> Counters | None:
        counters = await client.counters(ASK_S)
        return counters if counters.waiting else None

    seen = await wait_until(queued, 30)
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)

    # How many of them run already differs from step to step; the slots and the requests bound both.
    assert seen.running <= SLOTS
    assert seen.running + seen.waiting <= SLOTS + 3
