"""What rigd does about its host: only what the rig file allows, on a quiet host, within the day's count."""

from dataclasses import replace

import pytest

from rigd.rig.host import GpuSettings, HeatResponse, Host, Temperature
from rigd.supervise.host import Active, HostAction, HostFinding, HostKind, HostState, KnownCard, Severity
from rigd.supervise.host_acts import (
    DAY_S,
    HISTORY,
    REBOOT_DEADLINE_S,
    RETRY_S,
    Act,
    ActKind,
    ActState,
    Situation,
    next_act,
    settled,
    spent,
    will_act,
    with_act,
)

NOW_S = 1_000_000.0
BUS = "0000:14:00"
BOTH = Host(allow_gpu_reset=True, allow_reboot=True)
RESET_ONLY = Host(allow_gpu_reset=True)
QUIET = Situation(now_s=NOW_S, boot="b1", quiet=True)
BUSY = replace(QUIET, quiet=False, running=True)
ACTIONS = {HostKind.GPU_RESET_REQUIRED: HostAction.RESET_GPU, HostKind.OVERHEATED: HostAction.FIX}


def found(kind: HostKind, *, bus: str = BUS, began_s: float = NOW_S - 100, seen: int = 10, **more) -> Active:
    finding = HostFinding(
        kind=kind,
        severity=Severity.ERROR,
        sentence="it is so.",
        hint="-",
        action=more.pop("action", ACTIONS.get(kind, HostAction.REBOOT_HOST)),
        gpu=1 if bus else None,
        bus=bus,
        **more,
    )
    return Active(finding=finding, began_s=began_s, last_s=NOW_S, seen=seen)


def host(*active: Active, **more) -> HostState:
    return HostState(boot="b1", active=active, cards=(KnownCard(index=1, uuid="GPU-1", bus=BUS),), **more)


def act(kind: ActKind, *, ago_s: float = 1000.0, state: ActState = ActState.DONE, **more) -> Act:
    return Act(kind=kind, at_s=NOW_S - ago_s, boot="b1", bus=more.pop("bus", BUS), state=state, **more)


def decided(state: HostState, rules: Host, *history: Act, at: Situation = QUIET, uses=lambda _gpu: True):
    chosen = next_act(state, history, rules, uses, at)
    return None if chosen is None else (chosen.kind, chosen.state)


RESET = (ActKind.RESET, ActState.INTENDED)
REBOOT = (ActKind.REBOOT, ActState.INTENDED)
NEEDS_RESET = host(found(HostKind.GPU_RESET_REQUIRED))
LOST = host(found(HostKind.GPU_LOST))


@pytest.mark.parametrize("kind", [*HostKind])
def test_nothing_is_reset_or_rebooted_unless_the_rig_file_allows_it(kind):
    assert decided(host(found(kind)), Host(), at=replace(QUIET, hands=False)) is None


@pytest.mark.parametrize(
    ("state", "rules", "expected"),
    [
        pytest.param(NEEDS_RESET, BOTH, RESET, id="reset"),
        pytest.param(LOST, BOTH, REBOOT, id="lost-card"),
        pytest.param(host(found(HostKind.HOST_REBOOT_REQUIRED)), BOTH, REBOOT, id="driver-wants-a-reboot"),
        pytest.param(host(found(HostKind.DRIVER_LIB_MISMATCH, bus="")), BOTH, REBOOT, id="mismatch"),
        pytest.param(LOST, RESET_ONLY, None, id="a-reset-does-not-bring-back-a-lost-card"),
        pytest.param(NEEDS_RESET, Host(allow_reboot=True), REBOOT, id="a-reboot-resets-too"),
        pytest.param(host(found(HostKind.IOMMU)), BOTH, None, id="a-reboot-does-not-cure-the-iommu"),
        pytest.param(
            host(found(HostKind.CLOCKS_STUCK, action=HostAction.RESET_GPU)),
            BOTH,
            None,
            id="slow-is-no-emergency",
        ),
        pytest.param(
            host(found(HostKind.GPU_RESET_REQUIRED, action=HostAction.FIX)),
            BOTH,
            None,
            id="drain-is-no-reset",
        ),
        pytest.param(host(found(HostKind.GPU_RESET_REQUIRED, bus="")), RESET_ONLY, None, id="no-card-named"),
    ],
)
def test_the_act_is_what_the_finding_calls_for_and_the_rig_file_allows(state, rules, expected):
    assert decided(state, rules) == expected


