"""The values that templates work on: undefined ones, `omit`, mappings whose templates are filled in when read.

text with {{ }} in a file --read through `Variables`--> its value, as late as possible
results, facts            --> as they are: what a box answered is never taken for a template
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, NoReturn

from jinja2.exceptions import UndefinedError
from jinja2.runtime import StrictUndefined
from jinja2.utils import missing

from rigd.provision.language.faults import kind_of

MOST_DEPTH = 100


class Plain(dict[str, Any]):
    """Variables whose values are no templates: facts, registered results, the items of a loop."""


class Omit:
    """The value of `omit`: an argument, key or item that has it is left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "omit"


OMIT = Omit()


class MissingError(UndefinedError):
    """Something undefined was used; `missing` says what."""

    def __init__(self, missing: "Missing") -> None:
        super().__init__(missing.sentence)
        self.missing = missing


class Missing(StrictUndefined):
    """What is not defined. Its parts are not defined either, so `a.b.c | default(1)` is fine; any other use fails."""

    __slots__ = ("via",)

    via: tuple[str, ...]
    """The variables that wanted it, outermost first."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.via = ()

    @property
    def sentence(self) -> str:
        """What is undefined, for a person."""
        if self._undefined_hint is None and self.has_owner:
            return f"{kind_of(self.owner)} has no '{self.key}'"
        return self._undefined_hint or self._undefined_message

    @property
    def wanted(self) -> str | None:
        """The name of the variable that is undefined; None for a key of something, or for `undef()`."""
        alone = self._undefined_hint is None and isinstance(self._undefined_name, str)
        name = self._undefined_name
        return name if alone and isinstance(name, str) and not self.has_owner else None

    @property
    def has_owner(self) -> bool:
        """Whether it is a key or attribute of something that is defined."""
        return self._undefined_obj is not missing

    @property
    def owner(self) -> Any:
        """Return that something."""
        return self._undefined_obj

    @property
    def key(self) -> Any:
        """Return the key or attribute that it lacks."""
        return self._undefined_name

    def _fail_with_undefined_error(self, *_arguments: Any, **_named: Any) -> NoReturn:
        raise MissingError(self)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self

    def __getitem__(self, _key: Any) -> Any:
        return self

    __iter__ = __str__ = __len__ = __eq__ = __ne__ = __bool__ = __hash__ = _fail_with_undefined_error
    __contains__ = __add__ = __radd__ = __call__ = __int__ = __float__ = __lt__ = __le__ = (
        _fail_with_undefined_error
    )
    __gt__ = __ge__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = (
        _fail_with_undefined_error
    )
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = (
        _fail_with_undefined_error
    )
    __neg__ = __pos__ = __complex__ = __format__ = __repr__ = _fail_with_undefined_error


Resolve = Callable[[Any, str], Any]
"""Fills in a raw value, told its name for errors."""


class LazyDict(dict[Any, Any]):
    """A mapping of a file: each value is filled in when it is first read. It has a mapping's methods and no other."""

    __slots__ = ("_done", "_name", "_resolve")

    def __init__(self, raw: Mapping[Any, Any], resolve: Resolve, name: str) -> None:
        super().__init__(raw)
        self._resolve = resolve
        self._name = name
        self._done: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if key in self._done:
            return value
        value = self._resolve(value, f"{self._name}.{key}")
        super().__setitem__(key, value)
        self._done.add(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self._done.add(key)

    def __iter__(self) -> Iterator[Any]:
        # Of its own, so that `dict(x)` and `{**x}` ask for each value instead of copying what is not filled in.
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == (dict(other.items()) if isinstance(other, dict) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(settled(self))

    def __or__(self, other: Any) -> Any:
        return settled(self) | settled(other)

    def __ror__(self, other: Any) -> Any:
        return settled(other) | settled(self)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401  (this is `get`)

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        return [self[key] for key in self]

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def pop(self, key: Any, *default: Any) -> Any:
        if key in self:
            self[key] = self[key]
        return super().pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value


def settled(value: Any) -> Any:
    """Return a value whose containers are plain and filled in, for filters; undefined parts stay undefined."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, Missing):
        return value
    if isinstance(value, Mapping):
        return {key: settled(below) for key, below in value.items()}
    if isinstance(value, list):
        return [settled(below) for below in value]
    if isinstance(value, tuple):
        return tuple(settled(below) for below in value)
    return value


def final(value: Any, depth: int = 0) -> Any:
    """Return a value as modules and journals can hold it: plain, nothing undefined, nothing that is to be omitted.

    Raises `MissingError`.
    """
    if isinstance(value, (str, int, float, bool)) or value is None or value is OMIT:
        return value
    if isinstance(value, Missing):
        raise MissingError(value)
    if depth > MOST_DEPTH:
        raise ValueError(f"the value is more than {MOST_DEPTH} levels deep; does it hold itself?")
    if isinstance(value, Mapping):
        found = {final(key, depth + 1): final(below, depth + 1) for key, below in value.items()}
        return {key: below for key, below in found.items() if below is not OMIT}
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, date):
        return str(value)
    if callable(value):
        raise TypeError(
            f"the value is the method '{getattr(value, '__name__', value)}'; write ['name'] for a key"
        )
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    items = [final(below, depth + 1) for below in value]
    return [below for below in items if below is not OMIT]
