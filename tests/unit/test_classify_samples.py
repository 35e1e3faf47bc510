"""Every log sample is read as its expectation says, every class has a sample, every rule is hit by one."""

import json
from pathlib import Path

import pytest

from rigd.supervise.classify import diagnose, hits
from rigd.supervise.rules import RULES

LOGS = Path(__file__).parent.parent / "data" / "logs"
SAMPLES = sorted(LOGS.glob("*.log"))


def read(sample):
    return sample.read_bytes().decode("utf-8", errors="replace").split("\n")


def expectation(sample):
    return json.loads(sample.with_suffix(".json").read_text())


def arguments(expected):
    return expected.get("arguments", {})


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_read_as_expected(sample):
    expected = expectation(sample)

    found = diagnose(read(sample), **arguments(expected))

    assert expected["class"] == found.kind
    assert expected["remedy"].lower() in found.remedy.lower()
    assert expected["captured"].items() <= dict(found.captured).items()
    steps = [[step.knob, str(step.change), step.value] for step in found.steps]
    assert expected.get("steps", []) == steps[: len(expected.get("steps", []))]
    assert expected.get("evidence", "") in " ".join(item.text for item in found.evidence)
    assert "{" not in found.sentence.replace(str(found.captured.get("reason", "")), "")
    assert "[[" not in found.sentence


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_sample_hits_exactly_the_class_it_shows(sample):
    expected = expectation(sample)

    kinds = sorted({rule.kind for rule in hits(read(sample), **arguments(expected))})

    assert ([] if expected["class"] == "unknown" else [expected["class"]]) == kinds


def test_every_rule_is_hit_by_a_sample():
    hit = {id(rule) for sample in SAMPLES for rule in hits(read(sample), **arguments(expectation(sample)))}

    assert [rule.kind for rule in RULES if id(rule) not in hit] == []


def test_every_class_of_the_catalogue_has_a_sample():
    sampled = {expectation(sample)["class"] for sample in SAMPLES}

    assert {rule.kind for rule in RULES} - sampled == set()
