"""Readings of the cards: lost, vanished, hot, slow, held by others, a driver that was changed."""

import itertools
from dataclasses import replace

import pytest

from rigd.adapters.gpu import GpuCard, GpuFault, GpuProblem, GpuProcess, GpuReadings, bus_of
from rigd.adapters.gpu_driver import DriverVersions, installed_versions
from rigd.adapters.kernel_log import KernelLine
from rigd.supervise.host import (
    HOST_STATE,
    Around,
    HostAction,
    HostKind,
    HostState,
    Severity,
    documents,
    entries,
    held,
)
from rigd.supervise.host_cards import FAULTS, RECOVERIES, after_reading
from rigd.supervise.host_kernel import after_kernel

NOW_S = 1_000_000.0
XID_79 = "NVRM: Xid (PCI:0000:14:00): 79, pid=1, GPU has fallen off the bus."
LOST = GpuProblem(fault=GpuFault.LOST, message="GPU is lost", hint="power off and on")


def card(index: int, **changes) -> GpuCard:
    plain = GpuCard(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA GeForce RTX 3090",
        bus_id=f"00000000:{10 * (index + 1):02X}:00.0",
        memory_total_mib=24576,
        memory_used_mib=14,
        utilization=0,
        clock_mhz=210,
        temperature_c=38,
        power_w=21.5,
    )
    return replace(plain, **changes)


def both(**changes) -> GpuReadings:
    """Return a reading of two cards, the second with these changes."""
    return GpuReadings(at_s=NOW_S, cards=(card(0), card(1, **changes)))


def broken(fault: GpuFault) -> GpuReadings:
    return GpuReadings(at_s=NOW_S, problem=GpuProblem(fault=fault, message="it says so", hint="do this"))


LOST_CARD = GpuCard(index=1, problem=LOST)
ONE_LOST = GpuReadings(at_s=NOW_S, cards=(card(0), LOST_CARD))


def look(*readings: GpuReadings, state: HostState | None = None, **around) -> HostState:
    state = HostState(boot="b") if state is None else state
    for reading in readings:
        state = after_reading(state, reading, Around(now_s=NOW_S, **around))
    return state


def kinds(state: HostState) -> set[str]:
    return {document["class"] for document in documents(state)}


def all_cards(_index: int | None) -> bool:
    return True


def test_idle_cards_are_no_finding():
    assert look(both(), both()).active == ()


def test_a_lost_card_is_told_at_once_by_its_address_and_holds_a_start():
    state = look(both(), ONE_LOST)

    (one,) = state.active
    assert (one.finding.kind, one.finding.gpu, one.finding.bus) == (HostKind.GPU_LOST, 1, "0000:14:00")
    assert (one.finding.action, one.finding.severity) == (HostAction.REBOOT_HOST, Severity.ERROR)
    assert held(state, all_cards) == one.finding
    assert held(state, lambda index: index == 0) is None


def test_a_card_that_is_not_even_counted_any_more_is_lost():
    state = look(both(), GpuReadings(at_s=NOW_S, cards=(card(0),)))

    assert kinds(state) == {"gpu_lost"}
    assert state.active[0].finding.gpu == 1


def test_the_card_that_moved_up_a_number_is_not_the_lost_one():
    moved = card(0, uuid="GPU-1", bus_id=card(1).bus_id)

    state = look(both(), GpuReadings(at_s=NOW_S, cards=(moved,)))

    assert [(one.finding.kind, one.finding.bus) for one in state.active] == [
        (HostKind.GPU_LOST, "0000:0a:00")
    ]


def test_a_lost_card_is_back_when_it_has_answered_for_a_while():
    state = look(both(), ONE_LOST, both(), both())

    assert kinds(state) == {"gpu_lost"}
    assert kinds(look(both(), state=state)) == set()


def test_a_card_that_answers_now_and_then_stays_lost():
    assert kinds(look(both(), ONE_LOST, both(), both(), ONE_LOST, both(), both())) == {"gpu_lost"}


