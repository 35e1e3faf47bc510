"""`file`: a path is a file, a folder, a link, touched, or gone."""

import os
import time
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes, guarded, path_acts
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

_TIME_FORMAT = "%Y%m%d%H%M.%S"
MOST_PATHS = 200_000
"""Most paths that `recurse` looks at; a models folder has a few thousand."""


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Look at the path, at its links' other end, at its parents, and below it with `recurse`."""
    path = _path(arguments)
    own = attributes.look(path)
    state: dict[str, Any] = {
        "path": path,
        "own": own,
        "through": attributes.look(path, follow=True),
        "below": {},
        "missing": [],
    }
    wanted = _wanted(arguments, state)
    state["source"] = _source(arguments, path)
    state["kept"] = guarded.why_kept(path) if arguments["state"] == "absent" and own is not None else None
    state["ids"] = attributes.identity(arguments)
    state["empty"] = os.path.isdir(path) and os.access(path, os.R_OK) and not os.listdir(path)
    parent = path
    while wanted == "directory" and not os.path.isdir(parent):
        state["missing"].insert(0, parent)
        parent = os.path.dirname(parent) or "."
    if arguments["recurse"] and os.path.isdir(path):
        if any(arguments[key] is not None for key in ("mode", "owner", "group")):
            guarded.refuse_mixed(path)
        state["below"] = _below(path, follow=arguments["follow"])
    return state


def _path(arguments: Mapping[str, Any]) -> str:
    path = str(arguments["path"]).rstrip("/") or "/"
    if arguments["state"] == "hard" and arguments["src"] and os.path.isdir(path):
        return os.path.join(path, os.path.basename(arguments["src"]))
    if arguments["state"] == "directory" and arguments["follow"] and os.path.islink(path):
        return os.path.realpath(path)
    return path


