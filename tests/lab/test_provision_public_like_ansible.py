"""Playbooks of the shape that public ones have, by rigd and by Ansible on this machine: same recap, same files."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import install
import peers
import pytest
import yaml
from desks import ran_by

pytestmark = pytest.mark.lab

SHAPES = Path(__file__).parents[1] / "data/playbooks/public_shape"
ROUNDS = ("first", "second")
"""Check mode is compared on the twin boxes, and tried with these by the unit tests."""
ON_PURPOSE = {
    "first": {"Gathering Facts": "facts are read when a task first uses one"},
    "second": {
        "Gathering Facts": "facts are read when a task first uses one",
        "Fetch the key": "a file that is there is not fetched again",
        "Say what failed": "nor does its fetching fail",
        "Use the one that we bring": "so there is nothing to rescue",
        "Started and left alone": "what is there already is not made again",
    },
}
"""Round -> task that ends otherwise than with Ansible -> why."""
Tasks = list[tuple[str, str]]
"""Name and outcome of each task, in order."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one of the two did in each round, and what it left."""

    tasks: dict[str, Tasks] = field(default_factory=dict)
    recap: dict[str, dict[str, int]] = field(default_factory=dict)
    files: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def sides(need_parts: Callable[..., None]) -> Iterator[tuple[Side, Side]]:
    need_parts("peers", "collections")
    with tempfile.TemporaryDirectory(prefix="rigd-shapes-") as name:
        yield by_rigd(Path(name) / "ours"), by_ansible(Path(name) / "theirs")


def site(folder: Path) -> Path:
    """Write a playbook that imports all others; one of them imports two of them itself."""
    names = [path for path in sorted(SHAPES.glob("*.yml")) if path.name[0] not in "46"]
    playbook = folder / "all.yml"
    playbook.write_text(yaml.safe_dump([{"import_playbook": str(path)} for path in names]))
    return playbook


def by_rigd(folder: Path) -> Side:
    side = Side()
    folder.mkdir()
    playbook = site(folder)
    for turn in ROUNDS:
        command = [sys.executable, "-m", "rigd.cli.main", "provision", "apply",
                   str(playbook), "--json", "-e", f"base={folder}/base"]  # fmt: skip
        ran = ran_by(command, {**os.environ, "RIGD_STATE_DIR": str(folder / "state"), "HOME": str(folder)})
        assert ran.events, ran.err
        side.tasks[turn] = [
            (event["name"], event["outcome"]) for event in ran.events if event["event"] == "result"
        ]
        side.recap[turn] = ran.recap
        side.files[turn] = files(folder / "base")
    return side


def by_ansible(folder: Path) -> Side:
    side = Side()
    folder.mkdir()
    python = install.default_folder() / "peers/bin/python"
    more = [
        "-c",
        "local",
        "-e",
        f"base={folder}/base",
        "-e",
        f"ansible_python_interpreter={python}",
        "-e",
        f"ansible_async_dir={folder}/jobs",
    ]
    playbook = site(folder)
    for turn in ROUNDS:
        done = peers.ansible(playbook, "localhost,", folder, *more)
        side.tasks[turn] = [(name, peers.outcome(result)) for name, result in done.tasks]
        side.recap[turn] = {word: number for word, number in done.recap.items() if number}
        side.files[turn] = files(folder / "base")
    return side


def files(folder: Path) -> dict[str, tuple[str, str]]:
    return {
        str(path.relative_to(folder)): (
            oct(path.stat().st_mode),
            path.read_text().replace(str(folder), "") if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("turn", ROUNDS)
def test_tasks_end_as_with_ansible(sides: tuple[Side, Side], turn: str) -> None:
    ours, theirs = ([task for task in side.tasks[turn] if task[0] not in ON_PURPOSE[turn]] for side in sides)

    assert ours == theirs


@pytest.mark.parametrize("turn", ROUNDS)
def test_files_are_those_that_ansible_leaves(sides: tuple[Side, Side], turn: str) -> None:
    ours, theirs = sides

    assert ours.files[turn] == theirs.files[turn]
    assert ours.files[turn]
