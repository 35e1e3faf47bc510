"""All installed packages and their versions, as facts."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Kind, Module

FORMAT = "${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\t${Section}\n"


def probe(_arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the versions of each installed package."""
    packages: dict[str, Any] = {}
    for line in box.run(["dpkg-query", "-W", "-f", FORMAT]).stdout.splitlines():
        status, name, version, architecture, section = [*line.split("\t"), *[""] * 5][:5]
        if status[1:2] == "i":
            entry = {
                "name": name,
                "version": version,
                "arch": architecture,
                "category": section,
                "source": "apt",
            }
            packages.setdefault(name, []).append(entry)
    return packages


MODULE = Module(
    names=("ansible.builtin.package_facts",),
    arguments={
        "manager": Argument(kind=Kind.LIST, elements=Kind.TEXT, default=["auto"]),
        "strategy": Argument(default="first", choices=("first", "all")),
    },
    probe=probe,
    result=lambda _arguments, state: {"ansible_facts": {"packages": state}},
    summary="all installed packages and their versions, as facts",
    differs=("no `origin`: reading it would open apt's whole cache",),
)
