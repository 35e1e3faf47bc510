"""`rigd rig` and `rigd engine` as a person types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rigd.cli import engine, rig
from rigd.errors import UsageError
from rigd.runtime import factory
from rigd.runtime.base import CheckReport

CONFIGS = Path(__file__).parents[2] / "configs"
DATA = Path(__file__).parents[1] / "data/rig"
RIG_A = CONFIGS / "rig-a-qwen3.6-27b-docker.yaml"
RIG_B = CONFIGS / "rig-b-qwen3.8-27b-process.yaml"


def run(app, *arguments: object):
    """Return the result of a command."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_valid_file_is_said_to_be_valid():
    result = run(rig.app, "validate", RIG_A)

    assert result.exit_code == 0
    assert result.stdout == f"{RIG_A} is valid (rig rig-a, vLLM 0.32.0, docker)\n"


def test_warnings_are_told_and_go_by():
    result = run(rig.app, "validate", DATA / "warning-docker.yaml")

    assert result.exit_code == 0
    assert "warning: engine.host: 0.0.0.0 opens the engine" in result.stdout
    assert "5 warnings" in result.stdout


def test_a_wrong_file_ends_with_its_mistakes():
    result = run(rig.app, "validate", DATA / "wrong-unknown-section.yaml")

    assert isinstance(result.exception, UsageError)
    assert "did you mean 'supervision'?" in str(result.exception)


@pytest.mark.parametrize("name", ["wrong-unknown-section.yaml", "version-wrong-0.27.1.yaml"])
def test_a_wrong_file_as_json(name):
    result = run(rig.app, "validate", DATA / name, "--json")

    said = json.loads(result.stdout)
    assert (result.exit_code, said["valid"]) == (2, False)
    assert said["errors"][0].keys() == {"line", "column", "key", "message"}


def test_show_marks_what_the_file_does_not_say():
    lines = run(rig.app, "show", RIG_A).stdout.splitlines()

    assert any(line.split() == ["engine.port", "8320"] for line in lines)
    assert any(line.split() == ["engine.docker.pull", "missing", "(default)"] for line in lines)
    assert any(line.split()[1:] == ["***", "(the", "file", "/etc/rigd/rig-a.key)"] for line in lines)


def test_show_as_json_says_what_came_from_the_file():
    said = json.loads(run(rig.app, "show", RIG_A, "--json").stdout)

    assert said["settings"]["engine"]["api_key"] == {"file": "/etc/rigd/rig-a.key"}
    assert "engine.port" in said["from_file"]
    assert "engine.docker.pull" not in said["from_file"]


def test_a_bare_process_has_no_compose_file():
    result = run(engine.app, "compose", RIG_B)

    assert isinstance(result.exception, UsageError)
    assert "bare process" in str(result.exception)


def test_the_command_as_json_is_the_whole_launch():
    said = json.loads(run(engine.app, "command", RIG_B, "--json").stdout)

    assert said["argv"][:2] == ["vllm", "serve"]
    assert said["environment"] == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert said["url"] == "http://100.64.0.2:18020"


@pytest.mark.parametrize(
    ("accepted", "code", "words"),
    [
        pytest.param(True, 0, "accepts", id="accepted"),
        pytest.param(False, 3, "refuses", id="refused"),
        pytest.param(None, 1, "could not be asked", id="not-asked"),
    ],
)
def test_check_answers_with_its_exit_code(monkeypatch, accepted, code, words):
    class Runtime:
        async def check(self, spec, *, deadline_s):
            return CheckReport(accepted=accepted, message="its own words", took_s=1.5)

        async def close(self):
            pass

    monkeypatch.setattr(factory, "make_runtime", lambda *_arguments, **_named: Runtime())

    result = run(engine.app, "check", RIG_B)

    assert result.exit_code == code
    assert f"{words}" in result.stdout
    assert "its own words" in result.stdout


@pytest.mark.parametrize("app", [rig.app, engine.app], ids=["rig", "engine"])
def test_every_command_has_an_example_in_its_help(app):
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        about = " ".join(run(app, name, "--help").stdout.split())
        assert "Example: rigd " in about
