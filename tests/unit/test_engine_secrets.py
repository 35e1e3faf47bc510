"""Secrets are read from where references say, and appear nowhere that could be printed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rigd.adapters.secrets import MOST_BYTES, SecretError, resolve
from rigd.cli.engine import app
from rigd.engine.launch import launch_spec
from rigd.errors import ExitCode, explain, hint_of
from rigd.rig.schema import Rig
from rigd.runtime.secrets import mask, resolve_api_key, resolve_secrets

VALUE = "sk-5f2a90c1d7"


@pytest.fixture
def secret_file(tmp_path):
    """Return a private file with the secret."""
    path = tmp_path / "key"
    path.write_text(VALUE + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["bare", "line-break", "windows"])
def test_one_line_break_at_the_end_is_no_part_of_it(secret_file, end):
    secret_file.write_bytes(VALUE.encode() + end.encode())

    assert resolve("file", str(secret_file)) == VALUE


def test_environment_and_credential(tmp_path):
    (tmp_path / "key").write_text(VALUE)

    assert resolve("env", "KEY", environ={"KEY": VALUE}) == VALUE
    assert resolve("credential", "key", environ={"CREDENTIALS_DIRECTORY": str(tmp_path)}) == VALUE


def test_a_file_that_others_may_read_is_refused_with_the_command_that_helps(secret_file):
    secret_file.chmod(0o640)

    with pytest.raises(SecretError, match=r"others on this box may read it \(mode 0640\)") as caught:
        resolve("file", str(secret_file))

    assert hint_of(caught.value) == f"chmod 600 {secret_file}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"\n", "it is empty", id="only-a-line-break"),
        pytest.param(VALUE.encode() + b"\nmore", "more than one line", id="two-lines"),
        pytest.param(VALUE.encode() + b"\n\n", "more than one line", id="two-line-breaks"),
        pytest.param(VALUE.encode() + b"\0", "more than one line", id="nul"),
        pytest.param(VALUE.encode() + b"\xff", "not UTF-8 text", id="binary"),
        pytest.param(VALUE.encode() * MOST_BYTES, "larger than 64 KiB", id="huge"),
    ],
)
def test_what_is_no_secret_is_refused_without_showing_it(secret_file, content, sentence):
    secret_file.write_bytes(content)

    with pytest.raises(SecretError, match=sentence) as caught:
        resolve("file", str(secret_file))

    assert VALUE not in explain(caught.value)
    assert str(secret_file) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        pytest.param("env", "KEY", "'KEY': it is not set", id="unset"),
        pytest.param("file", "/nowhere/key", "'/nowhere/key': it does not exist", id="missing-file"),
        pytest.param("file", "/", "it is no regular file|Is a directory", id="folder"),
        pytest.param("credential", "key", "this process was given none", id="no-credentials"),
        pytest.param("credential", "../key", "no name of a credential", id="path-for-a-credential"),
        pytest.param("vault", "key", "there are env, file and credential", id="unknown-kind"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(kind, name, sentence):
    with pytest.raises(SecretError, match=sentence) as caught:
        resolve(kind, name, environ={})

    assert caught.value.exit_code is ExitCode.USAGE


def test_a_fifo_is_refused_at_once(tmp_path):
    import os  # noqa: PLC0415

    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)

    with pytest.raises(SecretError, match="no regular file"):
        resolve("file", str(path))


def test_secrets_of_a_launch(secret_file):
    spec = launch_spec(rig_with(secret_file), rig_folder=secret_file.parent, home=Path("/home/me"))

    assert resolve_secrets(spec, environ={"HF": "hf_77"}) == {"VLLM_API_KEY": VALUE, "HF_TOKEN": "hf_77"}
    assert resolve_api_key(spec) == VALUE


def rig_with(secret_file: Path) -> Rig:
    """Return a docker rig with two secrets, one of them in a file beside the rig."""
    return Rig.model_validate(
        {
            "name": "box",
            "engine": {
                "runtime": "docker",
                "version": "0.32.0",
                "model": "org/model",
                "api_key": {"file": secret_file.name},
                "environment": {"HF_TOKEN": {"env": "HF"}},
                "docker": {"image": "vllm/vllm-openai:v0.32.0", "container": "vllm"},
            },
        }
    )


@pytest.mark.parametrize("command", ["command", "compose"])
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_no_command_shows_a_secret(tmp_path, secret_file, monkeypatch, command, options):
    monkeypatch.setenv("HF", "hf_5f2a90c1d7")
    path = tmp_path / "rig.yaml"
    path.write_text(rig_with(secret_file).model_dump_json(exclude_none=True))

    result = CliRunner().invoke(app, [command, str(path), *options])

    assert result.exit_code == 0
    assert "HF" in result.output
    assert "5f2a90c1d7" not in result.output
    if options:
        json.loads(result.stdout)


def test_a_specification_carries_references_only(secret_file):
    spec = launch_spec(rig_with(secret_file), rig_folder=secret_file.parent, home=Path("/home/me"))

    assert VALUE not in repr(spec)
    assert all(VALUE not in word for word in spec.argv)


def test_mask_hides_the_longer_secret_first():
    text = mask("key=sk-12345-long and sk-12345", ["sk-12345", "sk-12345-long", "", "a"])

    assert text == "key=*** and ***"
