"""Lookups that shape what they are given, and read nothing: what the loops `with_...` are mostly made of."""

import itertools
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from rigd.provision.language.freeform import key_values
from rigd.provision.templating.filters_data import FILTERS as DATA
from rigd.provision.templating.filters_text import FilterError

Lookup = Callable[..., list[Any]]
"""Takes terms, the task's variables, and options by name."""
MOST_ITEMS = 100_000


def _items(terms: list[Any], _variables: Any) -> list[Any]:
    return [item for term in terms for item in (term if isinstance(term, list) else [term])]


def _dict(terms: list[Any], _variables: Any) -> list[Any]:
    return [item for term in terms for item in DATA["dict2items"](term)]


def _indexed(terms: list[Any], variables: Any) -> list[Any]:
    return [list(pair) for pair in enumerate(_items(terms, variables))]


def _lists(terms: list[Any]) -> list[list[Any]]:
    return [term if isinstance(term, list) else [term] for term in terms]


def _together(terms: list[Any], _variables: Any) -> list[Any]:
    return [list(group) for group in itertools.zip_longest(*_lists(terms))]


def _nested(terms: list[Any], _variables: Any) -> list[Any]:
    return [list(group) for group in itertools.product(*_lists(terms))]


def _sequence(terms: list[Any], _variables: Any, **options: Any) -> list[Any]:
    found: list[str] = []
    for term in terms or [""]:
        given = {**options, **_sequence_term(str(term))}
        start, step = (int(str(given.get(key, 1)), 0) for key in ("start", "stride"))
        if "count" in given:
            count = int(str(given["count"]), 0)
            end = start + (count - 1) * step
        elif "end" in given:
            end = int(str(given["end"]), 0)
            count = (end - start) // step + 1 if step else 0
        else:
            raise FilterError("`sequence` needs an end or a count")
        if "count" not in given and (end - start) * step < 0:
            raise FilterError(f"`sequence` from {start} to {end} needs a stride with the other sign")
        if count > MOST_ITEMS:
            raise FilterError(f"a sequence of {count} items is longer than {MOST_ITEMS}")
        pattern = str(given.get("format", "%d"))
        found.extend(pattern % (start + number * step) for number in range(max(count, 0)))
    return found


def _sequence_term(term: str) -> dict[str, str]:
    match = re.fullmatch(r"(?:(\w+)-)?(\w+)(?:/(\w+))?(?::(.+))?", term)
    if match is None:
        return key_values(term)[0]
    names = ("start", "end", "stride", "format")
    return {name: part for name, part in zip(names, match.groups(), strict=True) if part is not None}


def _subelements(terms: list[Any], _variables: Any) -> list[Any]:
    elements, key, *flags = terms
    pairs = DATA["subelements"](elements, key, *flags)
    return [[{name: below for name, below in one.items() if name != key}, item] for one, item in pairs]


def _random_choice(terms: list[Any], _variables: Any) -> list[Any]:
    return [random.SystemRandom().choice(terms)] if terms else []


LOOKUPS: Mapping[str, Lookup] = {
    "cartesian": _nested,
    "dict": _dict,
    "flattened": lambda terms, _variables: list(DATA["flatten"](terms)),
    "indexed_items": _indexed,
    "items": _items,
    "list": lambda terms, _variables: terms,
    "nested": _nested,
    "random_choice": _random_choice,
    "sequence": _sequence,
    "subelements": _subelements,
    "together": _together,
}
