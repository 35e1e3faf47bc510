"""`get_url`: a file is fetched from the web, and proved by its checksum where one is given."""

import email.utils
import hashlib
import os
import posixpath
import re
import tempfile
import time
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from rigd.provision.target import attributes, digests, web
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

MOST_SUMS = 4 * 1024 * 1024


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Look at the destination, and where it decides, ask the server whether it has something newer."""
    dest = arguments["dest"]
    folder = os.path.isdir(dest)
    path = os.path.join(dest, _name(arguments["url"])) if folder else dest
    seen = attributes.look(path, follow=True)
    state: dict[str, Any] = {
        "path": path,
        "seen": seen,
        "ids": attributes.identity(arguments),
        "folder": folder,
    }
    if seen is not None and seen["kind"] == "directory":
        raise ModuleError(f"the folder '{path}' is in the way")
    algorithm, wanted = _checksum(arguments, path)
    state |= {"algorithm": algorithm, "wanted": wanted, "now": None, "newer": False}
    if seen is None:
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise ModuleError(
                f"Destination {os.path.dirname(path)} does not exist: make it by the file module first"
            )
        return state
    if algorithm is not None:
        state["now"] = digests.of_file(path, algorithm)
    elif arguments["force"] or folder:
        state["newer"] = _newer(arguments, seen)
    return state


def _name(url: str) -> str:
    return posixpath.basename(urllib.parse.urlsplit(url).path) or "index.html"


def _checksum(arguments: Mapping[str, Any], path: str) -> tuple[str | None, str | None]:
    """Return algorithm and hash; a checksum file's URL is asked for the line of this file."""
    given = arguments["checksum"]
    if not given:
        return None, None
    algorithm, separator, value = given.partition(":")
    if not separator or algorithm not in hashlib.algorithms_available:
        raise ModuleError(f"checksum '{given}' is not algorithm:hash, such as sha256:ab12...")
    if not re.match(r"(https?|file|ftp)://", value):
        return algorithm, value.strip().lower()
    with web.ask({**arguments, "url": value}, timeout_s=arguments["timeout"]) as answer:
        if answer.status >= web.FAILING:
            raise ModuleError(f"checksum file {web.shown(value)} answers {answer.status}")
        text = answer.body.read(MOST_SUMS).decode("utf-8", "replace")
    return algorithm, _listed(text, {_name(arguments["url"]), os.path.basename(path)}, value)


def _listed(text: str, names: set[str], url: str) -> str:
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if len(rows) == 1 and len(rows[0]) == 1:
        return rows[0][0].lower()
    for row in rows:
        if row[1:] and posixpath.basename(row[-1].lstrip("*")) in names:
            return row[0].lower()
        bsd = re.fullmatch(r"\w+ ?\((.+)\) ?= ?([0-9a-fA-F]+)", " ".join(row))
        if bsd is not None and posixpath.basename(bsd[1]) in names:
            return bsd[2].lower()
    raise ModuleError(f"{web.shown(url)} has no line for {' or '.join(sorted(names))}")


def _newer(arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Ask the server whether its file differs from ours: by date, else by size."""
    since = email.utils.formatdate(seen["mtime_ns"] / 1e9, usegmt=True)
    headers = {**(arguments["headers"] or {}), **({} if arguments["force"] else {"If-Modified-Since": since})}
    with web.ask(arguments, method="HEAD", headers=headers, timeout_s=arguments["timeout"]) as answer:
        pass
    if answer.status == HTTPStatus.NOT_MODIFIED:
        return False
    if answer.status >= web.FAILING:
        return True  # Some servers know no HEAD; the download itself will tell.
    modified = answer.headers.get("last-modified")
    size = answer.headers.get("content-length")
    if modified is None or (size is not None and int(size) != seen["size"]):
        return True
    at_s, ours_s = email.utils.parsedate_to_datetime(modified).timestamp(), seen["mtime_ns"] / 1e9
    # What was fetched bears the server's date. An older one there is a file that was put back.
    return bool(at_s != ours_s if arguments["force"] else at_s > ours_s)


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the download, if one is due, or the attributes that differ."""
    uid, gid = state["ids"]
    seen, path = state["seen"], state["path"]
    stale = state["wanted"] is not None and state["now"] != state["wanted"]
    if seen is None or stale or state["newer"]:
        # A server without dates is asked again on each run, and that is no fault.
        what = f"fetch {web.shown(arguments['url'])}"
        return [Change(what=what, subject=path, data={"do": "fetch"}, once=seen is not None and not stale)]
    return attributes.differences(path, seen, mode=arguments["mode"], uid=uid, gid=gid)


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box
) -> dict[str, Any]:
    """Fetch beside the destination, prove, and put in place in one step."""
    facts: dict[str, Any] = {}
    path = state["path"]
    if any(change.data.get("do") == "fetch" for change in changes):
        facts = _fetch(arguments, state, box)
        seen = attributes.look(path, follow=True)
        uid, gid = state["ids"]
        if seen is not None:
            attributes.put(attributes.differences(path, seen, mode=arguments["mode"], uid=uid, gid=gid))
    attributes.put([change for change in changes if "do" not in change.data])
    return facts


