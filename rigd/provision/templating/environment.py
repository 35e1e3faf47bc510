"""Jinja2 set up as Ansible sets it up: native values, chainable undefined ones, variables read when they are needed.

There are two environments of the same filters and tests. In templates of YAML a backslash within `{{ }}` stands for
itself, since YAML has read the escapes already; in conditions and in files of templates it escapes, as in Jinja.
"""

import functools
import inspect
import re
from collections import ChainMap
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from itertools import count
from types import GeneratorType
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.lexer import Lexer
from jinja2.nativetypes import NativeCodeGenerator
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import missing

from rigd.provision.templating.values import OMIT, LazyDict, Missing, MissingError, settled

OWNER = "__rigd_variables__"
"""Name under which a template finds the `Variables` that it reads."""
PREFIXES = ("ansible.builtin.", "ansible.legacy.")
_ACCEPT_UNDEFINED = frozenset({"default", "d", "mandatory", "type_debug", "defined", "undefined"})
_ITERATORS = (GeneratorType, map, filter, zip, reversed, count, KeysView, ValuesView, ItemsView)


class _Context(Context):
    """Finds a name in the template's own variables, then in the task's, then among the globals."""

    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        try:
            return self.parent[key]
        except KeyError:
            return self.environment.globals.get(key, missing)

    def get_all(self) -> Any:
        return ChainMap(self.vars, self.parent) if self.vars else self.parent


class _Template(Template):
    """Never copies the variables, which would fill in every one of them."""

    def new_context(
        self,
        vars: Any = None,  # noqa: A002  (Jinja's name)
        shared: bool = False,  # noqa: ARG002, FBT001, FBT002  (Jinja's signature)
        locals: Mapping[str, Any] | None = None,  # noqa: A002  (Jinja's name)
    ) -> Context:
        parent: Any = {} if vars is None else vars
        if locals:
            parent = ChainMap({key: value for key, value in locals.items() if value is not missing}, parent)
        return _Context(self.environment, parent, self.name, self.blocks, globals=None)


class _CodeGenerator(NativeCodeGenerator):
    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return repr(joined(group))


class _Lexer(Lexer):
    """Keeps backslashes of texts that begin no escape; within `{{ }}` of YAML it keeps all of them."""

    def __init__(self, environment: "Environment", *, escaping: bool) -> None:
        super().__init__(environment)
        self._escaping = escaping

    def tokeniter(self, *arguments: Any, **named: Any) -> Iterator[tuple[int, str, str]]:
        inside = False
        for line, kind, text in super().tokeniter(*arguments, **named):
            if kind in ("variable_begin", "variable_end"):
                inside = kind == "variable_begin"
            if kind != "string" or "\\" not in text:
                yield line, kind, text
            elif inside and self._escaping:
                yield line, kind, text.replace("\\", "\\\\")
            else:
                yield line, kind, _ESCAPE.sub(_kept, text)


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = frozenset("\\'\"abfnrtvxuUN01234567\n")


def _kept(match: re.Match[str]) -> str:
    return match[0] if match[1] in _ESCAPES else f"\\{match[0]}"


class Environment(SandboxedEnvironment):
    """One of the two environments; see the file's head."""

    context_class = _Context
    template_class = _Template
    code_generator_class = _CodeGenerator

    def __init__(self, *, escaping: bool = False, **options: Any) -> None:
        options.setdefault("trim_blocks", True)
        super().__init__(undefined=Missing, autoescape=False, keep_trailing_newline=False, **options)
        self._lexer = _Lexer(self, escaping=escaping)
        self.globals["omit"] = OMIT
        self.globals["range"] = range

    @property
    def lexer(self) -> Lexer:
        return self._lexer

    @staticmethod
    def concat(parts: Iterable[Any]) -> Any:
        return joined(parts)

    def getattr(self, obj: Any, attribute: str) -> Any:
        found = super().getattr(obj, attribute)
        if isinstance(found, Missing) and not isinstance(obj, Missing):
            # What the sandbox hides may still be a key.
            try:
                return obj[attribute]
            except (TypeError, LookupError):
                return found
        return found

    def call(self, context: Context, obj: Any, *arguments: Any, **named: Any) -> Any:
        for argument in (obj, *arguments, *named.values()):
            if isinstance(argument, Missing):
                return argument
        found = super().call(context, obj, *map(_settled_argument, arguments), **named)
        return list(found) if isinstance(found, _ITERATORS) else found


