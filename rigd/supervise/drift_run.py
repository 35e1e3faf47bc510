"""Runs `rigd provision` as a child, and returns what it told as a report. The daemon never imports provisioning.

check: the whole playbook; where something differs and the rig file allows tags, those once more
apply: the allowed tags
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rigd.errors import ExitCode
from rigd.rig.drift import Drift
from rigd.supervise.drift import DriftAct
from rigd.supervise.drift_report import Reading, Report

STAYS_UP = "RIGD_STAYS_UP"
"""Tells `rigd provision` that this machine must not be rebooted."""
LINE_BYTES = 1 << 24
"""Longest line taken: a result may hold the whole output of a command."""
ERRORS_BYTES = 1 << 16
GRACE_S = 60.0
"""How long the task in hand may take once the run was asked to stop; then it is ended, too."""
LAST_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A playbook, with paths made whole."""

    playbook: Path
    variables: Path | None
    apply: tuple[str, ...]
    deadline_s: float

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it names."""
        return (self.playbook, *((self.variables,) if self.variables else ()))


def asked_by(rules: Drift, rig: Path) -> Asked | None:
    """Return what the rules of a rig file name, from its folder; None where they name no playbook."""
    if rules.playbook is None:
        return None
    folder = rig.resolve().parent
    return Asked(
        playbook=folder / Path(rules.playbook).expanduser(),
        variables=None if rules.variables is None else folder / Path(rules.variables).expanduser(),
        apply=rules.apply,
        deadline_s=rules.deadline_s,
    )


async def carry_out(
    act: DriftAct, asked: Asked, stop: asyncio.Event, *, environ: Mapping[str, str] | None = None
) -> Report:
    """Check or apply, and return what came of it; setting `stop` ends it in good order."""
    given = dict(os.environ if environ is None else environ)
    try:
        async with _deadline(stop, asked.deadline_s):
            if act is DriftAct.APPLY:
                return await _run(act, asked, asked.apply, stop, given)
            report = await _run(act, asked, (), stop, given)
            if not (report.ok and report.differences and asked.apply):
                return report
            # Which of them may be applied, a check of those tags alone tells.
            mine = await _run(act, asked, asked.apply, stop, given)
    except OSError as error:
        return Report(ok=False, message=f"cannot run rigd provision: {error.strerror or error}")
    if not mine.ok:
        message = f"the tags of host.drift.apply ({', '.join(asked.apply)}): {mine.message}"
        return replace(mine, differences=report.differences, message=message)
    may = {one.key for one in mine.differences}
    found = tuple(replace(one, allowed=one.key in may) for one in report.differences)
    return replace(report, differences=found)


@contextlib.asynccontextmanager
async def _deadline(stop: asyncio.Event, deadline_s: float) -> AsyncIterator[None]:
    late = asyncio.get_running_loop().call_later(deadline_s, stop.set)
    try:
        yield
    finally:
        late.cancel()


async def _run(
    act: DriftAct, asked: Asked, tags: tuple[str, ...], stop: asyncio.Event, environ: Mapping[str, str]
) -> Report:
    words = [
        sys.executable,
        "-P",
        "-m",
        "rigd.cli.main",
        "provision",
        str(act),
        str(asked.playbook),
        "--json",
    ]
    if tags:
        words += ["--tags", ",".join(tags)]
    if asked.variables is not None:
        words += ["--extra-vars", f"@{asked.variables}"]
    child = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=asked.playbook.parent if asked.playbook.parent.is_dir() else "/",
        env={**environ, STAYS_UP: "1"},
        limit=LINE_BYTES,
        # A group of its own: a Ctrl-C meant for the daemon would break a run off in the middle of a task.
        start_new_session=True,
    )
    reading = Reading(check=act is DriftAct.CHECK)
    stopping = asyncio.create_task(_stop(child, stop))
    try:
        errors, _ = await asyncio.gather(_tail(child.stderr), _read(child.stdout, reading))
        code = await child.wait()
    finally:
        stopping.cancel()
        if child.returncode is None:  # Cancelled: the daemon ends, and so does this.
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
    stopped = stop.is_set() and code not in {ExitCode.DONE, ExitCode.NOT_SO}
    return reading.report(code, stopped=stopped, errors=errors)


async def _stop(child: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    """Ask the run to end after the task in hand, then to end that too, then end it."""
    await stop.wait()
    for number, pause_s in ((signal.SIGTERM, GRACE_S), (signal.SIGTERM, LAST_S), (signal.SIGKILL, 0)):
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        await asyncio.sleep(pause_s)


async def _read(stream: asyncio.StreamReader | None, reading: Reading) -> None:
    while stream is not None:
        try:
            line = await stream.readline()
        except ValueError:
            continue  # Longer than is taken: an output of megabytes, which says nothing here.
        if not line:
            return
        reading.take(line.decode(errors="replace"))


async def _tail(stream: asyncio.StreamReader | None) -> str:
    kept = b""
    while stream is not None and (part := await stream.read(4096)):
        kept = (kept + part)[-ERRORS_BYTES:]
    return kept.decode(errors="replace")
