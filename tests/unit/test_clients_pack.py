"""The prompts for a coordinator and its subagents: the same bytes everywhere, and nothing in them moves."""

import hashlib
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rigd.cli.main import main
from rigd.clients.pack import AGENTS_OF_PACK, CLIENTS, pack, prompt

RIG = str(Path(__file__).resolve().parents[2] / "configs" / "rig-a-qwen3.6-27b-docker.yaml")
DIGESTS = {
    "coordinator": "f141411001dd02c2",
    "coder": "045dc2b54ac99e51",
    "reviewer": "d1f702e7bd78bc5c",
}
"""A prompt that changes makes every box read it again once: change it on purpose only, all changes at once."""


@pytest.mark.parametrize("agent", AGENTS_OF_PACK, ids=lambda agent: agent.name)
def test_prompts_are_the_same_to_the_byte(agent):
    assert hashlib.sha256(prompt(agent).encode()).hexdigest()[:16] == DIGESTS[agent.name]


def test_all_prompts_begin_with_the_same_rules():
    prompts = [prompt(agent) for agent in AGENTS_OF_PACK]
    shared = prompts[0][: prompts[0].index("# Your part")]
    assert all(text.startswith(shared) for text in prompts)
    assert len(shared) > 1000


@pytest.mark.parametrize("client", CLIENTS)
def test_the_pack_passes_our_own_linter(capsys, tmp_path, client):
    assert main(["clients", "agents", str(tmp_path), "--for", client, "--rig", RIG, "--yes"]) == 0
    files = sorted(str(path) for path in tmp_path.rglob("*.md"))
    capsys.readouterr()

    assert len(files) == len(AGENTS_OF_PACK)
    assert main(["prefix", "lint", "--json", *files]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_a_second_run_changes_nothing(capsys, tmp_path):
    words = ["clients", "agents", str(tmp_path), "--yes", "--json"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 0
    assert {file["changed"] for file in json.loads(capsys.readouterr().out)["files"]} == {False}


def test_an_agent_is_bound_to_the_channel_of_its_kind(capsys, tmp_path):
    assert main(["clients", "agents", str(tmp_path), "--for", "opencode", "--rig", RIG, "--yes"]) == 0
    folder = tmp_path / ".opencode" / "agent"
    assert "\nmodel: rig-a-primary/qwen3.6-27b\n" in (folder / "coordinator.md").read_text()
    assert "\nmodel: rig-a-coder/qwen3.6-27b\n" in (folder / "coder.md").read_text()


def test_an_unknown_client_is_refused(capsys, tmp_path):
    assert main(["clients", "agents", str(tmp_path), "--for", "vim"]) == 2
    assert "opencode" in capsys.readouterr().err


def test_front_matter_is_valid_yaml():
    for client in ("opencode", "kilo", "claude-code"):
        for file in pack(client):
            head = YAML(typ="safe").load(file.text.split("---\n")[1])
            assert head["description"]
