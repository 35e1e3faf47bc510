"""Filters about paths of this machine, the one that runs rigd."""

import glob
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rigd.provision.templating.filters_text import FilterError


def _path_join(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, Iterable):
        raise FilterError("`path_join` takes a list of parts of a path")
    return os.path.join(*map(str, value))  # noqa: PTH118  (as Ansible: a later absolute part wins)


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *more: function(str(value), *more)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "basename": _of_text(os.path.basename),
    "commonpath": lambda paths: os.path.commonpath(list(map(str, paths))),
    "dirname": _of_text(os.path.dirname),
    "expanduser": _of_text(os.path.expanduser),
    "expandvars": _of_text(os.path.expandvars),
    "fileglob": lambda pattern: [path for path in glob.glob(str(pattern)) if os.path.isfile(path)],  # noqa: PTH113, PTH207  (texts in, texts out)
    "normpath": _of_text(os.path.normpath),
    "path_join": _path_join,
    "realpath": _of_text(os.path.realpath),
    "relpath": _of_text(os.path.relpath),
    "splitext": lambda value: list(os.path.splitext(str(value))),  # noqa: PTH122  (two texts are wanted)
}
