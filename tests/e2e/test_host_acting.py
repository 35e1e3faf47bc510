"""What a real daemon does about its host, where the rig file lets it: pretended cards, programs that only note it.

The daemon runs as root here, so that it does itself what a service asks root's one-shot for.
"""

import os
import signal
import time
from collections.abc import Callable

import pytest
from nvml_stub.build import build

READING_S = 60
"""Longest time until a change of the cards has its effect: readings, and some patience, in seconds."""
WELL = ("limit 0 290000", "limit 1 290000")
NOTE = '#!/bin/sh\necho "$(basename "$0") $*" >>"{log}"\n{then}\n'
HOST = {
    "gpus": [{"power_limit_w": 290}],
    "temperature": {"act_after_s": 1, "response": "lower-power", "lowered_power_w": 200},
    "allow_gpu_reset": True,
    "act_after_s": 2,
}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root acts on a host by itself: `sudo` runs these tests"
)


@pytest.fixture(scope="module")
def rig(make_rig, tmp_path_factory):
    """Give a rig on a host with two pretended RTX 3090, whose programs write down what they are asked."""
    under_test = make_rig(("double", "process"))
    folder = under_test.folder
    (folder / "cards").write_text("")
    programs = folder / "bin"
    programs.mkdir()
    # A reset card is well again, as far as the driver knows.
    for name, then in (
        ("nvidia-smi", f'printf "%s\\n" {" ".join(map(repr, WELL))} >{folder}/cards'),
        ("systemctl", ""),
    ):
        (programs / name).write_text(NOTE.format(log=folder / "asked", then=then))
        (programs / name).chmod(0o755)
    under_test.environ |= {
        "NVML_STUB": str(folder / "cards"),
        "LD_LIBRARY_PATH": str(build(tmp_path_factory.mktemp("nvml"))),
        "RIGD_HOST_LOOK_S": "1",
        "PATH": f"{programs}:{under_test.environ['PATH']}",
    }
    under_test.settings["host"] = HOST
    return under_test


@pytest.fixture
def cards(rig) -> Callable[..., None]:
    """Give a function that says what is so with the cards; all is well again afterwards."""

    def say(*facts: str) -> None:
        fresh = rig.folder / "cards.new"
        fresh.write_text("".join(f"{fact}\n" for fact in facts))
        fresh.replace(rig.folder / "cards")

    yield say
    say(*WELL)


def facts(rig) -> list[str]:
    return (rig.folder / "cards").read_text().splitlines()


def asked(rig) -> list[str]:
    """Return what the host's programs were asked for."""
    log = rig.folder / "asked"
    return log.read_text().splitlines() if log.exists() else []


def acts(rig, act: str, after_s: float = 0.0) -> list[str]:
    """Return how far each act of a kind came, in order."""
    return [
        event["data"]["state"]
        for event in rig.events()
        if event["kind"] == "host-act" and event["data"]["act"] == act and event["at_s"] >= after_s
    ]


def use(rig, **host) -> None:
    """Let the rig file say something else of the host, and a new daemon read it."""
    rig.settings["host"] = {**HOST, **host}
    rig.write()
    if rig.daemon is not None:
        rig.kill_daemon(signal.SIGTERM)
    rig.start_daemon()


def test_settings_that_the_cards_do_not_have_are_set_and_read_back(rig, cards):
    rig.ready()

    rig.until(lambda: {"limit 0 290000", "limit 1 290000"} <= set(facts(rig)), READING_S, "limits are set")

    rig.until(lambda: not rig.status()["host"], READING_S, "the readings agree")
    assert acts(rig, "apply-settings") == ["intended", "done"] * 2


