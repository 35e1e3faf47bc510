"""`slurp`: a file's content, in base64."""

import base64
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Kind, Module, ModuleError

MOST_BYTES = 32 * 1024 * 1024
PIECE_BYTES = 1024 * 1024


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Read the file."""
    path = arguments["src"]
    try:
        if os.path.isdir(path):
            raise ModuleError(f"source is a directory and must be a file: {path}")
        if os.path.getsize(path) > MOST_BYTES:
            raise ModuleError(f"'{path}' is larger than {MOST_BYTES >> 20} MiB, too much for a variable")
        with open(path, "rb") as file:
            # In pieces: the kernel refuses to fill a large one from files of /proc/sys, with "out of memory".
            content = b"".join(iter(lambda: file.read(PIECE_BYTES), b""))
    except FileNotFoundError:
        raise ModuleError(f"file not found: {path}") from None
    except OSError as error:
        raise ModuleError(f"cannot read '{path}': {error.strerror}") from error
    return {"content": base64.b64encode(content).decode(), "source": path, "encoding": "base64"}


MODULE = Module(
    names=("ansible.builtin.slurp",),
    summary="a file's content, in base64",
    arguments={"src": Argument(kind=Kind.PATH, required=True, aliases=("path",))},
    probe=probe,
    result=lambda _arguments, state: state,
)