def _fetch(arguments: Mapping[str, Any], state: Mapping[str, Any], box: Box) -> dict[str, Any]:
    with web.ask(arguments, headers=arguments["headers"], timeout_s=arguments["timeout"]) as answer:
        return _taken(arguments, state, box, answer)


def _taken(
    arguments: Mapping[str, Any], state: Mapping[str, Any], box: Box, answer: web.Answer
) -> dict[str, Any]:
    path, began_s = os.path.realpath(state["path"]), time.monotonic()
    if answer.status >= web.FAILING:
        raise ModuleError(
            f"cannot fetch {web.shown(arguments['url'])}: the server answers {answer.status} {answer.reason}",
            status_code=answer.status,
        )
    handle, fresh = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    os.close(handle)
    try:
        size = web.fetch(answer, fresh, box.progress)
        if (
            state["algorithm"] is not None
            and (got := digests.of_file(fresh, state["algorithm"])) != state["wanted"]
        ):
            raise ModuleError(
                f"the checksum of {web.shown(arguments['url'])} is {got}, and {state['wanted']} was wanted: "
                f"'{path}' is as it was; if the new file is right, put its checksum into the playbook"
            )
        same = state["seen"] is not None and digests.of_file(path) == digests.of_file(fresh)
        if state["seen"] is not None:
            os.chmod(fresh, state["seen"]["mode"])
            os.chown(fresh, state["seen"]["uid"], state["seen"]["gid"])
            if arguments["backup"] and not same:
                backup = f"{path}.{os.getpid()}.{time.strftime('%Y-%m-%d@%H:%M:%S')}~"
                os.link(path, backup)
                box.backups.append(backup)
        else:
            os.chmod(fresh, attributes.new_file_mode())
        modified = answer.headers.get("last-modified")
        if modified is not None:
            at_s = email.utils.parsedate_to_datetime(modified).timestamp()
            os.utime(fresh, (at_s, at_s))
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    facts = {"status_code": answer.status, "size": size, "elapsed": int(time.monotonic() - began_s),
             "msg": f"OK ({size} bytes)"}  # fmt: skip
    return {**facts, "changed": False} if same else facts


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return destination and attributes as Ansible does."""
    facts = {"dest": state["path"], "url": web.shown(arguments["url"])}
    return facts if state["seen"] is None else {**facts, **attributes.names(state["seen"])}


MODULE = Module(
    names=("ansible.builtin.get_url",),
    summary="a file is fetched from the web, and proved by its checksum where one is given",
    arguments={
        **web.ARGUMENTS,
        "dest": Argument(kind=Kind.PATH, required=True),
        "checksum": Argument(default=""),
        "force": Argument(kind=Kind.BOOLEAN, default=False, aliases=("thirsty",)),
        "backup": Argument(kind=Kind.BOOLEAN, default=False),
        "timeout": Argument(kind=Kind.FLOAT, default=10),
        "headers": Argument(kind=Kind.MAPPING),
        "tmp_dest": Argument(
            kind=Kind.PATH,
            left_out="the file is fetched beside its destination, so that it moves in one step",
        ),
        **attributes.ARGUMENTS,
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    differs=(
        "`dest` may be a folder without a download on every run: the server's date and size decide",
        "`force` asks the server before it fetches again",
        "without `force`, a file that is there is never fetched again: so says Ansible's documentation, not its code",
        "check mode asks no server for a file that is not there yet: it may serve it by then",
    ),
)
