"""Fixtures that all tests may use, and what makes a lab test run, skip or fail.

A test marked `lab` needs a real part. Where the part is missing it is skipped, with one line that names the
command which brings it; with `RIGD_LAB_REQUIRED=1` a missing part is an error, and a skip fails the run.
"""

import asyncio
import contextlib
import fcntl
import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "lab"))
import box
import install
from turns import FIRST, USUAL, take_turn

PROJECT = Path(__file__).resolve().parents[1]
LAB = install.default_folder()
LAB_REQUIRED = os.environ.get("RIGD_LAB_REQUIRED") == "1"
ENGINE_LOCK_WAIT_S = 500
POLL_S = 0.02

if "RIGD_SCHEDULES" not in os.environ:
    # A commit passes or fails each time alike; new examples are looked for on purpose: `RIGD_SCHEDULES=10000`.
    settings.register_profile("alike", derandomize=True)
    settings.load_profile("alike")

_left_behind = pytest.StashKey[list[str]]()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in a shell's background is deaf to Ctrl-C, and so would be every command that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# --- lab parts: here, skipped, or an error ---


def need(*parts: str) -> None:
    """Go on only if these parts of the lab are there."""
    if missing := [part for part in parts if not install.installed(part, LAB)]:
        text = (
            f"no {' and no '.join(missing)} here: `python tests/lab/install.py {' '.join(missing)}` brings it"
        )
        if LAB_REQUIRED:
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


@pytest.fixture(scope="session")
def need_parts() -> Callable[..., None]:
    """Give `need_parts("box")` to fixtures and tests elsewhere."""
    return need


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if anything was skipped where the whole lab is required."""
    if LAB_REQUIRED and _skipped(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if LAB_REQUIRED and (count := _skipped(config)):
        terminalreporter.section("skipped tests fail this run")
        terminalreporter.line(f"{count} skipped with RIGD_LAB_REQUIRED=1")
    if names := config.stash.get(_left_behind, []):
        terminalreporter.section("ended after the tests")
        terminalreporter.line("\n".join(names))


def _skipped(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if reporter is not None else 0


# --- two at a time: `-n 2 --dist loadscope` ---

WHOLE_MACHINE = (
    "tests/e2e/",
    "tests/lab/test_budget_real.py",
    "tests/lab/test_engine_arguments.py",
    "tests/lab/test_parts.py",
    "tests/lab/test_runtime_",
)
"""Tests that use what a machine has one of: the place for a real engine, its Docker daemon, its kernel's log."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep in one worker what needs the whole machine; of all else, a file's tests share what they started."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  (only where two workers are asked for)

    class ByMachine(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, name = nodeid.partition("::")
            real = file.startswith("tests/contract/") and "[real" in name
            return "machine" if real or file.startswith(WHOLE_MACHINE) else file

    return ByMachine(config, log)


# --- plain ones ---


@pytest.fixture
def free_port() -> int:
    """Return a TCP port of the loopback address that nothing listens on."""
    return box.free_port()


Condition = Callable[[], object | Awaitable[object]]


@pytest.fixture
def wait_until() -> Callable[..., Awaitable[Any]]:
    """Wait for the first true value of a plain or async condition, by default for 10 s."""

    async def wait(condition: Condition, deadline_s: float = 10.0) -> Any:
        until_s = time.monotonic() + deadline_s
        while True:
            value = condition()
            value = await value if inspect.isawaitable(value) else value
            if value:
                return value
            if time.monotonic() > until_s:
                raise TimeoutError(f"not so within {deadline_s} s: {_source(condition)}")
            await asyncio.sleep(POLL_S)

    return wait


@pytest.fixture
def block_until() -> Callable[..., Any]:
    """Do the same in tests that are not async: `block_until(condition, 10)`."""

    def wait(condition: Callable[[], object], deadline_s: float = 10.0) -> Any:
        until_s = time.monotonic() + deadline_s
        while not (value := condition()):
            if time.monotonic() > until_s:
                raise TimeoutError(f"not so within {deadline_s} s: {_source(condition)}")
            time.sleep(POLL_S)
        return value

    return wait


def _source(condition: object) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)


@dataclass(frozen=True, kw_only=True)
class StateDirs:
    """Where a daemon under test keeps its things; `environ` is what a child process must be given."""

    state: Path
    runtime: Path
    socket: Path
    environ: dict[str, str]


@pytest.fixture
def state_dirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[StateDirs]:
    """Give `rigd` folders of its own, in this process and (by `environ`) in others."""
    # Not tmp_path: a unix socket's path has room for 107 bytes only.
    base = Path(tempfile.mkdtemp(prefix="rigd-"))
    folders = {"RIGD_STATE_DIR": base / "state", "RIGD_RUNTIME_DIR": base / "run"}
    for name, folder in folders.items():
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    path = folders["RIGD_RUNTIME_DIR"] / "rigd.sock"
    monkeypatch.setenv("RIGD_SOCKET", str(path))
    environ = {name: str(folder) for name, folder in folders.items()} | {"RIGD_SOCKET": str(path)}
    state, runtime = folders.values()
    yield StateDirs(state=state, runtime=runtime, socket=path, environ=os.environ | environ)
    shutil.rmtree(base, ignore_errors=True)


