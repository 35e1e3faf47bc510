"""The box's name."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigd.provision.target.contract import Argument, Box, Change, Module

FILE = Path("/etc/hostname")


def probe(_arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return the name in the file and the one in use."""
    try:
        stored = FILE.read_text(encoding="utf-8").strip()
    except OSError:
        stored = ""
    return {"stored": stored, "now": socket.gethostname()}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return whether one of the two differs."""
    name = arguments["name"]
    return [
        Change(what=f"{label}: {state[key]} -> {name}", subject=subject, before=f"{state[key]}\n", after=f"{name}\n",
               data={"key": key})
        for key, label, subject in (("stored", "name from the next boot on", str(FILE)), ("now", "name", "hostname"))
        if state[key] != name
    ]  # fmt: skip


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the file, and take the name on now."""
    for change in changes:
        if change.data["key"] == "stored":
            box.write(str(FILE), f"{arguments['name']}\n".encode(), mode=0o644)
        else:
            socket.sethostname(arguments["name"])


def result(arguments: Mapping[str, Any], _state: Mapping[str, Any]) -> dict[str, Any]:
    name = arguments["name"]
    facts = {"ansible_hostname": name.split(".")[0], "ansible_nodename": name}
    return {"name": name, "ansible_facts": facts}


MODULE = Module(
    names=("ansible.builtin.hostname",),
    arguments={"name": Argument(required=True), "use": Argument(choices=("debian", "systemd"))},
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    summary="the box's name, now and from the next boot on",
    differs=("the name for people to read (/etc/machine-info) is left alone: it may be a whole sentence",),
)
