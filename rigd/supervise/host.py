"""The host under the engine: what is wrong with it, since when, and what a person does about it. Pure.

    kernel lines -> host_kernel.after_kernel ---+
    NVML readings -> host_cards.after_reading --+-> HostState -> entries (journal), documents (status), held (gate)

What may be done about them is decided in `host_acts`. A finding is said once when it is certain, and once when it is
over. Three things end one: readings that contradict it, a quiet time, an engine that became ready.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from rigd.adapters.gpu_driver import DriverVersions
from rigd.rig.host import Host
from rigd.supervise.decision import Entry

ACTIVE_LIMIT = 64
"""Findings kept at a time; a host with more trouble than this has been understood."""
EVIDENCE_LIMIT = 3


class HostKind(enum.StrEnum):
    """Class of a finding, in the failure catalogue's vocabulary where it has one."""

    GPU_LOST = "gpu_lost"
    GPU_RESET_REQUIRED = "gpu_reset_required"
    HOST_REBOOT_REQUIRED = "host_reboot_required"
    GPU_APP_FAULT = "gpu_app_fault"
    GPU_ECC = "gpu_ecc"
    GPU_UNREADABLE = "gpu_unreadable"
    DRIVER_LIB_MISMATCH = "driver_lib_mismatch"
    NO_GPU_DRIVER = "no_gpu_driver"
    THERMAL = "thermal"
    OVERHEATED = "overheated"
    GPU_SETTINGS = "gpu_settings"
    CLOCKS_STUCK = "clocks_stuck"
    GPU_MEM_BUSY = "gpu_mem_busy"
    HOST_OOM_KILL = "host_oom_kill"
    IOMMU = "iommu"
    PCIE_ERRORS = "pcie_errors"
    KERNEL_LOG_UNREADABLE = "kernel_log_unreadable"


class Severity(enum.StrEnum):
    """How much it matters: `error` keeps the engine from serving, or soon will."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class HostAction(enum.StrEnum):
    """What helps. rigd itself restarts its engine when that dies; the rest is a person's work."""

    IGNORE = "ignore"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_HOST = "reboot_host"
    FIX = "fix"


@dataclass(frozen=True, kw_only=True)
class HostFinding:
    """One thing that is wrong with the host, for a person and for programs."""

    kind: HostKind
    severity: Severity
    sentence: str
    hint: str
    action: HostAction
    gpu: int | None = None
    """NVML's index of the card, where it is known."""
    bus: str = ""
    """The card's address in the kernel's words (`0000:0a:00`), where it is known."""
    subject: str = ""
    """What else tells two findings of a kind apart: an Xid, a process."""
    blocks: bool = False
    """Whether starting an engine is useless while this holds."""
    driver_says: bool = False
    """Whether the driver itself named the action; a table's opinion gives way to that."""
    evidence: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What makes two sightings the same finding."""
        card = self.bus or ("" if self.gpu is None else str(self.gpu))
        return f"{self.kind}:{card}:{self.subject}"


@dataclass(frozen=True, kw_only=True)
class Watch:
    """When findings of a kind are certain, and when they are over."""

    looks: int = 1
    """Readings in a row that must show it before it is said."""
    clean: int | None = None
    """Readings in a row that must contradict it; None: readings cannot."""
    quiet_s: float | None = None
    """It is an event rather than a condition: over when it has not happened again for this long."""
    ready_ends: bool = False
    """Whether an engine that became ready afterwards proves that it is over."""


WATCHES: Mapping[HostKind, Watch] = MappingProxyType(
    {
        HostKind.GPU_LOST: Watch(clean=3),
        HostKind.GPU_RESET_REQUIRED: Watch(clean=2, ready_ends=True),
        HostKind.HOST_REBOOT_REQUIRED: Watch(clean=2, ready_ends=True),
        HostKind.GPU_APP_FAULT: Watch(quiet_s=600.0),
        HostKind.GPU_ECC: Watch(quiet_s=3600.0),
        HostKind.GPU_UNREADABLE: Watch(looks=2, clean=1),
        HostKind.DRIVER_LIB_MISMATCH: Watch(clean=1),
        HostKind.NO_GPU_DRIVER: Watch(looks=2, clean=1),
        HostKind.THERMAL: Watch(clean=3),
        HostKind.OVERHEATED: Watch(clean=1),
        HostKind.GPU_SETTINGS: Watch(looks=2, clean=1),
        HostKind.CLOCKS_STUCK: Watch(looks=6, clean=3),
        HostKind.GPU_MEM_BUSY: Watch(looks=3, clean=1),
        HostKind.HOST_OOM_KILL: Watch(quiet_s=3600.0),
        HostKind.IOMMU: Watch(quiet_s=3600.0),
        HostKind.PCIE_ERRORS: Watch(quiet_s=3600.0),
        HostKind.KERNEL_LOG_UNREADABLE: Watch(clean=1),
    }
)


@dataclass(frozen=True, kw_only=True)
class Active:
    """A finding with its history."""

    finding: HostFinding
    began_s: float
    last_s: float
    seen: int = 1
    clean: int = 0
    """Readings in a row that contradicted it."""
    from_nvml: bool = False
    """Whether the last to report it was a reading rather than the kernel: readings then decide when it is over."""

    @property
    def certain(self) -> bool:
        """Whether it has been seen often enough to be said."""
        return self.seen >= WATCHES[self.finding.kind].looks


@dataclass(frozen=True, kw_only=True)
class KnownCard:
    """A card that has answered during this boot; one that vanishes is missed."""

    index: int
    uuid: str
    bus: str


@dataclass(frozen=True, kw_only=True)
class HotCard:
    """A card that is at the temperature of the response, or was and is not cool again."""

    bus: str
    since_s: float


@dataclass(frozen=True, kw_only=True)
class HostState:
    """Everything the host watch knows; stored, so that a new daemon repeats nothing."""

    boot: str = ""
    position: str = ""
    """How far the kernel's log was read."""
    active: tuple[Active, ...] = ()
    cards: tuple[KnownCard, ...] = ()
    hot: tuple[HotCard, ...] = ()
    lowered: tuple[str, ...] = ()
    """Addresses of the cards whose power limit rigd has lowered because of heat."""


