"""Services, by systemd."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target import unit_states
from rigd.provision.target.contract import Argument, Kind, Module

OF_OTHERS = {
    "sleep": Argument(kind=Kind.INTEGER),
    "pattern": Argument(),
    "runlevel": Argument(),
    "arguments": Argument(aliases=("args",)),
}
"""Arguments about init systems other than systemd."""


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `systemd_service` does, and what was given without effect."""
    facts = unit_states.result(arguments, state)
    if given := [name for name in OF_OTHERS if arguments.get(name) is not None]:
        facts["warnings"] = [f"{', '.join(given)}: means nothing to systemd, and is left aside"]
    return facts


MODULE = Module(
    names=("ansible.builtin.service",),
    arguments={
        "name": Argument(required=True),
        "state": unit_states.ARGUMENTS["state"],
        "enabled": Argument(kind=Kind.BOOLEAN),
        "use": Argument(default="auto", choices=("auto", "systemd", "ansible.builtin.systemd")),
        **OF_OTHERS,
    },
    probe=unit_states.probe,
    difference=unit_states.difference,
    apply=unit_states.apply,
    result=result,
    one_of=(("state", "enabled"),),
    summary="services (systemd's): enabled, started, stopped, restarted, reloaded",
    differs=unit_states.DIFFERS[1:],
)
