"""Units of systemd, also under the name `systemd`."""

from rigd.provision.target import unit_states
from rigd.provision.target.contract import Module

MODULE = Module(
    names=("ansible.builtin.systemd_service",),
    arguments=unit_states.ARGUMENTS,
    probe=unit_states.probe,
    difference=unit_states.difference,
    apply=unit_states.apply,
    result=unit_states.result,
    one_of=unit_states.ONE_OF,
    check_arguments=unit_states.check_arguments,
    summary="units of systemd: enabled, masked, started, stopped, restarted, reloaded",
    differs=unit_states.DIFFERS,
)