HOST_STATE = TypeAdapter(HostState)
"""Writes a host state as JSON and reads it back, for the store."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What else a judgement needs: the time, and what rigd itself runs."""

    now_s: float
    ours: frozenset[int] = frozenset()
    """Processes of the engine now, and at the look before."""
    idle: bool = False
    """Whether rigd runs no engine and is about to start none."""
    ready_s: float | None = None
    """When the engine became ready."""
    memory_used_mib: float = 2048.0
    """What a card may have in use without anyone being told, in MiB."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of processes that hold memory of a card."""
    versions: DriverVersions = DriverVersions()  # noqa: RUF009  (frozen)
    rules: Host = Host()  # noqa: RUF009  (frozen)
    """What the rig file says of the host."""
    rig_file: str = "RIG"
    """Path of the rig file, for the commands that a person is told."""


def noted(
    state: HostState, finding: HostFinding, *, at_s: float, from_nvml: bool = False
) -> tuple[Active, ...]:
    """Return the active findings with one more sighting in them."""
    for place, one in enumerate(state.active):
        if one.finding.key == finding.key:
            again = replace(
                one,
                finding=_merged(one.finding, finding, from_nvml=from_nvml),
                last_s=max(one.last_s, at_s),
                seen=one.seen + 1,
                clean=0,
                from_nvml=from_nvml or one.from_nvml,
            )
            return (*state.active[:place], again, *state.active[place + 1 :])
    new = Active(finding=finding, began_s=at_s, last_s=at_s, from_nvml=from_nvml)
    return (*state.active, new)[-ACTIVE_LIMIT:]


def _merged(old: HostFinding, new: HostFinding, *, from_nvml: bool) -> HostFinding:
    evidence = tuple(dict.fromkeys((*old.evidence, *new.evidence)))
    evidence = (*evidence[:1], *evidence[1:][-(EVIDENCE_LIMIT - 1) :])  # The first, and the latest.
    said = old if old.driver_says and not new.driver_says and not from_nvml else new
    return replace(said, evidence=evidence, blocks=old.blocks or new.blocks)


def without(active: Iterable[Active], kinds: frozenset[HostKind], bus: str) -> tuple[Active, ...]:
    """Return the findings but those of these kinds about this card."""
    return tuple(one for one in active if not (one.finding.kind in kinds and one.finding.bus == bus))


def expired(active: Iterable[Active], around: Around) -> tuple[Active, ...]:
    """Return the findings that time, or an engine that serves, has not ended."""
    return tuple(one for one in active if not _over(one, around))


def _over(one: Active, around: Around) -> bool:
    rule = WATCHES[one.finding.kind]
    if rule.quiet_s is not None and around.now_s - one.last_s >= rule.quiet_s:
        return True
    return (
        rule.ready_ends and not one.from_nvml and around.ready_s is not None and around.ready_s > one.last_s
    )


def entries(before: HostState, after: HostState) -> tuple[Entry, ...]:
    """Return what the journal is told: each certain finding once, and its end."""
    old = {one.finding.key: one for one in before.active if one.certain}
    new = {one.finding.key: one for one in after.active if one.certain}
    found = [_entry("host-finding", one.finding) for key, one in new.items() if key not in old]
    over = [_entry("host-cleared", one.finding) for key, one in old.items() if key not in new]
    return (*found, *over)


def _entry(kind: str, finding: HostFinding) -> Entry:
    message = finding.sentence if kind == "host-finding" else f"over: {finding.sentence}"
    return Entry(
        kind=kind,
        message=message,
        data=(
            ("class", finding.kind),
            ("severity", finding.severity),
            ("gpu", finding.gpu),
            ("bus", finding.bus),
            ("subject", finding.subject),
            ("action", finding.action),
            ("blocks", finding.blocks),
            ("hint", finding.hint),
            ("evidence", finding.evidence[0] if finding.evidence else None),
        ),
    )


def documents(state: HostState) -> list[dict[str, Any]]:
    """Return the certain findings for the status document, the gravest first."""
    grave = list(Severity)[::-1]
    found = sorted(
        (one for one in state.active if one.certain), key=lambda one: grave.index(one.finding.severity)
    )
    return [
        {
            "class": str(one.finding.kind),
            "severity": str(one.finding.severity),
            "gpu": one.finding.gpu,
            "bus": one.finding.bus,
            "sentence": one.finding.sentence,
            "hint": one.finding.hint,
            "action": str(one.finding.action),
            "blocks": one.finding.blocks,
            "since_s": one.began_s,
            "last_s": one.last_s,
            "count": one.seen,
            "evidence": list(one.finding.evidence),
        }
        for one in found
    ]


def held(
    state: HostState,
    concerns: Callable[[int | None], bool],
    will_act: Callable[[HostFinding], bool] = lambda _finding: False,
) -> HostFinding | None:
    """Return the finding that makes a start useless.

    `concerns` says whether the engine uses a card, `will_act` whether something is about to be done about a finding.
    """
    found = (one.finding for one in state.active if one.certain)
    blocking = (finding for finding in found if finding.blocks or will_act(finding))
    return next((finding for finding in blocking if concerns(finding.gpu)), None)
