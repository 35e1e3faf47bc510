"""The prefix cache: which tokens a second prompt with the same beginning gets for nothing."""

import itertools

import pytest
from contract_engine import MODEL

ASK_S = 10.0
_seeds = itertools.count(1)


def new_prefix(tokens: int) -> list[int]:
    """Return token ids that no earlier prompt began with."""
    seed = next(_seeds)
    return [100 + (seed * 131 + index * 7) % 2500 for index in range(tokens)]


def cached(engine, prompt: list[int]) -> int:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    usage = engine.ask("POST", "/v1/completions", json=body).json()["usage"]
    assert usage["prompt_tokens"] == len(prompt)
    return int(usage["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize(
    ("blocks", "more", "expected_blocks"),
    [
        pytest.param(1, 0, 0, id="one-block-is-given-up-with-mtp"),
        pytest.param(2, -1, 0, id="one-token-short-of-two-blocks"),
        pytest.param(2, 0, 1, id="two-blocks"),
        pytest.param(3, 1, 2, id="three-blocks-and-a-token"),
        pytest.param(8, 0, 7, id="eight-blocks"),
    ],
)
async def test_other_tail_hits_whole_blocks_less_one(engine, client, blocks, more, expected_blocks):
    counters = await client.counters(ASK_S)
    block = counters.block_size
    prefix = new_prefix(blocks * block + more)

    cold, warm = cached(engine, [*prefix, 5]), cached(engine, [*prefix, 6])

    assert cold == 0
    assert warm == expected_blocks * block


async def test_same_prompt_always_computes_its_last_token(engine, client):
    counters = await client.counters(ASK_S)
    prompt = new_prefix(4 * counters.block_size)

    first, second = cached(engine, prompt), cached(engine, prompt)

    assert (first, second) == (0, 2 * counters.block_size)


async def test_one_changed_token_at_the_start_spoils_everything(engine, client):
    counters = await client.counters(ASK_S)
    prefix = new_prefix(4 * counters.block_size)
    cached(engine, [*prefix, 5])

    assert cached(engine, [99, *prefix[1:], 5]) == 0


async def test_hits_and_queries_count_tokens(engine, client):
    before = await client.counters(ASK_S)
    prefix = new_prefix(3 * before.block_size)

    hits = cached(engine, [*prefix, 5]) + cached(engine, [*prefix, 6])
    after = await client.counters(ASK_S)

    assert hits == 2 * before.block_size
    assert after.prefix_hits - before.prefix_hits == hits
    assert after.prefix_queries - before.prefix_queries == 2 * (len(prefix) + 1)


async def test_chat_with_another_tail_finds_the_shared_system_prompt(client):
    rules = f"Rule {next(_seeds)}: be exact, be brief, and check every result before you answer. " * 150
    bodies = [
        {
            "messages": [{"role": "system", "content": rules}, {"role": "user", "content": tail}],
            "max_tokens": 2,
        }
        for tail in ("first question", "second question")
    ]
    tokens = [await client.tokenize(body, ASK_S) for body in bodies]
    common = next(index for index, (a, b) in enumerate(zip(*tokens, strict=False)) if a != b)
    counters = await client.counters(ASK_S)

    await client.chat(bodies[0], 60)
    warm = await client.chat(bodies[1], 60)

    assert warm.cached_tokens == (common // counters.block_size - 1) * counters.block_size
