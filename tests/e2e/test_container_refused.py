"""What only Docker can say: no way to give the container a card, and memory that its own limit ends."""

import sys

import pytest

DOUBLE_IN_DOCKER = ("double", "docker")
ALLOCATE = "held = []\nwhile True: held.append(b'x' * (8 << 20))"

pytestmark = pytest.mark.lab


@pytest.fixture
def rig(make_rig):
    made = make_rig(DOUBLE_IN_DOCKER)
    yield made
    made.close()
    made.daemon = None


def test_cards_without_the_nvidia_runtime_are_told_with_the_remedy_and_not_tried_again(rig):
    rig.settings["engine"]["docker"]["gpus"] = "all"
    rig.start_daemon()

    status = rig.wait("failed", deadline_s=60)

    print(f"\n{rig.launches()} launches: {status['reason']}\nnext: {status['hint']}")
    assert (status["failure"]["kind"], status["gave_up"]) == ("no_nvidia_runtime", "retrying is useless")
    assert "NVIDIA Container Toolkit" in status["reason"]
    assert "nvidia-ctk runtime configure" in status["hint"]
    assert "could not select device driver" in "".join(status["failure"]["evidence"])
    assert rig.launches() <= 1


def test_memory_limit_of_the_container_is_named_as_the_cause_with_what_to_raise(rig):
    docker = rig.settings["engine"]["docker"]
    docker |= {"memory": "200mb", "entrypoint": [sys.executable, "-c", ALLOCATE]}
    rig.settings["supervision"]["attempts"] = 2
    rig.start_daemon()

    status = rig.wait("failed", deadline_s=90)

    print(f"\n{rig.launches()} launches: {status['reason']}\nnext: {status['hint']}")
    assert status["failure"]["kind"] == "host_oom_kill"
    assert "limit of 200mb" in status["reason"]
    assert "docker.memory" in status["hint"]
    assert rig.launches() <= 3
