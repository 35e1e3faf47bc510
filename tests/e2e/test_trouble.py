"""Trouble around the engine: Docker away, containers removed by hand, the disk full under the store."""

import contextlib
import gc
import os
import signal
import subprocess
import time
from pathlib import Path

import install
import pytest

pytestmark = [
    pytest.mark.lab,
    # The SDK leaves a socket to the collector when Docker vanishes in the middle of a connect.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected():
    """Collect what Docker's end left behind here, where its warning is expected, and not in a later test."""
    yield
    gc.collect()


DOCKER = [
    pytest.param(("double", "docker"), id="double-docker"),
    pytest.param(("vllm", "docker"), id="vllm-docker"),
]


@pytest.fixture(scope="module", params=DOCKER)
def rig(request, make_rig):
    made = make_rig(request.param)
    yield made
    made.close()  # The next rig has the machine's two cores to itself.


def test_container_removed_by_hand_is_recovered(rig, docker_client):
    rig.ready()
    before = rig.all_pids()
    removed_s = time.time()

    docker_client.containers.get(rig.settings["engine"]["docker"]["container"]).remove(force=True)

    rig.until(lambda: rig.status()["state"] != "ready", 10, "it is noticed")
    noticed_s = rig.event("failure", removed_s)["at_s"] - removed_s
    status = rig.wait("ready")
    print(f"\nremoved by hand: noticed {noticed_s:.2f} s after the command was given")
    assert status["warm"][0]["proved"]
    assert status["engine"]["pid"] not in {process.pid for process in before}


def test_docker_daemon_restarted_is_recovered(rig):
    rig.ready()
    pid = int(Path("/var/run/docker.pid").read_text())

    os.kill(pid, signal.SIGTERM)
    rig.until(lambda: not install.docker_answers(), 60, "Docker is down")
    rig.until(lambda: rig.status()["state"] != "ready", 60, "the engine's end is noticed")
    install.install_docker(install.default_folder())

    status = rig.wait("ready")
    assert status["warm"][0]["proved"]


def test_stopped_docker_daemon_is_waited_for_and_opens_no_breaker(rig):
    rig.ready()
    failures = rig.status()["attempts"]["failed"]
    os.kill(int(Path("/var/run/docker.pid").read_text()), signal.SIGTERM)

    with contextlib.ExitStack() as back:
        back.callback(install.install_docker, install.default_folder())
        rig.until(lambda: "Docker" in rig.status()["reason"], 60, "the reason names Docker")
        assert rig.status()["state"] in {"stopping", "backoff"}

    assert rig.wait("ready")["attempts"]["failed"] <= failures + 1


@pytest.fixture
def small_disk(make_rig):
    """Give a rig whose state lies on a disk of four megabytes."""
    if os.geteuid() != 0:
        pytest.skip("not root here: `sudo` runs the test that mounts a small disk")
    rig = make_rig(("double", "process"))
    state = rig.folder / "state"
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "small", state], check=True)
    rig.settings["gates"]["disk_free_gib"] = 0
    yield rig
    rig.close()
    rig.daemon = None
    subprocess.run(["umount", "--lazy", state], check=True)


def test_full_disk_under_the_store_is_said_and_the_engine_goes_on(small_disk):
    rig = small_disk
    engine = rig.ready()["engine"]
    ballast = rig.folder / "state/ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 512):
            pass

    rig.act("warm")
    rig.until(lambda: rig.status()["store"]["problem"], 30, "the full disk is said")
    status = rig.status()
    assert "disk is full" in status["store"]["problem"]
    assert (status["state"], status["engine"]["id"]) == ("ready", engine["id"])
    assert rig.chat([{"role": "user", "content": "still there?"}])["usage"]["completion_tokens"] > 0

    ballast.unlink()
    rig.until(lambda: rig.status()["store"]["problem"] is None, 30, "the store is written again")
    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()
    assert rig.wait("ready")["engine"]["id"] == engine["id"]
