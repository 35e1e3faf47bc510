"""`tempfile`: a fresh temporary file or folder."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError


def probe(_arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Nothing is known of what is not there yet."""
    return {}


def difference(arguments: Mapping[str, Any], _state: Any) -> list[Change]:
    """Return that something new is made, always."""
    return [Change(what=f"make a temporary {arguments['state']}", subject=arguments["path"] or "", once=True)]


def apply(arguments: Mapping[str, Any], _state: Any, _changes: list[Change], _box: Box) -> dict[str, Any]:
    """Make it, private to the user, and return its path."""
    make = {"prefix": arguments["prefix"], "suffix": arguments["suffix"], "dir": arguments["path"]}
    try:
        if arguments["state"] == "directory":
            path = tempfile.mkdtemp(**make)
        else:
            handle, path = tempfile.mkstemp(**make)
            os.close(handle)
    except OSError as error:
        raise ModuleError(f"cannot make a temporary {arguments['state']}: {error.strerror}") from error
    seen = attributes.look(path)
    return {"path": path, **(attributes.names(seen) if seen is not None else {})}


MODULE = Module(
    names=("ansible.builtin.tempfile",),
    summary="a fresh temporary file or folder",
    arguments={
        "state": Argument(choices=("directory", "file"), default="file"),
        "path": Argument(kind=Kind.PATH),
        "prefix": Argument(default="ansible."),
        "suffix": Argument(default=""),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    skipped_in_check=True,
)
