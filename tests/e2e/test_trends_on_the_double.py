"""What only the numbers show, through a real daemon on the double: told once, answered where an answer helps."""

import contextlib
import signal

import httpx
import pytest

LIMITS = {
    "acceptance_draft_tokens": 300,
    "undrafted_tokens": 200,
    "preemption_stretch_s": 1,
    "preemptions": 3,
    "memory_interval_s": 0.2,
    "memory_stretch_s": 6,
    "memory_least_gib": 0.02,
    "memory_tell_s": 1e7,
    "memory_restart_s": 1,
}


@pytest.fixture
def rig(make_rig):
    """Give a rig with speculation whose trends are judged over a second of work."""
    made = make_rig(("double", "process"))
    made.settings["engine"]["arguments"] |= {
        "max_num_seqs": 8,
        "speculative": {"method": "mtp", "num_speculative_tokens": 3},
    }
    made.settings["supervision"]["trends"] = LIMITS
    yield made
    made.close()
    made.daemon = None


def of_kind(rig, kind):
    return [event for event in rig.events() if event["kind"] == kind]


def work(rig, condition, deadline_s, what):
    """Have the engine work until `condition` holds."""
    turn = 0

    def one_more():
        nonlocal turn
        turn += 1
        if rig.status()["state"] in {"ready", "degraded"}:
            with contextlib.suppress(httpx.HTTPError):  # It may come just when the engine is restarted.
                rig.chat([{"role": "user", "content": f"turn {turn}"}], max_tokens=300)
        return condition()

    return rig.until(one_more, deadline_s, what)


def serves_again(rig, launches):
    rig.until(
        lambda: rig.launches() == launches and rig.status()["state"] == "ready",
        40,
        f"launch {launches} serves",
    )


def test_collapsed_acceptance_is_told_restarted_for_once_and_then_speculation_goes(rig):
    rig.start_daemon()
    rig.wait("ready")
    rig.fault(acceptance_collapse=True)

    work(rig, lambda: of_kind(rig, "trend"), 20, "the collapse is told")
    serves_again(rig, 2)
    assert rig.status()["failure"]["kind"] == "spec_accept_collapse"
    assert rig.status()["overlay"] == []

    work(rig, lambda: rig.status()["overlay"], 40, "it comes back, and speculation goes")
    serves_again(rig, 3)

    assert [step["text"] for step in rig.status()["overlay"]] == ["speculative mtp -> off"]
    assert len(of_kind(rig, "trend")) == len(of_kind(rig, "trend-over")) == 2
    assert rig.status()["troubles"] == []


def test_missing_drafter_is_told_and_nothing_is_restarted(rig):
    rig.fault(no_drafts=True)
    rig.start_daemon()
    rig.wait("ready")

    work(rig, lambda: rig.status()["state"] == "degraded", 20, "it is degraded")

    (trouble,) = rig.status()["troubles"]
    assert trouble["class"] == "drafter_missing"
    assert "without one draft" in rig.status()["reason"]
    rig.fault()
    work(rig, lambda: rig.status()["state"] == "ready", 20, "the drafter is back")
    assert (rig.launches(), len(of_kind(rig, "trend")), len(of_kind(rig, "trend-over"))) == (1, 1, 1)


def test_thrash_is_answered_by_fewer_sequences(rig):
    rig.start_daemon()
    rig.wait("ready")
    rig.fault(preempt=30)

    work(rig, lambda: rig.status()["overlay"], 30, "a knob is turned")

    assert rig.status()["overlay"][0]["text"] == "max_num_seqs 8 -> 4"
    assert rig.status()["overlay"][0]["kind"] == "preempt_thrash"


def test_growing_memory_is_told_with_its_speed_while_the_engine_stays_ready(rig):
    rig.fault(leak=20)
    rig.start_daemon()
    rig.wait("ready")

    rig.until(lambda: rig.status()["troubles"], 30, "the growth is told")

    assert "GiB an hour" in rig.status()["troubles"][0]["sentence"]
    assert (rig.status()["state"], rig.launches()) == ("ready", 1)


def test_shrunken_pool_earns_one_restart_and_is_then_served_with_and_said(rig):
    rig.start_daemon()
    rig.wait("ready")
    rig.until(lambda: of_kind(rig, "baseline"), 20, "the baseline is written")
    whole = rig.status()["baseline"]["pool_tokens"]
    rig.fault(pool_share=0.5)
    rig.act("restart")

    rig.until(
        lambda: rig.launches() == 3 and rig.status()["state"] == "degraded", 40, "it serves all the same"
    )

    assert len(of_kind(rig, "pool-restart")) == 1
    for number in (whole, whole // 2):
        assert f"{number:,}" in rig.status()["reason"]
    assert len(of_kind(rig, "failure")) == 0

    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()
    rig.wait("degraded")
    rig.act("restart")
    rig.until(lambda: rig.launches() == 4 and rig.status()["state"] == "degraded", 40, "no second restart")

    rig.fault()
    rig.act("restart")
    serves_again(rig, 5)
    assert len(of_kind(rig, "pool-restart")) == 1
