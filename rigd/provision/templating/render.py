"""Templates, conditions and expressions computed for one task; what goes wrong becomes a sentence."""

from collections.abc import Iterable, Mapping
from typing import Any

from jinja2.exceptions import TemplateNotFound, TemplateSyntaxError

from rigd.provision.language.faults import kind_of, nearest
from rigd.provision.language.model import Expression, Place
from rigd.provision.templating import environment
from rigd.provision.templating.values import OMIT, Missing, MissingError, final
from rigd.provision.templating.variables import (
    TemplateError,
    UndefinedVariableError,
    Variables,
)

_SHOWN = 120


def render(value: Any, variables: Variables, *, place: Place | None = None, secret: bool = False) -> Any:
    """Return a value with all its templates filled in: plain data, nothing lazy, nothing undefined.

    Keys and items that come out as `omit` are left out; a value that is itself `omit` comes back as `OMIT`. Raises
    `TemplateError` (`UndefinedVariableError`); with `secret`, its text shows no value.
    """
    try:
        return final(variables.resolve(value))
    except Exception as error:
        raise explained(error, "cannot fill in", value, variables, place, secret=secret) from error


def expression(text: str, variables: Variables, *, place: Place | None = None, secret: bool = False) -> Any:
    """Return the value of an expression (`debug: var=...`). Raises as `render`."""
    try:
        return final(environment.run_expression(environment.compiled_expression(text), variables))
    except Exception as error:
        raise explained(error, "cannot compute", text, variables, place, secret=secret) from error


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
    shown = kind_of(found) if secret else _typed(found)
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


def explained(
    error: Exception,
    what: str,
    value: Any,
    variables: Variables,
    place: Place | None,
    *,
    secret: bool,
) -> TemplateError:
    """Return an error of a template as a sentence about the value that was to be filled in."""
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
    owner = missing.owner
    keys = [str(key) for key in owner] if isinstance(owner, Mapping) else []
    return f"{missing.sentence}{nearest(str(missing.key), keys)}{via}"


def _at(place: Place | None) -> str:
    return f"{place}: " if place else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}...'"


def _typed(value: Any) -> str:
    return kind_of(value) if value is None else f"{kind_of(value)} ({_short(repr(value))[1:-1]})"


__all__ = ["OMIT", "expression", "first_false", "holds", "render"]