def _settled_argument(value: Any) -> Any:
    return settled(value) if isinstance(value, (LazyDict, list)) else value


def joined(parts: Iterable[Any]) -> Any:
    """Return one part as it is, several as one text; None and what is to be omitted leave no trace in it."""
    found = [part for part in parts if part is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        return None
    for part in found:
        if isinstance(part, Missing):
            return part
    return "".join(_as_text(part) for part in found if part is not OMIT)


def _as_text(value: Any) -> str:
    """Return a value within a text, where Ansible writes every sequence as a list."""
    return str(_lists(settled(value)))


def _lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_lists(below) for below in value]
    return {key: _lists(below) for key, below in value.items()} if isinstance(value, dict) else value


def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter or test that gets plain values and makes lists; what is undefined passes through it."""
    accepts = name in _ACCEPT_UNDEFINED

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not accepts:
            for value in (*arguments, *named.values()):
                if isinstance(value, Missing):
                    return value
        plain = [settled(value) if isinstance(value, (dict, list, tuple)) else value for value in arguments]
        try:
            found = function(*plain, **named)
        except TypeError:
            _check_call(name, function, plain, named)
            raise
        return list(found) if isinstance(found, _ITERATORS) else found

    return call


def _check_call(
    name: str, function: Callable[..., Any], given: Iterable[Any], named: Mapping[str, Any]
) -> None:
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError as error:
        raise TypeError(f"`{name}` is given other arguments than it takes: {error}") from None
    except ValueError:
        # One of Python's own functions that do not tell what they take.
        return


def register(table: MutableMapping[str, Any], functions: Mapping[str, Any]) -> None:
    """Add filters or tests under their short and their full names."""
    for name, function in functions.items():
        call = wrapped(name, function)
        for prefix in ("", *PREFIXES):
            table[prefix + name] = call


def make_environment(*, escaping: bool, **options: Any) -> Environment:
    """Return an environment with all filters, tests and globals."""
    from rigd.provision.templating import filters, lookups, tests  # noqa: PLC0415  (they know the environment)

    environment = Environment(escaping=escaping, **options)
    environment.filters.clear()
    environment.tests.clear()
    register(environment.filters, JINJA_FILTERS)
    register(environment.filters, filters.FILTERS)
    register(environment.tests, JINJA_TESTS)
    register(environment.tests, tests.TESTS)
    environment.globals.update(lookups.GLOBALS)
    return environment


@functools.cache
def yaml_environment() -> Environment:
    """Return the environment of templates in YAML."""
    return make_environment(escaping=True)


@functools.cache
def plain_environment() -> Environment:
    """Return the environment of conditions and expressions."""
    return make_environment(escaping=False)


@functools.lru_cache(maxsize=4096)
def parsed(text: str) -> nodes.Template:
    """Return the grammar tree of a template of YAML. Raises Jinja's `TemplateSyntaxError`."""
    return yaml_environment().parse(text)


@functools.lru_cache(maxsize=4096)
def parsed_expression(text: str) -> nodes.Template:
    """Return the tree of a template that computes an expression into its variable `result`."""
    parser = Parser(plain_environment(), text, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail("there is more text than one expression", parser.stream.current.lineno)
    target = nodes.Name("result", "store", lineno=1)
    found = nodes.Template([nodes.Assign(target, expression, lineno=1)], lineno=1)
    found.set_environment(plain_environment())
    return found


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> Template:
    """Return a template of YAML, ready to run."""
    return yaml_environment().from_string(parsed(text))


@functools.lru_cache(maxsize=4096)
def compiled_expression(text: str) -> Template:
    """Return an expression, ready to run."""
    return plain_environment().from_string(parsed_expression(text))


def run(template: Template, variables: Any) -> Any:
    """Return what a template gives: a value if it is one expression, else text. What is undefined comes back so."""
    context = template.new_context(variables)
    try:
        return joined(template.root_render_func(context))
    except MissingError as error:
        return error.missing


def run_expression(template: Template, variables: Any) -> Any:
    """Return what an expression gives. What is undefined comes back as that."""
    context = template.new_context(variables)
    try:
        for _part in template.root_render_func(context):
            pass
    except MissingError as error:
        return error.missing
    return context.vars["result"]
