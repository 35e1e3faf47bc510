"""`stat`: what a path is."""

import hashlib
import mimetypes
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

MOST_HASHED = 1 << 30
"""A larger file is not hashed: a model of 15 GB would take a minute for a sum that nobody asked for."""


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return all that `stat` tells of the path."""
    path = arguments["path"]
    seen = attributes.look(path, follow=arguments["follow"])
    if seen is None:
        return {"exists": False}
    facts = os.stat(path) if arguments["follow"] and os.path.exists(path) else os.lstat(path)
    found = {
        "exists": True, "path": path, "mode": f"{seen['mode']:04o}", "isdir": seen["kind"] == "directory",
        "isreg": seen["kind"] == "file", "islnk": seen["kind"] == "link", "size": facts.st_size,
        "uid": facts.st_uid, "gid": facts.st_gid, "pw_name": attributes.user_name(facts.st_uid),
        "gr_name": attributes.group_name(facts.st_gid), "inode": facts.st_ino, "dev": facts.st_dev,
        "nlink": facts.st_nlink, "atime": facts.st_atime, "mtime": facts.st_mtime, "ctime": facts.st_ctime,
        **_kinds(facts.st_mode), **_permissions(seen["mode"]),
        "readable": os.access(path, os.R_OK), "writeable": os.access(path, os.W_OK),
        "executable": os.access(path, os.X_OK),
    }  # fmt: skip
    if seen["kind"] == "link":
        found |= {"lnk_source": os.path.realpath(path), "lnk_target": seen["target"]}
    if seen["kind"] == "file":
        found |= _content(arguments, path, facts.st_size)
    return found


def _kinds(mode: int) -> dict[str, bool]:
    kind = mode & 0o170000
    kinds = {"isblk": 0o060000, "ischr": 0o020000, "isfifo": 0o010000, "issock": 0o140000}
    return {name: kind == value for name, value in kinds.items()}


def _permissions(mode: int) -> dict[str, bool]:
    bits = {
        f"{letter}{who}": 1 << (8 - 3 * group - place)
        for group, who in enumerate(("usr", "grp", "oth"))
        for place, letter in enumerate("rwx")
    }
    return {
        **{name: bool(mode & bit) for name, bit in bits.items()},
        "isuid": bool(mode & 0o4000),
        "isgid": bool(mode & 0o2000),
    }


def _content(arguments: Mapping[str, Any], path: str, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if arguments["get_checksum"] and size <= MOST_HASHED and os.access(path, os.R_OK):
        found["checksum"] = digest(path, arguments["checksum_algorithm"])
    if arguments["get_mime"]:
        found["mimetype"] = mimetypes.guess_type(path)[0] or "unknown"
    return found


def digest(path: str, algorithm: str) -> str:
    """Return a file's hash in hex."""
    try:
        with open(path, "rb") as file:
            return (
                hashlib.file_digest(file, algorithm).hexdigest()
                if hasattr(hashlib, "file_digest")
                else _digest(file, algorithm)
            )
    except (OSError, ValueError) as error:
        raise ModuleError(f"cannot hash '{path}': {error}") from error


def _digest(file: Any, algorithm: str) -> str:
    found = hashlib.new(algorithm)
    while piece := file.read(1 << 20):
        found.update(piece)
    return found.hexdigest()


def difference(_arguments: Mapping[str, Any], _state: Any) -> list[Change]:
    """Nothing: it only reads."""
    return []


def apply(_arguments: Mapping[str, Any], _state: Any, _changes: list[Change], _box: Box) -> None:
    """Nothing: it only reads."""


MODULE = Module(
    names=("ansible.builtin.stat",),
    summary="what a path is",
    arguments={
        "path": Argument(kind=Kind.PATH, required=True, aliases=("dest", "name")),
        "follow": Argument(kind=Kind.BOOLEAN, default=False),
        "get_checksum": Argument(kind=Kind.BOOLEAN, default=True),
        "checksum_algorithm": Argument(
            default="sha1",
            choices=("md5", "sha1", "sha224", "sha256", "sha384", "sha512"),
            aliases=("checksum", "checksum_algo"),
        ),
        "get_mime": Argument(kind=Kind.BOOLEAN, default=True, aliases=("mime", "mime_type", "mime-type")),
        "get_attributes": Argument(kind=Kind.BOOLEAN, default=True, aliases=("attr", "attributes")),
        "get_selinux_context": Argument(kind=Kind.BOOLEAN, default=False),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: {"stat": state},
    reads_only=True,
    differs=("files above 1 GiB have no checksum; the MIME type is guessed from the name; no chattr flags",),
)
