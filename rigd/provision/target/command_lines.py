"""What `command`, `shell` and `raw` have in common: run unless a file says it was done, tell all that came out."""

import datetime as dt
import glob
import os
import shlex
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Change, Kind, ModuleError

TIMEOUT_S = 6 * 3600.0
"""A build may take hours; the task's own `timeout` ends it sooner."""

COMMON = {
    "chdir": Argument(kind=Kind.PATH),
    "creates": Argument(kind=Kind.PATH),
    "removes": Argument(kind=Kind.PATH),
    "stdin": Argument(),
    "stdin_add_newline": Argument(kind=Kind.BOOLEAN, default=True),
}


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return whether a file says that the command need not run."""
    folder = arguments.get("chdir") or "."
    reason = ""
    if (creates := arguments.get("creates")) and glob.glob(os.path.join(folder, creates)):
        reason = f"'{creates}' exists"
    elif (removes := arguments.get("removes")) and not glob.glob(os.path.join(folder, removes)):
        reason = f"'{removes}' does not exist"
    return {"reason": reason, "check": box.check}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the run, unless there is a reason not to."""
    if state["reason"]:
        return []
    return [Change(what=f"run {title(arguments)}", subject="command", once=True)]


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Ansible tells of a command that did not run."""
    if state["reason"]:
        would = "Would" if state["check"] else "Did"
        text = f"skipped, since {state['reason'].replace(chr(39), '', 2)}"
        return {"rc": 0, "stdout": text, "stderr": "", "cmd": title(arguments),
                "msg": f"{would} not run command since {state['reason']}"}  # fmt: skip
    if state["check"]:
        told = {"rc": 0, "stdout": "", "stderr": "", "cmd": title(arguments),
                "msg": "Command would have run if not in check mode"}  # fmt: skip
        foretold = arguments.get("creates") or arguments.get("removes")
        return told if foretold else {**told, "skipped": True}
    return {}


def title(arguments: Mapping[str, Any]) -> str:
    """Return the command as a person would type it."""
    words = arguments.get("argv")
    return shlex.join(map(str, words)) if words else str(arguments.get("cmd") or "")


def run(box: Box, argv: list[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run it; return everything about it; an exit code other than 0 is a fault that carries the same."""
    folder = arguments.get("chdir")
    if folder and not os.path.isdir(folder):
        raise ModuleError(
            f"cannot change to the folder '{folder}': it does not exist", rc=None, stdout="", stderr=""
        )
    stdin = arguments.get("stdin")
    if stdin is not None:
        stdin = str(stdin) + ("\n" if arguments.get("stdin_add_newline", True) else "")
    began = dt.datetime.now()  # noqa: DTZ005  (the box's own time, as Ansible tells it)
    answer = box.run(
        argv, stdin=None if stdin is None else stdin.encode(), folder=folder, timeout_s=TIMEOUT_S, ok=None
    )
    ended = dt.datetime.now()  # noqa: DTZ005  (as above)
    strip = arguments.get("strip_empty_ends", True)
    told = {
        "cmd": arguments.get("argv") or arguments.get("cmd"),
        "rc": answer.rc,
        "stdout": answer.stdout.rstrip("\r\n") if strip else answer.stdout,
        "stderr": answer.stderr.rstrip("\r\n") if strip else answer.stderr,
        "start": str(began),
        "end": str(ended),
        "delta": str(ended - began),
    }
    if answer.rc != 0:
        raise ModuleError("non-zero return code", **told)
    return {**told, "msg": ""}