def test_the_driver_s_own_word_goes_before_the_table_of_xids():
    table = found(HostKind.GPU_LOST, bus="0000:0a:00")
    driver = found(HostKind.GPU_RESET_REQUIRED, driver_says=True)

    assert decided(host(table, driver), BOTH) == RESET


def test_one_reboot_instead_of_a_reset_and_a_reboot():
    assert decided(host(found(HostKind.GPU_RESET_REQUIRED), found(HostKind.GPU_LOST)), BOTH) == REBOOT


@pytest.mark.parametrize("state", [NEEDS_RESET, LOST], ids=["reset", "reboot"])
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(BUSY, id="an-engine-runs"),
        pytest.param(replace(QUIET, quiet=False), id="an-engine-may-begin"),
        pytest.param(replace(QUIET, wanted=False), id="hands-off"),
        pytest.param(replace(QUIET, now_s=NOW_S - 60), id="not-held-for-long-enough"),
    ],
)
def test_the_host_is_left_alone(state, at):
    assert decided(state, BOTH, at=at) is None


def test_a_card_that_the_engine_does_not_use_is_left_alone():
    assert decided(LOST, BOTH, uses=lambda gpu: gpu == 0) is None


def test_an_uncertain_finding_is_not_acted_on():
    assert decided(host(found(HostKind.GPU_SETTINGS, seen=1)), BOTH) is None


def test_one_act_at_a_time():
    assert decided(LOST, BOTH, act(ActKind.APPLY, state=ActState.INTENDED)) is None


@pytest.mark.parametrize("outcome", [ActState.DONE, ActState.FAILED])
def test_a_reset_that_did_not_help_is_followed_by_a_reboot(outcome):
    assert decided(NEEDS_RESET, BOTH, act(ActKind.RESET, state=outcome)) == REBOOT
    assert decided(NEEDS_RESET, RESET_ONLY, act(ActKind.RESET, state=outcome)) is None


# --- the day's count ---


def counted(number: int, **more) -> tuple[Act, ...]:
    return tuple(act(ActKind.REBOOT, bus="", ago_s=3600.0 + place, **more) for place in range(number))


def test_the_day_s_count_is_kept():
    assert decided(LOST, BOTH, *counted(1)) == REBOOT
    assert decided(LOST, BOTH, *counted(2)) == (ActKind.REBOOT, ActState.REFUSED)


def test_a_refusal_is_said_once_for_a_finding():
    first = next_act(LOST, counted(2), BOTH, lambda _gpu: True, QUIET)
    assert first is not None
    assert "most_per_day" in first.message

    assert decided(LOST, BOTH, *counted(2), first) is None
    again = host(found(HostKind.GPU_LOST, began_s=NOW_S + 10))
    later = replace(QUIET, now_s=NOW_S + 200)
    assert decided(again, BOTH, *counted(2), first, at=later) == (ActKind.REBOOT, ActState.REFUSED)


@pytest.mark.parametrize(
    ("history", "number"),
    [
        pytest.param(counted(3), 3, id="done"),
        pytest.param(counted(1, state=ActState.FAILED), 1, id="failed-ones-count"),
        pytest.param((act(ActKind.RESET, state=ActState.INTENDED),), 1, id="unknown-ones-count"),
        pytest.param(counted(1, state=ActState.REFUSED), 0, id="refused-ones-do-not"),
        pytest.param((act(ActKind.APPLY), act(ActKind.LOWER)), 0, id="settings-do-not"),
        pytest.param((act(ActKind.REBOOT, ago_s=DAY_S + 1),), 0, id="yesterday"),
        pytest.param((act(ActKind.REBOOT, ago_s=-50),), 1, id="a-clock-that-went-back"),
    ],
)
def test_what_counts(history, number):
    assert spent(history, NOW_S) == number


def test_settings_never_push_a_reboot_out_of_the_memory():
    history = with_act((), act(ActKind.REBOOT, bus=""))
    for number in range(500):
        history = with_act(history, act(ActKind.APPLY, ago_s=float(number)))

    assert spent(history, NOW_S) == 1
    assert len(history) < 250
    assert HISTORY.validate_json(HISTORY.dump_json(history)) == history


# --- holding the start ---