# --- Docker ---


@pytest.fixture(scope="session")
def docker_client() -> Iterator[Any]:
    """Return a Docker SDK client of a daemon that answers."""
    need("docker")
    import docker  # noqa: PLC0415  (most tests do without it)

    client = docker.from_env(timeout=60)
    yield client
    client.close()


@pytest.fixture(scope="session")
def docker_image(docker_client) -> str:
    """Return the name of a small Debian image with /bin/sh and python3."""
    need("image")
    return install.image_name()


def mounts(*paths: Path | str) -> list[dict[str, object]]:
    """Return read-only mounts of these folders at their own paths, each once."""
    names = sorted({str(Path(path).resolve()) for path in paths})
    outer = [name for name in names if not any(Path(other) in Path(name).parents for other in names)]
    return [{"source": name, "target": name, "read_only": True} for name in outer]


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """Return a folder that marks the containers of this test session: they have it mounted."""
    folder = Path(tempfile.mkdtemp(prefix="rigd-session-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _container_slot(docker_client, session_folder, pytestconfig) -> Iterator[None]:
    yield
    for container in docker_client.containers.list(all=True):
        if any(mount.get("Source") == str(session_folder) for mount in container.attrs.get("Mounts", [])):
            _note(pytestconfig, f"container {container.name}")
            container.remove(force=True)


@pytest.fixture(scope="session")
def vllm_image(docker_image, vllm_executable, lab_models, session_folder, _container_slot) -> dict[str, Any]:
    """Return the `engine.docker` settings (all but `container`) of real vLLM in a container.

    The engine is this machine's own: its environment and /usr lie read-only in a small image at the same
    paths, so that models and executable have one name inside and outside.
    """
    base = Path(_venv_home(vllm_executable)).parent
    return _container(docker_image, [str(vllm_executable), "serve"], [LAB, base, "/usr", session_folder])


@pytest.fixture(scope="session")
def sim_image(docker_image, session_folder, _container_slot) -> dict[str, Any]:
    """Return the `engine.docker` settings (all but `container`) of the engine double in a container."""
    folders = [sys.prefix, sys.base_prefix, PROJECT, "/usr", session_folder]
    return _container(docker_image, [sys.executable, "-m", "rigd.sim"], folders)


def _container(image: str, entrypoint: list[str], folders: list[Path | str]) -> dict[str, Any]:
    return {
        "image": image,
        "entrypoint": entrypoint,
        "mounts": mounts(*folders),
        "gpus": "none",
        "ipc": "host",
        "network": "host",
        "pull": "never",
    }


def _venv_home(executable: Path) -> str:
    lines = (executable.parent.parent / "pyvenv.cfg").read_text().splitlines()
    return next(line.partition("=")[2].strip() for line in lines if line.startswith("home"))


# --- real vLLM ---


@pytest.fixture(scope="session")
def vllm_executable(_engine_slot) -> Path:
    """Return the `vllm` program of real vLLM for the CPU."""
    return (LAB / "vllm/bin/vllm").resolve()


@pytest.fixture(scope="session")
def lab_models() -> Path:
    """Return the folder of the tiny models `tiny`, `tinymimo` and `tiny35`."""
    need("models")
    return LAB / "models"


@pytest.fixture(scope="session")
def vllm_environment() -> dict[str, str]:
    """Return the variables of real vLLM on the CPU: 1 GiB of KV pool, one core a rank, no hub."""
    return {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def _engine_slot(pytestconfig) -> Iterator[None]:
    """Hold the machine's one place for a real engine; end what the tests left of engines."""
    need("vllm")
    with (LAB / ".lock-engine").open("w") as file:
        _lock(file.fileno())
        began_s = time.time()
        take_turn(os.getpid(), FIRST)
        yield
        take_turn(os.getpid(), USUAL)
        for process in _engines_since(began_s):
            _note(pytestconfig, f"process {process.pid} {process.name()}")
            with contextlib.suppress(psutil.Error):
                process.kill()
                process.wait(10)


def _lock(descriptor: int) -> None:
    until_s = time.monotonic() + ENGINE_LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until_s:
                pytest.fail(
                    f"another test session has used the real engine for {ENGINE_LOCK_WAIT_S} s", pytrace=False
                )
            time.sleep(0.5)


def _engines_since(began_s: float) -> list[psutil.Process]:
    """Return processes that run the lab's vLLM; workers change their names, but not what they have mapped."""
    marker = str((LAB / "vllm").resolve()) + "/"
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            # A second of margin: process start times are rounded.
            if (
                process.create_time() >= began_s - 1
                and marker in Path(f"/proc/{process.pid}/maps").read_text()
            ):
                found.append(process)
    return found


def _note(config: pytest.Config, text: str) -> None:
    config.stash.setdefault(_left_behind, []).append(text)
