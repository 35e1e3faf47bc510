"""What a line of the kernel says of the host. Pure.

The classifier's rules read the line; the table below says what each Xid asks for. Where the driver itself names
the action (Xid 154) that is followed, and the table gives way.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from rigd.adapters.gpu import bus_of
from rigd.adapters.kernel_log import KernelLine
from rigd.supervise.classify import Diagnosis, diagnose
from rigd.supervise.host import (
    Around,
    HostAction,
    HostFinding,
    HostKind,
    HostState,
    Severity,
    noted,
    without,
)

RECOVERY_XID = 154
BEFORE_LINES = 2
"""Lines that a message of several lines may have begun in."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What an Xid means and asks for."""

    kind: HostKind
    action: HostAction
    severity: Severity
    meaning: str
    note: str = ""
    """Said instead of the catalogue's remedy, where that would mislead."""


def _app(meaning: str) -> Response:
    return Response(
        kind=HostKind.GPU_APP_FAULT,
        action=HostAction.RESTART_APP,
        severity=Severity.WARNING,
        meaning=meaning,
    )


def _reset(meaning: str, note: str = "") -> Response:
    return Response(
        kind=HostKind.GPU_RESET_REQUIRED,
        action=HostAction.RESET_GPU,
        severity=Severity.ERROR,
        meaning=meaning,
        note=note,
    )


def _ignored(kind: HostKind, severity: Severity, meaning: str, note: str) -> Response:
    return Response(kind=kind, action=HostAction.IGNORE, severity=severity, meaning=meaning, note=note)


_UNEXPECTED = "not expected of a GeForce card without ECC: note it, and suspect the card if it comes again"
XIDS: Mapping[int, Response] = MappingProxyType(
    {
        13: _app("a program made the graphics engine fail"),
        31: _app("a program touched memory that it does not have (MMU fault)"),
        32: _app("a program sent a broken command stream"),
        43: _ignored(
            HostKind.GPU_APP_FAULT,
            Severity.INFO,
            "a program's work on the card was stopped",
            "nothing to do: the card is fine, and a dead engine is started again",
        ),
        45: _ignored(
            HostKind.GPU_APP_FAULT,
            Severity.INFO,
            "a program's work on the card was cleared away",
            "it follows a program's end or another Xid: look at that one",
        ),
        46: _reset("the card stopped processing (timeout)"),
        48: _reset("an uncorrectable memory error", _UNEXPECTED + "; reset the card"),
        62: _reset("the card's power controller halted"),
        63: _ignored(HostKind.GPU_ECC, Severity.WARNING, "a memory row was remapped", _UNEXPECTED),
        64: _reset("remapping a memory row failed"),
        69: _app("a program made the graphics engine fail (class error)"),
        74: _reset(
            "an NVLink error", "not expected without an NVLink bridge: reseat it, then reset the card"
        ),
        79: Response(
            kind=HostKind.GPU_LOST,
            action=HostAction.REBOOT_HOST,
            severity=Severity.ERROR,
            meaning="it has fallen off the bus: power, riser or heat",
        ),
        92: _ignored(HostKind.GPU_ECC, Severity.WARNING, "many corrected memory errors", _UNEXPECTED),
        94: _app("a contained memory error hit one program"),
        95: _reset("an uncontained memory error"),
        109: _reset("a context switch timed out"),
        110: _reset("a security fault"),
        119: _reset("the card's firmware (GSP) does not answer"),
        120: _reset("the card's firmware (GSP) failed"),
        140: _reset("an unrecovered memory error"),
        143: _reset("the card could not be initialised"),
    }
)
_OTHER = _app("the driver reports an error that rigd's table does not know")

