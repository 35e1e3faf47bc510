"""`copy`: a file, or a folder with all in it, has this content. The controller also ends `template` here.

The controller turns a local `src` or `content` into `entries`: what belongs where, each file by the hash of its
content, which is sent only where it differs.
"""

import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes, digests, edited, writing
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

MOST_SHOWN = 1 << 20
"""A text larger than this is not shown as a difference."""


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return where each entry goes and what is there now."""
    entries = _remote(arguments) if arguments["remote_src"] else arguments["entries"]
    if entries is None:
        raise ModuleError("copy needs src or content")
    target = _target(arguments, entries)
    missing = _missing(target if _is_single(entries) else os.path.join(target, "-"))
    # In check mode a task before this one may be the one that would make it.
    if missing and _is_single(entries) and not arguments["dest"].endswith("/") and not box.check:
        raise ModuleError(
            f"Destination directory {missing[-1]} does not exist: make it by the file module first"
        )
    if arguments["remote_src"] and _is_single(entries):
        entries[0]["sha1"] = digests.of_file(entries[0]["source"], "sha1")
    if arguments["checksum"]:
        _prove(arguments, entries)
    found = [_look(arguments, entry, target) for entry in entries]
    return {"dest": target, "entries": found, "ids": attributes.identity(arguments), "parents": missing}


def _remote(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a source on the box itself."""
    source = arguments["src"]
    if source is None:
        raise ModuleError("remote_src needs src")
    if os.path.isfile(source):
        return [_from(source, "")]
    if not os.path.isdir(source):
        raise ModuleError(f"Source {source} not found on the box")
    base = "" if source.endswith("/") else os.path.basename(source)
    entries: list[dict[str, Any]] = []
    for folder, folders, files in os.walk(source):
        inside = os.path.normpath(os.path.join(base, os.path.relpath(folder, source)))
        if inside != ".":
            entries.append({"path": inside, "directory": True, "mode": os.stat(folder).st_mode & 0o7777})
        for name in (*files, *folders):
            full, path = os.path.join(folder, name), os.path.join(inside, name)
            if os.path.islink(full):
                entries.append({"path": path, "link": os.readlink(full)})
            elif name in files:
                entries.append(_from(full, path))
    return [{**entry, "path": os.path.normpath(entry["path"])} for entry in entries]


def _from(source: str, path: str) -> dict[str, Any]:
    mode = os.stat(source).st_mode & 0o7777
    return {
        "path": path,
        "sha256": digests.of_file(source),
        "source": source,
        "mode": mode,
        "name": os.path.basename(source),
    }


def _is_single(entries: "list[dict[str, Any]]") -> bool:
    """Return whether it is about a file of its own, not about what is in a folder."""
    return len(entries) == 1 and entries[0]["path"] == ""


def _prove(arguments: Mapping[str, Any], entries: "list[dict[str, Any]]") -> None:
    if not _is_single(entries):
        raise ModuleError("checksum is for a file, and src is a folder")
    found = entries[0]["sha1"]
    if found != arguments["checksum"].lower():
        raise ModuleError(
            f"the SHA-1 of '{arguments['src']}' is {found}, and {arguments['checksum']} was wanted:"
            " nothing was copied"
        )


def _target(arguments: Mapping[str, Any], entries: "list[dict[str, Any]]") -> str:
    """Return the path that entries are relative to; a file's own path for a single file."""
    dest: str = arguments["dest"]
    if _is_single(entries) and (dest.endswith("/") or os.path.isdir(dest)):
        name = entries[0].get("name")
        if not name:
            raise ModuleError(f"can not use content with a dir as dest: '{dest}' is a folder")
        return os.path.join(dest, name)
    return dest


def _missing(target: str) -> list[str]:
    missing: list[str] = []
    parent = os.path.dirname(target.rstrip("/"))
    while parent and not os.path.isdir(parent):
        missing.insert(0, parent)
        parent = os.path.dirname(parent)
    return missing


def _look(arguments: Mapping[str, Any], entry: "dict[str, Any]", target: str) -> dict[str, Any]:
    path = os.path.join(target, entry["path"]) if entry["path"] else target
    seen = attributes.look(path)
    if seen is not None and seen["kind"] == "link" and arguments["follow"]:
        through = attributes.look(path, follow=True)
        if through is not None and through["kind"] != "link":
            path, seen = os.path.realpath(path), through
    found = {**entry, "path": path, "seen": seen, "now": None, "text": None}
    if seen is not None and seen["kind"] == "directory" and not entry.get("directory"):
        raise ModuleError(f"cannot write a file where the folder '{path}' is")
    if seen is not None and seen["kind"] == "file" and not entry.get("directory"):
        found["now"] = digests.of_file(path)
        if found["now"] != entry.get("sha256") and seen["size"] <= MOST_SHOWN:
            found["text"] = _text(path)
    return found


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return shown(file.read(MOST_SHOWN))
    except OSError:
        return None


