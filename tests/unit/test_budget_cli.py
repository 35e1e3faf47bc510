"""`rigd budget` as a person types it."""

import json
from pathlib import Path

import pytest
import typer
from budgets import DATA
from typer.testing import CliRunner

from rigd.cli import budget
from rigd.cli.budget_output import bar_cells
from rigd.errors import RigdError, UnreachableError, UsageError

CONFIGS = Path(__file__).parents[2] / "configs"
RIG_A = CONFIGS / "rig-a-qwen3.6-27b-docker.yaml"
RIG_B = CONFIGS / "rig-b-qwen3.8-27b-process.yaml"
RIG = """
name: small
engine:
  runtime: process
  version: "0.32.0"
  model: {model}
  environment: {{VLLM_CPU_KVCACHE_SPACE: "{space}"}}
  arguments: {{tensor_parallel_size: 2, max_num_seqs: 4, trust_remote_code: true{more}}}
channels:
  - {{name: chat, context: {context}, output: 1000, parallel: 2}}
"""


def run(*arguments: object):
    """Return the result of a command."""
    app = typer.Typer()
    app.command()(budget.budget)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def rig(tmp_path):
    """Write a rig file with a model whose config.json lies there; give its path."""

    def write(*, model="tinymimo", space=1, context=20_000, more="") -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text((DATA / f"models/{model}.json").read_text())
        path = tmp_path / "rig.yaml"
        path.write_text(RIG.format(model=folder, space=space, context=context, more=more))
        return path

    return write


class Daemon:
    """A daemon whose status is this document."""

    def __init__(self, document):
        self.document = document

    def get(self, path, timeout_s):
        if self.document is None:
            raise UnreachableError("no daemon")
        return self.document


@pytest.fixture
def daemon(monkeypatch):
    """Let a daemon answer with this status; None: none answers, and no engine either."""

    def answering(document) -> None:
        monkeypatch.setattr(budget.client, "connect", lambda environ: Daemon(document))

    async def nothing(spec):
        return None

    monkeypatch.setattr(budget, "_asked_engine", nothing)
    answering(None)
    return answering


def test_rig_a_says_the_published_numbers():
    result = run(RIG_A, "--offline")

    assert result.exit_code == 0, result.output
    words = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] for line in words if line[:1] == ["pool"]] == [["pool", "691,176"]]
    for expected in ("18,432", "672,744", "363,840", "308,904"):
        assert any(expected in line for line in words)
    assert "holds: the channels of 'rig-a' fit" in result.stdout
    assert "stated: budget.pool_tokens" in result.stdout


def test_rig_b_reckons_its_bytes():
    result = run(RIG_B, "--offline", "--fit")

    assert result.exit_code == 0
    assert "computed  731,785 tokens: 924 blocks of 832 tokens" in result.stdout
    assert "-0.03% against 732,000 (stated)" in result.stdout
    assert "fit       longest context 262,144: max_model_len" in result.stdout


def test_json_carries_where_each_number_comes_from(rig):
    result = run(rig(), "--offline", "--json", "--hit", "0.5")

    said = json.loads(result.stdout)
    assert (result.exit_code, said["verdict"]) == (0, "holds")
    assert said["pool"]["source"] == "computed"
    assert said["computed"]["memory_bytes"]["source"] == "stated"
    assert said["computed"]["memory_bytes"]["note"] == "VLLM_CPU_KVCACHE_SPACE=1 (GiB)"
    assert said["plan"]["expected"] == 30_000
    assert said["model"]["from"].endswith("model/config.json")
    assert said["fit"]["context"]["value"] == 32_768


def test_a_plan_that_cannot_hold_is_refused_with_a_number(rig):
    result = run(rig(context=40_000), "--offline")

    assert result.exit_code == 3
    assert "refused: the channels of 'small' do not fit" in result.stdout
    assert "context 40,000 and output 1,000 exceed max_model_len (32,768)" in result.stdout
    assert (
        "-> the smallest change that would hold: channels[0].context (chat): 40,000 -> 31,744"
        in result.stdout
    )


def test_a_pool_that_is_too_small_is_drawn_to_its_end(rig):
    path = rig(context=30_000)
    path.write_text(path.read_text() + "budget: {pool_tokens: 40000}\n")
    result = run(path, "--offline")

    assert result.exit_code == 3
    assert "the pool ends here, 22,000 too much" in result.stdout


def test_a_running_engine_is_measured(rig, daemon):
    daemon({"rig": "small", "health": {"pool_tokens": 1_000_000}})
    result = run(rig(), "--json")

    said = json.loads(result.stdout)
    assert (said["pool"]["value"], said["pool"]["source"]) == (1_000_000, "read")
    assert said["deviation"] == pytest.approx(said["computed"]["tokens"]["value"] / 1_000_000 - 1)


