"""What `file` does to a path, by the name of the act; each takes the path, the change's data and the state."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from rigd.provision.target import writing

Act = Callable[[str, Mapping[str, Any], Mapping[str, Any]], None]


def _remove(path: str, _data: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    if state["own"]["kind"] == "directory":
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _make(_path: str, _data: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    for folder in state["missing"]:
        os.mkdir(folder)


def _make_empty(path: str, _data: Mapping[str, Any], _state: Mapping[str, Any]) -> None:
    with open(path, "ab"):
        pass


def _set_times(path: str, data: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    now_ns = time.time_ns()
    seen = state["through"]
    times = [
        now_ns if data.get(key) == "now" else data.get(key, seen[key]) for key in ("atime_ns", "mtime_ns")
    ]
    os.utime(path, ns=(times[0], times[1]))


def _put_link(path: str, data: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    if state["own"] is not None and state["own"]["kind"] == "directory":
        os.rmdir(path)
    source = data["source"]
    if data["do"] == "hard":
        writing.put_hard_link(path, os.path.join(os.path.dirname(path), source))
    else:
        writing.put_link(path, source)


ACTS: Mapping[str, Act] = {
    "remove": _remove,
    "make": _make,
    "touch": _make_empty,
    "times": _set_times,
    "link": _put_link,
    "hard": _put_link,
}
