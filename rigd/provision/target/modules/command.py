"""A command, without a shell."""

import os
import shlex
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import command_lines
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError


def apply(
    arguments: Mapping[str, Any], _state: Mapping[str, Any], _changes: list[Change], box: Box
) -> Mapping[str, Any]:
    """Run it."""
    try:
        words = [str(word) for word in arguments["argv"] or shlex.split(arguments["cmd"])]
    except ValueError as error:
        raise ModuleError(f"cannot split the command into words: {error}; quote it, or use `argv`") from error
    if arguments["expand_argument_vars"]:
        words = [os.path.expanduser(os.path.expandvars(word)) for word in words]
    return command_lines.run(box, words, {**arguments, "argv": words})


MODULE = Module(
    names=("ansible.builtin.command",),
    arguments={
        "cmd": Argument(),
        "argv": Argument(kind=Kind.LIST, elements=Kind.TEXT),
        **command_lines.COMMON,
        "strip_empty_ends": Argument(kind=Kind.BOOLEAN, default=True),
        "expand_argument_vars": Argument(kind=Kind.BOOLEAN, default=True),
    },
    probe=command_lines.probe,
    difference=command_lines.difference,
    apply=apply,
    result=command_lines.result,
    free_form="cmd",
    exclusive=(("cmd", "argv"),),
    one_of=(("cmd", "argv"),),
    summary="a command without a shell; `creates` and `removes` say when it was done",
)
