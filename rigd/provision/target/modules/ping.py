"""Whether the helper answers."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Module, ModuleError


def _probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    if arguments["data"] == "crash":
        raise ModuleError("boom")
    return {}


MODULE = Module(
    names=("ansible.builtin.ping",),
    arguments={"data": Argument(default="pong")},
    probe=_probe,
    result=lambda arguments, _state: {"ping": arguments["data"]},
    summary="whether the box answers",
)
