"""Everything that the double can do wrong, through a real daemon: recovered, or given up with a reason."""

import json
import signal
import sqlite3
import subprocess
import sys

import pytest
from driver import gone


@pytest.fixture(scope="module")
def rig(make_rig):
    return make_rig(("double", "process"))


@pytest.fixture
def fresh(make_rig):
    """Give a rig of its own to a test that ends in failure."""
    made = make_rig(("double", "process"))
    made.settings["supervision"]["attempts"] = 3
    yield made
    made.close()
    made.daemon = None


def restarted(rig, **faults):
    """Bring the rig to ready, then restart it into faults."""
    rig.ready()
    rig.fault(**faults)
    before = rig.launches()
    rig.act("restart")
    return before


@pytest.mark.parametrize(
    ("fault", "launches", "said"),
    [
        # Its log names a class with a road: one restart, two knobs.
        ("die_at_request", 4, "Every change that may help was tried"),
        ("garbage", 3, "gave up after 3 failures"),
        ("empty", 3, "gave up after 3 failures"),
        ("http_500", 3, "gave up after 3 failures"),
    ],
)
def test_healthy_engine_that_never_serves_is_given_up(fresh, fault, launches, said):
    fresh.fault(**{fault: True})
    fresh.start_daemon()

    status = fresh.wait("failed", deadline_s=60)

    kinds = [event["kind"] for event in fresh.events()]
    assert "ready" not in kinds
    assert kinds.count("launched") == launches
    assert said in status["reason"]


def test_garbage_after_ready_is_a_failure_although_health_stays_200(rig):
    launches = rig.launches() if rig.daemon else 0
    rig.ready()
    launches = rig.launches()
    rig.fault(garbage=True)

    rig.until(
        lambda: rig.status()["state"] == "stopping" or rig.launches() > launches, 20, "garbage is noticed"
    )
    assert rig.status()["failure"]["kind"] == "garbage_output"
    assert rig.ready()["warm"][0]["proved"]


def test_one_out_of_memory_at_start_is_recovered(rig):
    rig.ready()
    rig.fault(fail_at_start="oom_cudagraph")
    rig.act("restart")
    rig.wait("backoff", "starting")
    rig.until(lambda: any(event["kind"] in {"backoff", "gave-up"} for event in rig.events()), 20, "it failed")

    rig.fault()
    if rig.until(lambda: rig.status()["state"] in {"failed", "backoff", "starting", "ready"}, 10, "settles"):
        assert rig.ready()["state"] == "ready"


def test_exit_code_zero_is_a_crash(rig):
    launches = restarted(rig, exit_after=0.5, exit_code=0)

    rig.until(lambda: rig.launches() >= launches + 2, 30, "it is launched again")
    assert rig.ready()["state"] == "ready"


def test_engine_that_refuses_term_is_killed_within_its_grace(rig):
    restarted(rig, refuse_term=True)
    rig.wait("ready")
    before = rig.all_pids()

    rig.act("stop")
    rig.wait("stopped", deadline_s=20)

    assert gone(before)


def test_orphans_of_a_killed_server_are_ended_before_the_next_start(rig):
    restarted(rig, orphans=True)
    rig.wait("ready")
    members = rig.members()
    everyone = rig.all_pids()

    members["api"].kill()

    rig.until(lambda: gone(everyone), 20, "the orphans are gone")
    assert rig.ready()["state"] == "ready"


def test_hanging_load_is_given_up_at_its_deadline(fresh):
    fresh.settings["supervision"]["deadlines"]["load_s"] = 2
    fresh.settings["supervision"]["attempts"] = 2
    fresh.fault(hang_at_start=True)
    fresh.start_daemon()

    status = fresh.wait("failed", deadline_s=40)

    assert "did not answer /health within 2 s" in status["reason"]


def test_slow_start_within_the_deadline_is_no_failure(rig):
    launches = restarted(rig, slow_start=3)

    rig.wait("ready")
    assert rig.launches() == launches + 1


