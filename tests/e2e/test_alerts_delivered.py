"""A real daemon tells a person: once, without its loop ever waiting for whoever is told."""

import os
import signal
import time

import pytest
from driver import CORE
from receiver import OK, REFUSE, Receiver

SECRETS = ("password-in-url", "token-in-path")


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def rig(make_rig, receiver):
    """Give a rig whose alerts go to the receiver, at once."""
    rig = make_rig(("double", "process"))
    rig.settings["alerts"] = {"urls": [receiver.url], "group_s": 0.1, "down_s": 60}
    rig.ready()
    yield rig
    rig.close()
    rig.daemon = None


def kill_core(rig):
    os.kill(rig.members()[CORE].pid, signal.SIGKILL)


def kinds(rig):
    return [event["kind"] for event in rig.events()]


def test_crash_that_passes_is_told_once_although_the_receiver_refuses_first(rig, receiver):
    receiver.answer = REFUSE
    kill_core(rig)
    rig.until(lambda: "alert-failed" in kinds(rig), 20, "the refusal is journalled")
    assert rig.wait("ready")
    receiver.down()
    asked = rig.client.get("/v1/alerts")["receivers"][0]["refusals"]
    rig.until(lambda: rig.client.get("/v1/alerts")["receivers"][0]["refusals"] > asked, 20, "another refusal")
    receiver.answer = OK
    receiver.up()

    rig.until(lambda: receiver.got, 30, "the message arrives")
    rig.until(lambda: "alert-sent" in kinds(rig), 10, "the delivery is journalled")
    assert rig.client.get("/v1/alerts")["receivers"][0]["waiting"] == 0
    assert len(receiver.got) == 1
    (message,) = receiver.got
    assert "failed, and is back" in message["title"]
    assert rig.settings["name"] in message["title"]
    assert "back after" in message["message"]


def test_receiver_that_never_answers_delays_nothing(rig, receiver):
    receiver.hold.clear()
    assert rig.client.get("/v1/alerts")["problems"] == []
    kill_core(rig)
    rig.until(lambda: receiver.asked, 20, "a delivery hangs")

    began_s = time.monotonic()
    kill_core(rig)
    rig.wait("stopping", "backoff", "starting", deadline_s=5)
    rig.wait("ready")
    assert time.monotonic() - began_s < 20
    for _ in range(20):
        asked_s = time.monotonic()
        assert rig.client.get("/v1/health")["healthy"]
        assert time.monotonic() - asked_s < 1
    receiver.hold.set()


def test_daemon_killed_in_the_middle_of_a_delivery_sends_nothing_twice(rig, receiver):
    receiver.hold.clear()
    kill_core(rig)
    rig.until(lambda: receiver.asked, 20, "a delivery is under way")
    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()
    receiver.hold.set()

    rig.until(lambda: "alert-sent" in kinds(rig), 20, "the next daemon knows that it was delivered")
    assert rig.client.get("/v1/alerts")["receivers"][0]["waiting"] == 0
    assert (receiver.asked, len(receiver.got)) == (1, 1)


def test_daemon_killed_before_it_could_tell_tells_it_after(rig, receiver):
    receiver.down()
    kill_core(rig)
    rig.wait("ready")
    rig.until(lambda: rig.client.get("/v1/alerts")["receivers"][0]["waiting"], 10, "a message waits")
    rig.kill_daemon(signal.SIGKILL)
    receiver.up()
    rig.start_daemon()

    rig.until(lambda: receiver.got, 20, "the message arrives")
    rig.until(lambda: "alert-sent" in kinds(rig), 10, "the delivery is journalled")
    assert len(receiver.got) == 1


def test_no_secret_of_a_url_is_shown_anywhere(rig, receiver):
    receiver.answer = REFUSE
    results = rig.client.post("/v1/alerts/test", timeout_s=60)["results"]
    assert [(result["ok"], "500" in result["detail"]) for result in results] == [(False, True)]
    receiver.answer = OK
    assert rig.client.post("/v1/alerts/test", timeout_s=60)["results"][0]["ok"]
    kill_core(rig)
    rig.until(lambda: len(receiver.got) == 2, 30, "a message arrives")

    shown = [
        str(rig.status()),
        str(rig.events()),
        str(rig.client.get("/v1/alerts")),
        str(results),
        (rig.folder / "daemon.log").read_text(),
        (rig.folder / "state/alerts.json").read_text(),
    ]
    assert [text for text in shown if any(secret in text for secret in SECRETS)] == []
    assert {oct(path.stat().st_mode & 0o777) for path in (rig.folder / "state").glob("alerts.*")} == {"0o600"}