def _source(arguments: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    source = arguments["src"]
    if source is None:
        return None
    full = source if os.path.isabs(source) else os.path.join(os.path.dirname(path), source)
    return attributes.look(full, follow=True)


def _below(path: str, *, follow: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(path, followlinks=False):
        for name in (*folders, *files):
            full = os.path.join(folder, name)
            seen = attributes.look(full)
            if seen is not None and seen["kind"] == "link" and follow:
                through = attributes.look(full, follow=True)
                seen = through if through is not None and through["kind"] != "link" else seen
            if seen is not None:
                found[full] = seen
        if len(found) > MOST_PATHS:
            raise ModuleError(
                f"more than {MOST_PATHS:,} paths below '{path}': name a smaller folder for `recurse`"
            )
    return found


def _wanted(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    if arguments["state"] is not None:
        return str(arguments["state"])
    own = state["own"]
    if own is not None:
        return "hard" if own["kind"] == "file" and own["links"] > 1 else str(own["kind"])
    return "directory" if arguments["recurse"] else "file"


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return what differs from the wanted state of the path."""
    wanted = _wanted(arguments, state)
    if arguments["recurse"] and wanted != "directory":
        raise ModuleError(f"recurse is for a directory, and '{state['path']}' is to be a {wanted}")
    if arguments["src"] and wanted not in ("link", "hard"):
        raise ModuleError(
            f"src is for a link, and '{state['path']}' is to be a {wanted}: say `state: link` or `hard`"
        )
    return _DIFFERENCES[wanted](arguments, state)


def _attributes(
    arguments: Mapping[str, Any], state: Mapping[str, Any], seen: Mapping[str, Any]
) -> list[Change]:
    uid, gid = state["ids"]
    path = state["path"]
    if seen["kind"] == "link" and arguments["follow"] and state["through"]["kind"] != "link":
        seen, path = state["through"], os.path.realpath(path)
    return attributes.differences(path, seen, mode=arguments["mode"], uid=uid, gid=gid)


def _absent(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    if state["own"] is None:
        return []
    if state["kept"] is not None:
        raise ModuleError(state["kept"])
    return [Change(what=f"remove the {state['own']['kind']}", subject=state["path"], before=state["own"]["kind"],
                   after="absent", data={"do": "remove"})]  # fmt: skip


def _file(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    seen, path = state["own"], state["path"]
    if seen is not None and seen["kind"] == "link" and arguments["follow"]:
        seen = state["through"]
    if seen is None:
        raise ModuleError(f"file ({path}) is absent, cannot continue", path=path, state="absent")
    if seen["kind"] != "file":
        raise ModuleError(f"file ({path}) is {seen['kind']}, cannot continue", path=path, state=seen["kind"])
    return [*_attributes(arguments, state, state["own"]), *_times(arguments, state, seen)]


def _directory(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    path = state["path"]
    if state["own"] is not None and state["own"]["kind"] != "directory":
        raise ModuleError(f"{path} already exists as a {state['own']['kind']}", path=path)
    if state["missing"]:
        what = f"make the folder{'' if len(state['missing']) == 1 else 's down to it'}"
        return [Change(what=what, subject=path, before="absent", after="directory", data={"do": "make"})]
    changes = _attributes(arguments, state, state["own"])
    uid, gid = state["ids"]
    for full, seen in state["below"].items():
        changes += attributes.differences(full, seen, mode=arguments["mode"], uid=uid, gid=gid)
    return [*changes, *_times(arguments, state, state["own"])]


def _touch(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    own = state["own"]
    if own is None:
        return [
            Change(
                what="make an empty file",
                subject=state["path"],
                before="absent",
                after="file",
                data={"do": "touch"},
            )
        ]
    seen = state["through"] if own["kind"] == "link" and arguments["follow"] else own
    return [*_attributes(arguments, state, own), *_times(arguments, state, seen, default="now")]


def _times(
    arguments: Mapping[str, Any],
    state: Mapping[str, Any],
    seen: Mapping[str, Any],
    *,
    default: str = "preserve",
) -> list[Change]:
    """Return the changes of modification and access time; `now` differs always, as it must."""
    wanted: dict[str, Any] = {}
    for name, key in (("modification_time", "mtime_ns"), ("access_time", "atime_ns")):
        wish = arguments[name] if arguments[name] is not None else default
        if wish == "preserve":
            continue
        if wish == "now":
            wanted[key] = "now"
            continue
        layout = arguments[f"{name}_format"]
        try:
            at_ns = int(time.mktime(time.strptime(wish, layout)) * 1e9)
        except ValueError as error:
            raise ModuleError(f"{name} '{wish}' is not a time in the format {layout}") from error
        if at_ns != seen[key]:
            wanted[key] = at_ns
    if not wanted:
        return []
    data = {"do": "times", **wanted}
    return [Change(what="set the times", subject=state["path"], once="now" in wanted.values(), data=data)]


def _link(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    path, own, source = state["path"], state["own"], arguments["src"]
    if source is None:
        if own is None or own["kind"] != "link":
            raise ModuleError("src is required for creating new symbolic links", path=path)
        return _attributes(arguments, state, own)
    if state["source"] is None and not arguments["force"]:
        raise ModuleError(
            f'src file does not exist, use "force: true" if a dangling link to {source} is meant', path=path
        )
    if own is not None and own["kind"] == "link":
        if own["target"] == source:
            return _attributes(arguments, state, own) if state["source"] is not None else []
        return [_link_change(path, own["target"], source, "link")]
    if own is not None:
        _may_give_way(arguments, state, "symlink")
    return [_link_change(path, "absent" if own is None else own["kind"], source, "link")]


def _hard(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    path, own, source = state["path"], state["own"], state["source"]
    if arguments["src"] is None:
        if own is None:
            raise ModuleError("src is required for creating new hard links", path=path)
        return _attributes(arguments, state, own)
    if source is None:
        raise ModuleError(f"src '{arguments['src']}' does not exist", path=path)
    if (
        own is not None
        and own["kind"] == "file"
        and (own["device"], own["inode"]) == (source["device"], source["inode"])
    ):
        return _attributes(arguments, state, own)
    if own is not None and own["kind"] != "link":
        _may_give_way(arguments, state, "hard link")
    return [_link_change(path, "absent" if own is None else own["kind"], arguments["src"], "hard")]


def _may_give_way(arguments: Mapping[str, Any], state: Mapping[str, Any], to: str) -> None:
    path, kind = state["path"], state["own"]["kind"]
    if not arguments["force"]:
        raise ModuleError(f"refusing to convert from {kind} to {to} for {path}", path=path)
    if kind == "directory" and not state["empty"]:
        raise ModuleError(f"the directory {path} is not empty, refusing to convert it", path=path)


def _link_change(path: str, before: str, source: str, do: str) -> Change:
    return Change(
        what=f"link to {source}", subject=path, before=before, after=source, data={"do": do, "source": source}
    )


_DIFFERENCES = {
    "absent": _absent,
    "file": _file,
    "directory": _directory,
    "touch": _touch,
    "link": _link,
    "hard": _hard,
}


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Make the changes; what is new gets its owner and mode at once."""
    path = state["path"]
    try:
        for change in changes:
            act = path_acts.ACTS.get(change.data.get("do", ""))
            if act is not None:
                act(path, change.data, state)
    except OSError as error:
        where = error.filename or path
        raise ModuleError(f"cannot change '{where}': {error.strerror}") from error
    attributes.put([change for change in changes if "do" not in change.data])
    if any(change.data.get("do") in {"make", "touch", "link", "hard"} for change in changes):
        _new(arguments, state, box)


def _new(arguments: Mapping[str, Any], state: Mapping[str, Any], box: Box) -> None:
    uid, gid = state["ids"]
    for made in state["missing"] or [state["path"]]:
        seen = attributes.look(made)
        if seen is not None and seen["kind"] != "link":
            attributes.put(attributes.differences(made, seen, mode=arguments["mode"], uid=uid, gid=gid))
    again = probe(arguments, box)
    attributes.put([change for change in difference(arguments, again) if "do" not in change.data])


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return path and attributes as Ansible does."""
    path, own = state["path"], state["own"]
    name = "path" if _wanted(arguments, state) in {"absent", "directory", "file"} else "dest"
    if own is None:
        return {name: path, "state": "absent"}
    facts = {name: path, **attributes.names(own)}
    return {**facts, "src": arguments["src"]} if name == "dest" and arguments["src"] else facts


def _together(arguments: Mapping[str, Any]) -> "str | None":
    if arguments.get("recurse") and arguments.get("state") not in (None, "directory"):
        return "recurse option requires state to be 'directory'"
    if arguments.get("src") and arguments.get("state") not in (None, "link", "hard"):
        return "src option requires state to be 'link' or 'hard'"
    return None


MODULE = Module(
    names=("ansible.builtin.file",),
    summary="a path is a file, a folder, a link, touched, or gone",
    arguments={
        "path": Argument(kind=Kind.PATH, required=True, aliases=("dest", "name")),
        "state": Argument(choices=("absent", "directory", "file", "hard", "link", "touch")),
        "src": Argument(kind=Kind.PATH),
        "recurse": Argument(kind=Kind.BOOLEAN, default=False),
        "force": Argument(kind=Kind.BOOLEAN, default=False),
        "follow": Argument(kind=Kind.BOOLEAN, default=True),
        "modification_time": Argument(),
        "modification_time_format": Argument(default=_TIME_FORMAT),
        "access_time": Argument(),
        "access_time_format": Argument(default=_TIME_FORMAT),
        **attributes.ARGUMENTS,
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=_together,
    differs=(
        "`state: absent` refuses system folders, mount points and the home of the user who works on the box, and",
        "`recurse` a new owner or mode for a system folder: a slip of a variable must not cost the box",
    ),
)
