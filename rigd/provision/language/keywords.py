"""Which keywords a play, a block, a task, a handler, a role's entry and `loop_control` have, and what each takes."""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rigd.provision.language import left_out
from rigd.provision.language.faults import kind_of, nearest


class Takes(enum.Enum):
    """What may stand under a keyword."""

    TEXT = "text"
    TEXTS = "text or a list of texts"
    NAME = "the name of a variable (letters, digits and _)"
    FLAG = "true or false (or a template of one)"
    NUMBER = "a number (or a template of one)"
    CONDITIONS = "an expression, true, false, or a list of them"
    MAPPING = "a mapping"
    MAPPINGS = "a mapping, or a list of mappings (or templates of them)"
    LIST = "a list"
    TASKS = "a list of tasks"
    ANY = "anything"


_INHERITED: dict[str, Takes] = {
    "become": Takes.FLAG,
    "become_method": Takes.TEXT,
    "become_user": Takes.TEXT,
    "check_mode": Takes.FLAG,
    "collections": Takes.TEXTS,
    "diff": Takes.FLAG,
    "environment": Takes.MAPPINGS,
    "ignore_errors": Takes.FLAG,
    "ignore_unreachable": Takes.FLAG,
    "module_defaults": Takes.MAPPING,
    "name": Takes.TEXT,
    "no_log": Takes.FLAG,
    "run_once": Takes.FLAG,
    "tags": Takes.TEXTS,
    "timeout": Takes.NUMBER,
    "vars": Takes.MAPPING,
}
_CONDITIONAL: dict[str, Takes] = {"when": Takes.CONDITIONS, "delegate_to": Takes.TEXT}

PLAY: Mapping[str, Takes] = {
    **_INHERITED,
    "connection": Takes.TEXT,
    "force_handlers": Takes.FLAG,
    "gather_facts": Takes.FLAG,
    "gather_subset": Takes.TEXTS,
    "handlers": Takes.TASKS,
    "hosts": Takes.TEXTS,
    "port": Takes.NUMBER,
    "post_tasks": Takes.TASKS,
    "pre_tasks": Takes.TASKS,
    "remote_user": Takes.TEXT,
    "roles": Takes.LIST,
    "tasks": Takes.TASKS,
    "vars_files": Takes.ANY,
}
PLAYBOOK_IMPORT: Mapping[str, Takes] = {
    "name": Takes.TEXT,
    "tags": Takes.TEXTS,
    "vars": Takes.MAPPING,
    "when": Takes.CONDITIONS,
}
BLOCK: Mapping[str, Takes] = {
    **_INHERITED,
    **_CONDITIONAL,
    "always": Takes.TASKS,
    "block": Takes.TASKS,
    "notify": Takes.TEXTS,
    "rescue": Takes.TASKS,
}
TASK: Mapping[str, Takes] = {
    **_INHERITED,
    **_CONDITIONAL,
    "action": Takes.ANY,
    "args": Takes.MAPPING,
    "async": Takes.NUMBER,
    "changed_when": Takes.CONDITIONS,
    "delay": Takes.NUMBER,
    "failed_when": Takes.CONDITIONS,
    "local_action": Takes.ANY,
    "loop": Takes.ANY,
    "loop_control": Takes.MAPPING,
    "notify": Takes.TEXTS,
    "poll": Takes.NUMBER,
    "register": Takes.NAME,
    "retries": Takes.NUMBER,
    "until": Takes.CONDITIONS,
}
HANDLER: Mapping[str, Takes] = {**TASK, "listen": Takes.TEXTS}
ROLE_ENTRY: Mapping[str, Takes] = {
    **{key: takes for key, takes in _INHERITED.items() if key != "name"},
    **_CONDITIONAL,
    "name": Takes.TEXT,
    "role": Takes.TEXT,
}
"""Other keys of a role's entry are its parameters."""
LOOP_CONTROL: Mapping[str, Takes] = {
    "break_when": Takes.CONDITIONS,
    "extended": Takes.FLAG,
    "extended_allitems": Takes.FLAG,
    "index_var": Takes.NAME,
    "label": Takes.ANY,
    "loop_var": Takes.NAME,
    "pause": Takes.NUMBER,
}
APPLY: Mapping[str, Takes] = {**_INHERITED, **_CONDITIONAL, "notify": Takes.TEXTS}
"""Keywords of `apply` of an include: those that a block hands down."""

_TRUTHS = frozenset({"true", "yes", "on", "y", "t", "1", "false", "no", "off", "n", "f", "0"})


def unknown_keyword(key: Any, table: Mapping[str, Takes], of: str, also: Iterable[str] = ()) -> str:
    """Return the sentence about a key that is no keyword here."""
    if not isinstance(key, str):
        return f"{key!r} is no keyword of {of}"
    reason = left_out.KEYWORDS.get(key) or left_out.TASK_KEYWORDS.get(key)
    if reason:
        return f"the keyword '{key}' is left out: {reason}"
    return f"'{key}' is no keyword of {of}{nearest(key, (*table, *also))}"


def wrong_value(key: str, value: Any, takes: Takes) -> str | None:
    """Return what is wrong with the value of a keyword, in a sentence; None when nothing is."""
    if _fits(value, takes):
        return None
    if value is None:
        return f"'{key}' is empty; it takes {takes.value}"
    told = f"'{value}'" if isinstance(value, str) and takes in _SHOWN else kind_of(value)
    return f"'{key}' takes {takes.value}, and here is {told}"


_SHOWN = frozenset({Takes.NAME, Takes.FLAG, Takes.NUMBER})
"""Where the text itself is what is wrong."""


def _fits(value: Any, takes: Takes) -> bool:
    if takes is Takes.ANY:
        return True
    if value is None:
        return takes in {Takes.TASKS, Takes.MAPPING, Takes.LIST, Takes.TEXTS, Takes.TEXT, Takes.MAPPINGS}
    return _TESTS[takes](value)


def is_template(value: Any) -> bool:
    """Return whether a value is text with a template in it."""
    return isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#"))


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return is_template(value) or value.strip().replace(".", "", 1).isdigit()
    return _is_text(value)


_TESTS: Mapping[Takes, Callable[[Any], bool]] = {
    Takes.TEXT: lambda value: isinstance(value, (str, int, float)),
    Takes.TEXTS: lambda value: all(map(_is_text, value)) if isinstance(value, list) else _is_text(value),
    Takes.NAME: lambda value: isinstance(value, str) and (value.isidentifier() or is_template(value)),
    Takes.FLAG: lambda value: (
        value in (True, False)
        or (isinstance(value, str) and (is_template(value) or value.lower() in _TRUTHS))
    ),
    Takes.NUMBER: _is_number,
    Takes.CONDITIONS: lambda value: all(
        isinstance(item, (str, bool)) for item in (value if isinstance(value, list) else [value])
    ),
    Takes.MAPPING: lambda value: isinstance(value, dict),
    Takes.MAPPINGS: lambda value: all(
        isinstance(item, dict) or is_template(item)
        for item in (value if isinstance(value, list) else [value])
    ),
    Takes.LIST: lambda value: isinstance(value, list),
    Takes.TASKS: lambda value: isinstance(value, list),
}
