"""A real daemon on a pretended driver: two cards that get hot, lost, mismatched; and what the kernel says."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from driver import WORKER
from nvml_stub.build import build

READING_S = 60
"""Longest time until a change of the cards is told: two readings and some patience, in seconds."""
LOST = "gpu_lost"


@pytest.fixture(scope="module")
def rig(make_rig, tmp_path_factory):
    """Give a rig on a host with two pretended RTX 3090."""
    under_test = make_rig(("double", "process"))
    facts = under_test.folder / "cards"
    facts.write_text("")
    folder = build(tmp_path_factory.mktemp("nvml"))
    under_test.environ |= {"NVML_STUB": str(facts), "LD_LIBRARY_PATH": str(folder), "RIGD_HOST_LOOK_S": "1"}
    return under_test


@pytest.fixture
def cards(rig) -> Callable[..., None]:
    """Give a function that says what is so with the cards; all is well again afterwards."""

    def say(*facts: str) -> None:
        fresh = rig.folder / "cards.new"
        fresh.write_text("".join(f"{fact}\n" for fact in facts))
        fresh.replace(rig.folder / "cards")

    yield say
    say()


def findings(rig) -> dict[str, dict]:
    return {finding["class"]: finding for finding in rig.status()["host"]}


def _held(rig) -> dict | None:
    status = rig.status()
    return status if status["state"] == "backoff" and status["failure"]["kind"] == LOST else None


def told(rig, kind: str, name: str, after_s: float = 0.0) -> list[dict]:
    """Return the journal's entries of a kind about a class of finding."""
    return [
        event
        for event in rig.events()
        if event["kind"] == kind and event["data"]["class"] == name and event["at_s"] >= after_s
    ]


def test_a_hot_card_is_told_and_the_engine_goes_on(rig, cards):
    engine = rig.ready()["engine"]

    cards("hot 1")

    finding = rig.until(lambda: findings(rig).get("thermal"), READING_S, "the heat is told")
    assert (finding["gpu"], finding["severity"]) == (1, "warning")
    assert "93 degrees" in finding["sentence"]
    status = rig.status()
    assert (status["state"], status["engine"]["id"]) == ("ready", engine["id"])
    assert len(told(rig, "host-finding", "thermal")) == 1


def test_a_lost_card_holds_the_next_start_until_it_is_back(rig, cards):
    rig.ready()
    began_s = time.time()
    cards("lost 1")
    finding = rig.until(lambda: findings(rig).get(LOST), READING_S, "the loss is told")
    assert (finding["gpu"], finding["bus"], finding["blocks"]) == (1, "0000:14:00", True)
    assert rig.status()["state"] == "ready"
    launches = rig.launches()

    rig.members()["api"].kill()

    status = rig.until(lambda: _held(rig), 30, "the start is held")
    assert "GPU is lost" in status["reason"]
    assert rig.launches() == launches
    failures = status["attempts"]["failed"]
    assert rig.daemon.poll() is None

    cards()

    rig.wait("ready", deadline_s=90)
    assert rig.launches() == launches + 1
    assert rig.status()["attempts"]["failed"] <= failures
    assert len(told(rig, "host-finding", LOST, began_s)) == 1
    assert len(told(rig, "host-cleared", LOST, began_s)) == 1


def test_a_mismatch_is_found_while_the_engine_still_serves(rig, cards):
    engine = rig.ready()["engine"]

    cards("mismatched")

    finding = rig.until(lambda: findings(rig).get("driver_lib_mismatch"), READING_S, "it is told")
    assert (finding["action"], finding["blocks"]) == ("reboot_host", True)
    status = rig.status()
    assert (status["state"], status["engine"]["id"]) == ("ready", engine["id"])
    assert rig.chat([{"role": "user", "content": "still there?"}])["usage"]["completion_tokens"] > 0


def test_a_mismatch_holds_the_next_start_and_costs_none(rig, cards):
    rig.ready()
    cards("mismatched")
    rig.until(lambda: "driver_lib_mismatch" in findings(rig), READING_S, "it is told")
    launches, failures = rig.launches(), rig.status()["attempts"]["failed"]

    rig.members()["api"].kill()

    rig.until(lambda: "version mismatch" in rig.status()["reason"], 30, "the start is held, and says why")
    assert rig.launches() == launches
    cards()
    status = rig.wait("ready", deadline_s=90)
    assert rig.launches() == launches + 1
    assert status["attempts"]["failed"] <= failures + 1  # The crash itself.


def test_memory_that_others_hold_is_told_while_stopped(rig, cards):
    rig.ready()
    rig.act("stop")
    rig.wait("stopped")

    cards("used 0 9000", f"process 0 {os.getpid()} 8900")

    finding = rig.until(lambda: findings(rig).get("gpu_mem_busy"), 60, "the holder is told")
    assert f"(pid {os.getpid()})" in finding["sentence"]


# --- the kernel ---


