"""Filters that make or read text: quoting, patterns, times, sizes, comments. Pure."""

import re
import shlex
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from rigd.provision.language.faults import kind_of
from rigd.provision.templating.values import Missing

_TRUE = frozenset({"yes", "on", "true", "1"})
_FALSE = frozenset({"no", "off", "false", "0"})
_UNITS = "BKMGTPEZY"
_SIZE = re.compile(r"\s*(\d*\.?\d+)\s*([A-Za-z]*)\s*")


class FilterError(Exception):
    """A filter or lookup was given something that it cannot work on; the text says what."""


def text(value: Any) -> str:
    """Return a value as text; bytes are read as UTF-8."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _bool(value: Any) -> bool:
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE or value == 1:
        return True
    if word in _FALSE or value in ("", None, 0):
        return False
    raise FilterError(f"`bool` reads true, yes, on, 1, false, no, off and 0, not {value!r}")


def _quote(value: Any) -> str:
    return shlex.quote("" if value is None else text(value))


def _flags(*, ignorecase: bool, multiline: bool) -> int:
    return (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0)


def _regex_replace(  # noqa: PLR0917  (templates pass them by place)
    value: Any = "",
    pattern: str = "",
    replacement: str = "",
    ignorecase: bool = False,  # noqa: FBT001, FBT002  (templates pass it by place)
    multiline: bool = False,  # noqa: FBT001, FBT002  (templates pass it by place)
    count: int = 0,
    mandatory_count: int = 0,
) -> str:
    flags = _flags(ignorecase=ignorecase, multiline=multiline)
    found, times = re.compile(pattern, flags).subn(replacement, text(value), count=count)
    if mandatory_count and times != mandatory_count:
        raise FilterError(f"'{pattern}' should match {mandatory_count} times, and matches {times} times")
    return found


def _regex_findall(
    value: Any,
    pattern: str,
    multiline: bool = False,  # noqa: FBT001, FBT002  (templates pass it by place)
    ignorecase: bool = False,  # noqa: FBT001, FBT002  (templates pass it by place)
) -> list[Any]:
    return re.findall(pattern, text(value), _flags(ignorecase=ignorecase, multiline=multiline))


def _regex_search(
    value: Any, pattern: str, *groups: str, ignorecase: bool = False, multiline: bool = False
) -> Any:
    found = re.search(pattern, text(value), _flags(ignorecase=ignorecase, multiline=multiline))
    if found is None:
        return None
    return [found.group(_group(group)) for group in groups] if groups else found.group()


def _group(wanted: str) -> int | str:
    if match := re.fullmatch(r"\\g<(\w+)>", wanted):
        return int(match[1]) if match[1].isdigit() else match[1]
    if match := re.fullmatch(r"\\(\d+)", wanted):
        return int(match[1])
    raise FilterError(f"`regex_search` takes groups such as '\\\\1' and '\\\\g<name>', not '{wanted}'")


def _regex_escape(value: Any, re_type: str = "python") -> str:
    if re_type == "python":
        return re.escape(text(value))
    if re_type == "posix_basic":
        return re.sub(r"([\].\[^$*\\])", r"\\\1", text(value))
    raise FilterError(f"`regex_escape` knows python and posix_basic, not '{re_type}'")


def _split(value: Any, separator: str | None = None, most: int = -1) -> list[str]:
    if isinstance(value, (list, dict)):
        raise FilterError(f"`split` takes text, and here is {kind_of(value)}")
    return text(value).split(separator, most)


def _strftime(pattern: str, second: Any = None, utc: bool = False) -> str:  # noqa: FBT001, FBT002  (by place)
    parts = time.gmtime if utc else time.localtime
    return time.strftime(pattern, parts(None if second is None else float(second)))


def _to_datetime(value: Any, pattern: str = "%Y-%m-%d %H:%M:%S") -> datetime:
    return datetime.strptime(text(value), pattern)  # noqa: DTZ007  (as Ansible: what the text says, no zone)


def _human_readable(size: Any, isbits: bool = False, unit: str | None = None) -> str:  # noqa: FBT001, FBT002  (by place)
    number = float(size)
    power = next((power for power in range(8, 0, -1) if number >= 1024.0**power), 0)
    if unit:
        power = _UNITS.index(unit[0].upper())
    short, whole = ("b", "bits") if isbits else ("B", "Bytes")
    return f"{number / 1024.0**power:.2f} {_UNITS[power] + short if power else whole}"


def _human_to_bytes(value: Any, default_unit: str | None = None, isbits: bool = False) -> int:  # noqa: FBT001, FBT002  (by place)
    match = _SIZE.fullmatch(text(value))
    if match is None:
        raise FilterError(f"'{value}' is no size such as 10M or '1.5 GB'")
    unit = match[2] or default_unit or "B"
    power = _UNITS.find(unit[0].upper())
    tail = unit[1:]
    bits = isbits and tail in ("", "b", "its", "it")
    if power < 0 or not (bits or (not isbits and tail in ("", "B", "yte", "ytes"))):
        raise FilterError(f"'{unit}' is no unit of a size")
    return round(float(match[1]) * (1 << (10 * power)))


_COMMENTS: Mapping[str, Mapping[str, str]] = {
    "plain": {"decoration": "# "},
    "erlang": {"decoration": "% "},
    "c": {"decoration": "// "},
    "cblock": {"beginning": "/*", "decoration": " * ", "end": " */"},
    "xml": {"beginning": "<!--", "decoration": " - ", "end": "-->"},
}


def _comment(value: Any, style: str = "plain", **options: Any) -> str:
    if style not in _COMMENTS:
        raise FilterError(f"`comment` knows {', '.join(_COMMENTS)}, not '{style}'")
    given = {**_COMMENTS[style], **options}
    decoration = given.get("decoration", "")
    line_end = given.get("newline", "\n")
    bare = decoration.rstrip()
    prefix = [given.get("prefix", bare)] * int(given.get("prefix_count", 1))
    postfix = [given.get("postfix", bare)] * int(given.get("postfix_count", 1))
    middle = [decoration + line if line else bare for line in text(value).split(line_end)[:-1]]
    middle.append(decoration + text(value).split(line_end)[-1])
    lines = [*prefix, *middle, *postfix]
    if begin := given.get("beginning"):
        lines.insert(0, begin)
    if end := given.get("end"):
        lines.append(end)
    return str(line_end.join(lines))


def _urlsplit(value: Any, query: str = "") -> Any:
    found = urlsplit(text(value))
    names = ("fragment", "hostname", "netloc", "password", "path", "port", "query", "scheme", "username")
    parts = {name: getattr(found, name) for name in names}
    if not query:
        return parts
    if query not in parts:
        raise FilterError(f"`urlsplit` knows {', '.join(names)}, not '{query}'")
    return parts[query]


def _type_debug(value: Any) -> str:
    if isinstance(value, Missing):
        return "Undefined"
    kinds = (bool, str, int, float, dict, list)
    return next((kind.__name__ for kind in kinds if isinstance(value, kind)), type(value).__name__)


def _mandatory(value: Any, msg: str | None = None) -> Any:
    if isinstance(value, Missing):
        raise FilterError(msg or f"a variable that must be given is not: {value.sentence}")
    return value


FILTERS: Mapping[str, Callable[..., Any]] = {
    "bool": _bool,
    "comment": _comment,
    "human_readable": _human_readable,
    "human_to_bytes": _human_to_bytes,
    "mandatory": _mandatory,
    "quote": _quote,
    "regex_escape": _regex_escape,
    "regex_findall": _regex_findall,
    "regex_replace": _regex_replace,
    "regex_search": _regex_search,
    "split": _split,
    "strftime": _strftime,
    "to_datetime": _to_datetime,
    "type_debug": _type_debug,
    "urldecode": lambda value: unquote_plus(text(value)),
    "urlsplit": _urlsplit,
}
