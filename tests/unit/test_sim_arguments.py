"""The double's command line is vLLM's."""

import pytest

from rigd.rig.schema import Arguments
from rigd.sim import flags
from rigd.sim.arguments import ArgumentError, parse

RIG_B = (
    "/models/Qwen3.8-27B-W4A16-AutoRound", "--served-model-name", "qwen3.8-27b", "--tensor-parallel-size", "2",
    "--kv-cache-memory-bytes", "13388056064", "--max-model-len", "262144", "--max-num-seqs", "8",
    "--kv-cache-dtype", "fp8", "--mamba-ssm-cache-dtype", "float16", "--async-scheduling",
    "--max-num-batched-tokens", "4096", "--enable-prefix-caching", "--language-model-only",
    "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--speculative-config",
    '{"method":"mtp","num_speculative_tokens":3,"draft_sample_method":"probabilistic"}',
    "--reasoning-parser", "qwen3", "--host", "127.0.0.1", "--port", "18020",
)  # fmt: skip


def test_rig_b_is_understood_whole():
    found = parse(RIG_B, {})

    assert found.name == "qwen3.8-27b"
    assert (found.ranks, found.max_model_len, found.max_num_seqs, found.drafts) == (2, 262_144, 8, 3)
    assert found.port == 18_020
    assert found.pool_tokens == pytest.approx(732_000, rel=0.001)


def test_every_setting_of_a_rig_file_is_a_flag():
    known = {*flags.BOOLEAN, *flags.SWITCH, *flags.INTEGER, *flags.NUMBER, *flags.LISTED, *flags.TEXT}
    wanted = {
        name.replace("_", "-") for name in Arguments.model_fields if name not in ("extra", "speculative")
    }

    assert wanted <= known
    assert "speculative-config" in known


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["serve", "m", "-tp", "2"], id="serve-and-short-name"),
        pytest.param(["m", "--tensor_parallel_size=2"], id="underscores-and-equals"),
        pytest.param(["--model", "m", "--tensor-parallel-size", "2"], id="model-flag"),
    ],
)
def test_spellings_that_vllm_takes(words):
    found = parse(words, {})

    assert (found.model, found.ranks) == ("m", 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["m", "--swap-space", "4"], "vllm: error: unrecognized arguments: --swap-space 4"),
        (["m", "--max-num-seqs", "x"], "vllm serve: error: argument --max-num-seqs: invalid int value: 'x'"),
        (["m", "--sim-fault", "nonsense"], "no fault 'nonsense'"),
        (["m", "--sim-speed", "0"], "must be above 0"),
        (["m", "--speculative-config", "{"], "argument --speculative-config/-sc"),
    ],
)
def test_wrong_words_are_refused_as_vllm_does(words, message):
    with pytest.raises(ArgumentError) as caught:
        parse(words, {})

    assert str(caught.value).startswith("usage: vllm")
    assert message in str(caught.value)


def test_key_comes_from_the_environment_and_is_in_no_log():
    found = parse(["m"], {"VLLM_API_KEY": "sk-secret"})

    assert found.api_keys == ("sk-secret",)
    assert "secret" not in repr(parse(["m", "--api-key", "sk-secret"], {}).given)


@pytest.mark.parametrize(
    ("text", "tokens"), [("16k", 16_000), ("16K", 16_384), ("200000", 200_000), ("auto", 50_000)]
)
def test_context_lengths_that_people_write(text, tokens):
    found = parse(["m", "--max-model-len", text, "--sim-pool-tokens", "50000"], {})

    assert found.max_model_len == tokens


def test_prefix_caching_is_on_unless_turned_off():
    assert parse(["m"], {}).prefix_caching
    assert not parse(["m", "--no-enable-prefix-caching"], {}).prefix_caching


def test_address_is_loopback_unless_told():
    assert parse(["m"], {}).host == "127.0.0.1"
