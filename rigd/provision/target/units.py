"""Units of systemd: what one is and does now, and whether systemd has read the files that are there."""

import difflib
import os
import time
from collections.abc import Iterable
from typing import Any

from rigd.provision.target.contract import Box, ModuleError

UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
)
OTHER_SOURCES = ("/etc/fstab",)
PROPERTIES = (
    "Id", "Names", "LoadState", "LoadError", "ActiveState", "SubState", "UnitFileState", "FragmentPath",
    "NeedDaemonReload", "Type", "RemainAfterExit", "Result", "ExecMainStatus", "MainPID", "Description",
)  # fmt: skip
RUNNING = ("active", "activating", "reloading", "refreshing")
SETTLE_S = 600.0


def environment(scope: str) -> dict[str, str]:
    """Return what systemctl must be told to reach a user's own manager."""
    if scope != "user":
        return {}
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    if not os.path.isdir(folder):
        raise ModuleError(
            f"the user {os.geteuid()} has no systemd of its own now ({folder} does not exist). Let it linger:"
            " `loginctl enable-linger USER`"
        )
    return {"XDG_RUNTIME_DIR": folder}


def systemctl(
    box: Box,
    *words: str,
    scope: str = "system",
    ok: tuple[int, ...] | None = (0,),
    timeout_s: float = SETTLE_S,
) -> Any:
    """Run systemctl for the system, the caller's own manager or all users' settings."""
    argv = ["systemctl", *([] if scope == "system" else [f"--{scope}"]), *words]
    return box.run(argv, environment=environment(scope), ok=ok, timeout_s=timeout_s)


def show(box: Box, unit: str, scope: str = "system") -> dict[str, str]:
    """Return the properties of one unit; `LoadState` is not-found where there is none."""
    answer = systemctl(box, "show", "-p", ",".join(PROPERTIES), "--", unit, scope=scope, ok=None)
    if answer.rc != 0:
        text = answer.stderr.strip() or answer.stdout.strip()
        if "not been booted with systemd" in text or "Failed to connect to bus" in text:
            raise ModuleError(f"systemd does not run here, so '{unit}' cannot be looked at: {text}")
        raise ModuleError(f"cannot look at the unit '{unit}': {text}", rc=answer.rc, stderr=answer.stderr)
    return dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)


def enablement(box: Box, unit: str, scope: str = "system") -> str:
    """Return systemd's word: enabled, disabled, static, masked, indirect, alias, generated, ... or not-found."""
    answer = systemctl(box, "is-enabled", "--", unit, scope=scope, ok=None)
    word = answer.stdout.strip().splitlines()[-1:] or [""]
    return word[0] or "not-found"


def running(properties: dict[str, str]) -> bool:
    return properties.get("ActiveState") in RUNNING


def needs_reload(box: Box, properties: dict[str, str] | None) -> bool:
    """Return whether a unit file changed since systemd read it.

    A reload for nothing is no small thing: it can take the cards away from running containers.
    """
    if properties is not None and properties.get("NeedDaemonReload") == "yes":
        return True
    answer = systemctl(box, "show", "-p", "UnitsLoadTimestampMonotonic", "--value", ok=None)
    text = answer.stdout.strip()
    if not text.isdigit() or text == "0":
        # systemd before 250 does not tell when it read its units.
        return properties is None or properties.get("LoadState") == "not-found"
    read_s = time.time() - (time.monotonic() - int(text) / 1e6)
    return newest_s(UNIT_FOLDERS) > read_s or newest_s(OTHER_SOURCES) > read_s


def newest_s(places: Iterable[str]) -> float:
    """Return when something in these files or folders (two levels deep) last changed."""
    return max((time_s for place in places for time_s in _times(place)), default=0.0)


def _times(place: str) -> list[float]:
    """Return the change times of a file, or of a folder, what is in it, and what is in its .d folders."""
    try:
        # A folder's own time tells of files that came or went.
        times = [os.lstat(place).st_ctime]
        for entry in os.scandir(place) if os.path.isdir(place) else []:
            times.append(entry.stat(follow_symlinks=False).st_ctime)
            if entry.name.endswith(".d") and entry.is_dir(follow_symlinks=False):
                times += [inner.stat(follow_symlinks=False).st_ctime for inner in os.scandir(entry.path)]
    except OSError:
        return []
    return times


def missing(box: Box, unit: str, scope: str = "system") -> ModuleError:
    """Return the fault of a unit that is not there, with the nearest that is."""
    answer = systemctl(box, "list-unit-files", "--no-legend", "--no-pager", scope=scope, ok=None)
    names = [line.split()[0] for line in answer.stdout.splitlines() if line.split()]
    full = unit if "." in unit else f"{unit}.service"
    near = difflib.get_close_matches(full, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "; is its package installed?"
    return ModuleError(f"there is no unit '{unit}' on the box{hint}")


def last_words(box: Box, unit: str, scope: str = "system") -> str:
    """Return the end of a unit's log, for a fault."""
    argv = [
        "journalctl",
        *(["--user"] if scope == "user" else []),
        "-u",
        unit,
        "-n",
        "8",
        "--no-pager",
        "-o",
        "cat",
    ]
    try:
        answer = box.run(argv, environment=environment(scope), ok=None, timeout_s=20)
    except ModuleError:
        return ""  # Without a journal there are no last words.
    return answer.stdout.strip()
