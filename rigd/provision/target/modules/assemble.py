"""`assemble`: one file from the pieces of a folder, in the order of their names."""

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes, edited
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Read the pieces and the file."""
    folder = arguments["src"]
    if not os.path.isdir(folder):
        raise ModuleError(f"Source ({folder}) is not a directory on the box")
    pieces = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        hidden = name.startswith(".") and arguments["ignore_hidden"]
        if (
            os.path.isfile(path)
            and not hidden
            and (arguments["regexp"] is None or re.search(arguments["regexp"], name))
        ):
            pieces.append(edited.read(path, "utf-8"))
    state = edited.look({**arguments, "path": arguments["dest"], "encoding": "utf-8"})
    return {**state, "new": _joined(pieces, arguments["delimiter"])}


def _joined(pieces: list[str], delimiter: str | None) -> str:
    text = ""
    for index, piece in enumerate(pieces):
        if index and text and not text.endswith("\n"):
            text += "\n"
        if index and delimiter is not None:
            plain = delimiter.encode().decode("unicode_escape")
            text += plain if plain.endswith("\n") else plain + "\n"
        text += piece
    return text


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the change to the file."""
    return edited.changes({**arguments, "encoding": "utf-8"}, state, state["new"], "assembled anew")


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the file, validated, in one step."""
    edited.apply({**arguments, "encoding": "utf-8"}, state, changes, box)


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the pieces are now, and as what."""
    facts: dict[str, Any] = {"src": arguments["src"], "dest": state["path"]}
    if state["seen"] is not None and state["text"] is not None:
        content = state["text"].encode("utf-8", "surrogateescape")
        checksum = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        facts |= {**attributes.names(state["seen"]), "checksum": checksum}
    return facts


MODULE = Module(
    names=("ansible.builtin.assemble",),
    summary="one file from the pieces of a folder, in the order of their names",
    arguments={
        **{name: one for name, one in edited.ARGUMENTS.items() if name not in {"path", "encoding"}},
        "src": Argument(kind=Kind.PATH, required=True),
        "dest": Argument(kind=Kind.PATH, required=True),
        "delimiter": Argument(),
        "regexp": Argument(),
        "ignore_hidden": Argument(kind=Kind.BOOLEAN, default=False),
        "remote_src": Argument(
            kind=Kind.BOOLEAN, default=True, left_out="the pieces lie on the box; copy them there first"
        ),
        "decrypt": Argument(kind=Kind.BOOLEAN, default=True),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
)
