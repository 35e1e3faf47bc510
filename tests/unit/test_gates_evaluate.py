"""Gates judged from frozen readings: open or not, what holds them, and what a person does about it."""

import errno
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from rigd.adapters.gpu import GpuCard, GpuFault, GpuProblem, GpuProcess, GpuReadings
from rigd.adapters.host import PortHolder, PortSeen, Space
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.rig.schema import Gates, RuntimeKind
from rigd.runtime.base import EngineRef
from rigd.runtime.gates import SETTLE_GAP_S, GpuSettle, Holder, Readings, check_gates, evaluate, places

GATES = Gates(disk_free_gib=5, shm_free_mib=1024, gpu_memory_used_mib=1000, gpu_settle_s=5)
ROOMY = Space(path=Path("/state"), free_mib=100_000, total_mib=200_000)


def spec(**changes) -> LaunchSpec:
    plain = LaunchSpec(
        rig="rig-b",
        runtime=RuntimeKind.PROCESS,
        version="0.27.1",
        model="m",
        served_model_name="m",
        argv=("vllm", "serve", "m"),
        environment=(),
        secrets=(),
        host="127.0.0.1",
        port=18020,
    )
    return replace(plain, **changes)


def docker_spec(**changes) -> LaunchSpec:
    described = ContainerSpec(**({"image": "i:1", "name": "c", "entrypoint": ("vllm", "serve")} | changes))
    return spec(runtime=RuntimeKind.DOCKER, container=described)


def card(index: int, used_mib: int | None = 14, **more) -> GpuCard:
    return GpuCard(index=index, uuid=f"GPU-{index}{index}", name="RTX 3090", memory_used_mib=used_mib, **more)


def seen(**changes) -> Readings:
    clean = Readings(
        engines=(),
        left_over=(),
        port=PortSeen(host="127.0.0.1", port=18020, error=None),
        publisher=None,
        gpus=GpuReadings(at_s=0.0, cards=(card(0), card(1))),
        names={},
        disks=(ROOMY,),
        shared_memory=Space(path=Path("/shm"), free_mib=8192, total_mib=8192),
        low_for_s=60.0,
    )
    return replace(clean, **changes)


def shut(readings: Readings, of: LaunchSpec | None = None) -> dict[str, str]:
    reports = evaluate(of or spec(), GATES, readings)
    return {report.name: f"{report.detail} -> {report.hint}" for report in reports if not report.open}


def test_a_clean_machine_opens_every_gate():
    reports = evaluate(spec(), GATES, seen())

    assert [report.name for report in reports] == ["tree", "port", "gpu", "disk", "shm"]
    assert all(report.open for report in reports)


REF = EngineRef(runtime=RuntimeKind.PROCESS, id="1:2:3", pid=1, start=7, digest="d", created_s=0.0)
TAKEN = PortSeen(host="127.0.0.1", port=18020, error=errno.EADDRINUSE)
STRANGER = PortHolder(pid=77, name="nginx", user="www-data", command="nginx: master")
LOST = GpuProblem(fault=GpuFault.LOST, message="GPU is lost", hint="power off")


@pytest.mark.parametrize(
    ("readings", "gate", "words"),
    [
        pytest.param(seen(engines=(REF,)), "tree", ("start 7", "rigd stop"), id="engine-still-runs"),
        pytest.param(
            seen(left_over=(Holder(pid=99, name="VLLM::EngineCor"),)),
            "tree",
            ("VLLM::EngineCor (pid 99)",),
            id="orphan",
        ),
        pytest.param(
            seen(port=replace(TAKEN, holder=STRANGER)),
            "port",
            ("nginx", "pid 77", "www-data"),
            id="strangers-port",
        ),
        pytest.param(seen(port=TAKEN), "port", ("may not see", "ss -ltnp"), id="port-of-someone-unseen"),
        pytest.param(
            seen(port=TAKEN, publisher="webui"), "port", ("container 'webui'",), id="containers-port"
        ),
        pytest.param(
            seen(port=replace(TAKEN, error=errno.EADDRNOTAVAIL)),
            "port",
            ("no address", "tailscale"),
            id="no-tailnet",
        ),
        pytest.param(
            seen(port=replace(TAKEN, error=errno.EACCES)), "port", ("EACCES",), id="privileged-port"
        ),
        pytest.param(
            seen(
                gpus=GpuReadings(
                    at_s=0.0,
                    cards=(card(0), card(1, 20480, processes=(GpuProcess(pid=55, memory_mib=20466),))),
                ),
                names={55: "VLLM::Worker_TP"},
            ),
            "gpu",
            ("GPU 1", "20480 MiB", "VLLM::Worker_TP (pid 55, 20466 MiB)"),
            id="gpu-memory-held",
        ),
        pytest.param(seen(low_for_s=1.5), "gpu", ("1.5 s", "5 s"), id="gpu-memory-just-released"),
        pytest.param(
            seen(gpus=GpuReadings(at_s=0.0, cards=(card(0), card(1, None, problem=LOST)))),
            "gpu",
            ("GPU 1", "GPU is lost", "power off"),
            id="gpu-lost",
        ),
        pytest.param(
            seen(gpus=GpuReadings(at_s=0.0, problem=LOST)), "gpu", ("GPU is lost",), id="no-gpu-readable"
        ),
        pytest.param(
            seen(disks=(replace(ROOMY, free_mib=2048),)), "disk", ("2.0 GiB", "/state"), id="disk-full"
        ),
        pytest.param(seen(disks=None), "disk", ("does not answer",), id="disk-dead"),
        pytest.param(
            seen(shared_memory=Space(path=Path("/shm"), free_mib=100, total_mib=200)),
            "shm",
            ("100 MiB",),
            id="shm",
        ),
    ],
)
def test_a_shut_gate_says_what_holds_it(readings, gate, words):
    found = shut(readings)

    assert list(found) == [gate]
    assert [word for word in words if word not in found[gate]] == []