def test_kernel_and_readings_tell_of_one_and_the_same_lost_card():
    state = look(both())
    heard = after_kernel(state, [KernelLine(at_s=NOW_S, text=XID_79)], Around(now_s=NOW_S))

    seen = look(ONE_LOST, state=heard)

    assert len(seen.active) == 1
    assert entries(heard, seen) == ()
    assert seen.active[0].finding.evidence == (XID_79,)


def test_the_kernel_s_word_about_a_card_that_answers_is_over_soon():
    heard = after_kernel(look(both()), [KernelLine(at_s=NOW_S, text=XID_79)], Around(now_s=NOW_S))

    assert kinds(look(both(), both(), state=heard)) == {"gpu_lost"}
    assert kinds(look(both(), both(), both(), state=heard)) == set()


@pytest.mark.parametrize("fault", [fault for fault in GpuFault if fault is not GpuFault.NO_LIBRARY])
def test_every_fault_of_all_cards_has_a_finding(fault):
    state = look(both(), broken(fault), broken(fault))

    assert kinds(state) == {str(FAULTS[fault].kind)}
    assert documents(state)[0]["hint"] == "do this"


def test_a_host_without_a_driver_has_no_finding():
    assert look(broken(GpuFault.NO_LIBRARY), broken(GpuFault.NO_LIBRARY)).active == ()


def test_a_passing_hiccup_of_nvml_is_not_told():
    assert kinds(look(both(), broken(GpuFault.STUCK), both())) == set()


def test_a_stuck_nvml_holds_no_start_and_ends_no_other_finding():
    state = look(both(), ONE_LOST, broken(GpuFault.STUCK), broken(GpuFault.STUCK), broken(GpuFault.STUCK))

    assert kinds(state) == {"gpu_lost", "gpu_unreadable"}
    assert held(state, all_cards).kind is HostKind.GPU_LOST


def test_a_changed_library_is_found_while_the_old_one_still_answers():
    versions = DriverVersions(module="580.95.05", library="580.105.08")

    state = look(both(), versions=versions)

    assert kinds(state) == {"driver_lib_mismatch"}
    assert held(state, all_cards) is not None
    assert "580.95.05" in state.active[0].finding.sentence
    assert kinds(look(both(), state=state)) == set()


@pytest.mark.parametrize("word", sorted(RECOVERIES))
def test_every_recovery_action_of_nvml_has_a_finding(word):
    state = look(both(recovery=word))

    (one,) = state.active
    assert (one.finding.kind, one.finding.action) == (RECOVERIES[word].kind, RECOVERIES[word].action)
    assert one.finding.gpu == 1
    assert one.finding.driver_says


def test_nvml_s_word_goes_before_a_table_of_xids():
    line = KernelLine(at_s=NOW_S, text="NVRM: Xid (PCI:0000:14:00): 119, pid=1, name=x, GSP timeout")

    state = after_kernel(look(both(recovery="node_reboot")), [line], Around(now_s=NOW_S))

    assert kinds(state) == {"host_reboot_required"}


def test_nvml_s_word_is_over_when_it_says_so_twice():
    state = look(both(recovery="gpu_reset"), both())

    assert kinds(state) == {"gpu_reset_required"}
    assert kinds(look(both(), state=state)) == set()


def test_heat_is_told_with_two_thresholds():
    def at(degrees: int) -> GpuReadings:
        return both(temperature_c=degrees)

    assert kinds(look(at(86))) == set()
    hot = look(at(88))
    assert kinds(hot) == {"thermal"}
    assert kinds(look(at(84), at(85), at(81), at(84), state=hot)) == {"thermal"}
    assert kinds(look(at(79), at(79), at(79), state=hot)) == set()


def test_heat_is_told_once_and_lowers_nothing():
    states = [look(both(temperature_c=93))]
    for _ in range(5):
        states.append(look(both(temperature_c=93), state=states[-1]))

    told = [entry for before, after in itertools.pairwise(states) for entry in entries(before, after)]
    assert told == []
    assert "-pl 290" in states[0].active[0].finding.hint
    assert held(states[-1], all_cards) is None


@pytest.mark.parametrize("reason", ["hw_thermal", "hw_slowdown", "hw_power_brake"])
def test_clocks_held_down_by_the_hardware_are_told(reason):
    state = look(both(throttle=(reason,)))

    assert reason in state.active[0].finding.sentence


