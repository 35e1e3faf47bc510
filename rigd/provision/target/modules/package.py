"""Packages by the box's package manager, which is apt here."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target import apt_packages
from rigd.provision.target.contract import Argument, Kind, Module

MODULE = Module(
    names=("ansible.builtin.package",),
    arguments={
        "name": Argument(kind=Kind.LIST, elements=Kind.TEXT, required=True),
        "state": Argument(required=True, choices=("present", "installed", "latest", "absent", "removed")),
        "use": Argument(default="auto", choices=("auto", "apt", "ansible.builtin.apt")),
        "update_cache": Argument(kind=Kind.BOOLEAN),
        "cache_valid_time": Argument(kind=Kind.INTEGER, default=0),
    },
    probe=lambda arguments, box: apt_packages.probe(_plain(arguments), box),
    difference=lambda arguments, state: apt_packages.difference(_plain(arguments), state),
    apply=lambda arguments, state, changes, box: apt_packages.apply(_plain(arguments), state, changes, box),
    summary="packages by the system's package manager (apt)",
)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    state = {"installed": "present", "removed": "absent"}.get(arguments["state"], arguments["state"])
    return {**arguments, "state": state}
