"""Settings into the text of a file that may be there: what is not ours keeps its every byte."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError
from tomlkit.items import InlineTable

from rigd.clients import jsonc
from rigd.clients.settings import ClientFile, Form, Rule, Setting


class FileFaultError(ValueError):
    """A file that is there and cannot be used; the text has line and column."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """A file as it should be."""

    text: str
    kept: tuple[str, ...] = ()
    """What a person chose and was left, as sentences."""


def merge(old: str | None, file: ClientFile) -> Merged:
    """Return the text with the file's settings in it; None: there is no file. Raises `FileFaultError`."""
    try:
        merged = _FORMS[file.form](old, file)
        _prove(merged.text, file)
    except jsonc.JsoncError as error:
        raise FileFaultError(str(error)) from error
    except ParseError as error:
        raise FileFaultError(f"line {error.line}, column {error.col + 1}: {_said(error)}") from error
    except TOMLKitError as error:
        raise FileFaultError(str(error)) from error
    return merged


def _prove(text: str, file: ClientFile) -> None:
    """Read the new text once more. Raises `FileFaultError` where it does not say what was asked for."""
    if file.form is Form.WHOLE:
        return
    present = (
        jsonc.parse(text).value
        if file.form is Form.JSONC
        else tomlkit.parse(text.removeprefix(jsonc.BYTE_ORDER_MARK)).unwrap()
    )
    missing, _ = _wanted(present, file.settings)
    if missing:
        path = ".".join(missing[0].path)
        raise FileFaultError(f"'{path}' cannot be added to it as it is written; write that part by hand")


def _said(error: ParseError) -> str:
    return str(error).split(" at line ", 1)[0]


def _whole(_old: str | None, file: ClientFile) -> Merged:
    return Merged(text=file.text)


def _jsonc(old: str | None, file: ClientFile) -> Merged:
    if old is None or jsonc.is_empty(old):
        wanted, _ = _wanted({}, file.settings)
        comments = "" if old is None or not old.strip() else f"{old.rstrip()}\n"
        return Merged(text=comments + jsonc.write(_nested(wanted)))
    text = old
    present = jsonc.parse(text).value
    wanted, kept = _wanted(present, file.settings)
    for path, value in grouped(present, wanted):
        text = jsonc.put(text, path, value)
    return Merged(text=text, kept=kept)


def _toml(old: str | None, file: ClientFile) -> Merged:
    mark = jsonc.BYTE_ORDER_MARK if (old or "").startswith(jsonc.BYTE_ORDER_MARK) else ""
    document = tomlkit.parse((old or "").removeprefix(mark))
    wanted, kept = _wanted(document.unwrap(), file.settings)
    if not wanted:
        return Merged(text=old or "", kept=kept)
    for setting in wanted:
        table: Any = document
        for depth, key in enumerate(setting.path[:-1]):
            if key not in table:
                table[key] = _table(inside=table, of_tables=depth < len(setting.path) - 2)
            table = table[key]
            if not isinstance(table, Mapping):
                way = ".".join(setting.path[: depth + 1])
                raise FileFaultError(f"{way} is no table, so it cannot have '{setting.path[depth + 1]}'")
        table[setting.path[-1]] = setting.value
    text = tomlkit.dumps(document)
    if old and old.count("\n") == old.count("\r\n") > 0:
        text = re.sub(r"(?<!\r)\n", "\r\n", text)
    return Merged(text=mark + text, kept=kept)


def _table(*, inside: Any, of_tables: bool) -> Any:
    """Return a new table as it can stand there: what a person wrote in one line stays in one line."""
    if isinstance(inside, InlineTable):
        return tomlkit.inline_table()
    return tomlkit.table(is_super_table=of_tables)


_FORMS: Mapping[Form, Callable[[str | None, ClientFile], Merged]] = {
    Form.WHOLE: _whole,
    Form.JSONC: _jsonc,
    Form.TOML: _toml,
}


# --- which settings are to be written ---

_ABSENT = object()


def _wanted(present: Any, settings: Sequence[Setting]) -> tuple[list[Setting], tuple[str, ...]]:
    """Return the settings that the file does not have as they should be, and what was left to a person."""
    wanted = [setting for setting in settings if not _stays(_at(present, setting.path), setting)]
    written = {setting.path for setting in wanted}
    kept = tuple(
        f"{'.'.join(setting.path)} stays {now!r}, a choice of yours ({setting.value!r} would be this rig's)"
        for setting in settings
        if setting.path not in written
        and setting.ours
        and (now := _at(present, setting.path)) != setting.value
    )
    return wanted, kept


def _stays(now: Any, setting: Setting) -> bool:
    """Return whether the value that is there may stay."""
    if now is _ABSENT:
        return False
    if setting.rule is Rule.LEAST:
        return _enough(now, setting.least)
    if setting.rule is Rule.CHOICE:
        ours = isinstance(now, str) and bool(setting.ours) and now.startswith(setting.ours)
        return not ours or now == setting.value
    return bool(now == setting.value) and isinstance(now, bool) == isinstance(setting.value, bool)


def _at(present: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(present, Mapping) or key not in present:
            return _ABSENT
        present = present[key]
    return present


def _enough(now: Any, least: float) -> bool:
    """Return whether a limit of time that is there is long enough; `false` is none at all."""
    if now is False:
        return True
    try:
        return float(now) >= least
    except (TypeError, ValueError):
        return False


def grouped(present: Any, settings: Sequence[Setting]) -> list[tuple[tuple[str, ...], Any]]:
    """Return paths and values so that an object that is not there is written at once, and as a whole."""
    found: dict[tuple[str, ...], Any] = {}
    for setting in settings:
        depth = 1
        while depth < len(setting.path) and _at(present, setting.path[:depth]) is not _ABSENT:
            depth += 1
        top, rest = setting.path[:depth], setting.path[depth:]
        if not rest:
            found[top] = setting.value
            continue
        into = found.setdefault(top, {})
        for key in rest[:-1]:
            into = into.setdefault(key, {})
        into[rest[-1]] = setting.value
    return list(found.items())


def _nested(settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the settings as one object, for a file that is not there yet."""
    return {path[0]: value for path, value in grouped({}, settings)}
