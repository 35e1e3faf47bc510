"""Lines of the kernel: every Xid of the table, what the driver itself asks for, memory, the IOMMU, the bus."""

from dataclasses import replace

import pytest

from rigd.adapters.kernel_log import KernelLine
from rigd.supervise.host import (
    Around,
    HostAction,
    HostKind,
    HostState,
    KnownCard,
    Severity,
    entries,
    expired,
    held,
)
from rigd.supervise.host_kernel import XIDS, after_kernel

NOW_S = 1_000_000.0
CARDS = (
    KnownCard(index=0, uuid="GPU-0", bus="0000:0a:00"),
    KnownCard(index=1, uuid="GPU-1", bus="0000:14:00"),
)
BEFORE = HostState(boot="b", cards=CARDS)
APP, RESET, LOST, ECC = (
    HostKind.GPU_APP_FAULT,
    HostKind.GPU_RESET_REQUIRED,
    HostKind.GPU_LOST,
    HostKind.GPU_ECC,
)
RESTART_APP, RESET_GPU, REBOOT, IGNORE = (
    HostAction.RESTART_APP,
    HostAction.RESET_GPU,
    HostAction.REBOOT_HOST,
    HostAction.IGNORE,
)


def xid(number: int, text: str = "Ch 00000008", bus: str = "0000:0a:00") -> str:
    return f"NVRM: Xid (PCI:{bus}): {number}, pid=77, name=VLLM::EngineCor, {text}"


def recovery(words: str, bus: str = "0000:0a:00") -> str:
    return f"NVRM: Xid (PCI:{bus}): 154, GPU recovery action changed from {words}"


def hear(*lines: str, state: HostState = BEFORE, at_s: float = NOW_S, **around) -> HostState:
    heard = [KernelLine(at_s=at_s, text=line) for line in lines]
    return after_kernel(state, heard, Around(now_s=at_s, **around))


def only(state: HostState):
    (one,) = state.active
    return one.finding


def all_cards(_index: int | None) -> bool:
    return True


@pytest.mark.parametrize(
    ("number", "kind", "action", "blocks"),
    [
        *((number, APP, RESTART_APP, False) for number in (13, 31, 32, 69, 94)),
        *((number, APP, IGNORE, False) for number in (43, 45)),
        *((number, RESET, RESET_GPU, False) for number in (46, 62, 64, 95, 109, 110, 119, 120, 140, 143)),
        (48, RESET, RESET_GPU, False),
        *((number, ECC, IGNORE, False) for number in (63, 92)),
        (74, RESET, RESET_GPU, False),
        (79, LOST, REBOOT, True),
        (8, APP, RESTART_APP, False),
    ],
)
def test_every_xid_has_its_class_and_action(number, kind, action, blocks):
    finding = only(hear(xid(number)))

    assert (finding.kind, finding.action, finding.blocks) == (kind, action, blocks)
    assert (finding.gpu, finding.bus) == (0, "0000:0a:00")
    assert f"Xid {number}" in finding.sentence
    assert finding.hint
    assert finding.evidence == (xid(number),)


def test_the_table_holds_every_xid_that_is_known_to_matter():
    known = {13, 31, 32, 43, 45, 46, 48, 62, 63, 64, 69, 74, 79, 92, 94, 95, 109, 110, 119, 120, 140, 143}

    assert set(XIDS) == known


@pytest.mark.parametrize("number", [43, 45])
def test_an_xid_that_asks_for_nothing_is_only_information(number):
    assert only(hear(xid(number))).severity is Severity.INFO


@pytest.mark.parametrize(
    ("words", "kind", "action"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", RESET, RESET_GPU),
        ("0x0 (None) to 0x2 (Node Reboot Required)", HostKind.HOST_REBOOT_REQUIRED, REBOOT),
        ("0x0 (None) to 0x4 (Drain and Reset)", RESET, RESET_GPU),
    ],
)
def test_the_driver_s_own_word_is_followed_and_holds_a_start(words, kind, action):
    state = hear(recovery(words))

    assert (only(state).kind, only(state).action) == (kind, action)
    assert held(state, all_cards) == only(state)


