"""A command line as it is; for Ansible's sake, since rigd's helper runs on the box anyway."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target import command_lines
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module


def apply(
    arguments: Mapping[str, Any], _state: Mapping[str, Any], _changes: list[Change], box: Box
) -> Mapping[str, Any]:
    """Run it by the shell."""
    return command_lines.run(box, [arguments["executable"] or "/bin/sh", "-c", arguments["cmd"]], arguments)


MODULE = Module(
    names=("ansible.builtin.raw",),
    arguments={"cmd": Argument(required=True), "executable": Argument(kind=Kind.PATH)},
    probe=command_lines.probe,
    difference=command_lines.difference,
    apply=apply,
    result=command_lines.result,
    free_form="cmd",
    summary="a command line for /bin/sh",
    differs=("it runs through the helper, so the box has Python by then: rigd brings it itself",),
)
