"""What root does when the daemon asks whether the host is as its playbook says: one request, one answer.

The daemon names nothing but the act. Playbook, variables and tags are those of the rig file, and all of them must be
root's own: whatever root runs, nobody else can have written. A second word, or an asker that is gone, ends the run
after the task in hand.
"""

import asyncio
import contextlib
import json
import os
import select
import stat
import time
from pathlib import Path

from rigd.adapters.trusted import untrusted
from rigd.errors import RigdError, explain
from rigd.rig.load import load
from rigd.supervise.drift import DriftAct
from rigd.supervise.drift_report import Report
from rigd.supervise.drift_run import Asked, asked_by, carry_out

REQUEST_S = 10.0
REQUEST_BYTES = 4096


def serve(rig: Path, *, source: int = 0) -> Report:
    """Take a request from a descriptor, do it if the rig file says so, and return what came of it."""
    line = _line(source)
    try:
        request = json.loads(line)
        act = DriftAct(request["act"])
    except (ValueError, KeyError, TypeError):
        return Report(
            ok=False, message="the request was not understood", hint="see the versions of both sides"
        )
    try:
        rules = load(rig).rig.host.drift
    except RigdError as error:
        return Report(ok=False, message=explain(error), hint=f"rigd rig validate {rig}")
    asked = asked_by(rules, rig)
    if asked is None or (act is DriftAct.APPLY and not asked.apply):
        what = "host.drift.playbook" if asked is None else "host.drift.apply"
        return Report(ok=False, message=f"{rig} does not ask for it", hint=f"{what} in {rig}")
    # A playbook brings in what lies beside it.
    reason = untrusted((rig, *asked.files), folders=(asked.playbook.parent,))
    if reason is not None:
        return Report(
            ok=False,
            message=f"root does not run it: {reason}",
            hint=f"chown -R root: {asked.playbook.parent} && chmod -R go-w {asked.playbook.parent}",
        )
    return asyncio.run(_until_told(act, asked, source))


async def _until_told(act: DriftAct, asked: Asked, source: int) -> Report:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    watched = stat.S_ISSOCK(os.fstat(source).st_mode)

    def heard() -> None:
        with contextlib.suppress(OSError):
            os.read(source, REQUEST_BYTES)
        loop.remove_reader(source)
        stop.set()

    if watched:
        loop.add_reader(source, heard)
    try:
        return await carry_out(act, asked, stop)
    finally:
        if watched:
            loop.remove_reader(source)


def _line(source: int) -> str:
    """Return the first line that comes within its time, and no byte of what follows."""
    until_s, line = time.monotonic() + REQUEST_S, b""
    while not line.endswith(b"\n") and len(line) < REQUEST_BYTES:
        ready, _, _ = select.select([source], [], [], max(0.0, until_s - time.monotonic()))
        part = os.read(source, 1) if ready else b""
        if not part:
            break
        line += part
    return line.decode(errors="replace")
