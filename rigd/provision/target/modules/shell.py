"""A command line for a shell."""

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
    names=("ansible.builtin.shell",),
    arguments={
        "cmd": Argument(required=True),
        **command_lines.COMMON,
        "executable": Argument(kind=Kind.PATH),
        "strip_empty_ends": Argument(kind=Kind.BOOLEAN, default=True),
        "expand_argument_vars": Argument(left_out="a shell expands variables itself"),
    },
    probe=command_lines.probe,
    difference=command_lines.difference,
    apply=apply,
    result=command_lines.result,
    free_form="cmd",
    summary="a command line for /bin/sh or `executable`; `creates` and `removes` say when it was done",
)
