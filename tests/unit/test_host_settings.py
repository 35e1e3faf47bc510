"""Settings and heat of the cards: what differs from the rig file, with the numbers; what heat is answered with."""

import itertools
from dataclasses import replace

import pytest

from rigd.adapters.gpu import GpuCard, GpuReadings
from rigd.rig.host import GpuSettings, HeatResponse, Host, Temperature
from rigd.supervise.host import HOST_STATE, Around, HostKind, HostState, documents, entries, held
from rigd.supervise.host_cards import after_reading
from rigd.supervise.host_settings import wanted_of

NOW_S = 1_000_000.0
PLAIN = GpuCard(
    index=0,
    uuid="GPU-0",
    bus_id="00000000:0A:00.0",
    temperature_c=60,
    clock_mhz=1600,
    memory_clock_mhz=9501,
    power_set_w=350.0,
    power_range_w=(100.0, 366.0),
    persistence=False,
)


def rules(**settings) -> Host:
    return Host(gpus=(GpuSettings(**settings),))


def look(state: HostState | None = None, *, host: Host, at_s: float = NOW_S, **card) -> HostState:
    reading = GpuReadings(at_s=at_s, cards=(replace(PLAIN, **card),))
    around = Around(now_s=at_s, rules=host, rig_file="/etc/rigd/rig.yaml")
    return after_reading(HostState(boot="b") if state is None else state, reading, around)


def said(state: HostState, kind: str) -> list[str]:
    return [one["sentence"] for one in documents(state) if one["class"] == kind]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        pytest.param(
            {"power_limit_w": 290},
            "its power limit is 350 W, 290 W is wanted (the card allows 100 to 366 W)",
            id="power",
        ),
        pytest.param({"persistence_mode": True}, "persistence mode is off, on is wanted", id="persistence"),
        pytest.param(
            {"graphics_clock_mhz": 1400},
            "its graphics clock is 1600 MHz, at most 1400 MHz is wanted",
            id="clock",
        ),
        pytest.param(
            {"memory_clock_mhz": 5001},
            "its memory clock is 9501 MHz, at most 5001 MHz is wanted",
            id="memory",
        ),
    ],
)
def test_a_setting_that_differs_is_told_with_its_numbers_and_the_command(settings, sentence):
    once = look(host=rules(**settings))
    state = look(once, host=rules(**settings))

    assert said(once, "gpu_settings") == []  # One reading may fall into the moment in which it is set.
    assert said(state, "gpu_settings") == [f"GPU 0 at 0000:0a:00: {sentence}."]
    assert "sudo rigd host apply-gpu /etc/rigd/rig.yaml" in documents(state)[0]["hint"]


def test_a_setting_that_differs_is_told_once_and_its_end_once():
    wanted = rules(power_limit_w=290)
    states = [HostState(boot="b")]
    for watts in (350, 350, 350, 290, 290):
        states.append(look(states[-1], host=wanted, power_set_w=watts))

    told = [entry.kind for pair in itertools.pairwise(states) for entry in entries(*pair)]
    assert told == ["host-finding", "host-cleared"]


@pytest.mark.parametrize(
    ("wanted_w", "is_w"),
    [(500, 366), (50, 100), (290, 290.4)],
    ids=["above-the-most", "below-the-least", "a-rounding"],
)
def test_a_limit_that_is_as_near_as_the_card_allows_is_right(wanted_w, is_w):
    wanted = rules(power_limit_w=wanted_w)
    state = look(look(host=wanted, power_set_w=is_w), host=wanted, power_set_w=is_w)

    assert documents(state) == []


def test_a_card_that_does_not_tell_is_not_accused():
    unknown = {"power_set_w": None, "persistence": None, "clock_mhz": None}
    wanted = rules(power_limit_w=290, persistence_mode=True, graphics_clock_mhz=1400)

    assert documents(look(look(host=wanted, **unknown), host=wanted, **unknown)) == []


