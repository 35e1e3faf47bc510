"""What both runtimes promise, shown on a fake engine: the same tests for a bare process and for a container."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rigd.adapters import proc
from rigd.engine.spec import ContainerSpec, LaunchSpec, MountSpec
from rigd.rig.schema import RuntimeKind, SecretRef
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef, LaunchError, Presence, Runtime
from rigd.runtime.factory import make_runtime

FAKE = Path(__file__).parents[1] / "data/runtime/fake_engine.py"
SECRET = "s3cret-value with blanks"
NOTICED_S = 2.0
"""The project's promise: an end is noticed within this time."""


@dataclass
class Bench:
    """One rig with a runtime, and what a test needs to launch fake engines in it."""

    spec: LaunchSpec
    state: Path
    runtime_dir: Path
    notes: Path
    runtime: Runtime
    starts: int = 0
    refs: list[EngineRef] = field(default_factory=list)

    def new_daemon(self) -> Runtime:
        return make_runtime(
            self.spec.rig, self.spec, state_dir=self.state, runtime_dir=self.runtime_dir, log_max_mib=1.0
        )

    @property
    def folder(self) -> Path:
        return startlog.folder_of(self.state, self.starts)

    async def launch(self, *options: str, **changes: object) -> EngineRef:
        self.starts += 1
        for note in self.notes.iterdir():
            note.unlink()
        spec = replace(self.spec, argv=(*self.spec.argv, *options), **changes)
        ref = await self.runtime.launch(
            spec, start=self.starts, folder=self.folder, progress=lambda text, share: None
        )
        self.refs.append(ref)
        return ref

    def log(self) -> str:
        return startlog.tail(self.folder, 1_000_000)

    def members(self, start: int | None = None) -> dict[int, str]:
        """Return the processes of a start by pid; a look of its own, so that the runtime's is checked by it."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            ours = f"RIGD_RIG={self.spec.rig}".encode() in environment
            right = start is None or f"RIGD_START={start}".encode() in environment
            if ours and right and state not in "ZX":
                found[int(entry.name)] = name
        return found

    def pid(self, name: str) -> int:
        return next(pid for pid, seen in self.members().items() if seen == name[:15])


def process_spec(rig: str, notes: Path) -> LaunchSpec:
    return LaunchSpec(
        rig=rig,
        runtime=RuntimeKind.PROCESS,
        version="0.32.0",
        model=str(notes),
        served_model_name="fake",
        argv=(sys.executable, str(FAKE), str(notes)),
        environment=(("FAKE_VALUE", "from-the-rig"),),
        secrets=(("FAKE_KEY", SecretRef(env="RIGD_TEST_SECRET")),),
        host="127.0.0.1",
        port=1,
        inherit_environment=("PATH",),
    )


def docker_spec(rig: str, notes: Path, image: str) -> LaunchSpec:
    mounts = (
        MountSpec(source=str(FAKE.parent), target="/fake", read_only=True),
        MountSpec(source=str(notes), target=str(notes), read_only=False),
    )
    container = ContainerSpec(
        image=image,
        name=rig,
        entrypoint=("python3", f"/fake/{FAKE.name}"),
        mounts=mounts,
        network="host",
        pull="never",
    )
    plain = process_spec(rig, notes)
    return replace(plain, runtime=RuntimeKind.DOCKER, argv=(str(notes),), container=container)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.lab)])
async def bench(request, tmp_path, monkeypatch) -> AsyncIterator[Bench]:
    """Give a rig of each kind; nothing of it is left afterwards."""
    monkeypatch.setenv("RIGD_TEST_SECRET", SECRET)
    notes = tmp_path / "notes"
    notes.mkdir()
    rig = f"contract-{request.param}-{os.getpid()}"
    if request.param == "docker":
        spec = docker_spec(rig, notes, request.getfixturevalue("docker_image"))
    else:
        spec = process_spec(rig, notes)
    state, runtime_dir = tmp_path / "state", tmp_path / "run"
    runtime = make_runtime(rig, spec, state_dir=state, runtime_dir=runtime_dir, log_max_mib=1.0)
    made = Bench(spec=spec, state=state, runtime_dir=runtime_dir, notes=notes, runtime=runtime)
    yield made
    for ref in (*made.refs, *await made.runtime.find()):
        await made.runtime.stop(ref, grace_s=0.0, deadline_s=10.0)
    await made.runtime.sweep()
    await made.runtime.close()
    assert made.members() == {}


async def until_up(bench: Bench, wait_until) -> None:
    await wait_until(lambda: "fake engine up" in bench.log())


async def test_a_launched_engine_is_found_and_runs(bench, wait_until):
    ref = await bench.launch()
    await until_up(bench, wait_until)

    assert await bench.runtime.find() == (ref,)
    assert (await bench.runtime.look(ref)).presence is Presence.RUNNING
    assert (ref.start, ref.runtime) == (1, bench.spec.runtime)
    assert abs(ref.created_s - time.time()) < 30


async def test_output_and_environment_of_the_engine(bench, wait_until):
    await bench.launch(
        "--show", "FAKE_VALUE", "--show", "FAKE_KEY", "--show", "RIGD_TEST_SECRET", "--show", "RIGD_START"
    )
    await until_up(bench, wait_until)

    await wait_until(lambda: "to stderr" in bench.log())
    assert "FAKE_VALUE=from-the-rig" in bench.log()
    assert f"FAKE_KEY={SECRET}" in bench.log()
    assert "RIGD_TEST_SECRET=None" in bench.log()
    assert "RIGD_START=1" in bench.log()


async def test_the_folder_of_a_start_is_private_and_holds_no_secret(bench, wait_until):
    await bench.launch()
    await until_up(bench, wait_until)

    for path in (bench.folder, *bench.folder.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.is_dir() or SECRET not in path.read_text(errors="replace")


async def test_a_secret_is_in_no_argument_list(bench, wait_until):
    ref = await bench.launch("--core")
    await until_up(bench, wait_until)

    assert [pid for pid in bench.members() if SECRET in " ".join(proc.command_line(pid))] == []
    if ref.runtime is RuntimeKind.DOCKER:
        shown = await asyncio.create_subprocess_exec(
            "docker", "inspect", ref.id, stdout=asyncio.subprocess.PIPE
        )
        assert SECRET not in (await shown.communicate())[0].decode()


@pytest.mark.parametrize("code", [0, 1, 2])
async def test_an_end_by_itself_is_told_with_its_code(bench, code):
    ref = await bench.launch("--exit", str(code))

    async with asyncio.timeout(10):
        end = await bench.runtime.wait_exit(ref)

    assert (end.code, end.member) == (code, None)
    seen = await bench.runtime.look(ref)
    assert seen.presence is Presence.EXITED
    assert seen.exit.code == code
    assert await bench.runtime.find() == ()


@pytest.mark.parametrize("victim", ["root", "VLLM::EngineCor", "VLLM::Worker_TP0"])
async def test_the_death_of_any_lasting_process_is_noticed(bench, wait_until, victim):
    ref = await bench.launch("--core", "--workers", "2")
    await until_up(bench, wait_until)
    await wait_until(lambda: list(bench.members().values()).count("VLLM::Worker_TP") == 2)
    waiting = asyncio.create_task(bench.runtime.wait_exit(ref))
    await asyncio.sleep(1.5)  # Members are looked for once a second.

    os.kill(ref.pid if victim == "root" else bench.pid(victim), signal.SIGKILL)
    began_s = time.monotonic()
    async with asyncio.timeout(10):
        end = await waiting

    assert time.monotonic() - began_s < NOTICED_S
    assert (end.code, end.member) == ((137, None) if victim == "root" else (None, victim[:15]))


async def test_short_lived_helpers_are_no_alarm(bench, wait_until):
    ref = await bench.launch("--core", "--helper")
    await until_up(bench, wait_until)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await bench.runtime.wait_exit(ref)


async def test_a_stop_is_orderly_where_the_engine_allows_it(bench, wait_until):
    ref = await bench.launch("--core", "--workers", "2")
    await until_up(bench, wait_until)

    report = await bench.runtime.stop(ref, grace_s=10.0, deadline_s=20.0)

    assert (report.killed, report.survivors) == (0, ())
    assert report.processes >= 4
    assert "signal 15, ending" in bench.log()
    assert bench.members() == {}
    assert (await bench.runtime.look(ref)).presence is not Presence.RUNNING


async def test_what_ignores_term_is_killed_after_the_grace(bench, wait_until):
    ref = await bench.launch("--core", "--workers", "2", "--orphan", "--ignore-term")
    await until_up(bench, wait_until)
    await wait_until(lambda: len(bench.members()) >= 5)

    report = await bench.runtime.stop(ref, grace_s=0.3, deadline_s=10.0)

    assert report.killed >= 5
    assert report.survivors == ()
    assert bench.members() == {}
    assert report.took_s < 5


async def test_a_frozen_engine_is_ended_wholly(bench, wait_until):
    ref = await bench.launch("--core", "--workers", "2")
    await until_up(bench, wait_until)
    for pid in bench.members():
        os.kill(pid, signal.SIGSTOP)

    report = await bench.runtime.stop(ref, grace_s=2.0, deadline_s=10.0)

    assert report.survivors == ()
    assert bench.members() == {}


async def test_stopping_what_has_ended_is_no_error(bench):
    ref = await bench.launch("--exit", "1")
    await bench.runtime.wait_exit(ref)

    first = await bench.runtime.stop(ref, grace_s=1.0, deadline_s=5.0)
    second = await bench.runtime.stop(ref, grace_s=1.0, deadline_s=5.0)

    assert (first.killed, second.killed, second.survivors) == (0, 0, ())


async def test_what_a_killed_root_leaves_is_swept(bench, wait_until):
    ref = await bench.launch("--core", "--workers", "1", "--orphan", "--ignore-term")
    await until_up(bench, wait_until)
    os.kill(ref.pid, signal.SIGKILL)
    await bench.runtime.wait_exit(ref)

    ended = await bench.runtime.sweep()

    assert ended
    assert bench.members() == {}
    assert await bench.runtime.find() == ()
    assert await bench.runtime.sweep() == ()


async def test_a_sweep_leaves_a_running_engine_alone(bench, wait_until):
    ref = await bench.launch("--core", "--workers", "1", "--orphan")
    await until_up(bench, wait_until)
    before = bench.members()

    assert await bench.runtime.sweep() == ()
    assert bench.members() == before
    assert await bench.runtime.find() == (ref,)


async def test_a_new_daemon_finds_the_same_engine_and_its_end(bench, wait_until):
    ref = await bench.launch("--core")
    await until_up(bench, wait_until)
    await bench.runtime.close()
    bench.runtime = bench.new_daemon()

    (found,) = await bench.runtime.find()
    assert found == ref
    await bench.runtime.follow(found, bench.folder)
    waiting = asyncio.create_task(bench.runtime.wait_exit(found))
    await asyncio.sleep(0.3)
    os.kill(ref.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        end = await waiting

    assert end.code == 137


async def test_output_goes_on_without_gap_or_double_under_a_new_daemon(bench, wait_until):
    ref = await bench.launch("--ticks", "150")
    await wait_until(lambda: "tick 20\n" in bench.log())
    await bench.runtime.close()
    bench.runtime = bench.new_daemon()

    await bench.runtime.follow(ref, bench.folder)
    await wait_until(lambda: "tick 149\n" in bench.log())

    ticks = [line for line in bench.log().splitlines() if line.startswith("tick ")]
    assert ticks == [f"tick {number}" for number in range(150)]


async def test_the_last_words_of_an_engine_are_kept(bench):
    ref = await bench.launch("--flood", "2000", "--exit", "1")
    await bench.runtime.wait_exit(ref)
    await bench.runtime.stop(ref, grace_s=0.0, deadline_s=10.0)

    lines = bench.log().splitlines()
    assert [line for line in lines if line.startswith("line ")][-1].startswith("line 1999 ")
    assert "fake engine up" in lines


async def test_a_talkative_engine_does_not_fill_the_disk(bench, wait_until):
    ref = await bench.launch("--flood", "40000")
    await until_up(bench, wait_until)

    size = sum(path.stat().st_size for path in bench.folder.iterdir())
    await wait_until(
        lambda: (
            (bench.folder / "engine.log").stat().st_size < 1_100_000
            and (bench.folder / "engine.log.1").exists()
        )
    )
    assert size < 20_000_000
    assert (await bench.runtime.look(ref)).presence is Presence.RUNNING


async def test_two_starts_do_not_mix(bench, wait_until):
    first = await bench.launch("--exit", "3")
    await bench.runtime.wait_exit(first)
    await bench.runtime.stop(first, grace_s=0.0, deadline_s=5.0)
    second = await bench.launch()
    await until_up(bench, wait_until)

    assert await bench.runtime.find() == (second,)
    assert (await bench.runtime.look(first)).presence is not Presence.RUNNING
    assert (second.start, second.id != first.id) == (2, True)


async def test_a_launch_that_nobody_waits_for_leaves_nothing(bench):
    task = asyncio.create_task(bench.launch("--core"))
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for ref in await bench.runtime.find():
        assert not task.cancelled(), ref
        await bench.runtime.stop(ref, grace_s=0.0, deadline_s=5.0)
    await bench.runtime.sweep()

    assert bench.members() == {}


async def test_a_program_that_is_not_there_is_a_sentence(bench):
    bench.starts += 1
    if bench.spec.container is None:
        spec = replace(bench.spec, argv=("no-such-engine", "serve"))
    else:
        spec = replace(
            bench.spec,
            secrets=(),
            container=replace(bench.spec.container, entrypoint=("no-such-engine", "serve")),
        )

    with pytest.raises(LaunchError) as caught:
        await bench.runtime.launch(spec, start=1, folder=bench.folder, progress=lambda text, share: None)

    assert "no-such-engine" in f"{caught.value} {caught.value.detail}"
    assert caught.value.hint
    assert not caught.value.temporary
    assert await bench.runtime.find() == ()
