"""`replace`: every match of a pattern in a text file becomes something else."""

import re
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import edited
from rigd.provision.target.contract import Argument, Box, Change, Module, ModuleError


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Read the file."""
    return edited.look(arguments)


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the change to the text; one that would change again on the next run is an error."""
    text = state["text"]
    if text is None:
        raise ModuleError(f"Path {arguments['path']} does not exist !", rc=257)
    new, count = _replaced(arguments, text)
    again, _ = _replaced(arguments, new)
    if again != new:
        raise ModuleError(
            f"the replacement matches the pattern '{arguments['regexp']}' again, so every run would change "
            f"'{arguments['path']}': anchor the pattern (^ and $, or a look-ahead) so that it fits the old text alone"
        )
    return edited.changes(arguments, state, new, f"{count} replacements made")


def _replaced(arguments: Mapping[str, Any], text: str) -> tuple[str, int]:
    low, high = _section(arguments, text)
    try:
        new, count = re.subn(arguments["regexp"], arguments["replace"], text[low:high], flags=re.MULTILINE)
    except (re.error, IndexError) as error:
        raise ModuleError(f"'{arguments['regexp']}' with '{arguments['replace']}': {error}") from error
    return text[:low] + new + text[high:], count


def _section(arguments: Mapping[str, Any], text: str) -> tuple[int, int]:
    """Return the part of the text between `after` and `before`; an empty one where they do not match."""
    after, before = arguments["after"], arguments["before"]
    if after is None and before is None:
        return 0, len(text)
    if after is not None and before is not None:
        pattern = f"{after}(?P<subsection>.*?){before}"
    else:
        pattern = f"{after}(?P<subsection>.*)" if after is not None else f"(?P<subsection>.*){before}"
    try:
        match = re.search(pattern, text, re.DOTALL)
    except re.error as error:
        raise ModuleError(f"'{pattern}' is no regular expression: {error}") from error
    return (0, 0) if match is None else match.span("subsection")


MODULE = Module(
    names=("ansible.builtin.replace",),
    summary="every match of a pattern in a text file becomes something else",
    arguments={
        **edited.ARGUMENTS,
        "regexp": Argument(required=True),
        "replace": Argument(default=""),
        "after": Argument(),
        "before": Argument(),
    },
    probe=probe,
    difference=difference,
    apply=edited.apply,
    result=lambda _arguments, _state: {"msg": ""},
    differs=("a replacement that its own pattern matches again is refused: every run would change it",),
)