def test_the_driver_s_word_replaces_the_table_s():
    state = hear(xid(119), recovery("0x0 (None) to 0x2 (Node Reboot Required)"))

    assert only(state).kind is HostKind.HOST_REBOOT_REQUIRED


def test_the_table_gives_way_to_the_driver_s_word():
    state = hear(recovery("0x0 (None) to 0x2 (Node Reboot Required)"), xid(119), xid(62))

    assert only(state).kind is HostKind.HOST_REBOOT_REQUIRED


def test_the_driver_s_word_about_one_card_leaves_the_other_alone():
    state = hear(xid(119, bus="0000:14:00"), recovery("0x0 (None) to 0x2 (Node Reboot Required)"))

    assert {(one.finding.kind, one.finding.gpu) for one in state.active} == {
        (RESET, 1),
        (HostKind.HOST_REBOOT_REQUIRED, 0),
    }


def test_the_driver_may_take_its_word_back():
    state = hear(recovery("0x0 (None) to 0x1 (GPU Reset Required)"))
    after = hear(recovery("0x1 (GPU Reset Required) to 0x0 (None)"), state=state)

    assert after.active == ()
    assert [entry.kind for entry in entries(state, after)] == ["host-cleared"]


@pytest.mark.parametrize(
    ("lines", "bus"),
    [
        pytest.param(
            (
                "NVRM: The NVIDIA GPU 0000:14:00.0",
                "NVRM: (PCI ID: 10de:2204) installed in this system has",
                "NVRM: fallen off the bus and is not responding to commands.",
            ),
            "0000:14:00",
            id="over-three-lines",
        ),
        pytest.param(("NVRM: GPU 0000:0A:00.0: GPU has fallen off the bus.",), "0000:0a:00", id="one-line"),
        pytest.param(
            ("NVRM: GPU 0000:14:00.0: RmInitAdapter failed! (0x24:0xffff:1436)",), "0000:14:00", id="init"
        ),
        pytest.param(("NVRM: fallen off the bus and is not responding to commands.",), "", id="no-card"),
    ],
)
def test_a_lost_card_needs_no_xid(lines, bus):
    state = hear(*lines)

    assert {(one.finding.kind, one.finding.bus) for one in state.active} == {(LOST, bus)}
    assert held(state, all_cards) is not None


def test_an_xid_and_words_about_the_same_lost_card_are_one_finding():
    state = hear(
        xid(79, "GPU has fallen off the bus."), "NVRM: GPU 0000:0a:00.0: GPU has fallen off the bus."
    )

    assert (only(state).kind, state.active[0].seen) == (LOST, 2)


def test_a_lost_card_that_the_engine_does_not_use_holds_nothing():
    state = hear(xid(79, bus="0000:14:00"))

    assert held(state, lambda index: index == 0) is None
    assert held(state, lambda index: index == 1) is not None


@pytest.mark.parametrize(
    ("line", "ours", "severity", "words"),
    [
        pytest.param(
            "Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:2kB, file-rss:0kB",
            {77},
            Severity.ERROR,
            "python3 (pid 77, of the engine) because the host's memory ran out",
            id="ours-by-pid",
        ),
        pytest.param(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/docker/a,task_memcg=/docker/a,"
            "task=VLLM::Worker_TP,pid=78,uid=0",
            set(),
            Severity.ERROR,
            "VLLM::Worker_TP (pid 78, of the engine) because the memory limit of its container was reached",
            id="ours-by-name",
        ),
        pytest.param(
            "Out of memory: Killed process 99 (firefox) total-vm:1kB, anon-rss:2kB, file-rss:0kB",
            {77},
            Severity.WARNING,
            "firefox (pid 99, not of the engine)",
            id="another-s",
        ),
    ],
)
def test_a_process_killed_for_memory_is_named_and_whose_it_was(line, ours, severity, words):
    finding = only(hear(line, ours=frozenset(ours)))

    assert (finding.kind, finding.severity) == (HostKind.HOST_OOM_KILL, severity)
    assert words in finding.sentence


