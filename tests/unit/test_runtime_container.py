"""From a specification to what Docker is asked for; secrets in private files; a pull's progress added up."""

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from docker.errors import create_api_error_from_http_exception

from rigd.adapters import docker
from rigd.adapters.docker import DeviceAsk
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.errors import explain
from rigd.rig.schema import RuntimeKind, SecretRef
from rigd.runtime import container
from rigd.runtime.base import LaunchError

RIG_A = ContainerSpec(
    image="vllm/vllm-openai:v0.32.0",
    name="vllm-dual-3090",
    entrypoint=("vllm", "serve"),
    mounts=(MountSpec(source="/models", target="/root/.cache/huggingface", read_only=False),),
    gpus="all",
    shm_size=16 * 1024**3,
    ipc="host",
    container_port=8000,
    ulimits=(("memlock", -1, -1),),
)


def spec(described: ContainerSpec = RIG_A, **changes) -> LaunchSpec:
    plain = LaunchSpec(
        rig="rig-a",
        runtime=RuntimeKind.DOCKER,
        version="0.32.0",
        model="m",
        served_model_name="m",
        argv=("m", "--tensor-parallel-size", "2"),
        environment=(("NCCL_P2P_DISABLE", "1"),),
        secrets=(("VLLM_API_KEY", SecretRef(env="KEY")),),
        host="127.0.0.1",
        port=8320,
        container=described,
    )
    return replace(plain, **changes)


def made(described: ContainerSpec = RIG_A, secrets: Path | None = None) -> docker.Creation:
    return container.creation(spec(described), start=7, secrets=secrets, log_max_bytes=1024)


def test_the_engine_is_marked_in_labels_and_environment():
    wanted = made()

    assert wanted.labels == {"rigd.rig": "rig-a", "rigd.start": "7", "rigd.digest": spec().digest}
    assert wanted.environment["RIGD_START"] == "7"
    assert wanted.environment["NCCL_P2P_DISABLE"] == "1"


def test_the_container_never_restarts_by_itself_and_its_output_is_bounded():
    settings = docker._host_config(made())

    assert settings["restart_policy"] == {"Name": "no"}
    assert settings["log_config"].config == {"max-size": str(1024 * 1024), "max-file": "2"}
    assert "init" not in settings


def test_a_bridged_engine_is_published_on_its_own_address_only():
    assert made().publish == ((8000, "127.0.0.1", 8320),)
    assert made(replace(RIG_A, network="host")).publish == ()


def test_shared_memory_of_the_host_has_no_size_of_its_own():
    assert (made().ipc, made().shm_size) == ("host", None)
    assert made(replace(RIG_A, ipc="private")).shm_size == 16 * 1024**3


@pytest.mark.parametrize(
    ("gpus", "injection", "devices", "runtime"),
    [
        pytest.param(
            "all", "gpus", (DeviceAsk(count=-1, capabilities=(("gpu",),)),), None, id="all-by-request"
        ),
        pytest.param((1,), "gpus", (DeviceAsk(device_ids=("1",), capabilities=(("gpu",),)),), None, id="one"),
        pytest.param(
            "all", "cdi", (DeviceAsk(driver="cdi", device_ids=("nvidia.com/gpu=all",)),), None, id="cdi"
        ),
        pytest.param(
            (0, 1),
            "cdi",
            (DeviceAsk(driver="cdi", device_ids=("nvidia.com/gpu=0", "nvidia.com/gpu=1")),),
            None,
            id="cdi-named",
        ),
        pytest.param("all", "runtime", (), "nvidia", id="nvidia-runtime"),
        pytest.param("none", "runtime", (), None, id="none"),
        pytest.param("none", "gpus", (), None, id="none-by-request"),
    ],
)
def test_how_cards_get_in(gpus, injection, devices, runtime):
    wanted = made(replace(RIG_A, gpus=gpus, gpu_injection=injection))

    assert (wanted.devices, wanted.runtime) == (devices, runtime)


def test_the_nvidia_runtime_is_told_which_cards():
    wanted = made(replace(RIG_A, gpus=(0, 1), gpu_injection="runtime"))

    assert wanted.environment["NVIDIA_VISIBLE_DEVICES"] == "0,1"


def test_the_sdk_takes_every_setting(tmp_path):
    """Docker's own types check what they are given; nothing is sent."""
    full = replace(RIG_A, memory=2**30, pids_limit=100, user="1000:1000", network="bridge")

    settings = docker._host_config(made(full, tmp_path))

    assert (settings["mem_limit"], settings["pids_limit"]) == (2**30, 100)
    assert settings["port_bindings"] == {8000: ("127.0.0.1", 8320)}
    assert settings["device_requests"][0]["Count"] == -1
    assert settings["ulimits"][0]["Soft"] == -1


