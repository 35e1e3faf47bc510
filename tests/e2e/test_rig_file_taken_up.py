"""A change of the rig file beside the engine is taken up by a daemon that runs, and the engine never notices."""

import signal

import pytest


@pytest.fixture(scope="module")
def rig(make_rig):
    return make_rig(("double", "process"))


def test_a_restart_takes_up_host_alerts_and_supervision_without_touching_the_engine(rig):
    before = rig.ready()
    receiver = "json://127.0.0.1:9/nobody"

    rig.settings["alerts"] = {"urls": [receiver], "group_s": 1}
    rig.settings["host"] = {"most_per_day": 5}
    rig.settings["supervision"]["canary"] = {"every_s": 0.5}
    rig.write()
    said = rig.act("restart", reload=True)

    assert "`supervision`, `host`, `alerts`" in said["message"]
    status = rig.status()
    assert status["engine"]["id"] == before["engine"]["id"]
    assert (status["state"], rig.launches()) == ("ready", 1)
    assert len(rig.client.get("/v1/alerts")["receivers"]) == 1
    first = status["health"]["canary"]
    rig.until(lambda: rig.status()["health"]["canary"] != first, 5, "canaries go by the new rule")
    assert rig.wait("ready")["engine"]["id"] == before["engine"]["id"]


def test_a_hangup_does_the_same(rig):
    before = rig.ready()
    rig.settings["alerts"] = {}
    rig.write()

    rig.daemon.send_signal(signal.SIGHUP)

    rig.until(lambda: not rig.client.get("/v1/alerts")["receivers"], 10, "the file is read again")
    assert rig.status()["engine"]["id"] == before["engine"]["id"]


def test_a_change_of_the_engine_restarts_it(rig):
    before = rig.ready()
    rig.settings["engine"]["arguments"]["max_num_seqs"] = 3
    rig.write()

    rig.act("restart", reload=True)

    rig.until(
        lambda: (rig.status()["engine"] or before["engine"])["id"] != before["engine"]["id"], 60, "anew"
    )
    rig.wait("ready")


def test_a_file_that_is_not_valid_changes_nothing(rig):
    before = rig.ready()
    rig.write({**rig.settings, "host": {"drfit": {}}})
    try:
        with pytest.raises(Exception, match="not valid, nothing was changed"):
            rig.act("restart", reload=True)
    finally:
        rig.write()
    assert rig.status()["engine"]["id"] == before["engine"]["id"]
