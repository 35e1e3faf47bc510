"""The KV pool as rigd reckons it is the pool that vLLM's own code makes, to the token."""

import contextlib
import json

import pytest
from budgets import Case, as_said, cases, reckoned
from hypothesis import given
from hypothesis import strategies as st

from rigd.budget.blocks import lay_out
from rigd.budget.figure import Figure, Source
from rigd.budget.model_config import ConfigError, read_shape
from rigd.budget.pool import blocks_near, count_tokens, make_pool
from rigd.budget.settings import GIB, PoolSettings
from rigd.budget.shape import ModelShape
from rigd.errors import UsageError

DENSE = {
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 32768,
}
HYBRID = DENSE | {
    "model_type": "qwen3_5_text",
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}


def shape(config: dict) -> ModelShape:
    return read_shape(json.dumps(config), "config.json")


def stated(value: int) -> Figure:
    return Figure(value=value, source=Source.STATED)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_pool_is_what_vllm_said(case: Case):
    assert as_said(reckoned(case, wide_cpu=True)) == case.said


def test_enough_kinds_were_asked_for():
    said = cases()

    assert len(said) >= 8
    assert {case.model for case in said} >= {"tiny", "tinymimo", "tiny35", "qwen3_5_27b"}
    assert {case.arguments.get("tensor_parallel_size", 1) for case in said} >= {1, 2, 4}
    hybrid = [case for case in said if case.model == "tiny35"]
    assert {"speculative" in case.arguments for case in hybrid} == {True, False}


@pytest.mark.parametrize(
    ("config", "settings", "tokens"),
    [
        pytest.param(DENSE, PoolSettings(on_cpu=True), 524_288, id="dense"),
        pytest.param(
            DENSE | {"model_type": "mimo", "num_nextn_predict_layers": 1},
            PoolSettings(on_cpu=True, ranks=2, speculative_tokens=1, speculative_method="mtp"),
            838_784,
            id="mtp-over-two-ranks",
        ),
    ],
)
def test_the_two_pools_of_the_lab(config, settings, tokens):
    assert make_pool(lay_out(shape(config), settings), stated(GIB), 32_768).tokens.value == tokens


def test_fewer_heads_than_cards_are_kept_on_several():
    two, four = (lay_out(shape(DENSE), PoolSettings(ranks=ranks)) for ranks in (2, 4))

    assert two.token_bytes == four.token_bytes


@pytest.mark.parametrize(
    ("kind", "token_bytes"),
    [
        ("auto", 2048),
        ("fp8", 1024),
        ("fp8_e5m2", 1024),
        ("float32", 4096),
        ("int8_per_token_head", 1088),
        ("int4_per_token_head", 576),
        ("nvfp4", 576),
    ],
)
def test_number_formats_of_the_cache(kind, token_bytes):
    assert lay_out(shape(DENSE), PoolSettings(kv_dtype=kind)).token_bytes == token_bytes


def test_growing_cache_of_the_27b():
    """The published figures: 65,536 bytes a token in bf16 and 32,768 in fp8, half of it on each of two cards."""
    config = HYBRID | {
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "layer_types": HYBRID["layer_types"] * 16,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
    }
    sizes = [
        lay_out(shape(config), PoolSettings(ranks=ranks, kv_dtype=kind)).token_bytes
        for ranks in (1, 2)
        for kind in ("auto", "fp8")
    ]

    assert sizes == [65_536, 32_768, 32_768, 16_384]


def test_a_state_fills_blocks_however_short_the_request():
    plain = lay_out(shape(HYBRID), PoolSettings(speculative_tokens=2))
    uncached = lay_out(shape(HYBRID), PoolSettings(speculative_tokens=2, prefix_caching=False))

    assert (plain.request_blocks(1), uncached.request_blocks(1)) == (1 + 3 * 4, 1 + 3 * 3)