def test_a_power_limit_at_work_is_no_finding():
    assert look(both(throttle=("sw_power_cap",))).active == ()


def busy(slow_mhz: int, **changes) -> GpuReadings:
    return GpuReadings(
        at_s=NOW_S,
        cards=(
            card(0, utilization=100, clock_mhz=1695),
            card(1, utilization=100, clock_mhz=slow_mhz, **changes),
        ),
    )


def test_a_busy_card_at_a_fraction_of_its_twin_s_clock_is_told_after_a_minute():
    state = look(*[busy(405)] * 5)
    assert kinds(state) == set()

    state = look(busy(405), state=state)

    assert kinds(state) == {"clocks_stuck"}
    assert state.active[0].finding.gpu == 1
    assert "405 MHz" in state.active[0].finding.sentence


@pytest.mark.parametrize(
    "readings",
    [
        pytest.param(busy(1500), id="a-little-slower"),
        pytest.param(busy(405, throttle=("sw_power_cap",)), id="power-limit"),
        pytest.param(busy(405, name="another"), id="another-model"),
        pytest.param(both(clock_mhz=405), id="idle"),
    ],
)
def test_a_slow_card_with_a_reason_is_no_finding(readings):
    assert kinds(look(*[readings] * 10)) == set()


HELD = both(memory_used_mib=9000, processes=(GpuProcess(pid=41, memory_mib=8900),))


def test_memory_held_by_others_is_told_while_no_engine_runs():
    state = look(*[HELD] * 3, idle=True, names={41: "blender"})

    assert kinds(state) == {"gpu_mem_busy"}
    assert "blender (pid 41)" in state.active[0].finding.sentence
    assert state.active[0].finding.severity is Severity.INFO


def test_memory_of_a_running_engine_is_no_finding():
    assert kinds(look(*[HELD] * 10, names={41: "VLLM::Worker_TP"})) == set()


def test_a_reloaded_driver_ends_what_the_old_one_asked_for():
    words = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    line = f"NVRM: Xid (PCI:0000:14:00): 154, {words}"
    state = after_kernel(look(both()), [KernelLine(at_s=NOW_S, text=line)], Around(now_s=NOW_S))
    assert kinds(look(*[both()] * 10, state=state)) == {"host_reboot_required"}

    state = look(broken(GpuFault.NO_DRIVER), both(), state=state)

    assert kinds(state) == set()


def test_the_state_survives_its_way_through_the_store():
    state = look(both(), ONE_LOST)

    assert HOST_STATE.validate_json(HOST_STATE.dump_json(state)) == state


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:0A:00.0", "0000:0a:00"),
        ("0000:0a:00", "0000:0a:00"),
        ("PCI:0000:0a:00", "0000:0a:00"),
        ("0a:00.0", "0000:0a:00"),
        ("", ""),
        ("nonsense", ""),
    ],
)
def test_an_address_is_the_same_in_everybody_s_words(text, expected):
    assert bus_of(text) == expected


def driver_files(folder, *, module: str, library: str):
    (folder / "version").write_text(f"{module}\n")
    (folder / library).write_text("")
    (folder / "libnvidia-ml.so.1").symlink_to(library)
    loaded = folder / "libnvidia-ml.so.580.95.05 (deleted)"
    (folder / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 123   {loaded}\n")
    return installed_versions(module=folder / "version", maps=folder / "maps")


def test_an_upgraded_library_is_seen_beside_the_loaded_one(tmp_path):
    versions = driver_files(tmp_path, module="580.95.05", library="libnvidia-ml.so.580.105.08")

    assert versions == DriverVersions(module="580.95.05", library="580.105.08")
    assert versions.mismatch


def test_the_same_library_is_no_mismatch(tmp_path):
    assert not driver_files(tmp_path, module="580.95.05", library="libnvidia-ml.so.580.95.05").mismatch


def test_a_library_that_is_not_there_is_no_mismatch(tmp_path):
    assert not installed_versions(module=tmp_path / "none", maps=tmp_path / "none").mismatch