def test_slow_health_is_no_failure_while_the_engine_answers(rig):
    rig.ready()
    launches = rig.launches()
    rig.fault(slow_health=1.5)  # Longer than the probe's timeout.
    canaries = rig.status()["health"]["canary"]["at_s"]

    rig.until(lambda: rig.status()["health"]["canary"]["at_s"] > canaries + 5, 20, "canaries go on")

    assert (rig.status()["state"], rig.launches()) == ("ready", launches)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"extra": {"no-such-flag": 1}}, "--no-such-flag"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
    ],
    ids=["refused-by-the-engines-parser", "refused-by-the-schema"],
)
def test_bad_configuration_never_costs_a_working_engine(rig, change, named):
    engine = rig.ready()["engine"]
    wrong = json.loads(rig.path.read_text())
    wrong["engine"]["arguments"] |= change
    if "extra" in change:
        wrong["engine"]["arguments"]["extra"] |= rig.settings["engine"]["arguments"]["extra"]
    rig.write(wrong)
    try:
        with pytest.raises(Exception, match=named):
            rig.act("restart", reload=True)
    finally:
        rig.write()

    status = rig.status()
    assert (status["state"], status["engine"]["id"]) == ("ready", engine["id"])


def test_good_configuration_is_restarted_into(rig):
    rig.ready()
    changed = json.loads(rig.path.read_text())
    changed["engine"]["arguments"]["max_num_seqs"] = 5
    rig.write(changed)

    rig.act("restart", reload=True)

    rig.wait("starting")
    status = rig.wait("ready")
    assert status["configuration"]["changed"] is False
    command = (rig.folder / "state/starts").glob("*/spec.json")
    assert any('"5"' in path.read_text() for path in command)
    rig.write()


def test_changed_prefix_file_is_warmed_again(make_rig):
    rig = make_rig(("double", "process"))
    prefix = rig.folder / "agents.md"
    prefix.write_text("One rule. " * 500)
    rig.settings["prefixes"] = [{"name": "file", "files": [str(prefix)]}]
    tokens = rig.ready()["warm"][0]["prefix_tokens"]

    rig.until(lambda: rig.status()["daemon"], 5, "the daemon answers")
    prefix.write_text("One rule. " * 900)

    rig.until(lambda: rig.status()["warm"][0]["prefix_tokens"] > tokens, 30, "the file is warmed again")
    assert rig.wait("ready")["warm"][0]["proved"]


def test_maintenance_leaves_a_dead_engine_dead_until_it_ends(rig):
    rig.ready()
    rig.act("maintenance", on=True)
    launches = rig.launches()
    for process in rig.all_pids():
        process.kill()

    rig.until(lambda: rig.status()["state"] == "maintenance", 5, "still in maintenance")
    with pytest.raises(Exception, match="maintenance is on"):
        rig.act("start")
    assert rig.launches() == launches

    rig.act("maintenance", on=False)
    assert rig.wait("ready")["state"] == "ready"


def test_corrupted_store_is_kept_aside_and_the_engine_goes_on(rig):
    engine = rig.ready()["engine"]
    rig.kill_daemon(signal.SIGKILL)
    store = rig.folder / "state/rigd.db"
    store.write_bytes(b"not a database" * 1000)

    rig.start_daemon()

    status = rig.wait("ready")
    assert status["engine"]["id"] == engine["id"]
    aside = [
        path for path in store.parent.glob("rigd.db.corrupt-*") if not path.name.endswith(("-wal", "-shm"))
    ]
    assert b"not a database" in aside[0].read_bytes()
    assert any(event["kind"] == "store-recovered" for event in rig.events())


def test_store_overwritten_while_in_use_is_replaced_and_the_engine_goes_on(rig):
    engine = rig.ready()["engine"]
    store = rig.folder / "state/rigd.db"
    store.unlink()
    store.write_bytes(b"\x00garbage" * 4096)

    rig.act("warm")
    rig.until(lambda: _events_on_disk(store) > 0, 30, "a new store is written")

    status = rig.status()
    assert (status["state"], status["engine"]["id"]) == ("ready", engine["id"])


def _events_on_disk(store):
    try:
        return (
            sum(path.stat().st_size for path in store.parent.glob("rigd.db*") if "corrupt" not in path.name)
            > 9000
        )
    except (OSError, sqlite3.Error):
        return 0


def test_second_daemon_on_the_same_socket_is_refused_with_a_sentence(rig):
    engine = rig.ready()["engine"]
    second = subprocess.run(
        [sys.executable, "-m", "rigd.cli.main", "daemon", str(rig.path)],
        env=rig.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert second.returncode == 1
    assert "another rigd daemon is running" in second.stderr
    assert "Traceback" not in second.stderr
    assert rig.status()["engine"]["id"] == engine["id"]
