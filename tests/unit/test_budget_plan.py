"""Channels in a pool: the published plan to the token, refusals, and the smallest change that would hold."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigd.budget.blocks import Group, Layout
from rigd.budget.channels import Limits, make_plan
from rigd.budget.figure import Figure, Source
from rigd.budget.fit import fit
from rigd.budget.memory import card_memory, pool_memory
from rigd.budget.model_config import read_shape
from rigd.budget.pool import make_pool
from rigd.budget.readback import read_log
from rigd.budget.reckoning import Given, reckon
from rigd.budget.settings import GIB, PoolSettings
from rigd.errors import UsageError
from rigd.rig.load import load
from rigd.rig.schema import Channel

CONFIGS = Path(__file__).parents[2] / "configs"
RIG_A = CONFIGS / "rig-a-qwen3.6-27b-docker.yaml"
RIG_B = CONFIGS / "rig-b-qwen3.8-27b-process.yaml"
NAIVE = (
    Channel(name="primary", context=200_000, output=1),
    Channel(name="subagent", context=256_000, output=1, parallel=4),
)
LAYOUT = Layout(
    block=100,
    page_bytes=1_000,
    block_bytes=1_000,
    token_bytes=10,
    groups=(Group(kind="full", layers=1, groups=1), Group(kind="state", layers=1, groups=3)),
    state_bytes=900,
    state_blocks=6,
)


def pool(tokens: int) -> Figure:
    return Figure(value=tokens, source=Source.STATED, note="budget.pool_tokens")


def budget_of(path: Path, **more):
    """Return the budget of a rig file with the shape that it names."""
    rig = load(path, environ={}).rig
    config = CONFIGS / rig.budget.config
    shape = read_shape(config.read_text(), str(config))
    return reckon(rig, Given(shape=shape, shape_from=str(config), **more))


# --- the two rigs ---


def test_rig_a_comes_out_to_the_token():
    plan = budget_of(RIG_A).plan

    assert (plan.pool.value, plan.reserve, plan.for_context) == (691_176, 18_432, 672_744)
    assert (plan.worst, plan.free, plan.holds) == (363_840, 308_904, True)


def test_rig_a_expected_case_at_its_hit_rate():
    plan = budget_of(RIG_A).plan

    assert (plan.hit_rate, plan.expected) == (0.9, 290_113)
    assert plan.worst > plan.expected > 0


def test_rig_a_the_naive_way_is_refused_with_the_reason():
    plan = make_plan(NAIVE, Limits(pool=pool(691_176)))

    assert plan.worst == 1_224_000
    assert not plan.holds
    assert "1,224,005 tokens in the worst case" in plan.refusals[0]
    assert "push one another out" in plan.refusals[0]
    assert str(plan.changes[0]) == "channels[1].context (subagent): 256,000 -> 121,856"


def test_rig_a_pool_by_its_published_shape():
    """Its bytes are not published: 472 blocks are nearest, and from the card it is off by a tenth, as it says."""
    found = budget_of(RIG_A)

    assert (found.layout.block, found.implied.blocks, found.implied.tokens.value) == (1_600, 472, 691_240)
    assert found.deviation == pytest.approx(-0.10, abs=0.01)
    assert found.computed.memory.source is Source.ASSUMED
    assert found.computed.tokens.error > 0
    assert any("gpu_memory_utilization" in sentence for sentence in found.unknown)


def test_rig_b_pool_by_its_published_shape():
    found = budget_of(RIG_B)

    assert found.computed.tokens.value == 731_785
    assert found.deviation == pytest.approx(-0.0003, abs=0.0001)
    assert found.plan.holds


@pytest.mark.parametrize(("gib", "context"), [(64, 262_144), (1, 48_256)])
def test_an_automatic_context_is_what_fits(gib, context):
    rig = load(RIG_B, environ={}).rig
    arguments = rig.engine.arguments.model_copy(
        update={"max_model_len": "auto", "kv_cache_memory_bytes": gib * GIB}
    )
    rig = rig.model_copy(update={"engine": rig.engine.model_copy(update={"arguments": arguments})})
    config = CONFIGS / rig.budget.config

    found = reckon(rig, Given(shape=read_shape(config.read_text(), str(config))))

    assert found.computed.context == context
    assert found.layout.request_blocks(context) <= found.computed.usable_blocks


def test_a_measured_pool_goes_before_a_stated_one():
    found = budget_of(RIG_B, measured=Figure(value=700_000, source=Source.READ))

    assert found.used.value == 700_000
    assert found.deviation == pytest.approx(731_785 / 700_000 - 1)
    assert found.plan.usable_blocks == found.implied.blocks - 1


def test_a_log_calibrates_what_the_card_needs():
    log = read_log(
        "Model loading took 9.13 GiB memory and 60 seconds\n"
        "Available KV cache memory: 12.24 GiB\n"
        "GPU KV cache size: 691,239 tokens, Maximum concurrency for 262,144 tokens per request: 2.64x\n"
    )
    found = budget_of(RIG_A, log=log)
    rest = found.activation

    assert (found.used.value, found.used.source) == (691_239, Source.READ)
    assert abs(found.deviation) < 0.005
    assert rest.value / GIB == pytest.approx(23.6 * 0.92 - 9.13 - 12.24, abs=0.01)


def test_the_last_start_of_a_log_counts():
    says = read_log("GPU KV cache size: 1,000 tokens\nCPU KV cache size: 2,000 tokens\n")

    assert (says.pool_tokens, says.available, says.activation(PoolSettings(), pool(1))) == (2_000, None, None)


def test_what_changes_the_pool_and_is_not_reckoned_is_told():
    rig = load(RIG_A, environ={}).rig
    arguments = rig.engine.arguments.model_copy(update={"extra": {"pipeline-parallel-size": 2}})
    rig = rig.model_copy(update={"engine": rig.engine.model_copy(update={"arguments": arguments})})
    config = CONFIGS / rig.budget.config

    found = reckon(rig, Given(shape=read_shape(config.read_text(), str(config))))

    assert "engine.arguments.extra: pipeline_parallel_size is not reckoned with" in found.unknown


# --- refusals and changes ---


@pytest.mark.parametrize(
    ("limits", "words", "change"),
    [
        pytest.param(
            Limits(pool=pool(2_000_000), max_model_len=250_000),
            "subagent: context 256,000 and output 1 exceed max_model_len (250,000)",
            "channels[1].context (subagent): 256,000 -> 249,856",
            id="longer-than-the-engine",
        ),
        pytest.param(
            Limits(pool=pool(2_000_000), max_num_seqs=4),
            "5 requests at once exceed max_num_seqs (4)",
            "channels[1].parallel (subagent): 4 -> 3",
            id="more-than-the-engine-runs",
        ),
        pytest.param(
            Limits(pool=pool(1_224_010), layout=LAYOUT, blocks=12_250),
            "12,275 blocks in the worst case exceed the pool's 12,250",
            "channels[1].context (subagent): 256,000 -> 254,976",
            id="whole-blocks-and-states",
        ),
        pytest.param(
            Limits(pool=pool(2_000_000), max_model_len=2_000_000, layout=LAYOUT, blocks=19_000),
            "the engine refuses to start",
            None,
            id="engine-would-not-start",
        ),
    ],
)
def test_refusals_and_the_smallest_change(limits, words, change):
    plan = make_plan(NAIVE, limits)

    assert words in " ".join(plan.refusals)
    assert (str(plan.changes[0]) if plan.changes else None) == change


def test_what_the_engine_itself_could_change_is_named_too():
    seqs = make_plan(NAIVE, Limits(pool=pool(2_000_000), max_num_seqs=4))
    short = make_plan(NAIVE, Limits(pool=pool(1_000_000)))

    assert "engine.arguments.max_num_seqs: 4 -> 5" in map(str, seqs.changes)
    assert "the pool, in tokens: 1,000,000 -> 1,224,005" in map(str, short.changes)


CHANNELS = st.lists(
    st.builds(
        lambda number, context, output, parallel: Channel(
            name=f"c{number}", context=context, output=output, parallel=parallel
        ),
        st.integers(0, 99),
        st.integers(1, 300_000),
        st.integers(1, 40_000),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=4,
)


@given(channels=CHANNELS, tokens=st.integers(1_000, 2_000_000), layout=st.sampled_from((None, LAYOUT)))
def test_every_change_named_makes_the_plan_hold_alone(channels, tokens, layout):
    limits = Limits(pool=pool(tokens), layout=layout, blocks=tokens // 100 - 1, max_num_seqs=12)
    plan = make_plan(channels, limits)

    for change in plan.changes:
        if not change.key.startswith("channels["):
            continue
        number, key = int(change.key[9]), change.key.split(".")[1].split(" ")[0]
        changed = list(channels)
        changed[number] = changed[number].model_copy(update={key: change.after})
        assert change.after < change.before
        assert make_plan(changed, limits).holds
    assert plan.holds == (not plan.refusals)
    assert not (plan.holds and plan.changes)


@given(channels=CHANNELS, tokens=st.integers(1_000, 2_000_000), rate=st.floats(0, 1))
def test_the_numbers_of_a_plan_add_up(channels, tokens, rate):
    plan = make_plan(channels, Limits(pool=pool(tokens)), hit_rate=rate)

    assert plan.for_context == tokens - plan.reserve
    assert plan.free == plan.for_context - plan.worst
    assert plan.expected <= plan.worst
    assert plan.holds == (plan.free >= 0)


# --- what fits ---


def test_longest_context_is_bound_by_the_pool():
    found = fit(
        make_pool(LAYOUT, pool(21_000), 1_000),
        lengths=(1_000,),
        max_num_seqs=None,
        model_context=5_000,
        wished=None,
    )

    assert found.context.value == (21 - 1 - 6) * 100
    assert "20 usable blocks" in found.context.because


def test_longest_context_is_bound_by_the_settings():
    made = make_pool(LAYOUT, pool(2_100_000), 1_000)
    wished = fit(made, lengths=(), max_num_seqs=None, model_context=5_000, wished=4_000)
    own = fit(made, lengths=(), max_num_seqs=None, model_context=5_000, wished=None)

    assert (wished.context.value, own.context.value) == (4_000, 5_000)
    assert wished.context.because.startswith("max_model_len")
    assert own.context.because.startswith("the model's own limit")


def test_most_sequences_and_why_not_more():
    made = make_pool(LAYOUT, pool(51_000), 1_000)
    free = fit(made, lengths=(1_000,), max_num_seqs=None, model_context=5_000, wished=None)
    capped = fit(made, lengths=(1_000,), max_num_seqs=2, model_context=5_000, wished=None)

    assert free.sequences[0][1].value == 50 // 16
    assert "6 of them recurrent state" in free.sequences[0][1].because
    assert capped.sequences[0][1].value == 2
    assert "max_num_seqs" in capped.sequences[0][1].because


# --- cards ---


@pytest.mark.parametrize(
    ("card", "gib"),
    [("RTX 3090", 23.6), ("NVIDIA GeForce RTX 3090", 23.6), ("3090", 23.6), ("24GiB", 24), ("23.6", 23.6)],
)
def test_cards_by_name_and_by_size(card, gib):
    assert card_memory(card).value / GIB == pytest.approx(gib)


@pytest.mark.parametrize("card", ["Voodoo 2 SLI", "-1", "0", "nan"])
def test_a_card_that_nobody_knows(card):
    with pytest.raises(UsageError, match=f"cannot tell the memory of the card '{card}'"):
        card_memory(card)


def test_nothing_left_for_the_pool():
    with pytest.raises(UsageError, match="no memory is left for the KV pool"):
        pool_memory(PoolSettings(), card=pool(10 * GIB), weights=pool(9 * GIB), activation=pool(2 * GIB))
