"""Self-repair through a real daemon on the double: one knob a boot, remembered, climbed back, and an end to it."""

import signal

import pytest
from nvml_stub.build import build

from rigd.client import RefusedError


@pytest.fixture
def rig(make_rig):
    """Give a rig that starts with ten sequences and tries again without its changes after a moment."""
    made = make_rig(("double", "process"))
    made.settings["engine"]["arguments"] |= {"max_num_seqs": 10, "max_num_batched_tokens": 2048}
    made.settings["supervision"] |= {"attempts": 3, "early_crash_s": 5}
    made.settings["supervision"]["ladder"] = {"restarts": 1, "climb_after_s": 3600}
    yield made
    made.close()
    made.daemon = None


def overlay(rig):
    return [step["text"] for step in rig.status()["overlay"]]


def test_out_of_memory_ends_ready_with_the_nearest_setting_that_works(rig):
    rig.fault(oom_unless_max_num_seqs=4)
    rig.start_daemon()

    status = rig.wait("ready")

    assert overlay(rig) == ["max_num_seqs 10 -> 5", "max_num_seqs 5 -> 2"]
    assert rig.launches() == 3
    assert status["configuration"]["changed"] is False
    assert {step["kind"] for step in status["overlay"]} == {"oom_sampler_warmup"}


def test_lifted_fault_is_climbed_back_from_step_by_step(rig):
    rig.settings["supervision"]["healthy_stretch_s"] = 0.5
    rig.settings["supervision"]["ladder"]["climb_after_s"] = 1
    rig.fault(oom_unless_max_num_seqs=4)
    rig.start_daemon()
    rig.until(lambda: len(overlay(rig)) == 2 and rig.status()["state"] == "ready", 60, "it serves with two")

    rig.fault()

    rig.until(
        lambda: overlay(rig) == [] and rig.status()["state"] == "ready", 60, "it climbed back to the wish"
    )


def test_trial_that_fails_brings_the_change_back(rig):
    rig.settings["supervision"]["ladder"]["climb_after_s"] = 1
    rig.fault(oom_unless_max_num_seqs=5)
    rig.start_daemon()
    rig.until(lambda: len(overlay(rig)) == 1 and rig.status()["state"] == "ready", 60, "it serves with five")

    rig.until(lambda: any("failed again" in event["message"] for event in rig.events()), 60, "a trial failed")

    rig.until(
        lambda: overlay(rig) == ["max_num_seqs 10 -> 5"] and rig.status()["state"] == "ready",
        30,
        "it is back",
    )


def test_error_that_states_the_number_costs_one_boot(rig):
    rig.settings["engine"]["arguments"]["max_model_len"] = 131072
    rig.fault(kv_max_len=32768)
    rig.start_daemon()

    rig.wait("ready")

    assert rig.launches() == 2
    assert overlay(rig)[0].startswith("max_model_len 131072 -> 32")


def test_pool_too_small_asks_the_cards_before_it_takes_more_of_them(rig, tmp_path):
    """A desktop holds 1.5 GiB of the second card: a larger share would fail at the next start."""
    facts = tmp_path / "cards"
    facts.write_text("used 1 1500\n")
    rig.environ |= {"NVML_STUB": str(facts), "LD_LIBRARY_PATH": str(build(tmp_path))}
    rig.settings["gates"] = {"gpu_memory_used_mib": 2000, "gpu_settle_s": 0}
    rig.fault(fail_at_start="kv-none")
    rig.start_daemon()
    rig.until(lambda: overlay(rig), 30, "a knob is turned")
    rig.fault()

    status = rig.wait("ready")

    assert overlay(rig) == ["max_num_batched_tokens 2048 -> 1024"]
    assert "no more than 0.91 is free" in status["overlay"][0]["sentence"]


def test_engine_that_dies_again_and_again_after_ready_is_given_up_within_its_budget(rig):
    rig.fault(die_after=0.3)
    rig.start_daemon()

    status = rig.wait("failed", deadline_s=120)

    assert rig.launches() <= 14
    assert status["gave_up"] != "retrying is useless"
    assert len(overlay(rig)) <= rig.launches()


def test_daemon_killed_between_the_change_and_the_start_goes_on_from_the_stored_change(rig):
    rig.settings["supervision"]["backoff"] = {"initial_s": 3, "max_s": 3}
    rig.fault(oom_unless_max_num_seqs=5)
    rig.start_daemon()
    rig.until(lambda: overlay(rig), 30, "a knob is turned")
    launches = rig.launches()

    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()

    rig.wait("ready")
    assert overlay(rig) == ["max_num_seqs 10 -> 5"]
    assert rig.launches() == launches + 1


def test_operators_knob_holds_over_restarts_until_it_is_cleared(rig):
    rig.start_daemon()
    rig.wait("ready")
    rig.client.post("/v1/overlay", {"knob": "max_num_seqs", "value": "4"}, timeout_s=60)
    rig.until(lambda: overlay(rig) == ["max_num_seqs 10 -> 4"], 10, "it is changed")
    rig.wait("ready")

    rig.act("restart")
    rig.wait("ready")
    rig.kill_daemon(signal.SIGTERM)
    rig.start_daemon()
    rig.wait("ready")
    assert overlay(rig) == ["max_num_seqs 10 -> 4"]

    rig.client.post("/v1/overlay/clear", {}, timeout_s=60)
    rig.until(lambda: overlay(rig) == [], 10, "it is cleared")
    rig.wait("ready")


@pytest.mark.parametrize(("knob", "value"), [("max_num_seqs", "0"), ("no_such_knob", "1")])
def test_knob_that_would_be_refused_never_touches_the_engine(rig, knob, value):
    rig.start_daemon()
    engine = rig.wait("ready")["engine"]["id"]

    with pytest.raises(RefusedError, match=knob):
        rig.client.post("/v1/overlay", {"knob": knob, "value": value}, timeout_s=60)

    assert rig.status()["engine"]["id"] == engine


def test_changed_rig_file_that_cannot_start_makes_way_for_what_last_worked(rig):
    rig.settings["engine"]["arguments"]["max_num_seqs"] = 4
    rig.settings["supervision"]["healthy_stretch_s"] = 0.5
    rig.settings["supervision"]["ladder"]["enabled"] = False
    rig.fault(oom_unless_max_num_seqs=4)
    rig.start_daemon()
    rig.wait("ready")
    rig.until(lambda: any(event["kind"] == "known-good" for event in rig.events()), 20, "it is known good")

    rig.settings["engine"]["arguments"]["max_num_seqs"] = 10
    rig.write()
    rig.act("restart", reload=True)

    rig.until(lambda: any(event["kind"] == "fallback" for event in rig.events()), 30, "it falls back")
    status = rig.wait("ready")
    assert status["configuration"]["fallback"]
    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()
    assert rig.wait("ready")["engine"]["id"] == status["engine"]["id"]
