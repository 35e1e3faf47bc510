"""What rigd does about its host, where the rig file lets it: one act at a time. Pure.

    findings + engine + rules + what was done before -> next_act()

A reset or a reboot needs a rig file that allows it, a cause that has held for a while, a quiet host (no engine runs
and none can begin) and room in the day's count. The rest follows from what the rig file states: settings that were
lost are set again, a card that is too hot gets its response, and its old limit when it is cool.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import TypeAdapter

from rigd.rig.host import HeatResponse, Host
from rigd.supervise.host import Active, HostAction, HostFinding, HostKind, HostState

DAY_S = 86400.0
ESCALATE_S = 3600.0
"""A card that needs another reset so soon after one needs more than that."""
RETRY_S = 600.0
"""Pause before a setting is set again; doubled with each failure."""
RETRY_MAX_S = 21600.0
STOP_AGAIN_S = 120.0
"""Pause before a hot card's engine is asked to stop again, in seconds."""
REBOOT_DEADLINE_S = 600.0
"""A host that is still up after this did not go down."""
HISTORY_LIMIT = 200
"""Acts remembered; a day's count of resets and reboots is far smaller."""


class ActKind(enum.StrEnum):
    """What may be done to the host."""

    APPLY = "apply-settings"
    LOWER = "lower-power"
    RESTORE = "restore-power"
    STOP_ENGINE = "stop-engine"
    RESET = "reset-gpu"
    REBOOT = "reboot"


COUNTED = frozenset({ActKind.RESET, ActKind.REBOOT})
"""Acts that `host.most_per_day` limits."""


class ActState(enum.StrEnum):
    """How far an act is."""

    INTENDED = "intended"
    """Stored before it is done; a daemon that finds one does not know whether it was."""
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    """It was called for and allowed, but the day's count is full; nothing was done."""


@dataclass(frozen=True, kw_only=True)
class Act:
    """One act on the host."""

    kind: ActKind
    at_s: float
    boot: str = ""
    """The kernel's id of the boot that it was decided in."""
    bus: str = ""
    """The card's address, where it is about one."""
    gpu: int | None = None
    why: str = ""
    """The finding's sentence."""
    finding: str = ""
    """The finding's key."""
    state: ActState = ActState.INTENDED
    message: str = ""


HISTORY = TypeAdapter(tuple[Act, ...])
"""Writes acts as JSON and reads them back, for the store."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What else a decision needs."""

    now_s: float
    boot: str
    wanted: bool = True
    """Whether the engine is wanted, and nobody has asked rigd to keep its hands off."""
    running: bool = False
    """Whether an engine runs."""
    quiet: bool = False
    """Whether no engine runs, and none can begin while a finding holds the start."""
    hands: bool = True
    """Whether rigd can set the host's cards at all."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """An act that a finding calls for."""

    kind: ActKind
    one: Active


Concerns = Callable[[int | None], bool]

CALLS: Mapping[HostKind, HostAction] = MappingProxyType(
    {
        HostKind.HOST_REBOOT_REQUIRED: HostAction.REBOOT_HOST,
        HostKind.GPU_LOST: HostAction.REBOOT_HOST,
        HostKind.DRIVER_LIB_MISMATCH: HostAction.REBOOT_HOST,
        HostKind.GPU_RESET_REQUIRED: HostAction.RESET_GPU,
    }
)
"""Findings that an act cures. For the others (IOMMU, PCIe, stuck clocks) rebooting again and again cures nothing."""


def next_act(
    state: HostState, history: tuple[Act, ...], rules: Host, concerns: Concerns, at: Situation
) -> Act | None:
    """Return what to do now, or None."""
    if not at.wanted or any(act.state is ActState.INTENDED for act in history):
        return None
    for choose in (_rescue, _heat, _cool, _settings):
        act = choose(state, history, rules, concerns, at)
        if act is not None:
            return act
    return None


def will_act(
    finding: HostFinding, state: HostState, history: tuple[Act, ...], rules: Host, *, now_s: float
) -> bool:
    """Return whether a reset or reboot for this finding is under way or coming, so that no start should begin."""
    under_way = (act for act in history if act.state is ActState.INTENDED and act.kind in COUNTED)
    if any(act.finding == finding.key for act in under_way):
        return True
    calls = _calls(state, history, rules, lambda _gpu: True)
    return any(call.one.finding.key == finding.key for call in calls) and not _full(history, rules, now_s)


# --- resets and reboots ---


def _rescue(
    state: HostState, history: tuple[Act, ...], rules: Host, concerns: Concerns, at: Situation
) -> Act | None:
    for call in _calls(state, history, rules, concerns):
        if at.now_s - call.one.began_s < rules.act_after_s:
            continue
        if not _full(history, rules, at.now_s):
            if at.quiet:
                return _act(call.kind, call.one.finding, at)
        elif not at.running and not _refused_already(history, call.one):
            most = rules.most_per_day
            said = f"{most} resets and reboots in 24 hours are all that host.most_per_day allows"
            return _act(call.kind, call.one.finding, at, state=ActState.REFUSED, message=said)
    return None


def _calls(state: HostState, history: tuple[Act, ...], rules: Host, concerns: Concerns) -> Iterator[Call]:
    """Yield what the findings call for and the rules allow: the driver's own word first, a reboot before a reset."""
    ones = [
        one
        for one in state.active
        if one.certain and CALLS.get(one.finding.kind) is one.finding.action and concerns(one.finding.gpu)
    ]
    ones.sort(key=lambda one: (not one.finding.driver_says, one.finding.action is not HostAction.REBOOT_HOST))
    for one in ones:
        reset = one.finding.action is HostAction.RESET_GPU
        if reset and rules.allow_gpu_reset and one.finding.bus and not _reset_lately(history, one):
            yield Call(kind=ActKind.RESET, one=one)
        elif rules.allow_reboot:
            yield Call(kind=ActKind.REBOOT, one=one)


