"""A text file that a task edits: read, shown as a difference, validated, written in one step with its attributes."""

import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes
from rigd.provision.target.contract import Argument, Box, Change, Kind, ModuleError

MOST_BYTES = 64 * 1024 * 1024
"""A text file larger than this is not edited: something else was meant."""
ARGUMENTS: dict[str, Argument] = {
    "path": Argument(kind=Kind.PATH, required=True, aliases=("dest", "destfile", "name")),
    "backup": Argument(kind=Kind.BOOLEAN, default=False),
    "validate": Argument(),
    "encoding": Argument(default="utf-8"),
    **attributes.ARGUMENTS,
}


def look(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file's text, its attributes and the wanted owner; text None where there is no file."""
    path = os.path.realpath(arguments["path"])  # A link's other end is edited, the link stays.
    seen = attributes.look(path)
    if seen is not None and seen["kind"] == "directory":
        raise ModuleError(f"'{arguments['path']}' is a folder, and a text file is needed")
    state = {"path": path, "seen": seen, "ids": attributes.identity(arguments)}
    return {**state, "text": None if seen is None else read(path, arguments["encoding"])}


def read(path: str, encoding: str) -> str:
    """Return a file's text, with every byte that is no text kept."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise ModuleError(
                f"'{path}' is larger than {MOST_BYTES >> 20} MiB: no text file is edited that is so large"
            )
        with open(path, encoding=encoding, errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError as error:
        raise ModuleError(f"cannot read '{path}': {error.strerror}") from error
    except LookupError as error:
        raise ModuleError(f"there is no encoding '{encoding}'") from error


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends. A line ends with a newline alone: a form feed is part of one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def changes(
    arguments: Mapping[str, Any], state: Mapping[str, Any], text: str | None, what: str
) -> list[Change]:
    """Return the change to `text` (None: the text stays), and those of the attributes."""
    found: list[Change] = []
    if text is not None and text != state["text"]:
        before = state["text"] if state["text"] is not None else ""
        found.append(Change(what=what, subject=state["path"], before=before, after=text, data={"text": text}))
    if state["seen"] is not None:
        uid, gid = state["ids"]
        found += attributes.differences(
            state["path"], state["seen"], mode=arguments["mode"], uid=uid, gid=gid
        )
    return found


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], found: list[Change], box: Box
) -> dict[str, Any]:
    """Write the text, validated, and set the attributes; return what was done to it as `msg`."""
    path = state["path"]
    for change in found:
        if "text" in change.data:
            content = change.data["text"].encode(arguments["encoding"], "surrogateescape")
            put(box, path, content, validate=arguments["validate"], backup=arguments["backup"])
    seen = attributes.look(path)
    if seen is not None:
        uid, gid = state["ids"]
        attributes.put(attributes.differences(path, seen, mode=arguments["mode"], uid=uid, gid=gid))
    done = [change.what for change in found if "text" in change.data]
    return {"msg": done[0] if done else "attributes changed"}


def put(
    box: Box, path: str, content: bytes, *, validate: str | None, backup: bool, follow: bool = True
) -> None:
    """Write content in one step; a command that validates sees a temporary copy first, and may refuse it."""
    if validate is not None:
        validated(box, path, content, validate)
    box.write(path, content, backup=backup, follow=follow)


def validated(box: Box, path: str, content: bytes, command: str) -> None:
    """Ask a command about new content of a file, or raise ModuleError with what it said."""
    if "%s" not in command:
        raise ModuleError(f"validate must contain %s for the file to look at: {command}")
    # Private, as the content may be: the command runs with this task's rights and can read it.
    with tempfile.NamedTemporaryFile(prefix="rigd-validate-", suffix=os.path.splitext(path)[1]) as file:
        file.write(content)
        file.flush()
        argv = [word.replace("%s", file.name) for word in shlex.split(command)]
        done = box.run(argv, ok=None)
    if done.rc != 0:
        said = (done.stderr or done.stdout).strip()
        raise ModuleError(
            f"failed to validate: `{command}` refuses the new content of '{path}' (rc {done.rc}): {said[-2000:]}",
            rc=done.rc, stdout=done.stdout, stderr=done.stderr,
        )  # fmt: skip
