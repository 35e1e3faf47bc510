"""The process runtime's own corners; what it shares with Docker is in the contract tests."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rigd.adapters import proc
from rigd.adapters.proc import ProcessId
from rigd.engine.spec import LaunchSpec
from rigd.rig.schema import RuntimeKind
from rigd.runtime import identity, startlog, tree
from rigd.runtime.base import EngineRef, LaunchError, Presence
from rigd.runtime.process import ProcessRuntime
from rigd.runtime.tree import Scope, TreeWatch

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")


def spec(*argv: str, **changes) -> LaunchSpec:
    plain = LaunchSpec(
        rig=f"unit-{os.getpid()}",
        runtime=RuntimeKind.PROCESS,
        version="0.32.0",
        model="m",
        served_model_name="m",
        argv=argv or SLEEP,
        environment=(),
        secrets=(),
        host="127.0.0.1",
        port=1,
        inherit_environment=("PATH",),
    )
    return replace(plain, **changes)


def silent(text: str, share: float | None) -> None:
    del text, share


def open_files(pid: int) -> dict[str, Path]:
    return {entry.name: entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()}


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


class Bench:
    def __init__(self, folder: Path) -> None:
        self.state = folder
        self.runtime = self.daemon()

    def daemon(self) -> ProcessRuntime:
        return ProcessRuntime(spec().rig, runtime_dir=self.state, state_dir=self.state, log_max_mib=1)

    async def launch(self, wanted: LaunchSpec, start: int = 1) -> EngineRef:
        folder = startlog.folder_of(self.state, start)
        return await self.runtime.launch(wanted, start=start, folder=folder, progress=silent)


@pytest.fixture
async def bench(tmp_path):
    """Give a process runtime; what it ran is ended afterwards."""
    made = Bench(tmp_path)
    yield made
    for ref in await made.runtime.find():
        await made.runtime.stop(ref, grace_s=0.0, deadline_s=5.0)
    await made.runtime.sweep()
    await made.runtime.close()


async def test_the_engine_has_a_session_of_its_own_and_no_input(bench):
    ref = await bench.launch(spec())
    seen = proc.read(ref.pid)
    fds = open_files(ref.pid)

    assert seen.session not in (os.getsid(0), ref.pid)
    assert str(fds["0"]) == "/dev/null"
    assert fds["1"].name == "engine.log"


async def test_signals_that_python_ignores_are_not_ignored_in_the_engine(bench, wait_until):
    shown = "import signal; print([signal.getsignal(n).name for n in (2, 13, 15)], flush=True)"
    await bench.launch(spec("/bin/sh", "-c", "grep SigIgn /proc/self/status"))
    folder = startlog.folder_of(bench.state, 1)

    await wait_until(lambda: "SigIgn" in startlog.tail(folder, 1000))
    ignored = int(startlog.tail(folder, 1000).split()[-1], 16)
    assert (
        ignored & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGTERM - 1)) == 0
    ), shown


async def test_nothing_of_the_daemons_environment_leaks(bench, wait_until, monkeypatch):
    monkeypatch.setenv("PRIVATE_OF_THE_DAEMON", "x")
    await bench.launch(spec("/usr/bin/env"))
    folder = startlog.folder_of(bench.state, 1)

    await wait_until(lambda: startlog.exit_code(folder) == 0)
    names = {line.partition("=")[0] for line in startlog.tail(folder, 10_000).splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "RIGD_RIG", "RIGD_START", "RIGD_DIGEST"}


async def test_the_kernel_would_rather_end_the_engine_than_the_daemon(bench):
    ref = await bench.launch(spec())

    assert oom_score(ref.pid) >= 300


async def test_the_engine_runs_where_the_rig_says(bench, tmp_path, wait_until):
    where = tmp_path / "it's here"
    where.mkdir()
    await bench.launch(spec("/bin/pwd", working_directory=str(where)))

    await wait_until(lambda: str(where) in startlog.tail(startlog.folder_of(bench.state, 1), 1000))


async def test_a_missing_working_folder_is_a_sentence(bench):
    with pytest.raises(LaunchError, match="no such folder"):
        await bench.launch(spec(working_directory="/no/such/folder"))


async def test_an_engine_whose_recorder_was_killed_goes_on_and_is_still_known(bench):
    ref = await bench.launch(spec())
    os.kill(proc.read(ref.pid).session, signal.SIGKILL)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await bench.runtime.wait_exit(ref)
    assert await bench.daemon().find() == (ref,)
    assert await bench.runtime.sweep() == ()


async def test_an_engine_is_found_even_where_its_identity_could_not_be_written(bench):
    ref = await bench.launch(spec())
    (startlog.folder_of(bench.state, 1) / identity.NAME).unlink()

    assert await bench.daemon().find() == (ref,)


async def test_a_pid_that_another_process_has_now_is_not_the_engine(bench):
    other = proc.read(os.getpid())
    stale = EngineRef(
        runtime=RuntimeKind.PROCESS,
        id=f"{other.pid}:{other.ticks + 1}:{proc.boot_id()}",
        pid=other.pid,
        start=1,
        digest="d",
        created_s=0.0,
    )

    assert (await bench.runtime.look(stale)).presence is Presence.ABSENT
    assert (await bench.runtime.wait_exit(stale)).code is None
    assert (await bench.runtime.stop(stale, grace_s=0.1, deadline_s=1.0)).processes == 0


async def test_an_engine_of_another_boot_is_absent(bench):
    ref = await bench.launch(spec())
    before = replace(ref, id=ref.id.rpartition(":")[0] + ":0badb007")

    assert (await bench.runtime.look(before)).presence is Presence.ABSENT
    assert (await bench.runtime.stop(before, grace_s=0.1, deadline_s=1.0)).killed == 0


async def test_the_parser_of_a_program_that_is_no_python_script_cannot_be_asked(bench):
    report = await bench.runtime.check(spec("/bin/true"), deadline_s=5)

    assert report.accepted is None
    assert "no Python script" in report.message


async def test_a_verdict_is_remembered_until_the_program_changes(bench, tmp_path, monkeypatch):
    program = tmp_path / "vllm"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    asked = tmp_path / "asked"
    probe = f"open({str(asked)!r}, 'a').write('x'); print('{{\"accepted\": true, \"message\": \"\"}}')"
    monkeypatch.setattr("rigd.runtime.check.parser_probe_source", lambda: probe)
    wanted = spec(str(program), "serve", "m")

    first, second = [await bench.runtime.check(wanted, deadline_s=10) for _ in range(2)]
    os.utime(program, (1, 1))
    await bench.runtime.check(wanted, deadline_s=10)

    assert (first.accepted, second.accepted) == (True, True)
    assert asked.read_text() == "xx"


async def test_a_watch_of_what_has_ended_returns_at_once():
    gone = ProcessId(pid=os.getpid(), ticks=1)
    watch = TreeWatch(scope=Scope(rig="r", start=1, root=gone))

    assert (await watch.first_end()).root_ended
    watch.close()


async def test_shared_memory_that_a_killed_engine_leaves_is_released(bench, wait_until):
    """A killed vLLM leaves its segments in /dev/shm, 250 MB each; they would add up."""
    code = (
        "import multiprocessing.shared_memory as m, os, time\n"
        "s = m.SharedMemory(create=True, size=4096); print(s.name, flush=True); time.sleep(600)"
    )
    ref = await bench.launch(spec(sys.executable, "-c", code))
    folder = startlog.folder_of(bench.state, 1)
    await wait_until(lambda: startlog.tail(folder, 1000).endswith("\n"))
    segment = Path(tree.SHARED_MEMORY) / startlog.tail(folder, 1000).strip().lstrip("/")
    assert segment.exists()

    await bench.runtime.stop(ref, grace_s=0.0, deadline_s=5.0)

    assert not segment.exists()
