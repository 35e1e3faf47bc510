"""What a reading of the cards says of the host. Pure.

A card that cannot be read proves nothing about itself: its findings stay. Heat and settings have files of their own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from rigd.adapters.gpu import GpuCard, GpuFault, GpuProblem, GpuReadings, bus_of
from rigd.supervise import host_heat, host_settings
from rigd.supervise.host import (
    WATCHES,
    Active,
    Around,
    HostAction,
    HostFinding,
    HostKind,
    HostState,
    KnownCard,
    Severity,
    expired,
    noted,
)

BUSY_PERCENT = 90
SLOW_SHARE = 0.6
"""A busy card whose clock is below this share of its twin's is stuck."""

_REBOOT, _RESET, _FIX = HostAction.REBOOT_HOST, HostAction.RESET_GPU, HostAction.FIX


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a fault or a recovery action becomes."""

    kind: HostKind
    action: HostAction
    blocks: bool = True
    severity: Severity = Severity.ERROR


FAULTS: Mapping[GpuFault, Response] = MappingProxyType(
    {
        GpuFault.NO_DRIVER: Response(kind=HostKind.NO_GPU_DRIVER, action=_FIX),
        GpuFault.MISMATCH: Response(kind=HostKind.DRIVER_LIB_MISMATCH, action=_REBOOT),
        GpuFault.LOST: Response(kind=HostKind.GPU_LOST, action=_REBOOT),
        GpuFault.RESET_REQUIRED: Response(kind=HostKind.GPU_RESET_REQUIRED, action=_RESET),
        # The GPU gate reads for itself: a passing hiccup of NVML holds no start.
        GpuFault.STUCK: Response(kind=HostKind.GPU_UNREADABLE, action=_REBOOT, blocks=False),
        GpuFault.UNKNOWN: Response(kind=HostKind.GPU_UNREADABLE, action=_REBOOT, blocks=False),
    }
)
RECOVERIES: Mapping[str, Response] = MappingProxyType(
    {
        "gpu_reset": Response(kind=HostKind.GPU_RESET_REQUIRED, action=_RESET),
        "drain_and_reset": Response(kind=HostKind.GPU_RESET_REQUIRED, action=_RESET),
        "bus_reset": Response(kind=HostKind.GPU_RESET_REQUIRED, action=_RESET),
        "drain_p2p": Response(kind=HostKind.GPU_RESET_REQUIRED, action=_FIX, blocks=False),
        "node_reboot": Response(kind=HostKind.HOST_REBOOT_REQUIRED, action=_REBOOT),
        "system_reboot": Response(kind=HostKind.HOST_REBOOT_REQUIRED, action=_REBOOT),
    }
)
"""NVML's own word for what a card needs; it goes before any table of Xids."""
_HINTS: Mapping[HostAction, str] = MappingProxyType(
    {
        _RESET: "stop the engine (`rigd stop`), then `nvidia-smi --gpu-reset -i N`; if that fails, reboot",
        _REBOOT: "stop the engine (`rigd stop`) and reboot the host",
        _FIX: "stop what uses the card (`rigd stop`), and see `nvidia-smi -q`",
    }
)


_WHOLE = frozenset({HostKind.DRIVER_LIB_MISMATCH, HostKind.NO_GPU_DRIVER, HostKind.GPU_UNREADABLE})


def after_reading(state: HostState, readings: GpuReadings, around: Around) -> HostState:
    """Return the state after a reading: what it shows, what it contradicts, what time has ended."""
    state = replace(state, active=expired(state.active, around))
    if readings.problem is None:
        known = _known(state.cards, readings.cards)
        hot = host_heat.after_heat(state.hot, readings, around)
        state = replace(state, cards=known, hot=hot)
    if readings.problem is not None and readings.problem.fault is GpuFault.NO_DRIVER:
        state = replace(state, active=_of_this_driver(state.active))
    shown = tuple(_findings(state, readings, around))
    for finding in shown:
        state = replace(state, active=noted(state, finding, at_s=around.now_s, from_nvml=True))
    keys = {finding.key for finding in shown}
    kept = (_contradicted(one, readings, state) for one in state.active if one.finding.key not in keys)
    left = {one.finding.key: one for one in kept if one is not None}
    active = (left.get(one.finding.key, one) for one in state.active if one.finding.key in keys | left.keys())
    return replace(state, active=tuple(active))


