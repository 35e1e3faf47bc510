"""What `rigd doctor` says of recorded boxes: a healthy one with two RTX 3090, and the same with one trouble each.

Each file of tests/data/doctor is a case: what differs from the healthy box (`facts`) or from its rig (`rig`), and
what must be said. How to add one: a JSON file.
"""

import copy
import json
from pathlib import Path

import pytest

from rigd.doctor import checks
from rigd.doctor.finding import Severity, number
from rigd.doctor.network import reached_from
from rigd.doctor.wish import Wish, home_of_engine, questions
from rigd.engine.launch import launch_spec
from rigd.rig.schema import Rig

DATA = Path(__file__).parents[1] / "data" / "doctor"
HEALTHY = json.loads((DATA / "healthy.json").read_text())
CASES = sorted(path for path in DATA.glob("*.json") if path.stem != "healthy")


def merged(base, changes):
    """Return `base` with `changes` in it; a value that is no mapping takes the place of the old one."""
    if not isinstance(base, dict) or not isinstance(changes, dict) or set(changes) == {"error"}:
        return copy.deepcopy(changes)
    return {**base, **{key: merged(base.get(key), value) for key, value in changes.items()}}


def wish_of(changes) -> Wish:
    given = merged(HEALTHY["rig"], changes)
    if given["engine"]["runtime"] == "process":
        del given["engine"]["docker"]
    rig = Rig.model_validate(given)
    spec = launch_spec(rig, rig_folder=Path("/etc/rigd"), home=Path("/var/lib/rigd"))
    return Wish(rig=rig, spec=spec, home="/var/lib/rigd", state_dir="/var/lib/rigd")


def test_a_healthy_box_is_fit_and_every_check_has_something_to_say():
    wish = wish_of({})

    found = checks.findings(HEALTHY["facts"], wish)

    bad = [one for one in found if one.severity in {Severity.ERROR, Severity.WARNING}]
    assert bad == []
    assert {one.check for one in found} >= {
        "cards", "bound", "driver", "cuda", "next boot", "secure boot", "updates", "reboot", "link", "bar1", "p2p",
        "persistence", "power", "docker", "daemon.json", "injection", "cdi", "image store", "shared memory", "memory",
        "disks", "model cache", "mounts", "clock", "port", "reached", "tailscale", "service",
    }  # fmt: skip
    assert set(HEALTHY["facts"]["disks"]) >= set(questions(wish)["paths"]) - {"/var/lib/containerd"}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_trouble_is_found_and_nothing_else(path):
    case = json.loads(path.read_text())
    facts = merged(HEALTHY["facts"], case.get("facts", {}))

    found = checks.findings(facts, wish_of(case.get("rig", {})))

    grave = [one for one in found if one.severity in {Severity.ERROR, Severity.WARNING}]
    told = {(one.check, str(one.severity)) for one in grave}
    wanted = {(one["id"], one["severity"]) for one in case["found"]}
    infos = {(one.check, str(one.severity)) for one in found if one.severity is Severity.INFO}
    assert told == {one for one in wanted if one[1] != "info"}, [one.sentence for one in grave]
    assert {one for one in wanted if one[1] == "info"} <= infos
    for one in case["found"]:
        mine = [each for each in found if (each.check, str(each.severity)) == (one["id"], one["severity"])]
        assert any(one["says"] in each.sentence for each in mine), [each.sentence for each in mine]
        assert any(one.get("mend", "") in each.mend for each in mine), [each.mend for each in mine]


def test_every_error_and_warning_says_what_mends_it():
    for path in CASES:
        case = json.loads(path.read_text())
        facts = merged(HEALTHY["facts"], case.get("facts", {}))
        for one in checks.findings(facts, wish_of(case.get("rig", {}))):
            looked = "could not be looked at" in one.sentence
            assert one.mend or looked or one.severity in {Severity.INFO, Severity.OK}, one


@pytest.mark.parametrize("part", [name for name in HEALTHY["facts"] if name != "at_s"])
def test_a_part_that_cannot_be_looked_at_is_told_and_ends_nothing(part):
    facts = {**HEALTHY["facts"], part: {"error": "did not answer within 30 s"}}

    found = checks.findings(facts, wish_of({}))

    assert len(found) > 15
    said = " ".join(one.sentence for one in found)
    quiet = {
        "process",
        "caches",
        "fstab",
        "image",
    }  # Nobody needs them on this box, or they say it themselves.
    assert part in quiet or "30 s" in said


def test_without_a_rig_file_the_host_is_judged_alone():
    found = checks.findings(HEALTHY["facts"], None)

    assert not [one for one in found if one.severity is Severity.ERROR]
    assert {one.check for one in found} >= {"driver", "docker", "clock"}


def test_the_gravest_come_first_and_the_document_counts_them():
    facts = merged(HEALTHY["facts"], {"reboot": {"required": True}, "driver": {"loaded": ""}})

    found = checks.findings(facts, wish_of({}))
    document = checks.document(found, facts)

    order = [one["severity"] for one in document["findings"]]
    assert order == sorted(order, key=["error", "warning", "info", "ok"].index)
    assert (document["fit"], document["counts"]["error"] > 0) == (False, True)
    json.dumps(document)


@pytest.mark.parametrize(
    ("text", "parts"), [("13.0", (13, 0)), ("20.10.24+dfsg1", (20, 10, 24)), ("", ()), ("latest", ())]
)
def test_versions_are_numbers(text, parts):
    assert number(text) == parts


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("127.0.0.1", "this box alone"),
        ("localhost", "this box"),
        ("0.0.0.0", "the whole network of this box"),
        ("::", "the whole network of this box"),
        ("192.168.1.20", "the whole network of this box"),
        ("100.101.102.103", "the tailnet"),
        ("100.99.99.99", None),
    ],
)
def test_an_address_says_from_where_it_is_reached(host, who):
    assert reached_from(host, HEALTHY["facts"]) == who


def test_the_home_of_the_service_s_engine_is_the_service_s():
    assert home_of_engine(Path("/etc/rigd/rig.yaml"), own="/root") == "/var/lib/rigd"
    assert home_of_engine(Path("/home/me/rig.yaml"), own="/home/me") == "/home/me"
