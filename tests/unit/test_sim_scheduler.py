"""The double's scheduler and KV pool: admission, hits, eviction, preemption."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigd.sim.cache import BlockPool, Holding, block_keys
from rigd.sim.scheduler import Request, Scheduler

BLOCK = 4


def scheduler(
    *, blocks: int = 100, seqs: int = 4, budget: int = 64, drafts: int = 0, sightings: int = 1
) -> Scheduler:
    return Scheduler(
        pool=BlockPool(total=blocks, sightings=sightings),
        block_size=BLOCK,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        drafts=drafts,
    )


def request(name: str, prompt: list[int], answer: int = 1) -> Request:
    return Request(id=name, prompt=prompt, answer=list(range(1000, 1000 + answer)), reason="length")


def drain(engine: Scheduler, kept: int = 0) -> dict[str, int | None]:
    """Run until nothing is left; return the cached tokens of each request."""
    cached: dict[str, int | None] = {}
    for _ in range(10_000):
        if engine.idle:
            return cached
        for one in engine.commit(engine.plan(), lambda: kept):
            cached.setdefault(one.id, one.cached)
    raise AssertionError("not done after 10,000 steps")


def sent(engine: Scheduler, name: str, prompt: list[int], answer: int = 1) -> int | None:
    engine.add(request(name, prompt, answer))
    return drain(engine)[name]


PROMPT = list(range(40))


@pytest.mark.parametrize(
    ("drafts", "length", "expected"),
    [
        pytest.param(0, 40, 36, id="last-token-is-computed"),
        pytest.param(0, 41, 40, id="whole-blocks-of-a-longer-prompt"),
        pytest.param(1, 41, 36, id="mtp-gives-up-one-block"),
        pytest.param(3, 41, 36, id="more-drafts-give-up-no-more"),
        pytest.param(1, 5, 0, id="nothing-left-to-give-up"),
    ],
)
def test_second_sighting_hits_whole_blocks(drafts, length, expected):
    engine = scheduler(drafts=drafts)
    prompt = list(range(length))

    assert sent(engine, "first", prompt) == 0
    assert sent(engine, "second", prompt) == expected


def test_hybrid_model_hits_only_from_the_third_sighting():
    engine = scheduler(sightings=2)

    assert [sent(engine, str(turn), [*PROMPT, turn]) for turn in range(4)] == [0, 0, 40, 40]


def test_answer_is_cached_for_the_next_turn():
    engine = scheduler()
    sent(engine, "first", PROMPT, answer=9)

    assert sent(engine, "second", [*PROMPT, *range(1000, 1009), 5]) == 48


def test_least_recently_used_blocks_are_evicted_first():
    engine = scheduler(blocks=20)
    for name, first in (("old", 0), ("new", 100), ("newest", 200)):
        sent(engine, name, list(range(first, first + 40)))

    assert sent(engine, "newest-again", [*range(200, 240), 5]) == 40
    assert sent(engine, "old-again", [*range(40), 5]) == 0


def test_end_of_a_prompt_is_evicted_before_its_beginning():
    engine = scheduler(blocks=14)
    sent(engine, "first", PROMPT)
    sent(engine, "second", list(range(100, 124)))

    cached = sent(engine, "first-again", [*PROMPT, 5])

    assert cached is not None
    assert 0 < cached < 40


def test_no_more_requests_run_than_there_are_slots():
    engine = scheduler(seqs=2)
    for name in "abc":
        engine.add(request(name, [ord(name)] * 8, answer=5))
    engine.commit(engine.plan(), lambda: 0)

    assert (len(engine.running), len(engine.waiting)) == (2, 1)
    drain(engine)


def test_long_prompt_is_computed_in_pieces_of_the_budget():
    engine = scheduler(budget=16)
    engine.add(request("long", PROMPT))
    pieces = []
    while not engine.idle:
        step = engine.plan()
        pieces += [one.tokens for one in step.prefills]
        engine.commit(step, lambda: 0)

    assert pieces == [16, 16, 8]


def test_newest_request_is_preempted_when_the_pool_is_full_and_still_finishes():
    engine = scheduler(blocks=10, seqs=2)
    engine.add(request("first", list(range(8)), answer=24))
    engine.add(request("second", list(range(100, 108)), answer=24))
    preempted = 0
    while not engine.idle:
        step = engine.plan()
        preempted += step.preempted
        engine.commit(step, lambda: 0)

    assert preempted >= 1
    assert engine.pool.used == 0


def test_aborted_request_gives_its_blocks_back():
    engine = scheduler()
    engine.add(request("gone", PROMPT, answer=50))
    engine.commit(engine.plan(), lambda: 0)
    engine.abort("gone")

    assert engine.idle
    assert engine.pool.used == 0


def test_kept_drafts_are_counted_by_position():
    engine = scheduler(drafts=3)
    engine.add(request("one", PROMPT, answer=7))
    drain(engine, kept=2)

    assert engine.tally.drafts == 2
    assert engine.tally.draft_tokens == 6
    assert engine.tally.accepted_per_position == [2, 2, 0]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=12),
    drafts=st.integers(0, 3),
    budget=st.integers(4, 64),
)
def test_every_request_gets_its_whole_answer_and_no_block_is_lost(lengths, drafts, budget):
    engine = scheduler(blocks=20, drafts=drafts, budget=budget)
    given_out: dict[str, int] = {}
    for index, (prompt, answer) in enumerate(lengths):
        engine.add(request(str(index), [index % 3] * prompt, answer=answer))
    for _ in range(5000):
        if engine.idle:
            break
        for one in engine.commit(engine.plan(), lambda: drafts):
            given_out[one.id] = given_out.get(one.id, 0) + one.tokens

    assert given_out == {str(index): answer for index, (_, answer) in enumerate(lengths)}
    assert engine.pool.used == 0


def test_key_of_a_block_depends_on_everything_before_it():
    first = list(block_keys([1, 2, 3, 4, 5, 6, 7, 8], BLOCK))
    second = list(block_keys([9, 2, 3, 4, 5, 6, 7, 8], BLOCK))

    assert len(first) == 2
    assert first[1] != second[1]


def test_pool_without_room_refuses_and_keeps_what_it_had():
    pool = BlockPool(total=4)
    holding = Holding()

    assert pool.grow(holding, 3)
    assert not pool.grow(Holding(), 2)
    assert pool.used == 3