def _findings(state: HostState, readings: GpuReadings, around: Around) -> Iterator[HostFinding]:
    if readings.absent:
        return
    if readings.problem is not None:
        yield _fault(readings.problem)
    elif around.versions.mismatch:
        yield _mismatch(around)
    where = {card.index: card.bus for card in state.cards}
    for card in readings.cards:
        bus = bus_of(card.bus_id) or where.get(card.index, "")
        if card.problem is not None:
            yield _fault(card.problem, index=card.index, bus=bus)
        yield from _of_card(card, bus, around)
        yield from host_heat.findings(card, bus, state, around)
        yield from host_settings.deviations(card, bus, around, lowered=bus in state.lowered)
    if readings.problem is None:
        yield from _vanished(state.cards, readings.cards)
        yield from _slow(readings.cards)
        yield from host_settings.strangers(around.rules, state.cards, around)


def _of_card(card: GpuCard, bus: str, around: Around) -> Iterator[HostFinding]:
    response = RECOVERIES.get(card.recovery or "")
    if response is not None:
        words = (card.recovery or "").replace("_", " ")
        yield HostFinding(
            kind=response.kind,
            severity=response.severity,
            action=response.action,
            sentence=f"GPU {card.index} at {bus}: the driver says that it needs: {words}.",
            hint=_HINTS[response.action],
            gpu=card.index,
            bus=bus,
            blocks=response.blocks,
            driver_says=True,
        )
    busy = card.memory_used_mib is not None and card.memory_used_mib > around.memory_used_mib
    if around.idle and busy:
        yield _held(card, bus, around)


def _fault(problem: GpuProblem, *, index: int | None = None, bus: str = "") -> HostFinding:
    response = FAULTS[problem.fault]
    card = "The GPUs" if index is None else f"GPU {index}" + (f" at {bus}" if bus else "")
    return HostFinding(
        kind=response.kind,
        severity=response.severity,
        action=response.action,
        sentence=f"{card}: {problem.message.rstrip('.')}.",
        hint=problem.hint,
        gpu=index,
        bus=bus,
        blocks=response.blocks,
    )


def _mismatch(around: Around) -> HostFinding:
    module, library = around.versions.module, around.versions.library
    return HostFinding(
        kind=HostKind.DRIVER_LIB_MISMATCH,
        severity=Severity.ERROR,
        action=_REBOOT,
        sentence=f"The kernel runs NVIDIA driver {module}, but its libraries were changed to {library}.",
        hint="a running engine works until it ends, and no new one can start: reboot the host at a good moment",
        blocks=True,
    )


def _held(card: GpuCard, bus: str, around: Around) -> HostFinding:
    names = {one.pid: around.names.get(one.pid) or "a process" for one in card.processes}
    holders = ", ".join(f"{name} (pid {pid})" for pid, name in names.items())
    ours = any(name.startswith("VLLM::") for name in names.values())
    return HostFinding(
        kind=HostKind.GPU_MEM_BUSY,
        severity=Severity.INFO,
        action=_FIX,
        sentence=f"GPU {card.index} has {card.memory_used_mib} MiB in use while rigd runs no engine: "
        f"{holders or 'the driver names no holder'}.",
        hint="an engine that rigd did not start, or left over from one: end it before `rigd start`"
        if ours
        else "end it before `rigd start`, or the start waits for the memory",
        gpu=card.index,
        bus=bus,
    )