def test_secrets_reach_the_engines_environment_and_nothing_else(tmp_path):
    """The wrapper is run for real, with its folder replaced by ours."""
    folder = container.write_secrets(
        tmp_path / "secrets/rig-a", {"KEY": "a 'b' \"c\" $d", "HF_TOKEN": "t"}, user=None
    )
    wanted = made(secrets=folder)
    script = wanted.command[1].replace(container.SECRETS_TARGET, str(folder))

    shown = subprocess.run(
        ["/bin/sh", "-c", script, "x", "/bin/sh", "-c", 'echo "$KEY|$HF_TOKEN|$value|$file"'],
        check=True,
        capture_output=True,
        text=True,
        env={},
        timeout=10,
    )

    assert shown.stdout == "a 'b' \"c\" $d|t||\n"
    assert wanted.entrypoint == ("/bin/sh",)
    assert wanted.command[3:] == ("vllm", "serve", "m", "--tensor-parallel-size", "2")
    assert "KEY" not in wanted.environment
    assert wanted.mounts[-1].read_only


def modes(folder: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, folder / "KEY")]


def test_secret_files_are_private(tmp_path):
    folder = container.write_secrets(tmp_path / "secrets/rig-a", {"KEY": "v"}, user=None)

    assert modes(folder) == [0o700, 0o500, 0o400]


def test_a_container_with_another_user_can_read_its_secrets_and_the_host_cannot(tmp_path):
    folder = container.write_secrets(tmp_path / "secrets/rig-a", {"KEY": "v"}, user="vllm")

    assert modes(folder) == [0o700, 0o555, 0o444]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_container_with_a_numbered_user_owns_its_secrets(tmp_path):
    folder = container.write_secrets(tmp_path / "secrets/rig-a", {"KEY": "v"}, user="1234:99")

    seen = (folder / "KEY").stat()
    assert (seen.st_uid, seen.st_gid) == (1234, 99)
    assert modes(folder) == [0o700, 0o500, 0o400]


def test_secrets_of_an_earlier_start_are_gone(tmp_path):
    folder = tmp_path / "secrets/rig-a"
    container.write_secrets(folder, {"OLD": "v"}, user=None)

    assert container.write_secrets(folder, {}, user=None) is None
    assert not folder.exists()


def test_a_missing_mount_is_a_sentence_and_a_cache_is_made(tmp_path):
    missing = MountSpec(source=str(tmp_path / "models"), target="/m", read_only=True)
    cache = MountSpec(source=str(tmp_path / "cache"), target="/c", read_only=False, create=True)

    container.refuse_missing_sources(spec(replace(RIG_A, mounts=(cache,))))
    with pytest.raises(LaunchError, match="models' at '/m'") as caught:
        container.refuse_missing_sources(spec(replace(RIG_A, mounts=(missing,))))

    assert (tmp_path / "cache").is_dir()
    assert "create: true" in caught.value.hint


def test_the_probe_container_touches_nothing(tmp_path):
    mounts = (MountSpec(source=str(tmp_path), target="/m", read_only=False),)

    wanted = container.probe_creation(spec(replace(RIG_A, mounts=mounts)), ("python3", "-c", "x"))

    assert (wanted.network, wanted.devices, wanted.name) == ("none", (), None)
    assert all(mount.read_only for mount in wanted.mounts)
    assert wanted.labels == {"rigd.check": "rig-a"}
    assert "RIGD_RIG" not in wanted.environment


def test_a_pull_adds_up_its_layers():
    layers = docker._Layers()
    lines = [
        {"status": "Pulling from vllm/vllm-openai", "id": "v0.32.0"},
        {"status": "Pulling fs layer", "id": "a"},
        {"status": "Already exists", "id": "b"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 10, "total": 40}},
        {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 40}},
    ]

    told = [layers.take(line) for line in lines]

    assert told == [False, True, True, True, False]
    step = layers.step()
    assert (step.layers, step.layers_done, step.bytes_done, step.bytes_total) == (2, 1, 10, 40)
    layers.take({"status": "Pull complete", "id": "a"})
    assert (layers.step().layers_done, layers.step().bytes_done) == (2, 40)


def test_dockers_times_are_read_to_the_nanosecond():
    assert docker._seconds("2026-11-30T02:54:44.125456000Z") == pytest.approx(1796007284.125456)
    assert docker._seconds("2026-11-30T02:54:44Z") == 1796007284.0


def test_dockers_own_words_are_told_once_without_the_address_of_its_socket() -> None:
    answer = requests.Response()
    answer.status_code, answer.reason, answer.url = (
        500,
        "Internal Server Error",
        "http+docker://localhost/start",
    )
    answer._content = b'{"message": "failed to create task: no such device"}'

    def refuse() -> None:
        try:
            answer.raise_for_status()
        except requests.HTTPError as error:
            create_api_error_from_http_exception(error)

    with pytest.raises(docker.DockerError) as told, docker._asking("cannot start the container 'engine'"):
        refuse()

    assert explain(told.value) == "cannot start the container 'engine': failed to create task: no such device"
    assert told.value.detail == "failed to create task: no such device"