def shown(content: bytes) -> str | None:
    """Return content as text for a difference; None for what is no text."""
    if b"\0" in content:
        return None
    return content.decode("utf-8", "replace")


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return what to make, write and set."""
    uid, gid = state["ids"]
    changes = [
        Change(
            what="make the folder",
            subject=folder,
            before="absent",
            after="directory",
            data={"do": "make", "path": folder},
        )
        for folder in state["parents"]
    ]
    for entry in state["entries"]:
        changes += _entry(arguments, entry, uid, gid)
    return changes


def _entry(
    arguments: Mapping[str, Any], entry: Mapping[str, Any], uid: int | None, gid: int | None
) -> list[Change]:
    seen, path = entry["seen"], entry["path"]
    if entry.get("directory"):
        mode = _directory_mode(arguments, entry)
        if seen is None:
            return [Change(what="make the folder", subject=path, before="absent", after="directory",
                           data={"do": "make", "path": path})]  # fmt: skip
        return attributes.differences(path, seen, mode=mode, uid=uid, gid=gid)
    if entry.get("link") is not None:
        if seen is not None and seen["kind"] == "link" and seen["target"] == entry["link"]:
            return []
        return [Change(what=f"link to {entry['link']}", subject=path, after=entry["link"],
                       data={"do": "link", "path": path, "target": entry["link"]})]  # fmt: skip
    if seen is not None and not arguments["force"]:
        return []
    mode = _mode(arguments, entry)
    if seen is None or entry["now"] != entry["sha256"]:
        data = {"do": "write", "path": path, "sha256": entry["sha256"], "source": entry.get("source")}
        what = "write the file" if seen is None else "write new content"
        return [
            Change(what=what, subject=path, before=entry["text"], after=entry.get("text_after"), data=data)
        ]
    return attributes.differences(path, seen, mode=mode, uid=uid, gid=gid)


def _mode(arguments: Mapping[str, Any], entry: Mapping[str, Any]) -> Any:
    return entry.get("mode") if arguments["mode"] == "preserve" else arguments["mode"]


def _directory_mode(arguments: Mapping[str, Any], entry: Mapping[str, Any]) -> Any:
    if arguments["directory_mode"] is None and arguments["mode"] == "preserve":
        return entry.get("mode")
    return arguments["directory_mode"]


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Make folders, write files, set attributes; each file in one step."""
    uid, gid = state["ids"]
    entries = {entry["path"]: entry for entry in state["entries"]}
    for change in changes:
        data = change.data
        path = data.get("path", "")
        entry = entries.get(path, {})
        try:
            if data.get("do") == "make":
                os.makedirs(path, exist_ok=True)
                _set(path, _directory_mode(arguments, entry), uid, gid)
            elif data.get("do") == "link":
                writing.put_link(path, data["target"])
            elif data.get("do") == "write":
                _write(arguments, entry, box)
                _set(path, _mode(arguments, entry), uid, gid)
        except OSError as error:
            raise ModuleError(f"cannot write '{error.filename or path}': {error.strerror}") from error
    attributes.put([change for change in changes if "do" not in change.data])


def _write(arguments: Mapping[str, Any], entry: Mapping[str, Any], box: Box) -> None:
    path = entry["path"]
    if entry.get("source"):
        with open(entry["source"], "rb") as file:
            content = file.read()
    else:
        content = box.blob(entry["sha256"])
    edited.put(
        box,
        path,
        content,
        validate=arguments["validate"],
        backup=arguments["backup"],
        follow=arguments["follow"],
    )


def _set(path: str, mode: Any, uid: int | None, gid: int | None) -> None:
    seen = attributes.look(path)
    if seen is not None:
        attributes.put(attributes.differences(path, seen, mode=mode, uid=uid, gid=gid))


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return destination, checksum and attributes as Ansible does."""
    facts: dict[str, Any] = {"dest": state["dest"]}
    if arguments["src"] is not None:
        facts["src"] = arguments["src"]
    if len(state["entries"]) == 1 and state["entries"][0].get("sha256"):
        entry = state["entries"][0]
        facts["dest"] = entry["path"]
        facts["checksum_sha256"] = entry["sha256"]
        if "sha1" in entry:
            facts["checksum"] = entry["sha1"]
        if entry["seen"] is not None:
            facts |= attributes.names(entry["seen"])
    return facts


def _together(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("content") is not None and arguments.get("remote_src"):
        return "content and remote_src do not go together"
    return None


MODULE = Module(
    names=("ansible.builtin.copy",),
    summary="a file, or a folder with all in it, has this content",
    arguments={
        "src": Argument(),
        "content": Argument(kind=Kind.ANY),
        "entries": Argument(kind=Kind.ANY, left_out="the controller fills it from src or content"),
        "dest": Argument(kind=Kind.PATH, required=True),
        "remote_src": Argument(kind=Kind.BOOLEAN, default=False),
        "force": Argument(kind=Kind.BOOLEAN, default=True),
        "backup": Argument(kind=Kind.BOOLEAN, default=False),
        "validate": Argument(),
        "directory_mode": Argument(kind=Kind.MODE),
        "follow": Argument(kind=Kind.BOOLEAN, default=False),
        "local_follow": Argument(kind=Kind.BOOLEAN, default=True),
        "decrypt": Argument(kind=Kind.BOOLEAN, default=True),
        "checksum": Argument(),
        **attributes.ARGUMENTS,
    },
    exclusive=(("src", "content"),),
    one_of=(("src", "content"),),
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=_together,
    differs=(
        (
            "with `remote_src` each file of a folder takes `mode` and each folder `directory_mode`, as they do from"
            " the controller; Ansible's set the topmost folder's alone"
        ),
        "a file that is there keeps its mode unless one is asked for, with `remote_src`, too",
        "a file where the source has a folder, or a folder where it has a file, is a fault",
    ),
)
