"""Templates, conditions and files of templates computed for one task; what goes wrong becomes a sentence."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateNotFound, TemplateSyntaxError
from jinja2.loaders import FileSystemLoader

from rigd.provision.language.faults import nearest
from rigd.provision.language.model import Expression, Place
from rigd.provision.templating import environment
from rigd.provision.templating.values import OMIT, Missing, MissingError, final
from rigd.provision.templating.variables import (
    TemplateError,
    UndefinedVariableError,
    Variables,
    with_newlines,
)

_SHOWN = 120
_HEADER = "#jinja2:"
_OPTIONS = (
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "trim_blocks",
    "lstrip_blocks",
    "newline_sequence",
    "keep_trailing_newline",
)
"""What a template file's first line, or the arguments of `template`, may set."""


def render(value: Any, variables: Variables, *, place: Place | None = None, secret: bool = False) -> Any:
    """Return a value with all its templates filled in: plain data, nothing lazy, nothing undefined.

    Keys and items that come out as `omit` are left out; a value that is itself `omit` comes back as `OMIT`. Raises
    `TemplateError` (`UndefinedVariableError`); with `secret`, its text shows no value.
    """
    try:
        return final(variables.resolve(value))
    except Exception as error:
        raise _explained(error, "cannot fill in", value, variables, place, secret=secret) from error


def expression(text: str, variables: Variables, *, place: Place | None = None, secret: bool = False) -> Any:
    """Return the value of an expression (`debug: var=...`). Raises as `render`."""
    try:
        return final(environment.run_expression(environment.compiled_expression(text), variables))
    except Exception as error:
        raise _explained(error, "cannot compute", text, variables, place, secret=secret) from error


def holds(condition: Any, variables: Variables, *, place: Place | None = None, secret: bool = False) -> bool:
    """Return whether a condition holds. One that gives something else than true or false is an error.

    `condition`: an expression as text, true, or false. Raises `TemplateError`.
    """
    if isinstance(condition, bool):
        return condition
    if not isinstance(condition, str):
        raise TemplateError(
            f"{_at(place)}a condition is text, true or false, and here is {_typed(condition)}"
        )
    found = expression(condition, variables, place=place, secret=secret)
    if isinstance(found, bool):
        return found
    shown = _type(found) if secret else _typed(found)
    hint = "compare it (`x == 'y'`, `x | length > 0`), or convert it with `| bool`"
    raise TemplateError(
        f"{_at(place)}the condition '{condition}' gives {shown}, not true or false", hint=hint
    )


def first_false(
    conditions: Iterable[Expression], variables: Variables, *, secret: bool = False
) -> Expression | None:
    """Return the first condition that does not hold, or None when all do; those after it are not computed."""
    for condition in conditions:
        if not holds(condition.value, variables, place=condition.place, secret=secret):
            return condition
    return None


def render_file(
    text: str,
    variables: Variables,
    *,
    name: str,
    folders: Iterable[Path] = (),
    options: Mapping[str, Any] | None = None,
    secret: bool = False,
) -> str:
    """Return what a file of templates gives. `folders`: where its `include` and `import` look for others.

    `options` are the arguments of `template` that are about Jinja; a first line `#jinja2: ...` wins over them.
    """
    try:
        chosen, text = _header(
            text, {key: value for key, value in (options or {}).items() if key in _OPTIONS}
        )
        made = _file_environment(tuple(sorted(chosen.items())), tuple(map(str, folders)))
        template = made.from_string(text)
        found = final(environment.run(template, variables))
        result = "" if found is None else str(found)
    except Exception as error:
        raise _explained(error, "cannot fill in the file", name, variables, None, secret=secret) from error
    return with_newlines(result, text)


@functools.lru_cache(maxsize=32)
def _file_environment(
    options: tuple[tuple[str, Any], ...], folders: tuple[str, ...]
) -> environment.Environment:
    chosen = dict(options)
    chosen.pop("keep_trailing_newline", None)
    return environment.make_environment(escaping=False, loader=FileSystemLoader(folders), **chosen)


def _header(text: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    if not text.startswith(_HEADER):
        return options, text
    line, _, rest = text.partition("\n")
    for pair in line.removeprefix(_HEADER).split(","):
        key, _, value = (part.strip() for part in pair.partition(":"))
        if key not in _OPTIONS:
            raise TemplateError(f"the first line sets '{key}', which is no option{nearest(key, _OPTIONS)}")
        word = value.strip("\"'")
        options[key] = word.lower() == "true" if word.lower() in ("true", "false") else word
    return options, rest


def _explained(
    error: Exception,
    what: str,
    value: Any,
    variables: Variables,
    place: Place | None,
    *,
    secret: bool,
) -> TemplateError:
    subject = "a value" if secret else _short(value)
    start = f"{_at(place)}{what} {subject}: "
    if isinstance(error, MissingError):
        return UndefinedVariableError(start + _undefined(error.missing, variables))
    if isinstance(error, TemplateError):
        return type(error)(start + str(error), hint=error.hint)
    if isinstance(error, TemplateSyntaxError):
        return TemplateError(f"{start}line {error.lineno} is not well written: {error.message}")
    if isinstance(error, TemplateNotFound):
        return TemplateError(f"{start}there is no template '{error}' beside it")
    if isinstance(error, RecursionError):
        return TemplateError(f"{start}it refers to itself without end")
    told = type(error).__name__ if secret else (str(error) or type(error).__name__)
    return TemplateError(start + told)


def _undefined(missing: Missing, variables: Variables) -> str:
    via = f" (wanted by {', by '.join(repr(name) for name in reversed(missing.via))})" if missing.via else ""
    name = missing.wanted
    if name is not None:
        return f"'{name}' is undefined{nearest(name, variables)}{via}"
    if missing.has_owner:
        owner = missing.owner
        kinds = ((Mapping, "a mapping"), (list, "a list"), (str, "text"), (int, "a number"))
        kind = next((word for kind, word in kinds if isinstance(owner, kind)), type(owner).__name__)
        keys = [str(key) for key in owner] if isinstance(owner, Mapping) else []
        return f"{kind} has no '{missing.key}'{nearest(str(missing.key), keys)}{via}"
    return missing.sentence + via


def _at(place: Place | None) -> str:
    return f"{place}: " if place else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}...'"


def _type(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    kinds = ((str, "text"), (dict, "a mapping"), (list, "a list"), (int, "a number"), (float, "a number"))
    return next((word for kind, word in kinds if isinstance(value, kind)), type(value).__name__)


def _typed(value: Any) -> str:
    return _type(value) if value is None else f"{_type(value)} ({_short(repr(value))[1:-1]})"


__all__ = ["OMIT", "expression", "first_false", "holds", "render", "render_file"]
