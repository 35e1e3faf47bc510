"""`lineinfile`: one line of a text file is there once, or not at all."""

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
    if arguments["state"] == "absent":
        return edited.changes(arguments, state, *_without(arguments, text)) if text is not None else []
    if text is None and not arguments["create"]:
        raise ModuleError(
            f"Destination {arguments['path']} does not exist! (`create: true` makes it)", rc=257
        )
    new, what = _with(arguments, text or "")
    again = None if new is None else _with(arguments, new)[0]
    if again not in (None, new):
        raise ModuleError(
            f"'{arguments['regexp'] or arguments['search_string']}' finds a line to change on every run in"
            f" '{arguments['path']}', or on the next one: write it so that it fits one line, and the finished one"
        )
    return edited.changes(arguments, state, new, what)


def _without(arguments: Mapping[str, Any], text: str) -> tuple[str | None, str]:
    pattern, part, line = _compiled(arguments), arguments["search_string"], arguments["line"]

    def goes(one: str) -> bool:
        bare = one.rstrip("\r\n")
        if pattern is not None:
            return pattern.search(one) is not None
        return part in one if part is not None else bare == line

    lines = edited.lines_of(text)
    kept = [one for one in lines if not goes(one)]
    gone = len(lines) - len(kept)
    return ("".join(kept) if gone else None), f"{gone} line(s) removed"


def _with(arguments: Mapping[str, Any], text: str) -> tuple[str | None, str]:
    lines = edited.lines_of(text)
    pattern, part, line = _compiled(arguments), arguments["search_string"], _line(arguments)
    found, match = _matching(lines, pattern, part, first=arguments["firstmatch"])
    if found is None:
        # The line may be there already: a second one would be added on every run.
        found = next((index for index, one in enumerate(lines) if one.rstrip("\r\n") == line), None)
    if found is not None:
        lines[found] = _expanded(arguments, match, line) + "\n"
        return "".join(lines), "line replaced"
    if arguments["backrefs"]:
        return None, ""
    return _added(arguments, lines, line), "line added"


def _matching(
    lines: list[str], pattern: "re.Pattern[str] | None", part: str | None, *, first: bool
) -> "tuple[int | None, re.Match[str] | None]":
    """Return the last line that matches (the first one if `first`), as Ansible takes it."""
    for index in range(len(lines)) if first else range(len(lines) - 1, -1, -1):
        if pattern is not None and (match := pattern.search(lines[index])) is not None:
            return index, match
        if part is not None and part in lines[index]:
            return index, None
    return None, None


def _line(arguments: Mapping[str, Any]) -> str:
    line = str(arguments["line"]).removesuffix("\n")  # YAML's `|` brings one.
    if "\n" in line:
        raise ModuleError(
            "`line` holds a line break, and would be added on every run: use `blockinfile` for it"
        )
    return line


def _expanded(arguments: Mapping[str, Any], match: "re.Match[str] | None", line: str) -> str:
    return match.expand(line) if arguments["backrefs"] and match is not None else line


def _added(arguments: Mapping[str, Any], lines: list[str], line: str) -> str:
    """Return the text with the line at its place: the file's end, or by `insertafter` and `insertbefore`."""
    after, before = arguments["insertafter"], arguments["insertbefore"]
    new = line + "\n"
    if before == "BOF" or after == "BOF":
        return new + "".join(lines)
    anchor = after if before is None else before
    place = None
    if anchor not in (None, "EOF"):
        pattern = _pattern(str(anchor))
        hits = [index for index, one in enumerate(lines) if pattern.search(one)]
        if hits:
            place = hits[0] if arguments["firstmatch"] else hits[-1]
    at = len(lines) if place is None else place + (before is None)
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    return "".join([*lines[:at], new, *lines[at:]])


def _compiled(arguments: Mapping[str, Any]) -> "re.Pattern[str] | None":
    return None if arguments["regexp"] is None else _pattern(arguments["regexp"])


def _pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except re.error as error:
        raise ModuleError(f"'{text}' is no regular expression: {error}") from error


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box
) -> dict[str, Any]:
    """Write the text; tell how many lines went, and where the old ones are kept."""
    facts = edited.apply(arguments, state, changes, box)
    gone = re.match(r"\d+", facts["msg"])
    found = {"found": int(gone[0])} if gone else {}
    return {**facts, **found, "backup": (box.backups or [""])[0]}


def _together(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("state", "present") == "present":
        if arguments.get("line") is None:
            return "line is required with state=present"
        if arguments.get("backrefs") and not arguments.get("regexp"):
            return "regexp is required with backrefs=true"
    elif (
        arguments.get("regexp") is None
        and arguments.get("search_string") is None
        and arguments.get("line") is None
    ):
        return "one of line, search_string, or regexp is required with state=absent"
    return None


MODULE = Module(
    names=("ansible.builtin.lineinfile",),
    summary="one line of a text file is there once, or not at all",
    arguments={
        **edited.ARGUMENTS,
        "state": Argument(choices=("absent", "present"), default="present"),
        "regexp": Argument(aliases=("regex",)),
        "search_string": Argument(),
        "line": Argument(aliases=("value",)),
        "backrefs": Argument(kind=Kind.BOOLEAN, default=False),
        "insertafter": Argument(),
        "insertbefore": Argument(),
        "create": Argument(kind=Kind.BOOLEAN, default=False),
        "firstmatch": Argument(kind=Kind.BOOLEAN, default=False),
        "others": Argument(left_out="Ansible passes it on without a meaning"),
    },
    exclusive=(("insertbefore", "insertafter"), ("regexp", "search_string"), ("backrefs", "search_string")),
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, _state: {"msg": "", "backup": ""},
    check_arguments=_together,
    differs=(
        "a line that would change again on every run (backrefs that grow it) is refused before it is written",
    ),
)
