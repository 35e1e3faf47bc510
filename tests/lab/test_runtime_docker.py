"""Docker itself going away and coming back, on a Docker daemon of the tests' own: nobody else's containers end."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rigd.adapters import docker
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.rig.schema import RuntimeKind
from rigd.runtime import startlog
from rigd.runtime.base import LaunchError, Presence, RuntimeUnavailableError
from rigd.runtime.docker import DockerRuntime

pytestmark = [
    pytest.mark.lab,
    # The SDK leaves its socket to the collector when Docker goes away while it connects.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
    ),
]
FAKE = Path(__file__).parents[1] / "data/runtime/fake_engine.py"
ANSWERS_S = 30.0


class PrivateDocker:
    """A second Docker daemon: own socket, own data, no bridge."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        arguments = {
            "--host": self.url,
            "--data-root": str(self.folder / "data"),
            "--exec-root": str(self.folder / "exec"),
            "--pidfile": str(self.folder / "pid"),
        }
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "dockerd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "dockerd",
                    "--bridge=none",
                    "--iptables=false",
                    *(part for pair in arguments.items() for part in pair),
                    *options,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until_s = time.monotonic() + ANSWERS_S
        while self.cli("version").returncode:
            if time.monotonic() > until_s:
                raise TimeoutError((self.folder / "dockerd.log").read_text()[-2000:])
            time.sleep(0.1)

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def cli(self, *arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["docker", "--host", self.url, *arguments],
            capture_output=True,
            check=False,
            timeout=120,
            **options,
        )


@pytest.fixture(scope="module")
def private(docker_image) -> Iterator[PrivateDocker]:
    """Give a Docker daemon that a test may end; it has the lab's image."""
    folder = Path("/var/tmp") / f"rigd-docker-{os.getpid()}"  # noqa: S108  (overlay needs a real disk)
    folder.mkdir(mode=0o700)
    made = PrivateDocker(folder)
    made.start()
    saved = subprocess.run(["docker", "save", docker_image], capture_output=True, check=True, timeout=120)
    assert made.cli("load", input=saved.stdout).returncode == 0
    yield made
    made.end()
    for mounted in ("data", "exec/netns/default"):
        subprocess.run(["umount", "-l", folder / mounted], check=False, capture_output=True, timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def running(private) -> PrivateDocker:
    """Give it running, whatever the test before did."""
    if private.process is None or private.process.poll() is not None:
        private.start()
    return private


@pytest.fixture
def spec(docker_image, tmp_path) -> LaunchSpec:
    container = ContainerSpec(
        image=docker_image,
        name="restart",
        entrypoint=("python3", f"/fake/{FAKE.name}"),
        mounts=(
            MountSpec(source=str(FAKE.parent), target="/fake", read_only=True),
            MountSpec(source=str(tmp_path), target="/notes", read_only=False),
        ),
        network="host",
        pull="never",
    )
    return LaunchSpec(
        rig=f"restart-{os.getpid()}",
        runtime=RuntimeKind.DOCKER,
        version="0.32.0",
        model="/notes",
        served_model_name="fake",
        argv=("/notes", "--core"),
        environment=(),
        secrets=(),
        host="127.0.0.1",
        port=1,
        container=container,
    )


@pytest.fixture
async def runtime(running, spec, tmp_path, monkeypatch):
    """Give a runtime that speaks to the private Docker; its containers are gone afterwards."""
    monkeypatch.setenv("DOCKER_HOST", running.url)
    made = DockerRuntime(spec.rig, runtime_dir=tmp_path / "run", state_dir=tmp_path / "state", log_max_mib=1)
    yield made
    if running.process.poll() is not None:
        await asyncio.to_thread(running.start)
    for ref in await made.find():
        await made.stop(ref, grace_s=0, deadline_s=10)
    await made.sweep()
    await made.close()


async def launch(runtime: DockerRuntime, spec: LaunchSpec, start: int = 1):
    folder = startlog.folder_of(runtime.state_dir, start)
    return await runtime.launch(spec, start=start, folder=folder, progress=lambda text, share: None)


async def test_a_docker_that_ends_takes_the_engine_along_and_that_is_noticed(runtime, spec, running):
    ref = await launch(runtime, spec)
    waiting = asyncio.create_task(runtime.wait_exit(ref))
    await asyncio.sleep(1)

    await asyncio.to_thread(running.end)
    async with asyncio.timeout(10):
        end = await waiting

    assert end.member is None
    with pytest.raises(RuntimeUnavailableError):
        await runtime.look(ref)
    await asyncio.to_thread(running.start)
    assert (await runtime.look(ref)).presence is Presence.EXITED
    assert (await runtime.find(), len(await runtime.sweep())) == ((), 1)
    second = await launch(runtime, spec, 2)
    assert (await runtime.look(second)).presence is Presence.RUNNING


async def test_a_docker_that_restores_its_containers_leaves_the_engine_and_its_output_whole(
    runtime, spec, running, wait_until
):
    await asyncio.to_thread(running.end)
    await asyncio.to_thread(running.start, "--live-restore")
    ref = await launch(runtime, replace(spec, argv=(*spec.argv, "--ticks", "1000")))
    waiting = asyncio.create_task(runtime.wait_exit(ref))
    folder = startlog.folder_of(runtime.state_dir, 1)
    await wait_until(lambda: "tick 10\n" in startlog.tail(folder, 100_000))
    await asyncio.to_thread(running.end)
    await asyncio.to_thread(running.start, "--live-restore")
    await wait_until(lambda: "tick 900\n" in startlog.tail(folder, 100_000), 30)

    ticks = [line for line in startlog.tail(folder, 100_000).splitlines() if line.startswith("tick ")]
    assert ticks == [f"tick {number}" for number in range(len(ticks))]
    assert not waiting.done()
    waiting.cancel()


async def test_a_launch_without_docker_may_be_tried_again(runtime, spec, running):
    await asyncio.to_thread(running.end)

    with pytest.raises(LaunchError) as caught:
        await launch(runtime, spec)

    assert caught.value.temporary
    assert "systemctl status docker" in caught.value.hint


async def test_a_container_of_someone_else_is_never_touched(runtime, spec, running, docker_image):
    made = running.cli("run", "-d", "--name", "restart", "--label", "com.docker.compose.project=webui",
                       "--network", "host", docker_image, "sleep", "600")  # fmt: skip
    identity = made.stdout.decode().strip()

    with pytest.raises(LaunchError, match="compose project 'webui'"):
        await launch(runtime, spec)
    assert await runtime.sweep() == ()

    client = docker.connect()
    assert docker.inspect(client, identity).running
    docker.remove(client, identity)
    client.close()
