"""Kernel settings, now and at boot."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

PROC = Path("/proc/sys")
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
FILE = "/etc/sysctl.d/60-rigd.conf"

ARGUMENTS = {
    "name": Argument(required=True, aliases=("key",)),
    "value": Argument(aliases=("val",)),
    "state": Argument(default="present", choices=("present", "absent")),
    "sysctl_file": Argument(kind=Kind.PATH, default=FILE),
    "sysctl_set": Argument(kind=Kind.BOOLEAN, default=False),
    "reload": Argument(kind=Kind.BOOLEAN, default=True),
    "ignoreerrors": Argument(kind=Kind.BOOLEAN, default=False),
}


def proc_path(name: str) -> Path:
    """Return the file of a key; net.ipv4.conf.eth0/1.x has its dots and slashes swapped, as sysctl(8) says."""
    return PROC / name.translate(str.maketrans("./", "/."))


def plain(value: str) -> str:
    """Return a value with its white space as one blank each, as several numbers come with tabs."""
    return " ".join(value.split())


def settings(text: str) -> dict[str, str]:
    """Return the settings of a file, the last of a key counts."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.strip().lstrip("-").partition("=")
        if sign and not line.lstrip().startswith(("#", ";")):
            found[name.strip()] = plain(value)
    return found


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return the file's text, the value now, and files that set another value later at boot."""
    path = Path(arguments["sysctl_file"])
    try:
        now: str | None = plain(proc_path(arguments["name"]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        now = None
    return {"text": path.read_text(encoding="utf-8") if path.is_file() else None, "now": now,
            "later": _later(arguments, path)}  # fmt: skip


def _later(arguments: Mapping[str, Any], path: Path) -> list[str]:
    """Return the files that systemd-sysctl reads after ours and that say something else."""
    if arguments["value"] is None:
        return []
    by_name: dict[str, str] = {}
    for folder in FOLDERS:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".conf"):
                by_name.setdefault(name, os.path.join(folder, name))
    found = []
    for name, file in sorted(by_name.items()):
        if name > path.name and str(path.parent) in FOLDERS:
            try:
                value = settings(Path(file).read_text(encoding="utf-8")).get(arguments["name"])
            except OSError:
                continue
            if value is not None and value != plain(arguments["value"]):
                found.append(f"{file} ({value})")
    return found


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return whether the file or the running kernel differs."""
    name, path = arguments["name"], arguments["sysctl_file"]
    before = state["text"] or ""
    changes = []
    if arguments["state"] == "absent":
        after = _without(before, name)
        if after != before:
            changes.append(Change(what=f"no {name} in {path}", subject=path, before=before, after=after,
                                  data={"text": after}))  # fmt: skip
        return changes
    value = plain(arguments["value"])
    if settings(before).get(name) != value:
        after = _with(before, name, value)
        changes.append(Change(what=f"{name} = {value} in {path}", subject=path, before=before, after=after,
                              data={"text": after}))  # fmt: skip
    live = arguments["reload"] or arguments["sysctl_set"]
    # A key that is not there belongs to a module that is not loaded yet; its value comes with it.
    if live and state["now"] is not None and state["now"] != value:
        changes.append(Change(what=f"{name}: {state['now']} -> {value}", subject=name, before=f"{state['now']}\n",
                              after=f"{value}\n", data={"set": value}))  # fmt: skip
    if arguments["sysctl_set"] and state["now"] is None and not arguments["ignoreerrors"]:
        raise ModuleError(f"the running kernel has no setting '{name}': is its module loaded (`modprobe`)?")
    return changes


def _without(text: str, name: str) -> str:
    lines = text.splitlines()
    return "".join(f"{line}\n" for line in lines if name not in settings(line))


def _with(text: str, name: str, value: str) -> str:
    new, placed = [], False
    for line in text.splitlines():
        if name not in settings(line):
            new.append(line)
        elif not placed:
            placed = True
            new.append(f"{name}={value}")
    return "".join(f"{line}\n" for line in (new if placed else [*new, f"{name}={value}"]))


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the file, and set the value now."""
    for change in changes:
        if "text" in change.data:
            path = Path(arguments["sysctl_file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            box.write(str(path), change.data["text"].encode())
            continue
        try:
            proc_path(arguments["name"]).write_text(f"{change.data['set']}\n", encoding="utf-8")
        except OSError as error:
            if not arguments["ignoreerrors"]:
                raise ModuleError(
                    f"the kernel does not take {arguments['name']} = {change.data['set']}: {error.strerror}"
                    " (in a container most settings belong to the host)"
                ) from error


def result(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    if not state["later"]:
        return {}
    return {"warnings": [f"set otherwise, and later at boot, by {', '.join(state['later'])}"]}


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("state", "present") == "present" and arguments.get("value") in (None, ""):
        return "`value` is missing; `state: absent` takes a setting out of the file"
    return None


MODULE = Module(
    names=("ansible.posix.sysctl",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=check_arguments,
    summary="kernel settings, now and at boot",
    differs=(
        f"the file is {FILE} unless `sysctl_file` says otherwise: Debian 13 no longer reads /etc/sysctl.conf",
        "with `reload` the running value is compared and set, too; Ansible looks at the file alone",
        "a file that sets another value later at boot is told as a warning",
    ),
)
