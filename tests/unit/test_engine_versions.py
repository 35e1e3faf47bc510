"""The table of what differs between vLLM versions."""

import pytest

from rigd.engine.versions import FEATURES, Kind, knows, parse_version
from rigd.rig.schema import Arguments


@pytest.mark.parametrize(
    ("name", "last_without", "first_with"),
    [
        pytest.param("attention_backend", "0.12.0", "0.13.0", id="attention-flag"),
        pytest.param("default_chat_template_kwargs", "0.13.0", "0.14.1", id="template-kwargs"),
        pytest.param("max_model_len=auto", "0.13.0", "0.14.1", id="auto-length"),
        pytest.param("language_model_only", "0.16.0", "0.17.1", id="language-model-only"),
        pytest.param("max_num_active_seqs", "0.30.0", "0.31.0", id="active-seqs"),
    ],
)
def test_what_came(name, last_without, first_with):
    assert (knows(last_without, name), knows(first_with, name)) == (False, True)


@pytest.mark.parametrize(
    ("name", "last_with", "first_without"),
    [
        pytest.param("VLLM_ATTENTION_BACKEND", "0.14.1", "0.15.1", id="attention-variable"),
        pytest.param("swap-space", "0.17.1", "0.18.1", id="swap-space"),
        pytest.param("vllm:gpu_cache_usage_perc", "0.11.2", "0.12.0", id="old-gauge"),
        pytest.param("mamba_align", "0.26.0", "0.27.1", id="mamba-align"),
    ],
)
def test_what_went(name, last_with, first_without):
    assert (knows(last_with, name), knows(first_without, name)) == (True, False)


def test_what_no_row_names_is_everywhere():
    assert knows("0.11.0", "max_num_seqs")


def test_each_argument_of_the_table_can_be_written_in_a_rig_file():
    names = [feature.name.split("=")[0] for feature in FEATURES if feature.kind is Kind.ARGUMENT]

    assert [name for name in names if "-" not in name and name not in Arguments.model_fields] == []


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.32.0", (0, 32, 0)), ("0.27.1+cpu", (0, 27, 1)), ("0.11.2.dev1", (0, 11, 2))],
)
def test_versions_are_read_with_what_follows_them(text, version):
    assert parse_version(text) == version


def test_what_is_no_version_is_refused():
    with pytest.raises(ValueError, match="is no version"):
        parse_version("latest")