_WITHDRAWN = re.compile(r"Xid \((?:PCI:)?([0-9a-fA-F:.]+)\).*\b154, .* to 0x0 \(None\)")
_CARD_BEFORE = re.compile(r"The NVIDIA GPU (?P<bus>[0-9a-fA-F:.]+)")
_AER = re.compile(
    r"(?P<reporter>\S+): AER: .*?(?P<grade>Uncorrect\w+(?: \([\w-]+\))?)"
    r".*?(?:(?P<device>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f.]+)|$)"
)
_SUPERSEDED = frozenset({HostKind.GPU_RESET_REQUIRED, HostKind.HOST_REBOOT_REQUIRED})


def after_kernel(state: HostState, lines: Sequence[KernelLine], around: Around) -> HostState:
    """Return the state after these lines."""
    before: deque[str] = deque(maxlen=BEFORE_LINES)
    for line in lines:
        state = _after_line(state, line, tuple(before), around)
        before.append(line.text)
    return state


def _after_line(state: HostState, line: KernelLine, before: tuple[str, ...], around: Around) -> HostState:
    withdrawn = _WITHDRAWN.search(line.text)
    if withdrawn is not None:
        return replace(state, active=without(state.active, _SUPERSEDED, bus_of(withdrawn[1])))
    finding = read(line.text, before, around)
    if finding is None:
        return state
    finding = replace(finding, evidence=(line.text,))
    finding = _located(finding, state)
    if finding.kind is HostKind.IOMMU and not _is_card(finding, state):
        return state  # Another device's: not the GPU's trouble.
    if finding.kind in _SUPERSEDED and finding.bus:
        if finding.driver_says:  # Its newest word replaces all older ones, and the table's.
            others = _SUPERSEDED - {finding.kind}
            state = replace(state, active=without(state.active, others, finding.bus))
        elif any(_rules(one.finding, finding.bus) for one in state.active):
            return state
    return replace(state, active=noted(state, finding, at_s=line.at_s))


def _rules(finding: HostFinding, bus: str) -> bool:
    return finding.driver_says and finding.kind in _SUPERSEDED and finding.bus == bus


def _located(finding: HostFinding, state: HostState) -> HostFinding:
    """Return the finding with NVML's index of the card, where the card has been seen."""
    index = next((card.index for card in state.cards if finding.bus and card.bus == finding.bus), None)
    if index is None:
        return finding
    return replace(finding, gpu=index, sentence=finding.sentence.replace("GPU at", f"GPU {index} at", 1))


def _is_card(finding: HostFinding, state: HostState) -> bool:
    return not finding.bus or not state.cards or finding.gpu is not None


def read(text: str, before: tuple[str, ...], around: Around) -> HostFinding | None:
    """Return what a line says, or None; `before` are the lines before it."""
    aer = _AER.search(text)
    if aer is not None:
        return _pcie(aer)
    found = diagnose((text,))
    make = _READERS.get(found.kind)
    return None if make is None else make(found, text, before, around)


def _gpu(found: Diagnosis, text: str, before: tuple[str, ...], around: Around) -> HostFinding | None:
    del around
    captured = found.captured
    bus = bus_of(captured.get("pci", ""))
    if "xid" not in captured:
        return _lost(found, bus or _bus_before(text, before))
    number = int(captured["xid"])
    if number == RECOVERY_XID:
        return _recovery(found, bus)
    response = XIDS.get(number, _OTHER)
    process = str(captured.get("process", ""))
    by = "" if process in {"", "<unknown>"} else f", {process}"
    return HostFinding(
        kind=response.kind,
        severity=response.severity,
        action=response.action,
        sentence=f"GPU at {bus}: {response.meaning} (Xid {number}{by}).",
        hint=response.note or found.remedy,
        bus=bus,
        subject="" if response.kind is HostKind.GPU_LOST else f"xid {number}",
        blocks=response.kind is HostKind.GPU_LOST,
    )


