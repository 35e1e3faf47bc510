"""Packages that apt must leave as they are."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target import dpkg
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the installed packages of these names or patterns, and which of them are held."""
    known = dpkg.packages(box, arguments["name"])
    found = {name: entry["held"] for name, entry in known.items() if ":" not in name and entry["installed"]}
    named = [name for name in arguments["name"] if not any(sign in name for sign in "*?[")]
    return {"held": found, "missing": [name for name in named if name not in found], "check": box.check}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return which to hold or release."""
    wanted = arguments["state"] == "present"
    if wanted and state["missing"] and not state["check"]:
        raise ModuleError(
            f"{', '.join(state['missing'])} is not installed, so it cannot be held at its version"
        )
    verb = "hold" if wanted else "unhold"
    return [
        Change(what=f"{verb} {name}", subject=name, data={"name": name})
        for name, held in sorted(state["held"].items())
        if held is not wanted
    ]


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Ask apt-mark."""
    verb = "hold" if arguments["state"] == "present" else "unhold"
    box.run(["apt-mark", verb, *(change.data["name"] for change in changes)])


MODULE = Module(
    names=("rigd.box.apt_hold",),
    arguments={
        "name": Argument(kind=Kind.LIST, elements=Kind.TEXT, required=True),
        "state": Argument(default="present", choices=("present", "absent")),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: {"held": sorted(name for name, held in state["held"].items() if held)},
    summary="packages (or patterns of installed ones) that apt must leave as they are",
)