def test_a_block_holds_a_state():
    layout = lay_out(shape(HYBRID), PoolSettings(kv_dtype="fp8", state_dtype="float32"))

    assert layout.page_bytes >= layout.state_bytes
    assert layout.block % 16 == 0


@pytest.mark.parametrize("blocks", [1, 7, 471, 472, 100_003])
def test_nearest_blocks_are_found_again(blocks):
    layout = lay_out(shape(HYBRID), PoolSettings())

    assert blocks_near(layout, count_tokens(layout, blocks, 32_768), 32_768) == blocks


@pytest.mark.parametrize(
    ("config", "settings", "words"),
    [
        (
            DENSE | {"num_key_value_heads": 4},
            PoolSettings(ranks=3),
            "4 KV heads cannot be split over 3 cards",
        ),
        (HYBRID, PoolSettings(ranks=16), "cannot be split over 16 cards"),
        (DENSE, PoolSettings(kv_dtype="nonsense"), "kv_cache_dtype 'nonsense'"),
        (DENSE, PoolSettings(dtype="int8"), "dtype 'int8'"),
        (HYBRID, PoolSettings(state_dtype="fp4"), "mamba_ssm_cache_dtype 'fp4'"),
    ],
)
def test_settings_that_contradict_the_model(config, settings, words):
    with pytest.raises(UsageError, match=words):
        lay_out(shape(config), settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"it is not JSON \(line 1, column 2\)"),
        ("[]", "it is not a JSON object"),
        ("{}", "model_type is missing"),
        ('{"model_type": "rnn"}', "'rnn' is a family that rigd does not know"),
        (json.dumps(DENSE | {"head_dim": None, "hidden_size": None}), "hidden_size is missing"),
        (
            json.dumps(DENSE | {"head_dim": None, "hidden_size": 255}),
            "255 cannot be split over 4 attention heads",
        ),
        (json.dumps(DENSE | {"num_hidden_layers": None}), "num_hidden_layers is missing"),
        (json.dumps(DENSE | {"num_hidden_layers": "4"}), "num_hidden_layers is '4', not a whole number"),
        (json.dumps(DENSE | {"dtype": 16}), "dtype is 16, not a text"),
        (
            json.dumps(DENSE | {"layer_types": ["full_attention"]}),
            "layer_types does not say what each of the 4",
        ),
        (json.dumps(DENSE | {"layer_types": ["magic"] * 4}), r"layer_types\[0\] is 'magic'"),
        (json.dumps(DENSE | {"layer_types": ["sliding_attention"] * 4}), "sliding_window is missing"),
        (
            json.dumps({"model_type": "qwen3_5", "text_config": HYBRID | {"linear_num_value_heads": None}}),
            "text_config.linear_num_value_heads is missing",
        ),
        (json.dumps({"model_type": "deepseek_v3"}), "kv_lora_rank is missing"),
        (json.dumps(DENSE | {"num_hidden_layers": 10**30}), "not a whole number of 1 to 1,000,000,000"),
        (
            json.dumps(HYBRID | {"layer_types": None, "full_attention_interval": 0}),
            "full_attention_interval is 0, not a whole",
        ),
        (
            json.dumps(HYBRID | {"layer_types": None, "full_attention_interval": 99}),
            "leaves no layer with full attention",
        ),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_a_config_that_says_too_little_is_named_with_its_place(text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read_shape(text, "some/config.json")

    assert "some/config.json" in str(caught.value)
    assert "--config" in str(caught.value.hint)


ODD = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats()
    | st.sampled_from(["", "x", [], {}, [None]])
)


@given(st.sampled_from([DENSE, HYBRID]), st.dictionaries(st.sampled_from([*HYBRID]), ODD, max_size=3))
def test_whatever_a_config_says_it_is_a_pool_or_a_sentence(config, odd):
    with contextlib.suppress(UsageError):
        laid = lay_out(shape(config | odd), PoolSettings(ranks=2))

        assert make_pool(laid, stated(GIB), 4096).tokens.value >= 0
