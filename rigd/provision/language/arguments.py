"""Arguments of modules and actions: known, complete, and of the right kind. Pure.

Twice: when the playbook is loaded (`faults_in` lets values with templates pass), and when a task runs and its values
are known (`check_arguments` returns them converted and with their defaults).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rigd.errors import UsageError
from rigd.provision.language.actions import Signature, find_signature
from rigd.provision.language.faults import kind_of, nearest
from rigd.provision.language.freeform import key_values
from rigd.provision.language.keywords import is_template
from rigd.provision.language.source import Octal
from rigd.provision.target.contract import Argument, Kind

_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})
_OCTAL_TEXT = re.compile(r"(0o?)?[0-7]{1,4}")
_SYMBOLIC = re.compile(r"[ugoa]*([-+=]([rwxXst]*|[ugo]))+(,[ugoa]*([-+=]([rwxXst]*|[ugo]))+)*")
_LOOKS_OCTAL = re.compile(r"[0-7]{3,4}")
_SHOWN = 60


class ArgumentsError(UsageError):
    """A task's arguments are wrong; the text names the module, the argument and what it takes."""


class _WrongError(Exception):
    """A value is of the wrong kind; the text completes "'mode' ..."."""


def faults_in(signature: Signature, arguments: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Yield the argument and a sentence for everything that is wrong before any value is known."""
    canonical: dict[str, Any] = {}
    converted: dict[str, Any] = {}
    names = _names(signature)
    for key, value in arguments.items():
        name = names.get(key)
        if name is None:
            if not getattr(signature, "any_arguments", False):
                yield key, f"'{key}' is no argument of {signature.names[0]}{nearest(str(key), names)}"
            continue
        argument = signature.arguments[name]
        if argument.left_out:
            yield key, f"the argument '{key}' of {signature.names[0]} is left out: {argument.left_out}"
            continue
        if name in canonical:
            yield key, f"'{key}' is another name of '{name}', which is given, too"
        canonical[name] = value
        if value is None or _has_template(value):
            continue
        try:
            converted[name] = _converted(value, argument)
        except _WrongError as error:
            yield key, f"'{key}' of {signature.names[0]} {error}"
    yield from _incomplete(signature, canonical)
    if any(map(_has_template, canonical.values())):
        return
    defaults = {key: argument.default for key, argument in signature.arguments.items()}
    if wrong := signature.check_arguments({**defaults, **canonical, **converted}):
        yield None, wrong


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task under their canonical names, converted, defaults filled in.

    An argument that is not given and has no default is None. Raises `ArgumentsError` with every fault; it shows no
    value of an argument that is secret.
    """
    signature = find_signature(name)
    if signature is None:
        raise ArgumentsError(f"there is no module '{name}'")
    names = _names(signature)
    loose = getattr(signature, "any_arguments", False)
    wrong = [
        f"'{key}' is no argument of it{nearest(str(key), names)}"
        for key in arguments
        if key not in names and not loose
    ]
    found: dict[str, Any] = {}
    for key, value in arguments.items():
        canonical = names.get(key)
        if canonical is None:
            if loose:
                found[key] = value
            continue
        argument = signature.arguments[canonical]
        if argument.left_out:
            wrong.append(f"'{key}' is left out: {argument.left_out}")
        elif value is not None:
            try:
                found[canonical] = _converted(value, argument)
            except _WrongError as error:
                wrong.append(f"'{key}' {error}")
    wrong.extend(sentence for _key, sentence in _incomplete(signature, found))
    complete = {
        key: found.get(key, argument.default)
        for key, argument in signature.arguments.items()
        if not argument.left_out
    }
    result = {**found, **complete}
    if not wrong and (sentence := signature.check_arguments(result)):
        wrong.append(sentence)
    if wrong:
        raise ArgumentsError(f"wrong arguments of {signature.names[0]}: {'; '.join(wrong)}")
    return result


def _names(signature: Signature) -> dict[str, str]:
    """Return alias or name -> name."""
    names = {alias: name for name, argument in signature.arguments.items() for alias in argument.aliases}
    return names | {name: name for name in signature.arguments}


def _incomplete(signature: Signature, given: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    have = {key for key, value in given.items() if value is not None}
    sure = {key for key in have if not _perhaps_omitted(given[key])}
    name = signature.names[0]
    for key, argument in signature.arguments.items():
        if argument.required and key not in have:
            yield None, f"{name} needs the argument '{key}'"
    for group in signature.exclusive:
        if len(both := [key for key in group if key in sure]) > 1:
            yield both[1], f"{name} takes only one of {_listed(group)}"
    for group in signature.one_of:
        if not have.intersection(group):
            yield None, f"{name} needs one of {_listed(group)}"
    for group in signature.together:
        if sure.intersection(group) and (missing := [key for key in group if key not in have]):
            yield None, f"{name} needs {_listed(missing)}, too"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def _perhaps_omitted(value: Any) -> bool:
    return is_template(value) and "omit" in value


def _has_template(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_template, value.values()))
    if isinstance(value, list):
        return any(map(_has_template, value))
    return is_template(value)


def _converted(value: Any, argument: Argument) -> Any:
    try:
        converted = _CONVERSIONS[argument.kind](value)
        if argument.kind is Kind.LIST:
            elements = _CONVERSIONS[argument.elements or Kind.TEXT]
            converted = [elements(item) for item in converted]
    except _WrongError:
        if argument.secret:
            raise _WrongError("is of the wrong kind (its value is not shown)") from None
        raise
    if argument.choices:
        several = argument.kind is Kind.LIST
        for item in converted if several else [converted]:
            if item not in argument.choices:
                chosen = _choice(item, argument)
                if several or chosen is None:
                    known = ", ".join(map(repr, argument.choices))
                    raise _WrongError(f"is {_shown(item, argument)}, not one of {known}")
                return chosen
    return converted


def _choice(value: Any, argument: Argument) -> Any:
    """Return the choice meant by a YAML boolean: `state: yes` is text to the module, but true to YAML."""
    if value not in {"True", "False"}:
        return None
    meant = _TRUE if value == "True" else _FALSE
    same = [choice for choice in argument.choices if isinstance(choice, str) and choice.lower() in meant]
    return same[0] if len(same) == 1 else None


def _shown(value: Any, argument: Argument) -> str:
    return "something else" if argument.secret else repr(value)[:_SHOWN]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (dict, list)):
        raise _WrongError(f"takes text, and here is {kind_of(value)}")
    return str(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower().strip() if isinstance(value, (str, int, float)) else ""
    if text in _TRUE or text == "1.0":
        return True
    if text in _FALSE or text == "0.0":
        return False
    raise _WrongError(f"takes true or false, and here is {kind_of(value)} that is neither")


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    try:
        number = float(value) if isinstance(value, (str, float)) else None
        if isinstance(value, str) and value.strip().lstrip("+-").isdigit():
            return int(value)
    except ValueError:
        number = None
    if number is None or not number.is_integer():
        raise _WrongError(f"takes a whole number, and here is {kind_of(value)} that is none")
    return int(number)


def _float(value: Any) -> float:
    try:
        if isinstance(value, (int, float, str)):
            return float(value)
    except ValueError:
        pass
    raise _WrongError(f"takes a number, and here is {kind_of(value)} that is none")


def _mode(value: Any) -> str:
    if isinstance(value, Octal):
        return f"0{int(value):o}".rjust(4, "0")
    if isinstance(value, int) and not isinstance(value, bool):
        if _LOOKS_OCTAL.fullmatch(str(value)):
            raise _WrongError(f"is the decimal number {value}; write '0{value}' in quotes, which is octal")
        return f"0{value:o}".rjust(4, "0")
    text = _text(value).strip()
    if _OCTAL_TEXT.fullmatch(text):
        return text.replace("o", "").rjust(4, "0")
    if text == "preserve" or _SYMBOLIC.fullmatch(text):
        return text
    raise _WrongError(f"takes permissions such as '0644' or 'u=rw,g=r,o=r', and here is {text!r}")


def _list(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, str):
        return [item for item in (part.strip() for part in value.split(",")) if item]
    if isinstance(value, dict):
        raise _WrongError("takes a list, and here is a mapping")
    return [value]


def _mapping(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            try:
                found = json.loads(value)
            except ValueError:
                found = None
        else:
            found, rest = key_values(value.replace(",", " "))
            found = None if rest else found
        if isinstance(found, dict):
            return found
    raise _WrongError(f"takes a mapping, and here is {kind_of(value)}")


_CONVERSIONS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.TEXT: _text,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.FLOAT: _float,
    Kind.PATH: _text,
    Kind.MODE: _mode,
    Kind.LIST: _list,
    Kind.MAPPING: _mapping,
    Kind.ANY: lambda value: value,
}