def test_a_hot_card_s_limit_goes_down_and_comes_back_when_it_is_cool(rig, cards):
    engine = rig.ready()["engine"]["id"]
    cards(*WELL, "warm 1 95")
    rig.until(lambda: "limit 1 200000" in facts(rig), READING_S, "the limit goes down")
    classes = {finding["class"] for finding in rig.status()["host"]}
    assert classes >= {"thermal", "overheated"}

    cards("limit 0 290000", "limit 1 200000", "warm 1 60")

    rig.until(lambda: facts(rig)[-1] == "limit 1 290000", READING_S, "the limit comes back")
    rig.until(lambda: not rig.status()["host"], READING_S, "nothing is wrong any more")
    assert rig.status()["engine"]["id"] == engine
    assert "limit 0 200000" not in facts(rig)


def test_a_card_is_reset_when_its_engine_has_died_and_the_engine_comes_back(rig, cards):
    rig.ready()
    began_s = time.time()
    launches = rig.launches()
    cards(*WELL, "recovery 1 1")
    rig.until(lambda: rig.status()["host"], READING_S, "the need is told")
    assert asked(rig) == []  # A running engine is left alone.

    rig.members()["api"].kill()

    rig.until(lambda: asked(rig), READING_S, "the card is reset")
    rig.wait("ready", deadline_s=90)
    assert asked(rig) == ["nvidia-smi --gpu-reset -i 0000:14:00.0"]
    assert acts(rig, "reset-gpu", began_s) == ["intended", "done"]
    assert rig.launches() == launches + 1
    status = rig.status()
    assert status["failure"]["kind"] == "gpu_reset_required"
    assert "the driver says that it needs: gpu reset" in status["failure"]["sentence"]


def _held_by(rig) -> str:
    live = rig.status()["live"]
    return "" if live is None else live["detail"]


def test_an_overheated_card_stops_the_engine_until_it_is_cool(rig, cards):
    use(rig, temperature={"act_after_s": 1, "response": "stop"})
    before = rig.ready()["engine"]["id"]

    cards(*WELL, "warm 0 95")

    rig.until(lambda: rig.status()["engine"] is None, READING_S, "the engine is stopped")
    rig.until(lambda: "below 80 degrees" in _held_by(rig), READING_S, "the start is held, and says by what")

    cards(*WELL)

    status = rig.wait("ready", deadline_s=90)
    assert status["engine"]["id"] != before
    assert status["attempts"]["failed"] == 0 or status["failure"]["kind"] != "overheated"


def test_a_lost_card_is_worth_one_reboot_and_no_more_whatever_happens_to_the_daemon(rig, cards):
    use(rig, allow_reboot=True, most_per_day=2)  # The reset of before counts.
    rig.ready()
    began_s, before = time.time(), len(asked(rig))
    cards(*WELL, "lost 1")
    rig.until(lambda: rig.status()["host"], READING_S, "the loss is told")

    rig.members()["api"].kill()

    rig.until(lambda: len(asked(rig)) > before, READING_S, "the host is rebooted")
    assert asked(rig)[before:] == ["systemctl --no-block reboot"]
    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()
    rig.until(lambda: rig.status()["host"], READING_S, "the new daemon sees the card")
    assert rig.daemon.poll() is None
    assert acts(rig, "reboot", began_s) == ["intended"]
    assert len(asked(rig)) == before + 1

    cards(*WELL)
    rig.wait("ready", deadline_s=90)  # It was told to go down, and did not: the card came back by itself.


def test_a_driver_that_hangs_takes_neither_the_daemon_nor_the_engine_down(rig, cards):
    use(rig)
    engine = rig.ready()["engine"]["id"]

    cards(*WELL, "hang")

    rig.until(
        lambda: any(one["class"] == "gpu_unreadable" for one in rig.status()["host"]), 60, "the hang is told"
    )
    asked_s = time.monotonic()
    assert rig.chat([{"role": "user", "content": "still there?"}])["usage"]["completion_tokens"] > 0
    assert time.monotonic() - asked_s < 5
    status = rig.status()
    assert (status["state"], status["engine"]["id"]) == ("ready", engine)
    assert rig.daemon.poll() is None
