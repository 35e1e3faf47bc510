"""`blockinfile`: a block of lines between two marker lines."""

import re
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import edited
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Read the file."""
    return edited.look(arguments)


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the change to the text, if any."""
    text = state["text"]
    gone = arguments["state"] == "absent" or not arguments["block"]
    if text is None:
        if gone and arguments["create"]:
            return []
        if not arguments["create"]:
            raise ModuleError(f"Path {arguments['path']} does not exist! (`create: true` makes it)", rc=257)
    new = _edited(arguments, text or "", gone=gone)
    what = (
        "block removed"
        if gone
        else "block inserted"
        if text is None or new.count("\n") > text.count("\n")
        else "block changed"
    )
    return edited.changes(arguments, state, new, what)


def _edited(arguments: Mapping[str, Any], text: str, *, gone: bool) -> str:
    lines = edited.lines_of(text)
    begin, end = (
        arguments["marker"].replace("{mark}", arguments[word]).rstrip("\n")
        for word in ("marker_begin", "marker_end")
    )
    first, last = _markers(lines, begin, end)
    if first is not None and last is not None:
        low, high = min(first, last), max(first, last)
        del lines[low : high + 1]
        at: int | None = low
    else:
        at = None
    if gone:
        return "".join(lines)
    body = arguments["block"]
    block = [
        f"{begin}\n",
        *edited.lines_of(body if body.endswith("\n") else f"{body}\n"),
        f"{end}\n",
    ]
    if at is None:
        at = _place(arguments, lines)
    if at > 0 and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    if arguments["prepend_newline"] and at > 0 and lines[at - 1] != "\n":
        block.insert(0, "\n")
    if arguments["append_newline"] and at < len(lines) and lines[at] != "\n":
        block.append("\n")
    return "".join([*lines[:at], *block, *lines[at:]])


def _markers(lines: list[str], begin: str, end: str) -> tuple[int | None, int | None]:
    first = last = None
    for index, line in enumerate(lines):
        bare = line.rstrip("\r\n")
        first = index if bare == begin else first
        last = index if bare == end else last
    return first, last


def _place(arguments: Mapping[str, Any], lines: list[str]) -> int:
    after, before = arguments["insertafter"], arguments["insertbefore"]
    anchor = after if before is None else before
    if before == "BOF":
        return 0
    if anchor in (None, "EOF"):
        return len(lines)
    try:
        pattern = re.compile(anchor)
    except re.error as error:
        raise ModuleError(f"'{anchor}' is no regular expression: {error}") from error
    if pattern.flags & re.MULTILINE:  # Such a pattern may span lines, as it does with Ansible.
        text = "".join(lines)
        spans = [match.span() for match in [pattern.search(text)] if match]
        hits = [text.count("\n", 0, end if before is None else start) for start, end in spans]
    else:
        hits = [index for index, line in enumerate(lines) if pattern.search(line)]
    return hits[-1] + (before is None) if hits else len(lines)


def _together(arguments: Mapping[str, Any]) -> str | None:
    marker = arguments.get("marker") or ""
    if "{mark}" not in marker:
        return "marker must contain {mark}, or the block's begin and end cannot be told apart"
    words = [arguments.get("marker_begin") or "", arguments.get("marker_end") or ""]
    if "\n" in "".join([*words, marker.rstrip("\n")]):
        return "marker, marker_begin and marker_end must be one line"
    return None


MODULE = Module(
    names=("ansible.builtin.blockinfile",),
    summary="a block of lines between two marker lines",
    arguments={
        **edited.ARGUMENTS,
        "state": Argument(choices=("absent", "present"), default="present"),
        "marker": Argument(default="# {mark} ANSIBLE MANAGED BLOCK"),
        "marker_begin": Argument(default="BEGIN"),
        "marker_end": Argument(default="END"),
        "block": Argument(aliases=("content",), default=""),
        "insertafter": Argument(),
        "insertbefore": Argument(),
        "create": Argument(kind=Kind.BOOLEAN, default=False),
        "prepend_newline": Argument(kind=Kind.BOOLEAN, default=False),
        "append_newline": Argument(kind=Kind.BOOLEAN, default=False),
    },
    exclusive=(("insertbefore", "insertafter"),),
    probe=probe,
    difference=difference,
    apply=edited.apply,
    result=lambda _arguments, _state: {"msg": ""},
    check_arguments=_together,
)