def test_one_killed_process_is_one_finding_however_many_lines_tell_of_it():
    state = hear(
        "python3 invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=77,uid=0",
        "Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:2kB, file-rss:0kB",
        "oom_reaper: reaped process 77 (python3), now anon-rss:0kB",
        ours=frozenset({77}),
    )

    assert len(state.active) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia 0000:0a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x1 address=0x2 flags=0x3]", 0),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=14:00.0 domain=0x1 address=0x2 flags=0x3]", 1),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x1 address=0x2 flags=0x3]", None),
    ],
)
def test_the_iommu_s_faults_ask_for_a_kernel_argument(line, expected):
    finding = only(hear(line))

    assert (finding.kind, finding.gpu, finding.blocks) == (HostKind.IOMMU, expected, False)
    assert "iommu=pt" in finding.hint


def test_the_iommu_s_fault_of_another_device_is_none_of_the_cards():
    line = "AMD-Vi: Event logged [IO_PAGE_FAULT device=02:00.0 domain=0x1 address=0x2 flags=0x3]"

    assert hear(line).active == ()


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("pcieport 0000:00:03.1: AER: Uncorrected (Fatal) error received: 0000:0a:00.0", "0000:0a:00.0"),
        ("pcieport 0000:00:03.1: AER: Uncorrectable (Non-Fatal) error message received", "0000:00:03.1"),
    ],
)
def test_errors_of_the_link_are_told(line, device):
    finding = only(hear(line))

    assert finding.kind is HostKind.PCIE_ERRORS
    assert device in finding.sentence


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:03.1: AER: Corrected error received: 0000:0a:00.0",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver",
        "NVRM: Xid (PCI:0000:0a:00): , pid=",
        "NVRM: Xid (PCI:): 31",
        "NVRM: Xid (",
        "oom-kill:",
        "Out of memory: Killed process x (y)",
        "AMD-Vi: Interrupt remapping enabled",
        "\x00\x01 NVRM \udcff",
        "",
    ],
)
def test_harmless_and_malformed_lines_find_nothing(line):
    assert hear(line).active == ()


def test_a_flood_is_one_finding_and_one_entry():
    lines = [f"{xid(31)} {number}" for number in range(5000)]

    state = hear(*lines)

    assert (len(state.active), state.active[0].seen) == (1, 5000)
    assert state.active[0].finding.evidence[0] == lines[0]
    assert len(state.active[0].finding.evidence) <= 3
    assert len(entries(BEFORE, state)) == 1


def test_a_flood_of_different_findings_is_bounded():
    state = hear(
        *(
            f"Out of memory: Killed process {n} (name{n}) total-vm:1kB, anon-rss:2kB, file-rss:0kB"
            for n in range(500)
        )
    )

    assert len(state.active) == 64


def test_an_event_is_over_when_it_has_not_happened_for_a_while():
    state = hear(xid(31))

    kept = expired(state.active, Around(now_s=NOW_S + 599))
    over = expired(state.active, Around(now_s=NOW_S + 601))

    assert (len(kept), len(over)) == (1, 0)


def test_an_engine_that_became_ready_proves_that_a_reset_was_made():
    state = hear(xid(119))

    assert expired(state.active, Around(now_s=NOW_S + 60, ready_s=NOW_S - 10))
    assert not expired(state.active, Around(now_s=NOW_S + 60, ready_s=NOW_S + 50))


def test_a_finding_is_told_once_and_its_end_once():
    first = hear(xid(119))
    again = hear(xid(119), state=first)
    over = replace(again, active=())

    assert [entry.kind for entry in entries(BEFORE, first)] == ["host-finding"]
    assert entries(first, again) == ()
    assert [entry.kind for entry in entries(again, over)] == ["host-cleared"]