def test_a_card_of_the_rig_file_that_is_not_there_is_told():
    wanted = rules(card="GPU-77", power_limit_w=290)

    state = look(look(host=wanted), host=wanted)

    assert said(state, "gpu_settings") == ["The rig file sets the card GPU-77, and there is no such card."]


@pytest.mark.parametrize("name", ["GPU-0", "0000:0a:00.0", "00000000:0A:00.0", "0a:00"])
def test_a_card_s_own_entry_replaces_the_one_for_all(name):
    host = Host(
        gpus=(
            GpuSettings(power_limit_w=300, persistence_mode=True),
            GpuSettings(card=name, power_limit_w=250),
        )
    )

    own = wanted_of(host, uuid="GPU-0", bus="0000:0a:00")
    other = wanted_of(host, uuid="GPU-1", bus="0000:14:00")

    assert own is not None
    assert (own.power_limit_w, own.persistence_mode) == (250, None)
    assert other is not None
    assert (other.power_limit_w, other.persistence_mode) == (300, True)


def test_a_lowered_card_is_expected_to_be_lowered():
    heat = Temperature(response=HeatResponse.LOWER_POWER, lowered_power_w=200)
    host = Host(gpus=(GpuSettings(power_limit_w=290),), temperature=heat)
    lowered = HostState(boot="b", lowered=("0000:0a:00",))

    state = look(look(lowered, host=host, power_set_w=200.0), host=host, power_set_w=200.0)

    assert documents(state) == []


# --- heat ---


def heated(response: HeatResponse, *celsius: int, step_s: float = 10.0) -> list[HostState]:
    """Return the states after these temperatures, `step_s` apart."""
    host = Host(temperature=Temperature(response=response))
    states = [HostState(boot="b")]
    for number, degrees in enumerate(celsius):
        states.append(look(states[-1], host=host, at_s=NOW_S + number * step_s, temperature_c=degrees))
    return states


def test_heat_is_answered_only_when_it_lasts():
    peaks = heated(HeatResponse.TELL, 92, 92, 80, 92, 92, 92)
    lasting = heated(HeatResponse.TELL, 92, 92, 90, 91)

    assert said(peaks[-1], "overheated") == []
    assert said(lasting[-2], "overheated") == []
    assert len(said(lasting[-1], "overheated")) == 1


def test_an_overheated_card_is_so_until_it_is_cool():
    states = heated(HeatResponse.TELL, 92, 92, 92, 92, 85, 81, 80, 79, 79)

    hot = [bool(said(state, "overheated")) for state in states[1:]]
    assert hot == [False, False, False, True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("response", "words", "holds"),
    [
        (HeatResponse.TELL, "rigd only tells", False),
        (HeatResponse.LOWER_POWER, "its power limit goes down to 220 W until it is below 80 degrees", False),
        (HeatResponse.STOP, "the engine is stopped until it is below 80 degrees", True),
    ],
)
def test_the_response_is_in_the_sentence_and_only_a_stop_holds_the_start(response, words, holds):
    state = heated(response, 92, 92, 92, 92)[-1]

    assert words in said(state, "overheated")[0]
    assert (held(state, lambda _gpu: True) is not None) is holds


def test_a_card_that_hangs_while_hot_stays_overheated():
    state = heated(HeatResponse.STOP, 92, 92, 92, 92)[-1]
    host = Host(temperature=Temperature(response=HeatResponse.STOP))

    later = look(state, host=host, at_s=NOW_S + 100, temperature_c=None)

    assert len(said(later, "overheated")) == 1


def test_what_is_hot_and_lowered_survives_the_daemon():
    state = replace(heated(HeatResponse.LOWER_POWER, 92, 92, 92, 92)[-1], lowered=("0000:0a:00",))

    assert HOST_STATE.validate_json(HOST_STATE.dump_json(state)) == state
    assert state.active[-1].finding.kind is HostKind.OVERHEATED
