"""Filters that shape lists, mappings and numbers. Pure, but for `random` and `shuffle`, which take a seed."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import pass_environment
from jinja2.filters import do_unique

from rigd.provision.language.faults import kind_of
from rigd.provision.templating.filters_text import FilterError
from rigd.provision.templating.values import settled

_NULLS = (None, "None", "null")


def _combine(*terms: Any, recursive: bool = False, list_merge: str = "replace") -> Any:
    if list_merge not in _LIST_MERGES:
        raise FilterError(f"list_merge is one of {', '.join(_LIST_MERGES)}, not '{list_merge}'")
    found: dict[Any, Any] = {}
    for term in _flatten(list(terms), levels=1):
        if not isinstance(term, Mapping):
            raise FilterError(f"`combine` takes mappings, and here is {term!r}")
        found = _merged(found, term, recursive=recursive, list_merge=list_merge)
    return found


_LIST_MERGES: Mapping[str, Callable[[list[Any], list[Any]], list[Any]]] = {
    "replace": lambda _old, new: new,
    "keep": lambda old, _new: old,
    "append": lambda old, new: old + new,
    "prepend": lambda old, new: new + old,
    "append_rp": lambda old, new: [item for item in old if item not in new] + new,
    "prepend_rp": lambda old, new: new + [item for item in old if item not in new],
}


def _merged(
    old: Mapping[Any, Any], new: Mapping[Any, Any], *, recursive: bool, list_merge: str
) -> dict[Any, Any]:
    found = dict(old)
    for key, value in new.items():
        before = found.get(key)
        if recursive and isinstance(before, Mapping) and isinstance(value, Mapping):
            found[key] = _merged(before, value, recursive=True, list_merge=list_merge)
        elif isinstance(before, list) and isinstance(value, list):
            found[key] = _LIST_MERGES[list_merge](before, value)
        else:
            found[key] = value
    return found


def _dict2items(value: Any, key_name: str = "key", value_name: str = "value") -> list[dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise FilterError(f"`dict2items` takes a mapping, and here is {kind_of(value)}")
    return [{key_name: key, value_name: below} for key, below in value.items()]


def _items2dict(value: Any, key_name: str = "key", value_name: str = "value") -> dict[Any, Any]:
    try:
        return {item[key_name]: item[value_name] for item in value}
    except (KeyError, TypeError, IndexError) as error:
        sentence = f"`items2dict` takes a list of mappings with the keys '{key_name}' and '{value_name}'"
        raise FilterError(sentence) from error


def _flatten(value: Any, levels: int | None = None, skip_nulls: bool = True) -> list[Any]:  # noqa: FBT001, FBT002  (by place)
    found: list[Any] = []
    for item in value:
        if skip_nulls and not isinstance(item, (dict, list)) and item in _NULLS:
            continue
        if isinstance(item, (list, tuple)) and (levels is None or levels >= 1):
            found.extend(_flatten(item, None if levels is None else levels - 1, skip_nulls))
        else:
            found.append(item)
    return found


def _once(items: Iterable[Any]) -> list[Any]:
    """Return each value once, in order; values need no hash."""
    found: list[Any] = []
    seen: set[Any] = set()
    for item in items:
        try:
            if item not in seen:
                seen.add(item)
                found.append(item)
        except TypeError:
            if item not in found:
                found.append(item)
    return found


def _subelements(value: Any, path: Any, skip_missing: Any = False) -> list[tuple[Any, Any]]:  # noqa: FBT002  (by place)
    skip = bool(skip_missing.get("skip_missing") if isinstance(skip_missing, Mapping) else skip_missing)
    parts = path if isinstance(path, list) else str(path).split(".")
    found: list[tuple[Any, Any]] = []
    for element in value.values() if isinstance(value, Mapping) else value:
        below = element
        for part in parts:
            if not isinstance(below, Mapping):
                raise FilterError(f"`subelements`: '{part}' is looked for in something that is no mapping")
            if part not in below and not skip:
                raise FilterError(f"`subelements`: an item has no key '{part}'")
            below = below.get(part, {})
        if not isinstance(below, list):
            if skip and not below:
                continue
            raise FilterError(f"`subelements`: '{path}' is no list")
        found.extend((element, item) for item in below)
    return found


@pass_environment
def _extract(environment: Any, item: Any, container: Any, morekeys: Any = None) -> Any:
    more = morekeys if isinstance(morekeys, list) else [] if morekeys is None else [morekeys]
    for key in (item, *more):
        container = environment.getitem(container, key)
    return settled(container)


def _rekey(value: Any, key: str, duplicates: str = "error") -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for item in value.values() if isinstance(value, Mapping) else value:
        if not isinstance(item, Mapping) or key not in item:
            raise FilterError(f"`rekey_on_member`: an item has no key '{key}'")
        if item[key] in found and duplicates == "error":
            raise FilterError(f"`rekey_on_member`: the key '{item[key]}' is there twice")
        found[item[key]] = item
    return found


def _random(end: Any, start: int | None = None, step: int | None = None, seed: Any = None) -> Any:
    chosen = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311  (the seed is asked for)
    if isinstance(end, int):
        return chosen.randrange(start or 0, end, step or 1)
    return chosen.choice(list(end))


def _shuffle(value: Iterable[Any], seed: Any = None) -> list[Any]:
    items = list(value)
    (random.SystemRandom() if seed is None else random.Random(seed)).shuffle(items)  # noqa: S311  (the seed is asked for)
    return items


def _ternary(value: Any, yes: Any, no: Any, none: Any = None) -> Any:
    if value is None and none is not None:
        return none
    return yes if value else no


@pass_environment
def _unique(
    environment: Any,
    value: Any,
    case_sensitive: bool | None = None,  # noqa: FBT001  (templates pass it by place)
    attribute: Any = None,
) -> list[Any]:
    try:
        return list(do_unique(environment, value, bool(case_sensitive), attribute))
    except TypeError:
        # Jinja's needs values with a hash, which mappings and lists have not.
        if attribute or case_sensitive is False:
            raise
        return _once(value)


def _lists(value: Any) -> list[Any]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise FilterError(f"a list is needed, and here is {kind_of(value)}")
    return list(value)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "combinations": itertools.combinations,
    "combine": _combine,
    "dict2items": _dict2items,
    "difference": lambda one, two: _once(item for item in _lists(one) if item not in two),
    "extract": _extract,
    "flatten": _flatten,
    "intersect": lambda one, two: _once(item for item in _lists(one) if item in two),
    "items2dict": _items2dict,
    "log": math.log,
    "permutations": itertools.permutations,
    "pow": math.pow,
    "product": itertools.product,
    "random": _random,
    "rekey_on_member": _rekey,
    "root": lambda value, base=2: math.pow(value, 1 / base),
    "shuffle": _shuffle,
    "subelements": _subelements,
    "symmetric_difference": lambda one, two: _once(
        item for item in [*_lists(one), *_lists(two)] if (item in one) != (item in two)
    ),
    "ternary": _ternary,
    "unique": _unique,
    "union": lambda one, two: _once([*_lists(one), *_lists(two)]),
    "zip": zip,
    "zip_longest": itertools.zip_longest,
}