@pytest.mark.parametrize(
    ("rules", "history", "holds"),
    [
        pytest.param(RESET_ONLY, (), True, id="it-will-be-reset"),
        pytest.param(Host(), (), False, id="not-allowed"),
        pytest.param(RESET_ONLY, counted(2), False, id="the-day-is-full"),
        pytest.param(RESET_ONLY, (act(ActKind.RESET),), False, id="it-was-reset-already"),
    ],
)
def test_a_start_waits_for_an_act_that_is_coming_and_for_no_other(rules, history, holds):
    finding = NEEDS_RESET.active[0].finding

    assert will_act(finding, NEEDS_RESET, history, rules, now_s=NOW_S) is holds


def test_a_start_waits_while_the_act_is_under_way():
    finding = NEEDS_RESET.active[0].finding
    under_way = act(ActKind.RESET, ago_s=1, state=ActState.INTENDED, finding=finding.key)
    full = Host(allow_gpu_reset=True, most_per_day=1)

    assert will_act(finding, NEEDS_RESET, (under_way,), full, now_s=NOW_S)


# --- heat and settings ---

LOWER = Host(temperature=Temperature(response=HeatResponse.LOWER_POWER))
STOP = Host(temperature=Temperature(response=HeatResponse.STOP))
HOT = host(found(HostKind.OVERHEATED))


@pytest.mark.parametrize(
    ("state", "rules", "at", "expected"),
    [
        pytest.param(HOT, Host(), BUSY, None, id="tell"),
        pytest.param(HOT, LOWER, BUSY, ActKind.LOWER, id="lower"),
        pytest.param(
            host(found(HostKind.OVERHEATED), lowered=(BUS,)), LOWER, BUSY, None, id="lowered-already"
        ),
        pytest.param(HOT, STOP, BUSY, ActKind.STOP_ENGINE, id="stop"),
        pytest.param(HOT, STOP, QUIET, None, id="nothing-to-stop"),
        pytest.param(host(lowered=(BUS,)), LOWER, BUSY, ActKind.RESTORE, id="cool-again"),
        pytest.param(host(lowered=(BUS,)), Host(), BUSY, ActKind.RESTORE, id="another-response-now"),
        pytest.param(HOT, LOWER, replace(BUSY, wanted=False), None, id="maintenance"),
    ],
)
def test_heat_has_its_response(state, rules, at, expected):
    chosen = next_act(state, (), rules, lambda _gpu: True, at)

    assert (None if chosen is None else chosen.kind) == expected


SETTINGS = Host(gpus=(GpuSettings(power_limit_w=290),))
DIFFERS = host(found(HostKind.GPU_SETTINGS, action=HostAction.FIX, subject="power limit"))


def test_settings_that_differ_are_set_again_where_somebody_can():
    assert decided(DIFFERS, SETTINGS, at=BUSY) == (ActKind.APPLY, ActState.INTENDED)
    assert decided(DIFFERS, SETTINGS, at=replace(BUSY, hands=False)) is None


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, RETRY_S * 2), (2, RETRY_S * 4), (20, 21600.0)], ids=["one", "two", "many"]
)
def test_what_fails_is_tried_ever_more_rarely(failures, wait_s):
    history = tuple(act(ActKind.APPLY, ago_s=number, state=ActState.FAILED) for number in range(failures))[
        ::-1
    ]

    early = replace(BUSY, now_s=NOW_S + wait_s - 1)
    late = replace(BUSY, now_s=NOW_S + wait_s)
    assert decided(DIFFERS, SETTINGS, *history, at=early) is None
    assert decided(DIFFERS, SETTINGS, *history, at=late) == (ActKind.APPLY, ActState.INTENDED)


# --- afterwards ---


@pytest.mark.parametrize(
    ("kind", "boot", "ago_s", "fresh", "state"),
    [
        pytest.param(ActKind.REBOOT, "b2", 90.0, True, ActState.DONE, id="another-boot"),
        pytest.param(ActKind.REBOOT, "b1", 90.0, True, None, id="still-going-down"),
        pytest.param(ActKind.REBOOT, "b1", REBOOT_DEADLINE_S, False, ActState.FAILED, id="it-stayed-up"),
        pytest.param(ActKind.RESET, "b1", 90.0, True, ActState.FAILED, id="the-daemon-was-killed"),
        pytest.param(ActKind.RESET, "b1", 90.0, False, None, id="under-way"),
    ],
)
def test_what_came_of_an_intent(kind, boot, ago_s, fresh, state):
    intended = act(kind, ago_s=ago_s, state=ActState.INTENDED)

    found_out = settled(intended, boot=boot, now_s=NOW_S, fresh=fresh)

    assert (None if found_out is None else found_out[0]) == state