def _reset_lately(history: Iterable[Act], one: Active) -> bool:
    """Whether a reset of this card was tried shortly before the finding, or because of it."""
    return any(
        act.kind is ActKind.RESET and act.bus == one.finding.bus and one.last_s - act.at_s < ESCALATE_S
        for act in history
        if act.state is not ActState.REFUSED
    )


def spent(history: Iterable[Act], now_s: float) -> int:
    """Return how many resets and reboots the last 24 hours have seen; one that may have happened counts."""
    return sum(
        act.kind in COUNTED and act.state is not ActState.REFUSED and abs(now_s - act.at_s) < DAY_S
        for act in history
    )


def _full(history: Iterable[Act], rules: Host, now_s: float) -> bool:
    return spent(history, now_s) >= rules.most_per_day


def _refused_already(history: Iterable[Act], one: Active) -> bool:
    return any(
        act.state is ActState.REFUSED and act.finding == one.finding.key and act.at_s >= one.began_s
        for act in history
    )


# --- heat and settings ---


def _heat(
    state: HostState, history: tuple[Act, ...], rules: Host, concerns: Concerns, at: Situation
) -> Act | None:
    response = rules.temperature.response
    for one in state.active:
        if one.finding.kind is not HostKind.OVERHEATED or not concerns(one.finding.gpu):
            continue
        if response is HeatResponse.LOWER_POWER and one.finding.bus not in state.lowered:
            if _due(history, ActKind.LOWER, one.finding.bus, at.now_s):
                return _act(ActKind.LOWER, one.finding, at)
        elif response is HeatResponse.STOP and at.running:
            last_s = max((act.at_s for act in history if act.kind is ActKind.STOP_ENGINE), default=0.0)
            if at.now_s - last_s >= STOP_AGAIN_S:
                return _act(ActKind.STOP_ENGINE, one.finding, at)
    return None


def _cool(
    state: HostState, history: tuple[Act, ...], rules: Host, concerns: Concerns, at: Situation
) -> Act | None:
    del concerns
    hot = {one.finding.bus for one in state.active if one.finding.kind is HostKind.OVERHEATED}
    if rules.temperature.response is not HeatResponse.LOWER_POWER:
        hot = set()
    index = {card.bus: card.index for card in state.cards}
    for bus in state.lowered:
        if bus not in hot and _due(history, ActKind.RESTORE, bus, at.now_s):
            gpu = index.get(bus)
            return Act(
                kind=ActKind.RESTORE,
                at_s=at.now_s,
                boot=at.boot,
                bus=bus,
                gpu=gpu,
                why=f"GPU {'' if gpu is None else gpu} at {bus} is cool again.",
            )
    return None


def _settings(
    state: HostState, history: tuple[Act, ...], rules: Host, concerns: Concerns, at: Situation
) -> Act | None:
    del rules, concerns
    if not at.hands:
        return None  # The finding itself says what a person types.
    for one in state.active:
        found = one.finding
        differs = found.kind is HostKind.GPU_SETTINGS and one.certain and bool(found.bus)
        if differs and _due(history, ActKind.APPLY, found.bus, at.now_s):
            return _act(ActKind.APPLY, found, at)
    return None


def _due(history: Iterable[Act], kind: ActKind, bus: str, now_s: float) -> bool:
    """Whether an act may be tried (again): the more often it failed in a row, the later."""
    tries = [act for act in history if act.kind is kind and act.bus == bus]
    if not tries:
        return True
    failures = 0
    for act in reversed(tries):
        if act.state is ActState.DONE:
            break
        failures += 1
    return now_s - tries[-1].at_s >= min(RETRY_S * 2.0 ** min(failures, 10), RETRY_MAX_S)


def _act(
    kind: ActKind,
    finding: HostFinding,
    at: Situation,
    *,
    state: ActState = ActState.INTENDED,
    message: str = "",
) -> Act:
    return Act(
        kind=kind,
        at_s=at.now_s,
        boot=at.boot,
        bus=finding.bus if kind is not ActKind.REBOOT else "",
        gpu=finding.gpu,
        why=finding.sentence,
        finding=finding.key,
        state=state,
        message=message,
    )


# --- what was done before ---


def with_act(history: tuple[Act, ...], act: Act) -> tuple[Act, ...]:
    """Return the history with an act added, or its newer state in its place; counted acts are kept longest."""
    others = tuple(one for one in history if (one.kind, one.at_s, one.bus) != (act.kind, act.at_s, act.bus))
    counted = tuple(one for one in others if one.kind in COUNTED)[-HISTORY_LIMIT // 2 :]
    rest = tuple(one for one in others if one.kind not in COUNTED)[-HISTORY_LIMIT // 2 :]
    return tuple(sorted((*counted, *rest, act), key=lambda one: one.at_s))


def settled(act: Act, *, boot: str, now_s: float, fresh: bool) -> tuple[ActState, str] | None:
    """Return what came of an act that was only intended, as far as can be seen; `fresh`: a new daemon looks."""
    if act.kind is ActKind.REBOOT:
        if act.boot != boot:
            return (
                ActState.DONE,
                f"the host was rebooted, and was away for {max(0.0, now_s - act.at_s):.0f} s at most",
            )
        if now_s - act.at_s >= REBOOT_DEADLINE_S:
            return ActState.FAILED, f"the host did not go down within {REBOOT_DEADLINE_S:.0f} s"
        return None
    if fresh:
        return ActState.FAILED, "the daemon ended meanwhile: whether it was done is not known"
    return None
