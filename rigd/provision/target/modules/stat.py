"""`stat`: what a path is."""

import mimetypes
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import digests, path_facts
from rigd.provision.target.contract import Argument, Box, Kind, Module, ModuleError

MOST_HASHED = 1 << 30
"""A larger file is not hashed: a model of 15 GB would take a minute for a sum that nobody asked for."""


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return all that `stat` tells of the path."""
    path = arguments["path"]
    try:
        seen = os.stat(path) if arguments["follow"] else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False}
    except OSError as error:
        raise ModuleError(f"cannot look at '{path}': {error.strerror}") from error
    found = {
        "exists": True, **path_facts.facts_of(path, seen), "readable": os.access(path, os.R_OK),
        "writeable": os.access(path, os.W_OK), "executable": os.access(path, os.X_OK),
        "blocks": seen.st_blocks, "block_size": seen.st_blksize, "device_type": seen.st_rdev,
    }  # fmt: skip
    if found["islnk"]:
        found |= {"lnk_source": os.path.realpath(path), "lnk_target": os.readlink(path)}
    if found["isreg"] and arguments["get_checksum"] and found["readable"] and seen.st_size <= MOST_HASHED:
        found["checksum"] = digests.of_file(path, arguments["checksum_algorithm"])
    if found["isreg"] and arguments["get_mime"]:
        found["mimetype"] = mimetypes.guess_type(path)[0] or "unknown"
    return found


MODULE = Module(
    names=("ansible.builtin.stat",),
    summary="what a path is",
    arguments={
        "path": Argument(kind=Kind.PATH, required=True, aliases=("dest", "name")),
        "follow": Argument(kind=Kind.BOOLEAN, default=False),
        "get_checksum": Argument(kind=Kind.BOOLEAN, default=True),
        "checksum_algorithm": path_facts.ALGORITHM,
        "get_mime": Argument(kind=Kind.BOOLEAN, default=True, aliases=("mime", "mime_type", "mime-type")),
        "get_attributes": Argument(kind=Kind.BOOLEAN, default=True, aliases=("attr", "attributes")),
        "get_selinux_context": Argument(kind=Kind.BOOLEAN, default=False),
    },
    probe=probe,
    result=lambda _arguments, state: {"stat": state},
    differs=("files above 1 GiB have no checksum; the MIME type is guessed from the name; no chattr flags",),
)
