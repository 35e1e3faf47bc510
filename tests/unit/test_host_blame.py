"""The host's word in a diagnosis: a card that is gone explains a CUDA error, not the other way round."""

from dataclasses import replace

import pytest

from rigd.adapters.gpu import GpuCard, GpuReadings
from rigd.adapters.kernel_log import KernelLine
from rigd.supervise.host import Around, HostState
from rigd.supervise.host_blame import blamed
from rigd.supervise.host_cards import after_reading
from rigd.supervise.host_kernel import after_kernel
from rigd.supervise.ladder import Remedy
from rigd.supervise.state import Failure

NOW_S = 1_000_000.0
CARDS = GpuReadings(
    at_s=NOW_S,
    cards=tuple(
        GpuCard(index=index, uuid=f"GPU-{index}", bus_id=f"00000000:{bus}:00.0")
        for index, bus in enumerate(("0A", "14"))
    ),
)
XID_79 = "NVRM: Xid (PCI:0000:14:00): 79, pid=1, GPU has fallen off the bus."
XID_48 = "NVRM: Xid (PCI:0000:14:00): 48, pid=1, name=VLLM::Worker_TP1, DBE (Double Bit Error)"
XID_119 = "NVRM: Xid (PCI:0000:14:00): 119, pid=1, name=VLLM::Worker_TP1, Timeout after 6s of waiting for RPC"
XID_31 = "NVRM: Xid (PCI:0000:14:00): 31, pid=1, name=VLLM::Worker_TP1, MMU Fault: ENGINE GRAPHICS"
XID_154 = "NVRM: Xid (PCI:0000:14:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
OOM = "Out of memory: Killed process 4711 (VLLM::Worker_TP) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"
OTHERS_OOM = (
    "Out of memory: Killed process 12 (firefox) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"
)
CUDA = Failure(
    kind="ima_mtp_gdn",
    sentence="An illegal memory access in speculative decoding. More of it.",
    hint="turn async scheduling off",
    remedies=(Remedy(knob="async_scheduling", change="set", value=False),),
    evidence=("7: CUDA error",),
)


def heard(*lines: str):
    """Return the findings after the kernel said these lines."""
    around = Around(now_s=NOW_S)
    state = after_reading(HostState(boot="b"), CARDS, around)
    state = after_kernel(state, [KernelLine(at_s=NOW_S, text=line) for line in lines], around)
    return tuple(one.finding for one in state.active)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        pytest.param((XID_79,), "gpu_lost", id="79"),
        pytest.param((XID_48,), "gpu_reset_required", id="48"),
        pytest.param((XID_119,), "gpu_reset_required", id="119"),
        pytest.param((XID_154,), "host_reboot_required", id="154"),
        pytest.param((XID_31, XID_79), "gpu_lost", id="31-then-79"),
        pytest.param((XID_119, XID_154), "host_reboot_required", id="119-then-154"),
    ],
)
def test_the_host_s_word_goes_before_the_cuda_error_that_followed(lines, kind):
    failure = blamed(CUDA, heard(*lines))

    assert (failure.kind, failure.remedies) == (kind, ())
    assert "illegal memory access" in failure.sentence  # What the log says is told, too, in a sentence.
    assert failure.evidence[0] == "7: CUDA error"
    assert lines[-1] in failure.evidence
    assert failure.hint != CUDA.hint


def test_an_application_s_xid_is_evidence_and_no_more():
    failure = blamed(CUDA, heard(XID_31))

    assert replace(failure, evidence=CUDA.evidence) == CUDA
    assert XID_31 in failure.evidence


@pytest.mark.parametrize(
    ("lines", "own", "kind"),
    [
        pytest.param((OOM,), "worker_died", "host_oom_kill", id="a-dead-worker"),
        pytest.param((OOM,), "engine_exited", "host_oom_kill", id="a-dead-engine"),
        pytest.param((OOM,), "engine_stalled", "engine_stalled", id="a-hang-is-something-else"),
        pytest.param((OTHERS_OOM,), "worker_died", "worker_died", id="another-s-process"),
        pytest.param((XID_119,), "bad_cli", "bad_cli", id="a-wrong-flag"),
        pytest.param((XID_119,), "kv_none", "kv_none", id="no-memory"),
        pytest.param((XID_79,), "oom_weights", "gpu_lost", id="no-card-no-memory"),
        pytest.param((XID_119,), "engine_stalled", "gpu_reset_required", id="a-hang"),
        pytest.param((), "worker_died", "worker_died", id="a-quiet-kernel"),
    ],
)
def test_a_log_that_names_its_own_cause_is_believed(lines, own, kind):
    assert blamed(Failure(kind=own, sentence="It ended."), heard(*lines)).kind == kind


def test_a_start_is_worth_another_try_once_the_host_is_well_again():
    """The host's gate holds starts while the card is gone: giving up would leave the box to a person for nothing."""
    failure = replace(CUDA, retry_helps=False)

    assert blamed(failure, heard(XID_79)).retry_helps is True
    assert blamed(failure, ()).retry_helps is False
