"""The lab's own parts do what the other tests take for granted."""

import time

import httpx
import pytest

pytestmark = pytest.mark.lab


def volumes(settings):
    return {mount["source"]: {"bind": mount["target"], "mode": "ro"} for mount in settings["mounts"]}


def test_the_image_has_a_shell_and_python(docker_client, docker_image):
    said = docker_client.containers.run(
        docker_image, ["/bin/sh", "-c", "python3 -c 'print(6 * 7)'"], remove=True, network_mode="none"
    )

    assert said.strip() == b"42"


def test_the_engine_double_answers_in_a_container(docker_client, sim_image, free_port, block_until):
    container = docker_client.containers.run(
        sim_image["image"],
        ["double", "--host", "127.0.0.1", "--port", str(free_port), "--sim-profile", "fast"],
        entrypoint=sim_image["entrypoint"],
        volumes=volumes(sim_image),
        network_mode="host",
        ipc_mode="host",
        detach=True,
    )
    try:
        block_until(lambda: healthy(free_port), 30)
    except TimeoutError:
        raise AssertionError(container.logs().decode()) from None
    finally:
        container.remove(force=True)


def healthy(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def test_real_vllm_is_there_in_a_container(docker_client, vllm_image):
    began_s = time.monotonic()
    said = docker_client.containers.run(
        vllm_image["image"],
        ["--version"],
        entrypoint=vllm_image["entrypoint"][:1],
        volumes=volumes(vllm_image),
        network_mode="none",
        remove=True,
    )

    assert b"+cpu" in said
    assert time.monotonic() - began_s < 120


def test_the_box_boots_to_a_running_system(nspawn_box):
    assert nspawn_box.run("systemctl is-system-running").strip() == "running"
    assert nspawn_box.run("systemctl --version").startswith("systemd 25")