@pytest.mark.parametrize(
    "status",
    [
        None,
        {"rig": "another", "health": {"pool_tokens": 5}},
        {"rig": "small", "health": {"pool_tokens": None}},
        {},
    ],
    ids=["no-daemon", "of-another-rig", "not-yet-known", "strange"],
)
def test_what_is_not_this_rig_s_engine_is_left_out(rig, daemon, status):
    daemon(status)

    assert json.loads(run(rig(), "--json").stdout)["pool"]["source"] == "computed"


def test_a_log_is_read(rig, tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("INFO CPU KV cache size: 838,784 tokens\n")
    said = json.loads(run(rig(), "--log", log, "--json").stdout)

    assert (said["pool"]["value"], said["pool"]["note"]) == (838_784, "the log's line KV cache size")


@pytest.mark.parametrize("content", ["nothing here\n", None], ids=["silent", "missing"])
def test_a_log_that_says_nothing(rig, tmp_path, content):
    log = tmp_path / "engine.log"
    if content is not None:
        log.write_text(content)
    result = run(rig(), "--log", log)

    assert isinstance(result.exception, UsageError)
    assert str(log) in str(result.exception)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{not json", "it is not JSON (line 1, column 2)"),
        ('{"model_type": "qwen3"}', "num_hidden_layers is missing"),
        ('{"model_type": "unheard_of"}', "'unheard_of' is a family that rigd does not know"),
        (b"\xff\xfe", "it is not UTF-8 text"),
    ],
)
def test_a_config_that_is_no_use_is_named(rig, tmp_path, content, words):
    path = rig()
    (tmp_path / "model/config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    result = run(path, "--offline")

    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert "model/config.json" in str(result.exception)


def test_a_config_that_is_not_there(rig, tmp_path):
    result = run(rig(), "--offline", "--config", tmp_path / "nowhere")

    assert isinstance(result.exception, UsageError)
    assert f"there is no config.json at '{tmp_path}/nowhere'" in str(result.exception)


def test_a_config_of_the_rig_file_that_is_not_there_is_named_with_its_line(rig):
    path = rig()
    path.write_text(path.read_text() + "budget: {config: elsewhere}\n")
    result = run(path, "--offline")

    assert "rig.yaml:11:10: budget.config: there is no config.json" in str(result.exception)


def test_an_unknown_pool_is_said_not_guessed(rig, tmp_path):
    path = rig(space="")
    result = run(path, "--offline", "--config", tmp_path / "model")

    assert isinstance(result.exception, RigdError)
    assert result.exception.exit_code == 1
    assert "the size of its KV pool is not known" in str(result.exception)
    assert "VLLM_CPU_KVCACHE_SPACE" in result.stdout


def test_weights_are_read_from_the_model_s_folder(rig, tmp_path):
    path = rig(space="")
    path.write_text(path.read_text().replace('environment: {VLLM_CPU_KVCACHE_SPACE: ""}', "environment: {}"))
    index = {"metadata": {"total_size": 10 * 2**30}}
    (tmp_path / "model/model.safetensors.index.json").write_text(json.dumps(index))
    result = run(path, "--offline", "--card", "RTX 3090", "--json")

    memory = json.loads(result.stdout)["computed"]["memory_bytes"]
    assert memory["source"] == "assumed"
    assert "weights 5.00" in memory["note"]
    assert memory["error"] > 0


def test_a_model_is_found_in_the_cache(rig, tmp_path, monkeypatch):
    snapshot = tmp_path / "hf/hub/models--org--name/snapshots/abc"
    snapshot.mkdir(parents=True)
    path = rig()
    (tmp_path / "model/config.json").rename(snapshot / "config.json")
    path.write_text(path.read_text().replace(str(tmp_path / "model"), "org/name"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    assert json.loads(run(path, "--offline", "--json").stdout)["model"]["from"] == str(
        snapshot / "config.json"
    )


def test_a_rig_without_channels_shows_its_pool(rig):
    path = rig()
    path.write_text(path.read_text().split("channels:")[0])
    result = run(path, "--offline")

    assert result.exit_code == 0
    assert "no channels" in result.stdout
    assert "pool  " in result.stdout


@pytest.mark.parametrize("sizes", [(1, 1), (0, 5, 10**9), (7, 3, 90, 0), (10**6, 1, 1, 1)])
def test_the_bar_is_always_as_wide(sizes):
    cells = bar_cells([(str(number), size) for number, size in enumerate(sizes)], 20)

    assert sum(cells) == 20
    assert all((cell > 0) == (size > 0) for cell, size in zip(cells, sizes, strict=True))
