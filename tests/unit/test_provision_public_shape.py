"""Playbooks of the shape that public ones have: check-run, applied, and nothing left to do the second time."""

from pathlib import Path

import pytest
from provisioning import Bench, Outcome

SHAPES = Path(__file__).parents[1] / "data/playbooks/public_shape"
PLAYBOOKS = [path.name for path in sorted(SHAPES.glob("*.yml"))]
FACTS = {"system": "Linux", "architecture": "x86_64", "distribution": "Debian", "os_family": "Debian",
         "distribution_major_version": "12"}  # fmt: skip
FAIL = {"2-toolkit.yml": 1}
"""Failures that a playbook counts on, in its first run."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.box.facts = FACTS
    return bench


def run(bench: Bench, name: str, *, check: bool = False) -> Outcome:
    return bench.run(
        SHAPES / name, check=check, extra_vars=(f'{{"base": "{bench.folder}/base", "patient": false}}',)
    )


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_it_is_check_run_on_a_bare_box_and_leaves_nothing(bench: Bench, name: str) -> None:
    found = run(bench, name, check=True)

    assert found.counts.get("failed", 0) == 0, found.text()
    assert found.counts["changed"] > 0
    assert not (bench.folder / "base").exists()


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_it_is_applied_and_the_second_time_nothing_is_left(bench: Bench, name: str) -> None:
    first, second = run(bench, name), run(bench, name)

    assert (first.code, second.code) == (0, 0), first.text()
    assert first.counts["changed"] > 0
    assert first.counts.get("ignored", 0) + first.counts.get("rescued", 0) == FAIL.get(name, 0)
    assert second.counts.get("changed", 0) == 0, second.text()


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_check_after_apply_has_nothing_to_say(bench: Bench, name: str) -> None:
    run(bench, name)

    found = run(bench, name, check=True)

    assert found.counts.get("changed", 0) == 0, found.text()
    assert found.counts.get("failed", 0) == 0
