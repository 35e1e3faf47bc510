"""Services, by systemd."""

from rigd.provision.target import unit_states
from rigd.provision.target.contract import Argument, Kind, Module

ONLY_SYSTEMD = "it is about init systems other than systemd"

MODULE = Module(
    names=("ansible.builtin.service",),
    arguments={
        "name": Argument(required=True),
        "state": unit_states.ARGUMENTS["state"],
        "enabled": Argument(kind=Kind.BOOLEAN),
        "use": Argument(default="auto", choices=("auto", "systemd", "ansible.builtin.systemd")),
        "sleep": Argument(left_out=ONLY_SYSTEMD),
        "pattern": Argument(left_out=ONLY_SYSTEMD),
        "runlevel": Argument(left_out=ONLY_SYSTEMD),
        "arguments": Argument(left_out=ONLY_SYSTEMD, aliases=("args",)),
    },
    probe=unit_states.probe,
    difference=unit_states.difference,
    apply=unit_states.apply,
    result=unit_states.result,
    one_of=(("state", "enabled"),),
    summary="services (systemd's): enabled, started, stopped, restarted, reloaded",
    differs=unit_states.DIFFERS[1:],
)