def _vanished(known: tuple[KnownCard, ...], cards: tuple[GpuCard, ...]) -> Iterator[HostFinding]:
    """Yield the cards of this boot that the driver does not even count any more."""
    here, indices = {card.uuid for card in cards}, {card.index for card in cards if card.problem is not None}
    for card in known:
        if card.uuid not in here and card.index not in indices:
            yield HostFinding(
                kind=HostKind.GPU_LOST,
                severity=Severity.ERROR,
                action=_REBOOT,
                sentence=f"GPU {card.index} at {card.bus} is not there any more.",
                hint="power the host off and on; look for Xid 79 in `dmesg`, check power and riser of the card",
                gpu=card.index,
                bus=card.bus,
                blocks=True,
            )


def _slow(cards: tuple[GpuCard, ...]) -> Iterator[HostFinding]:
    """Yield the busy card that runs at a fraction of its busy twin's clock, with nothing that explains it."""
    busy = [
        card
        for card in cards
        if (card.utilization or 0) >= BUSY_PERCENT and card.clock_mhz is not None and card.problem is None
    ]
    for card in busy:
        others = [one.clock_mhz or 0 for one in busy if one.name == card.name and one is not card]
        best = max(others, default=0)
        explained = bool(host_heat.HELD_DOWN & set(card.throttle)) or "sw_power_cap" in card.throttle
        if best and not explained and (card.clock_mhz or 0) < SLOW_SHARE * best:
            yield HostFinding(
                kind=HostKind.CLOCKS_STUCK,
                severity=Severity.WARNING,
                action=_RESET,
                sentence=f"GPU {card.index} runs at {card.clock_mhz} MHz under load, its twin at {best} MHz.",
                hint="clocks stay low after some crashes: `rigd stop`, reload the nvidia modules, or reboot; "
                "see that nobody locked them (`nvidia-smi -rgc`)",
                gpu=card.index,
                bus=bus_of(card.bus_id),
            )


def _known(known: tuple[KnownCard, ...], cards: tuple[GpuCard, ...]) -> tuple[KnownCard, ...]:
    """Return the cards of this boot; each keeps the index that it first had."""
    seen = {card.uuid for card in known}
    new = (card for card in cards if card.uuid and card.bus_id and card.uuid not in seen)
    return (*known, *(KnownCard(index=one.index, uuid=one.uuid, bus=bus_of(one.bus_id)) for one in new))


def _of_this_driver(active: tuple[Active, ...]) -> tuple[Active, ...]:
    """Return the findings that a driver which is unloaded, to be loaded afresh, does not end."""
    ended = {HostKind.GPU_RESET_REQUIRED, HostKind.HOST_REBOOT_REQUIRED, HostKind.CLOCKS_STUCK}
    return tuple(one for one in active if one.finding.kind not in ended)


def _contradicted(one: Active, readings: GpuReadings, state: HostState) -> Active | None:
    """Return a finding that the reading does not show: as it was, one look nearer to its end, or None."""
    needed = WATCHES[one.finding.kind].clean
    if needed is None or one.finding.kind is HostKind.KERNEL_LOG_UNREADABLE:
        return one
    if not one.certain:
        return None
    by_driver = one.finding.kind in {HostKind.GPU_RESET_REQUIRED, HostKind.HOST_REBOOT_REQUIRED}
    if (by_driver and not one.from_nvml) or not _proves(one, readings, state):
        return one
    return replace(one, clean=one.clean + 1) if one.clean + 1 < needed else None


def _proves(one: Active, readings: GpuReadings, state: HostState) -> bool:
    """Whether the reading could have shown the finding, and did not."""
    if readings.problem is not None:  # Another trouble of the whole driver; one that hangs says nothing.
        return one.finding.kind in _WHOLE and readings.problem.fault in {
            GpuFault.NO_DRIVER,
            GpuFault.MISMATCH,
        }
    if not one.finding.bus:
        whole = len(readings.cards) >= len(state.cards) > 0 or one.finding.kind is not HostKind.GPU_LOST
        return whole and all(card.problem is None for card in readings.cards)
    card = next((card for card in readings.cards if bus_of(card.bus_id) == one.finding.bus), None)
    return card is not None and card.problem is None
