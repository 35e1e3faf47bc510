"""`rigd provision apply` and `check` without typer, whose import costs as much as a converged run.

Only what is plainly right is taken; anything else (a mistake, `--help`) goes to typer, which says so. A test holds
the table against typer's.
"""

from __future__ import annotations

from pathlib import Path

TYPE_CHECKING = False  # Type checkers take it for true; importing `typing` for it costs 3 ms.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

COMMANDS = ("apply", "check")
ONLY_APPLY = frozenset({"fresh", "bootstrap"})


def _many(convert: Callable[[str], Any]) -> Callable[[Any, str], Any]:
    return lambda before, word: [*(before or []), convert(word)]


def _one(convert: Callable[[str], Any]) -> Callable[[Any, str], Any]:
    return lambda _before, word: convert(word)


VALUES: Mapping[str, tuple[tuple[str, ...], Callable[[Any, str], Any]]] = {
    "host": (("--host",), _many(str)),
    "inventory": (("--inventory", "-i"), _one(Path)),
    "extra_vars": (("--extra-vars", "-e"), _many(str)),
    "tags": (("--tags", "-t"), _many(str)),
    "skip_tags": (("--skip-tags",), _many(str)),
    "limit": (("--limit", "-l"), _one(str)),
    "start_at_task": (("--start-at-task",), _one(str)),
    "become_user": (("--become-user",), _one(str)),
    "become_password_file": (("--become-password-file",), _one(Path)),
    "forks": (("--forks", "-f"), _one(int)),
    "roles_path": (("--roles-path",), _many(Path)),
}
"""Option's variable -> its names, and how a further word of it is taken."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "diff": ("--diff", "-D"),
    "become": ("--become", "-b"),
    "ask_become_pass": ("--ask-become-pass", "-K"),
    "accept_new": ("--accept-new",),
    "bootstrap": ("--bootstrap",),
    "fresh": ("--fresh",),
    "quiet": ("--quiet", "-q"),
    "as_json": ("--json",),
}
DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(VALUES),
    **dict.fromkeys(FLAGS, False),
    "forks": 10,
    "bootstrap": True,
}
_MOST_FORKS = 100


def parse(arguments: Sequence[str]) -> tuple[bool, dict[str, Any]] | None:
    """Return whether it is a check, and the options; None for what typer should see."""
    if len(arguments) < 3 or arguments[0] != "provision" or arguments[1] not in COMMANDS:  # noqa: PLR2004  (a command and a file)
        return None
    check = arguments[1] == "check"
    found = dict(DEFAULTS)
    playbooks = []
    words = iter(arguments[2:])
    try:
        for word in words:
            if not word.startswith("-"):
                playbooks.append(Path(word))
            else:
                _option(found, word, words)
    except (KeyError, ValueError, StopIteration):
        return None
    odd = [name for name in ONLY_APPLY if check and found[name] != DEFAULTS[name]]
    if len(playbooks) != 1 or odd or not 1 <= found["forks"] <= _MOST_FORKS:
        return None
    return check, {**found, "playbook": playbooks[0]}


def _option(found: dict[str, Any], word: str, words: Iterator[str]) -> None:
    """Take one option and its value. Raises KeyError, ValueError or StopIteration for what is not plainly right."""
    if word in _FLAGS:
        found[_FLAGS[word]] = True
        return
    name, given, value = word.partition("=") if word.startswith("--") else (word, "", "")
    variable = _VALUES[name]
    value = value if given else next(words)
    if not given and value.startswith("-"):
        raise ValueError(value)
    found[variable] = VALUES[variable][1](found[variable], value)


_FLAGS = {name: variable for variable, names in FLAGS.items() for name in names}
_VALUES = {name: variable for variable, (names, _take) in VALUES.items() for name in names}
