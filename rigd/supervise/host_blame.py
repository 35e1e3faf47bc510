"""Whether the host is to blame for a failure: what the kernel and the cards said of late against the log. Pure.

An engine whose card falls off the bus logs a CUDA error, a dead worker or nothing: the host's word is the cause, the
log's the consequence. A log that names a cause of its own (a wrong setting, no memory) is left alone by everything
but a card that is gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from rigd.supervise.host import HostAction, HostFinding, HostKind
from rigd.supervise.state import Failure

RECENT_S = 180.0
"""What the host said longer before the failure than this did not cause it; a hang takes a while to be noticed."""
KERNEL_EVIDENCE = 3


@dataclass(frozen=True, kw_only=True)
class Blame:
    """What a finding of the host means for a failure at the same time."""

    rank: int
    """The lowest is the root of the others."""
    over_causes: bool = False
    """Whether it is the cause even where the log names one of its own."""


BLAME: Mapping[HostKind, Blame] = MappingProxyType(
    {
        HostKind.HOST_REBOOT_REQUIRED: Blame(rank=0, over_causes=True),
        HostKind.GPU_LOST: Blame(rank=1, over_causes=True),
        HostKind.GPU_RESET_REQUIRED: Blame(rank=2),
        HostKind.HOST_OOM_KILL: Blame(rank=3),
    }
)
"""Findings that end an engine. An application's Xid (13, 31, ...) is only evidence: the log says more of it."""
EVIDENCE = frozenset({*BLAME, HostKind.GPU_APP_FAULT, HostKind.IOMMU, HostKind.GPU_ECC})

CONSEQUENCES = frozenset(
    {
        "unknown", "engine_exited", "worker_died", "engine_stalled", "health_failing", "cannot_serve",
        "garbage_output", "canary_refused", "rpc_timeout", "ima_mtp_gdn", "ima_other", "poison_request",
        "stall_forever", "stall_selfheal", "nccl_init_hang", "nccl_watchdog", "nccl_peer_217",
        "nvml_unknown_in_container", "gpu_not_enumerable", "gpu_app_fault", "gpu_reset_required", "gpu_lost",
        "host_reboot_required", "host_oom_kill", "ready_timeout", "custom_ar_ipc", "host_reset_p2p",
    }
)  # fmt: skip
"""Classes that only say how the engine ended, or that something of the host did it."""
_KILLED = frozenset({"unknown", "engine_exited", "worker_died", "host_oom_kill", "rpc_timeout"})
"""What a killed process leaves behind; a hang, for one, is not the work of the out-of-memory killer."""


def blamed(failure: Failure, findings: Iterable[HostFinding]) -> Failure:
    """Return the failure with the host's word: as its class where the host is to blame, else as evidence."""
    recent = [finding for finding in findings if finding.kind in EVIDENCE]
    lines = tuple(
        dict.fromkeys(line for one in recent for line in one.evidence if line not in failure.evidence)
    )
    evidence = (*failure.evidence, *lines[-KERNEL_EVIDENCE:])
    failure = replace(failure, evidence=evidence)
    suspects = sorted((one for one in recent if _may_be(one, failure)), key=lambda one: BLAME[one.kind].rank)
    if not suspects:
        return failure
    found = suspects[0]
    before = "" if failure.kind == str(found.kind) else f" {_first_sentence(failure.sentence)}"
    return replace(
        failure,
        kind=str(found.kind),
        sentence=f"{found.sentence}{before}",
        hint=found.hint,
        # While the host is broken its gate holds every start, and none is counted; after that one may well work.
        retry_helps=True,
        remedies=(),
    )


def _may_be(finding: HostFinding, failure: Failure) -> bool:
    blame = BLAME.get(finding.kind)
    if blame is None:
        return False
    if finding.kind is HostKind.HOST_OOM_KILL:  # Of the killed processes only the engine's own ends it.
        return finding.action is HostAction.RESTART_APP and failure.kind in _KILLED
    return blame.over_causes or failure.kind in CONSEQUENCES


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".") + "."