def kernel_says(text: str) -> None:
    """Write to the kernel's log, each line through a handle of its own: the kernel's limit is on those.

    A line without its newline could be continued, and stays unseen until the next one.
    """
    handle = os.open("/dev/kmsg", os.O_WRONLY)
    try:
        os.write(handle, f"{text}\n".encode(errors="surrogateescape"))
    finally:
        os.close(handle)


@pytest.fixture
def kernel() -> Callable[[str], None]:
    """Give a function that writes to the kernel's log."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error.strerror}; `sudo` runs the tests that write to the kernel's log")
    return kernel_says


def xid(number: int, text: str) -> str:
    return f"NVRM: Xid (PCI:0000:0a:00): {number}, pid=77, name=VLLM::EngineCor, {text}"


@pytest.mark.lab
def test_kernel_lines_are_told_once_over_the_life_of_two_daemons(rig, cards, kernel):
    rig.ready()
    began_s = time.time()
    kernel(xid(31, "MMU Fault: ENGINE GRAPHICS"))
    finding = rig.until(lambda: findings(rig).get("gpu_app_fault"), 5, "the fault is told")
    assert (finding["gpu"], finding["action"]) == (0, "restart_app")
    engine = rig.status()["engine"]["id"]

    rig.kill_daemon(signal.SIGKILL)
    kernel(xid(109, "CTX SWITCH TIMEOUT"))
    rig.start_daemon()

    rig.until(lambda: findings(rig).get("gpu_reset_required"), 5, "what was said meanwhile is told")
    rig.wait("ready")
    assert rig.status()["engine"]["id"] == engine
    assert len(told(rig, "host-finding", "gpu_app_fault", began_s)) == 1
    assert len(told(rig, "host-finding", "gpu_reset_required", began_s)) == 1


@pytest.mark.lab
def test_garbage_and_floods_in_the_kernel_log_leave_the_daemon_alone(rig, cards, kernel):
    rig.ready()
    began_s = time.time()
    for text in ("NVRM: Xid (PCI:", "NVRM: Xid (PCI:0000:0a:00): , ", "oom-kill:\udcff\x01", "AMD-Vi: \x1b["):
        kernel(text)
    for number in range(3000):
        with contextlib.suppress(BlockingIOError):
            kernel(xid(13, f"Graphics Exception {number}"))

    kernel("NVRM: GPU 0000:14:00.0: GPU has fallen off the bus.")

    rig.until(lambda: LOST in findings(rig), 15, "the line after the flood is told")
    asked_s = time.monotonic()
    status = rig.status()
    assert time.monotonic() - asked_s < 1
    assert status["state"] == "ready"
    faults = [
        e for e in told(rig, "host-finding", "gpu_app_fault", began_s) if e["data"]["subject"] == "xid 13"
    ]
    assert len(faults) == 1
    rig.until(lambda: LOST not in findings(rig), 60, "the card that answers is not lost")


def oom_line(pid: int, name: str) -> str:
    sizes = "total-vm:24000000kB, anon-rss:20000000kB, file-rss:0kB, shmem-rss:0kB"
    return f"Out of memory: Killed process {pid} ({name}) {sizes}, UID:998 pgtables:400kB oom_score_adj:0"


@pytest.mark.lab
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        pytest.param(
            lambda _pid: xid(48, "DBE (Double Bit Error) ECC Error"), "gpu_reset_required", id="xid-48"
        ),
        pytest.param(lambda _pid: xid(79, "GPU has fallen off the bus."), "gpu_lost", id="xid-79"),
        pytest.param(
            lambda _pid: xid(119, "Timeout after 6s of waiting for RPC"), "gpu_reset_required", id="xid-119"
        ),
        pytest.param(lambda pid: oom_line(pid, "VLLM::Worker_TP"), "host_oom_kill", id="oom-kill"),
    ],
)
def test_an_engine_that_dies_of_its_host_is_classed_so(rig, cards, kernel, line, kind):
    rig.ready()
    began_s = time.time()
    worker = rig.members()[WORKER]

    kernel(line(worker.pid))
    worker.kill()

    failure = rig.until(lambda: _failure_since(rig, began_s), 30, "the failure is told")
    assert failure["kind"] == kind
    assert any(line(worker.pid) in text for text in failure["evidence"])
    incident = rig.until(lambda: _incident_since(rig, began_s), 15, "the incident is kept")
    assert incident["class"] == kind
    whole = rig.client.get(f"/v1/incidents/{incident['id']}")
    kept = (Path(whole["folder"]) / "kernel.log").read_text()
    assert line(worker.pid) in kept.partition("--- lines about")[0]  # What the watch heard comes first.
    rig.wait("ready", deadline_s=90)  # The card answers, so a lost one is there again after a few readings.


def _failure_since(rig, began_s: float) -> dict | None:
    status = rig.status()
    failure = status["failure"]
    diagnosed = failure is not None and failure["at_s"] >= began_s and status["state"] != "stopping"
    return failure if diagnosed else None


def _incident_since(rig, began_s: float) -> dict | None:
    kept = rig.client.get("/v1/incidents", {"limit": 1})["incidents"]
    return next((one for one in kept if one["at_s"] >= began_s and one["complete"]), None)
