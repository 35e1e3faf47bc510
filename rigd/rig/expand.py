"""`${NAME}` and `${NAME:-default}` in the paths of a rig file, taken from the daemon's environment.

Only where a path, a model or an image stands: nothing else of a rig may depend on the environment.
"""

import re
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from rigd.rig.document import KeyPath

EXPANDED: tuple[tuple[str, ...], ...] = (
    ("engine", "model"),
    ("engine", "api_key", "file"),
    ("engine", "environment", "*", "file"),
    ("engine", "arguments", "chat_template"),
    ("engine", "docker", "image"),
    ("engine", "docker", "mounts", "*", "source"),
    ("engine", "docker", "mounts", "*", "target"),
    ("engine", "docker", "entrypoint", "*"),
    ("engine", "process", "executable", "*"),
    ("engine", "process", "working_directory"),
    ("prefixes", "*", "request"),
    ("prefixes", "*", "files", "*"),
    ("prefixes", "*", "tools"),
)
"""Keys in which names are expanded; `*` is any key or place in a list."""

_NAME = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand(value: JsonValue, environ: Mapping[str, str], tell: Callable[[KeyPath, str], None]) -> JsonValue:
    """Return the value with its paths expanded; `tell` is given the key and a sentence for each unset name."""

    def walk(value: JsonValue, path: KeyPath, patterns: tuple[tuple[str, ...], ...]) -> JsonValue:
        if isinstance(value, dict):
            return {key: walk(below, (*path, key), _under(patterns, key)) for key, below in value.items()}
        if isinstance(value, list):
            return [walk(below, (*path, place), _under(patterns, None)) for place, below in enumerate(value)]
        if isinstance(value, str) and () in patterns:
            return _expanded(value, environ, lambda sentence: tell(path, sentence))
        return value

    return walk(value, (), EXPANDED)


def _under(patterns: tuple[tuple[str, ...], ...], key: str | None) -> tuple[tuple[str, ...], ...]:
    """Return what is left of the patterns below a key (None: a place in a list)."""
    return tuple(pattern[1:] for pattern in patterns if pattern and pattern[0] in ("*", key))


def _expanded(text: str, environ: Mapping[str, str], tell: Callable[[str], None]) -> str:
    def replace(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        value = environ.get(name) or default
        if value is None:
            tell(f"${{{name}}} is not set in the environment; set it, or write ${{{name}:-default}}")
            return found[0]
        return value

    return _NAME.sub(replace, text)
