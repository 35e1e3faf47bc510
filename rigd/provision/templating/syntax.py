"""What can be known of a template without a host: whether it is well written, and which variables it reads."""

import functools
import re
from collections.abc import Collection, Iterable, Mapping

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

from rigd.provision.language.faults import nearest
from rigd.provision.templating import environment, filters, lookups

_EMBEDDED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_LOOKUPS = frozenset({"lookup", "query", "q"})
_ANY_VARIABLE = frozenset({"vars", "varnames", "template"})
"""Lookups that may read any variable."""
_ADVICE = (
    ("unexpected '{'", "; there are {{ }} within an expression, which needs none"),
    ("expected token ':', got '}'", "; there are {{ }} within an expression, which needs none"),
    ("unexpected char '&'", "; write `and`"),
    ("unexpected char '|'", "; write `or`"),
    ("unexpected end of template", "; is a closing }} or %} missing?"),
    ("end of comment tag", "; {# begins a comment: write {{ '{#' }} for these two letters"),
    ("more text than one expression", "; to compare, write `==`; to join conditions, `and` or `or`"),
)


@functools.lru_cache(maxsize=4096)
def template_fault(text: str) -> str | None:
    """Return what is wrong with text that holds templates, in a sentence; None when nothing is."""
    try:
        tree = environment.parsed(text)
    except TemplateSyntaxError as error:
        return _sentence("template", text, error)
    return unknown_in(tree)


@functools.lru_cache(maxsize=4096)
def expression_fault(text: str) -> str | None:
    """Return what is wrong with an expression; None when nothing is."""
    try:
        tree = environment.parsed_expression(text)
    except TemplateSyntaxError as error:
        return _sentence("expression", text, error)
    return unknown_in(tree)


@functools.lru_cache(maxsize=4096)
def condition_fault(text: str) -> str | None:
    """Return what is wrong with a condition; None when nothing is."""
    if not text.strip():
        return "is empty; write an expression, true or false"
    stripped = text.strip()
    if stripped.startswith(("{{", "{%")):
        bare = stripped[2:-2].strip() if stripped.startswith("{{") and stripped.endswith("}}") else ""
        advice = f"; write `{bare}`" if bare and "{{" not in bare else ""
        return f"a condition is an expression already and takes no {{{{ }}}}{advice}"
    if fault := expression_fault(text):
        return fault
    tree = environment.parsed_expression(text)
    return next(map(_embedded, filter(_is_embedded, tree.find_all(nodes.Const))), None)


@functools.lru_cache(maxsize=8192)
def variables_used(text: str) -> frozenset[str]:
    """Return the names of the variables that a template reads itself. Text that is badly written reads none."""
    try:
        return _names(environment.parsed(text))
    except TemplateSyntaxError:
        return frozenset()


@functools.lru_cache(maxsize=8192)
def variables_in_expression(text: str) -> frozenset[str]:
    """Return the names of the variables that an expression reads itself."""
    try:
        return _names(environment.parsed_expression(text))
    except TemplateSyntaxError:
        return frozenset()


def lookup_names() -> Collection[str]:
    """Return the names of all lookups."""
    return lookups.LOOKUPS.keys()


def _names(tree: nodes.Template) -> frozenset[str]:
    found = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"}
    for name in _looked_up(tree):
        if name is None or name in _ANY_VARIABLE:
            found.add("vars")
    if any(tree.find(kind) for kind in (nodes.Include, nodes.Import, nodes.FromImport)):
        found.add("vars")
    return frozenset(found - environment.plain_environment().globals.keys())


def _looked_up(tree: nodes.Template) -> Iterable[str | None]:
    """Yield the name of each lookup; None where it is computed."""
    for call in tree.find_all(nodes.Call):
        if _is_lookup(call) and call.args:
            first = call.args[0]
            name = first.value if isinstance(first, nodes.Const) else None
            yield name.rpartition(".")[2] if isinstance(name, str) else None


def unknown_in(tree: nodes.Template) -> str | None:
    """Return the sentence about the first filter, test or lookup that is not known."""
    known = environment.plain_environment()
    used: tuple[tuple[str, Iterable[str], Collection[str], Mapping[str, str]], ...] = (
        ("filter", (node.name for node in tree.find_all(nodes.Filter)), known.filters, filters.LEFT_OUT),
        ("test", (node.name for node in tree.find_all(nodes.Test)), known.tests, {}),
        ("lookup", (name for name in _looked_up(tree) if name), lookups.LOOKUPS, lookups.LEFT_OUT),
    )
    for kind, names, table, left_out in used:
        for name in names:
            if name in table:
                continue
            if name in left_out:
                return f"the {kind} '{name}' is left out: {left_out[name]}"
            short = [other for other in table if "." not in other]
            return f"there is no {kind} '{name}'{nearest(name, short)}"
    calls = (call for call in tree.find_all(nodes.Call) if _is_lookup(call))
    constants = (constant for call in calls for constant in call.find_all(nodes.Const))
    return next(map(_embedded, filter(_is_embedded, constants)), None)


def _is_lookup(call: nodes.Call) -> bool:
    return isinstance(call.node, nodes.Name) and call.node.name in _LOOKUPS


def _is_embedded(constant: nodes.Const) -> bool:
    return isinstance(constant.value, str) and _EMBEDDED.search(constant.value) is not None


def _embedded(constant: nodes.Const) -> str:
    return f"the text {constant.value!r} within an expression is no template; join with ~, as in 'a/' ~ name"


def _sentence(kind: str, text: str, error: TemplateSyntaxError) -> str:
    message = error.message or "it cannot be read"
    advice = next((advice for sign, advice in _ADVICE if sign in message), "")
    lines = text.splitlines()
    number = error.lineno or 1
    where = f" on line {number} of the text" if len(lines) > 1 else ""
    return f"the {kind} is not well written{where}: {message.rstrip('.')}{advice}"
