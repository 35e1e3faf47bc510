"""Which module or action a task calls, and with which arguments, however they are written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rigd.provision.language import keywords, left_out
from rigd.provision.language.actions import BUILTIN, Signature, find_signature, known_names
from rigd.provision.language.arguments import faults_in
from rigd.provision.language.faults import kind_of, nearest
from rigd.provision.language.freeform import free_text, key_values
from rigd.provision.language.keywords import unknown_keyword
from rigd.provision.language.loader import Loader, as_mapping
from rigd.provision.language.model import Place, Scope
from rigd.provision.language.source import YamlMap
from rigd.provision.templating import syntax

_BY_VALUE = ("action", "local_action")
"""Keywords under which a module is named."""
_EXPRESSIONS = {BUILTIN + "debug": "var", BUILTIN + "assert": "that"}
"""Arguments that hold expressions instead of templates."""


@dataclass(frozen=True, kw_only=True)
class Called:
    """A task's module and arguments."""

    name: str
    signature: Signature | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    left_out: str = ""


def called(loader: Loader, keys: YamlMap, scope: Scope) -> Called | None:
    """Return a task's module with its arguments; None, and a fault is noted, if it names none that is known."""
    key = _module_key(loader, keys, scope)
    if key is None:
        return None
    raw, place = keys[key], keys.place_of(key)
    name: str | None = key
    if key in _BY_VALUE:
        name, raw = _named_by_action(raw)
    if name is None or not _is_module(name):
        loader.fault(place, f"there is no module '{name}'{nearest(str(name), known_names())}")
        return None
    signature = find_signature(name)
    if signature is None:
        reason = f"the module '{name}' is left out: {left_out.module_reason(name)}"
        if not (scope.guarded or scope.when or keys.get("when")):
            loader.fault(place, reason)
            return None
        return Called(name=name, left_out=reason)
    args = as_mapping(keys.get("args"), keys.file)
    found = _arguments(loader, signature, raw, place, args)
    if found is None:
        return None
    return Called(name=signature.names[0], signature=signature, arguments=found[0], places=found[1])


def _module_key(loader: Loader, keys: YamlMap, scope: Scope) -> str | None:
    """Return the key that names the module; whatever is neither that nor a keyword is noted."""
    table = keywords.HANDLER if scope.handlers else keywords.TASK
    others = [key for key in keys if key not in table and not str(key).startswith("with_")]
    known = [key for key in _BY_VALUE if key in keys]
    known = known or [key for key in others if isinstance(key, str) and _is_module(key)]
    wrong = [key for key in others if key not in known]
    for key in wrong:
        if known or len(wrong) > 1 or key in left_out.KEYWORDS:
            sentence = unknown_keyword(key, table, "a task", known_names())
        else:
            hint = nearest(str(key).rpartition(".")[2], (*known_names(), *table))
            sentence = f"there is no module or keyword '{key}'{hint}"
        loader.fault(keys.place_of(key), sentence)
    for key in known[1:]:
        loader.fault(keys.place_of(key), f"a task has one module, and here are two: '{known[0]}' and '{key}'")
    if not known and not wrong:
        loader.fault(keys.place, "the task names no module")
    return known[0] if known else None


def _is_module(name: str) -> bool:
    return find_signature(name) is not None or left_out.module_reason(name) is not None


def _named_by_action(raw: Any) -> tuple[str | None, Any]:
    if isinstance(raw, YamlMap):
        rest = YamlMap(raw.file)
        rest.take(raw)
        name = rest.pop("module", None)
        return (name if isinstance(name, str) else None), rest
    if isinstance(raw, str):
        name, _, rest_text = raw.strip().partition(" ")
        return name, rest_text.strip() or None
    return None, None


def _arguments(
    loader: Loader, signature: Signature, raw: Any, place: Place, args: YamlMap
) -> tuple[dict[str, Any], dict[str, Place]] | None:
    name = signature.names[0]
    found: dict[str, Any] = {key: args[key] for key in args}
    places = {key: args.place_of(key) for key in args}
    if isinstance(raw, YamlMap):
        found.update(raw)
        places.update({key: raw.place_of(key) for key in raw})
    elif isinstance(raw, str):
        pairs, text = _from_text(signature, raw)
        found.update(pairs)
        places.update(dict.fromkeys(pairs, place))
        if text and signature.free_form:
            found[signature.free_form] = text
            places[signature.free_form] = place
        elif text:
            sentence = f"'{text}' is no argument of {name}: its arguments are a mapping, or name=value"
            loader.fault(place, sentence)
            return None
    elif isinstance(raw, (bool, int, float)) and signature.free_form:
        found[signature.free_form] = str(raw)
        places[signature.free_form] = place
    elif raw is not None:
        loader.fault(place, f"{name} takes a mapping of arguments, and here is {kind_of(raw)}")
        return None
    return found, places


def _from_text(signature: Signature, text: str) -> tuple[dict[str, str], str]:
    if signature.free_form:
        return free_text(text, frozenset(signature.arguments) - {signature.free_form, "argv"})
    return key_values(text)


def check_call(
    loader: Loader,
    signature: Signature,
    arguments: Mapping[str, Any],
    places: Mapping[str, Place],
    place: Place,
) -> None:
    """Note what is wrong with the arguments of a call, as far as it can be known yet."""
    for key, sentence in faults_in(signature, arguments):
        loader.fault(places.get(key or "", place), sentence)
    expression = _EXPRESSIONS.get(signature.names[0])
    for key, value in arguments.items():
        where = places.get(key, place)
        if key != expression:
            loader.check_templates(value, where)
            continue
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str):
                continue
            check = syntax.condition_fault if key == "that" else syntax.expression_fault
            wrong = check(item)
            if wrong:
                loader.fault(where, f"'{key}': {wrong}")
