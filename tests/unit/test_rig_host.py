"""The rig file's `host:` section: by default rigd only looks; what contradicts itself is said."""

import pytest
from pydantic import ValidationError

from rigd.rig.host import GpuSettings, Host
from rigd.rig.rules_host import cards_are_distinct, temperatures_are_ordered
from rigd.rig.schema import Engine, Rig, RuntimeKind


def rig(**host) -> Rig:
    engine = Engine(runtime=RuntimeKind.PROCESS, version="0.32.0", model="m")
    return Rig(name="r", engine=engine, host=Host.model_validate(host))


def test_by_default_nothing_is_done_to_the_host():
    host = Host()

    assert (host.gpus, host.allow_gpu_reset, host.allow_reboot) == ((), False, False)
    assert host.temperature.response == "tell"


@pytest.mark.parametrize("card", ["0", "1", "all", "GPU", "0a:00.0; reboot", "--all"])
def test_a_card_is_named_by_what_does_not_change(card):
    with pytest.raises(ValidationError):
        GpuSettings(card=card)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([{"power_limit_w": 290}, {"power_limit_w": 250}], "an entry for all cards is there more than once"),
        ([{"card": "0A:00", "power_limit_w": 290}, {"card": "0a:00", "power_limit_w": 1}], "more than once"),
        ([{"card": "GPU-1"}], "sets nothing"),
    ],
)
def test_entries_that_contradict_one_another_or_say_nothing(gpus, words):
    assert words in " ".join(map(str, cards_are_distinct(rig(gpus=gpus))))


@pytest.mark.parametrize(
    ("temperature", "words"),
    [
        ({"warn_c": 90, "act_c": 85}, "is less than warn_c"),
        ({"response": "lower-power", "lowered_power_w": 300}, "lowering does nothing"),
    ],
)
def test_temperatures_that_make_no_sense(temperature, words):
    found = temperatures_are_ordered(rig(temperature=temperature, gpus=[{"power_limit_w": 290}]))

    assert words in " ".join(map(str, found))


def test_a_sensible_section_is_silent():
    sensible = rig(gpus=[{"power_limit_w": 290}], temperature={"response": "lower-power"})

    assert [*cards_are_distinct(sensible), *temperatures_are_ordered(sensible)] == []
