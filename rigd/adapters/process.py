"""Start a program in a session of its own, with its output in a file and its exit code written down.

A small shell stays beside the program, waits for it and writes its exit code: whoever comes later, and is not the
parent, can read how it ended.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rigd.adapters import proc
from rigd.adapters.proc import ProcessId
from rigd.errors import RigdError

RECORDER = "/bin/sh"
# Handlers, not ignores: an ignored signal would stay ignored in the program. The program runs in the foreground,
# because a shell lets background jobs ignore SIGINT. A line is whole when it ends with its newline.
_SCRIPT = """\
folder=$1
shift
{ echo 300 >/proc/self/oom_score_adj; } 2>/dev/null
trap : TERM INT HUP QUIT
"$@"
code=$?
( umask 077; echo "$code" >"$folder/exit" )
exit "$code"
"""
_CHILD_DEADLINE_S = 2.0
_CHILD_POLL_S = 0.002
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these two, and what is ignored stays so across exec."""


class SpawnError(RigdError):
    """The program could not be started; nothing runs."""


def find_program(name: str, *, path: str | None, folder: str | None) -> Path | None:
    """Return the executable file that `name` means, looked up in `path` or relative to `folder`."""
    if "/" in name:
        candidate = Path(folder or ".") / name
        return candidate if candidate.is_file() and os.access(candidate, os.X_OK) else None
    found = shutil.which(name, path=path)
    return None if found is None else Path(found)


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    output: Path,
    working_directory: str | None,
) -> tuple[ProcessId, ProcessId | None]:
    """Start the program and return its recorder and itself (None when it has ended already).

    Blocks until the program is there. Output goes to `output`, the exit code to `folder`/exit.
    """
    script = _SCRIPT if working_directory is None else 'cd -- "$0" || exit 126\n' + _SCRIPT
    command = [RECORDER, "-c", script, working_directory or "rigd-recorder", str(folder), *argv]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            RECORDER,
            command,
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_RESET_SIGNALS,
        )
    except OSError as error:
        raise SpawnError(f"cannot start the program {argv[0]!r}") from error
    recorder = proc.read(pid)
    if recorder is None:  # Not possible for a child that has not been waited for.
        raise SpawnError(f"cannot find the program {argv[0]!r} right after its start")
    until_s = time.monotonic() + _CHILD_DEADLINE_S
    while time.monotonic() < until_s:
        child = _child_of(pid)
        if child is not None:
            return recorder.id, child
        now = proc.read(pid)
        if now is None or now.gone:
            break
        time.sleep(_CHILD_POLL_S)
    return recorder.id, None


def reap(recorder: ProcessId) -> int | None:
    """Collect a recorder that is our child and has ended; return its exit code (128 + n for a signal)."""
    with contextlib.suppress(ChildProcessError):
        pid, status = os.waitpid(recorder.pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code  # -9 becomes 137, as a shell says it.
    return None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a short program said. `code` None: it was ended at its deadline."""

    code: int | None
    stdout: str
    stderr: str


def ask(
    argv: Sequence[str], *, environment: Mapping[str, str], working_directory: str | None, deadline_s: float
) -> Answer:
    """Run a short program to its end, or end all of it at the deadline (blocking)."""
    try:
        program = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=working_directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise SpawnError(f"cannot start the program {argv[0]!r}") from error
    with program:
        code: int | None = None
        try:
            out, err = program.communicate(timeout=deadline_s)
            code = program.returncode
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            out, err = program.communicate()
    return Answer(code=code, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"))


def _child_of(pid: int) -> ProcessId | None:
    """Return the recorder's foreground child."""
    for process in proc.table().values():
        if process.parent == pid:
            return process.id
    return None
