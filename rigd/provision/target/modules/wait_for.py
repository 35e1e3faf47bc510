"""Waits for a port, a file or a text in it."""

import mmap
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

STATES = {"ESTABLISHED": "01", "SYN_SENT": "02", "SYN_RECV": "03", "FIN_WAIT1": "04", "FIN_WAIT2": "05",
          "TIME_WAIT": "06"}  # fmt: skip
SEARCHED_BYTES = 1 << 20
"""Most of what a port says, or of a file without a size."""
Pattern = re.Pattern[bytes]
Found = tuple[bool, dict[str, Any]]
NO_MATCH: dict[str, Any] = {"groups": [], "named": {}}

ARGUMENTS = {
    "host": Argument(default="127.0.0.1"),
    "port": Argument(kind=Kind.INTEGER),
    "path": Argument(kind=Kind.PATH),
    "state": Argument(default="started", choices=("started", "stopped", "present", "absent", "drained")),
    "search_regex": Argument(),
    "timeout": Argument(kind=Kind.INTEGER, default=300),
    "connect_timeout": Argument(kind=Kind.INTEGER, default=5),
    "delay": Argument(kind=Kind.INTEGER, default=0),
    "sleep": Argument(kind=Kind.INTEGER, default=1),
    "msg": Argument(),
    "active_connection_states": Argument(kind=Kind.LIST, elements=Kind.TEXT, default=list(STATES)),
    "exclude_hosts": Argument(kind=Kind.LIST, elements=Kind.TEXT, left_out="`drained` counts every peer"),
}


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return whether it is so now; a delay is always waited for."""
    if arguments["delay"] or (not arguments["port"] and not arguments["path"]):
        return {"so": False, "check": box.check, **NO_MATCH}
    return {**_look(arguments), "check": box.check}


def _look(arguments: Mapping[str, Any]) -> dict[str, Any]:
    wants_there = arguments["state"] in ("started", "present")
    if arguments["state"] == "drained":
        return {"so": not _connections(arguments), **NO_MATCH}
    # Only what appears is searched: gone is gone.
    pattern = _compiled(arguments["search_regex"]) if wants_there else None
    look = _file if arguments["path"] else _port
    there, match = look(arguments, pattern)
    return {"so": there is wants_there, **match}


def _compiled(pattern: "str | None") -> "Pattern | None":
    try:
        return re.compile(pattern.encode(), re.MULTILINE) if pattern else None
    except re.error as error:
        raise ModuleError(f"'{pattern}' is no regular expression: {error}") from error


def _searched(pattern: Pattern, content: Any) -> Found:
    """Return whether it is in there, and its groups as text, numbered and by name."""
    match = pattern.search(content)
    if match is None:
        return False, NO_MATCH
    return True, {"groups": list(map(_text, match.groups())),
                  "named": {name: _text(group) for name, group in match.groupdict().items()}}  # fmt: skip


def _text(group: "bytes | None") -> "str | None":
    return None if group is None else group.decode(errors="replace")


def _file(arguments: Mapping[str, Any], pattern: "Pattern | None") -> Found:
    path = arguments["path"]
    if pattern is None:
        return os.path.exists(path), NO_MATCH
    try:
        with open(path, "rb") as file:
            if not os.path.getsize(
                path
            ):  # So says the kernel of its own files, and an empty one cannot be mapped.
                return _searched(pattern, file.read(SEARCHED_BYTES))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _searched(pattern, content)
    except (OSError, ValueError):
        return False, NO_MATCH


def _port(arguments: Mapping[str, Any], pattern: "Pattern | None") -> Found:
    until_s = time.monotonic() + arguments["connect_timeout"]
    try:
        link = socket.create_connection(
            (arguments["host"], arguments["port"]), timeout=arguments["connect_timeout"]
        )
    except OSError:
        return False, NO_MATCH
    with link:
        if pattern is None:
            return True, NO_MATCH
        said = b""
        while time.monotonic() < until_s and len(said) < SEARCHED_BYTES:
            try:
                block = link.recv(4096)
            except OSError:
                break
            said += block
            found = _searched(pattern, said)
            if found[0] or not block:
                return found
    return False, NO_MATCH


def _connections(arguments: Mapping[str, Any]) -> int:
    """Return how many connections the port has, by the kernel's tables."""
    wanted = {STATES.get(name) for name in arguments["active_connection_states"]}
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        count += sum(
            1 for row in rows if int(row[1].rsplit(":")[-1], 16) == arguments["port"] and row[3] in wanted
        )
    return count


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the waiting, which changes nothing."""
    if state["so"]:
        return []
    return [Change(what=f"wait for {_named(arguments)}", subject="wait", counts=False, once=True)]


def _named(arguments: Mapping[str, Any]) -> str:
    if arguments["path"]:
        return f"{arguments['path']} to be {arguments['state']}"
    if arguments["port"]:
        return f"port {arguments['port']} of {arguments['host']} to be {arguments['state']}"
    return f"{arguments['timeout']} s"


def apply(
    arguments: Mapping[str, Any], _state: Mapping[str, Any], _changes: list[Change], box: Box
) -> Mapping[str, Any]:
    """Look again and again until it is so or the time is over."""
    began_s = time.monotonic()
    time.sleep(arguments["delay"])
    if not arguments["port"] and not arguments["path"]:
        time.sleep(max(arguments["timeout"] - arguments["delay"], 0))
        return {"elapsed": round(time.monotonic() - began_s)}
    while True:
        seen = _look(arguments)
        elapsed_s = time.monotonic() - began_s
        if seen["so"]:
            return {
                "elapsed": round(elapsed_s),
                "match_groups": seen["groups"],
                "match_groupdict": seen["named"],
            }
        if elapsed_s > arguments["timeout"]:
            text = arguments["msg"] or f"waited {arguments['timeout']} s in vain for {_named(arguments)}"
            raise ModuleError(text, elapsed=round(elapsed_s))
        box.progress(f"waiting for {_named(arguments)}")
        time.sleep(arguments["sleep"])


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    facts = {key: arguments[key] for key in ("path", "port", "search_regex", "state")}
    return {**facts, "elapsed": 0, "match_groups": state["groups"], "match_groupdict": state["named"]}


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    state = arguments.get("state", "started")
    if arguments.get("path") and state in ("stopped", "drained"):
        return f"`state: {state}` is about a port; a file is `absent` or `present`"
    if state == "drained" and arguments.get("port") is None:
        return "`state: drained` needs `port`"
    return None


MODULE = Module(
    names=("ansible.builtin.wait_for",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    exclusive=(("path", "port"),),
    check_arguments=check_arguments,
    skipped_in_check=True,
    summary="waits for a port, a file or a text in it",
    differs=("check mode looks once: what is there already is ok, and only a wait is skipped",),
)
