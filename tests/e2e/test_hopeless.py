"""Engines that cannot serve, real ones: a sentence that names the cause and what to do, and no restart storm."""

import shutil
import socket

import pytest
from rigs import REAL


@pytest.fixture(scope="module", params=REAL)
def kind(request):
    return request.param


@pytest.fixture
def rig(make_rig, kind):
    made = make_rig(kind)
    made.settings["supervision"]["attempts"] = 2
    yield made
    made.close()
    made.daemon = None


def mounted(rig, folder):
    """Let the engine see a folder, in a container too."""
    if rig.docker:
        mount = {"source": str(folder), "target": str(folder), "read_only": True}
        rig.settings["engine"]["docker"]["mounts"].append(mount)


def give_up(rig):
    rig.start_daemon()
    status = rig.wait("failed", deadline_s=600)
    assert "ready" not in {event["kind"] for event in rig.events()}
    print(f"\n{rig.launches()} launches: {status['reason']}\nnext: {status['hint']}")
    assert status["hint"]
    return status


def test_bad_flag_is_named_and_tried_once(rig):
    rig.settings["engine"]["arguments"]["extra"] = {"no-such-flag": 3}

    status = give_up(rig)

    assert "--no-such-flag" in status["reason"]
    assert (status["failure"]["kind"], rig.launches()) == ("bad_cli", 1)


def test_missing_model_folder_is_named_and_tried_once(rig):
    rig.settings["engine"]["model"] = "/no/such/model"
    rig.settings.setdefault("supervision", {}).setdefault("ladder", {})["wait_path_s"] = 3

    status = give_up(rig)

    assert "/no/such/model" in status["reason"]
    assert rig.launches() == 1


def test_port_of_a_stranger_is_named_with_its_owner_and_never_fought_over(rig):
    rig.settings["supervision"]["deadlines"]["gates_s"] = 2
    rig.settings["supervision"]["ladder"] = {"wait_s": 3}
    with socket.create_server(("127.0.0.1", rig.settings["engine"]["port"])):
        status = give_up(rig)

    assert str(rig.settings["engine"]["port"]) in status["reason"]
    assert "python" in status["reason"] or "pytest" in status["reason"]
    assert (status["failure"]["kind"], rig.launches()) == ("port_in_use", 0)


def test_truncated_weights_are_named(rig, lab_models, tmp_path):
    model = tmp_path / "truncated"
    shutil.copytree(lab_models / "tinymimo", model)
    weights = model / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size // 2)
    rig.settings["engine"]["model"] = str(model)
    mounted(rig, tmp_path)

    status = give_up(rig)

    assert status["failure"]["kind"] == "weights_corrupt"
    assert rig.launches() <= rig.settings["supervision"]["attempts"]


def test_context_longer_than_the_kv_pool_serves_with_the_number_that_fits(rig):
    rig.settings["engine"]["arguments"] |= {"max_model_len": 32768, "extra": {"num-gpu-blocks-override": 128}}
    rig.start_daemon()

    status = rig.wait("ready", deadline_s=300)

    turned = next(event for event in rig.events() if event["kind"] == "overlay")
    print(f"\n{rig.launches()} launches: {turned['message']}")
    assert rig.launches() == 2
    assert status["overlay"][0]["kind"] == "kv_small"
    assert (status["overlay"][0]["old"], status["overlay"][0]["new"] < 32768) == (32768, True)


def test_engine_that_is_healthy_but_cannot_serve_is_never_ready_and_given_up(rig, lab_models):
    """The hybrid model on the CPU loads, answers /health with 200, and dies at its first real request."""
    rig.settings["engine"]["model"] = str(lab_models / "tiny35")
    if rig.docker:  # Four starts take their time: MTP is tried off with one runtime.
        del rig.settings["engine"]["arguments"]["speculative"]

    status = give_up(rig)

    # Twice as wished and, where there was MTP, twice without it: it is not at fault.
    assert rig.launches() <= rig.settings["supervision"]["attempts"] * (1 if rig.docker else 2)
    turned = [(step["kind"], step["knob"], step["new"]) for step in status["overlay"]]
    assert turned == ([] if rig.docker else [("cannot_serve", "speculative", None)])
    assert "answers /health but cannot serve" in status["reason"]
    assert "The first error in its log: RuntimeError: Unexpected head dim size" in status["reason"]
    assert status["failure"]["evidence"]
    assert "healthy" in {event["kind"] for event in rig.events()}