def _lost(found: Diagnosis, bus: str) -> HostFinding | None:
    kind = HostKind(found.kind)
    if kind is not HostKind.GPU_LOST:
        return _recovery(found, bus)
    place = f"GPU at {bus}" if bus else "A GPU"
    return HostFinding(
        kind=kind,
        severity=Severity.ERROR,
        action=HostAction.REBOOT_HOST,
        sentence=f"{place}: {XIDS[79].meaning}.",
        hint=found.remedy,
        bus=bus,
        blocks=True,
    )


def _bus_before(text: str, before: tuple[str, ...]) -> str:
    """Return the card of a message over three lines, whose last line does not name it."""
    matches = (_CARD_BEFORE.search(line) for line in (text, *reversed(before)))
    return next((bus_of(match["bus"]) for match in matches if match is not None), "")


def _recovery(found: Diagnosis, bus: str) -> HostFinding:
    """Return what the driver itself says that a card needs."""
    reboot = found.kind == HostKind.HOST_REBOOT_REQUIRED
    place = f"GPU at {bus}" if bus else "A GPU"
    needs = "the host must be rebooted" if reboot else "it must be reset"
    return HostFinding(
        kind=HostKind.HOST_REBOOT_REQUIRED if reboot else HostKind.GPU_RESET_REQUIRED,
        severity=Severity.ERROR,
        action=HostAction.REBOOT_HOST if reboot else HostAction.RESET_GPU,
        sentence=f"{place}: the driver says that {needs} (Xid {RECOVERY_XID}).",
        hint=found.remedy,
        bus=bus,
        blocks=True,
        driver_says=True,
    )


def _iommu(found: Diagnosis, text: str, before: tuple[str, ...], around: Around) -> HostFinding | None:
    if "event" not in found.captured:
        return _gpu(found, text, before, around)  # An Xid 154 that asks for a reboot.
    device = re.search(r"device=([0-9a-fA-F:.]+)", text) or re.search(r"nvidia ([0-9a-fA-F:.]+): ", text)
    return HostFinding(
        kind=HostKind.IOMMU,
        severity=Severity.ERROR,
        action=HostAction.REBOOT_HOST,
        sentence=found.sentence,
        hint=found.remedy,
        bus=bus_of(device[1]) if device is not None else "",
    )


def _oom(found: Diagnosis, text: str, before: tuple[str, ...], around: Around) -> HostFinding | None:
    del before
    pid, process = found.captured.get("pid"), str(found.captured.get("process", ""))
    if not isinstance(pid, int) or not process:
        return None  # Who asked for memory, not who was killed for it.
    ours = pid in around.ours or process.startswith("VLLM::")
    limit = "memcg" in text.lower() or "memory cgroup" in text.lower()
    cause = "the memory limit of its container was reached" if limit else "the host's memory ran out"
    whose = "of the engine" if ours else "not of the engine"
    return HostFinding(
        kind=HostKind.HOST_OOM_KILL,
        severity=Severity.ERROR if ours else Severity.WARNING,
        action=HostAction.RESTART_APP if ours else HostAction.FIX,
        sentence=f"The kernel killed {process} (pid {pid}, {whose}) because {cause}.",
        hint=found.remedy
        if ours
        else "find out what takes the memory (`ps aux --sort=-rss | head`): the engine may be killed next",
        subject=f"{process} {whose}",
    )


def _pcie(match: re.Match[str]) -> HostFinding:
    device = match["device"] or match["reporter"]
    return HostFinding(
        kind=HostKind.PCIE_ERRORS,
        severity=Severity.WARNING,
        action=HostAction.FIX,
        sentence=f"The PCIe link of {device} reports errors ({match['grade']}).",
        hint="reseat the card and its riser; try a lower PCIe generation in the BIOS",
        subject=device,
    )


_READERS = MappingProxyType(
    {
        "gpu_lost": _gpu,
        "gpu_reset_required": _gpu,
        "gpu_app_fault": _gpu,
        "host_reboot_required": _iommu,
        "host_oom_kill": _oom,
    }
)
"""How the classifier's word becomes a finding."""