def test_a_host_without_driver_opens_the_gpu_gate_at_once():
    absent = GpuProblem(fault=GpuFault.NO_LIBRARY, message="not found", hint="")

    assert shut(seen(gpus=GpuReadings(at_s=0.0, problem=absent), low_for_s=0.0)) == {}


def test_a_container_without_cards_does_not_wait_for_them():
    busy = GpuReadings(at_s=0.0, cards=(card(0, 20000),))

    assert shut(seen(gpus=busy, low_for_s=0.0), docker_spec(gpus="none")) == {}


@pytest.mark.parametrize(
    "of",
    [
        docker_spec(gpus=(1,)),
        spec(environment=(("CUDA_VISIBLE_DEVICES", "1"),)),
        spec(environment=(("CUDA_VISIBLE_DEVICES", "GPU-11"),)),
    ],
    ids=["docker", "index", "uuid"],
)
def test_cards_that_the_engine_does_not_use_may_be_busy(of):
    readings = seen(gpus=GpuReadings(at_s=0.0, cards=(card(0, 20000), card(1))))

    assert shut(readings, of) == {}


def test_a_container_with_its_own_shared_memory_does_not_need_the_hosts():
    full = Space(path=Path("/shm"), free_mib=0, total_mib=0)

    assert shut(seen(shared_memory=full), docker_spec(ipc="private")) == {}
    assert "shm" in shut(seen(shared_memory=full), docker_spec(ipc="host"))


def test_docker_may_bind_ports_that_its_user_may_not():
    assert shut(seen(port=replace(TAKEN, error=errno.EACCES)), docker_spec()) == {}


def test_memory_counts_as_settled_only_while_it_is_looked_at():
    settle, low = GpuSettle(), GpuReadings(at_s=0.0, cards=(card(0),))
    busy = GpuReadings(at_s=0.0, cards=(card(0, 9000),))

    def look(readings, now_s):
        return settle.low_for_s(readings, spec(), GATES, now_s=now_s)

    assert [look(low, 10.0), look(low, 12.0), look(busy, 13.0), look(low, 14.0), look(low, 16.5)] == [
        0,
        2,
        0,
        0,
        2.5,
    ]
    assert look(low, 16.5 + SETTLE_GAP_S + 1) == 0.0


def test_places_are_rigds_own_and_what_the_engine_may_write():
    mounts = (
        MountSpec(source="/models", target="/m", read_only=True),
        MountSpec(source="/cache", target="/c", read_only=False),
    )

    assert places(docker_spec(mounts=mounts), Path("/state")) == (Path("/state"), Path("/cache"))
    assert places(spec(environment=(("HF_HOME", "/hf"),)), Path("/state")) == (Path("/state"), Path("/hf"))


async def test_a_real_listener_is_named(tmp_path):
    async def nothing():
        return ()

    runtime = type("Fake", (), {"state_dir": tmp_path, "find": staticmethod(nothing)})()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = spec(port=listener.getsockname()[1], rig="nobody-has-this-name")
        reports = {
            report.name: report for report in await check_gates(taken, Gates(disk_free_gib=0), runtime)
        }

    assert not reports["port"].open
    assert f"pid {os.getpid()}" in reports["port"].detail
    assert reports["tree"].open
    assert reports["disk"].open
