"""GPU readings through the real NVML bindings, with only the driver pretended (a small C library)."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nvml_stub.build import build

STUB = Path(__file__).parents[1] / "nvml_stub"


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    """Return a folder with the pretended `libnvidia-ml.so.1`."""
    return build(tmp_path_factory.mktemp("nvml"))


class Cards:
    """The pretended host: say what is so with its cards, then read them as the daemon does."""

    def __init__(self, folder: Path | None, facts: Path) -> None:
        self._facts = facts
        environment = os.environ | {"NVML_STUB": str(facts), "LD_LIBRARY_PATH": str(folder or "")}
        self.process = subprocess.Popen(
            [sys.executable, STUB / "read.py"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=STUB.parents[1],
        )

    def read(self, *facts: str, deadline_s: float = 10.0):
        self._facts.write_text("\n".join(facts) + "\n")
        self.process.stdin.write(f"{deadline_s}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def host(tmp_path):
    """Return a function that makes a host with or without the driver; ended after the test."""
    made = []

    def make(folder: Path | None) -> Cards:
        made.append(Cards(folder, tmp_path / "facts"))
        return made[-1]

    yield make
    for cards in made:
        cards.process.kill()
        cards.process.communicate()


def test_idle_cards_are_read_whole(driver, host):
    readings = host(driver).read()

    assert readings["problem"] is None
    assert readings["driver"] == "580.95.05"
    assert [card["index"] for card in readings["cards"]] == [0, 1]
    first = readings["cards"][0]
    assert (first["name"], first["bus_id"]) == ("NVIDIA GeForce RTX 3090", "00000000:0A:00.0")
    assert (first["memory_total_mib"], first["memory_used_mib"]) == (24576, 14)
    assert (first["temperature_c"], first["power_w"], first["power_limit_w"]) == (38, 21.5, 350.0)
    assert first["throttle"] == []
    assert first["problem"] is None


def test_what_a_consumer_card_does_not_tell_is_none_and_no_problem(driver, host):
    card = host(driver).read()["cards"][0]

    assert card["recovery"] is None
    assert card["problem"] is None


def test_a_hot_card_says_why_its_clocks_are_held_down(driver, host):
    card = host(driver).read("hot 1")["cards"][1]

    assert card["temperature_c"] == 93
    assert card["throttle"] == ["sw_thermal", "hw_thermal"]


def test_holders_of_memory_are_named_by_pid(driver, host):
    card = host(driver).read("used 0 20480", "process 0 4242 20466")["cards"][0]

    assert card["memory_used_mib"] == 20480
    assert card["processes"] == [{"pid": 4242, "memory_mib": 20466, "graphics": False}]


def test_a_lost_card_leaves_the_other_readable(driver, host):
    first, second = host(driver).read("lost 1")["cards"]

    assert first["problem"] is None
    assert first["memory_used_mib"] == 14
    assert second["problem"]["fault"] == "lost"
    assert second["memory_used_mib"] is None


def test_a_card_lost_while_watched_comes_back(driver, host):
    cards = host(driver)
    before, lost, after = cards.read(), cards.read("unknown 0"), cards.read()

    assert before["cards"][0]["problem"] is None
    assert lost["cards"][0]["problem"]["fault"] == "unknown"
    assert after["cards"][0]["problem"] is None


def test_the_drivers_own_recovery_advice_is_told(driver, host):
    assert host(driver).read("recovery 0 2")["cards"][0]["recovery"] == "node_reboot"


@pytest.mark.parametrize(
    ("fact", "fault"),
    [("mismatched", "mismatch"), ("missing-driver", "no_driver")],
    ids=["mismatch", "module"],
)
def test_a_broken_driver_is_a_reading(driver, host, fact, fault):
    readings = host(driver).read(fact)

    assert readings["cards"] == []
    assert readings["problem"]["fault"] == fault
    assert readings["problem"]["hint"]


def test_a_host_without_driver_says_so(host):
    readings = host(None).read()

    assert readings["problem"]["fault"] == "no_library"


def test_a_driver_that_was_broken_is_opened_again(driver, host):
    cards = host(driver)
    assert cards.read("mismatched")["problem"]["fault"] == "mismatch"

    until_s = time.monotonic() + 10
    while (readings := cards.read())["problem"] is not None and time.monotonic() < until_s:
        time.sleep(0.1)

    assert len(readings["cards"]) == 2


def test_a_driver_that_hangs_does_not_hold_its_reader(driver, host):
    cards = host(driver)
    began_s = time.monotonic()

    # Still said at the second: on a busy machine the first call may only then come to ask the driver.
    first, second = cards.read("hang", deadline_s=0.2), cards.read("hang", deadline_s=0.2)

    assert [first["problem"]["fault"], second["problem"]["fault"]] == ["stuck", "stuck"]
    assert time.monotonic() - began_s < 5
