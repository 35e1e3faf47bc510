"""Package sources in apt's newer format, each with its key."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import apt_sources, attributes, digests, download, openpgp
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

LIST = Argument(kind=Kind.LIST, elements=Kind.TEXT)
FLAG = Argument(kind=Kind.BOOLEAN)
FIELDS = {
    "name": Argument(required=True),
    "types": Argument(kind=Kind.LIST, elements=Kind.TEXT, default=["deb"]),
    "uris": LIST,
    "suites": LIST,
    "components": LIST,
    "signed_by": Argument(),
    "architectures": LIST,
    "languages": LIST,
    "targets": LIST,
    "enabled": FLAG,
    "trusted": FLAG,
    "pdiffs": FLAG,
    "by_hash": FLAG,
    "check_date": FLAG,
    "check_valid_until": FLAG,
    "date_max_future": Argument(kind=Kind.INTEGER),
    "inrelease_path": Argument(),
    "allow_downgrade_to_insecure": FLAG,
    "allow_insecure": FLAG,
    "allow_weak": FLAG,
}
ARGUMENTS = {
    **FIELDS,
    "mode": Argument(kind=Kind.MODE, default="0644"),
    "state": Argument(default="present", choices=("present", "absent")),
    "install_python_debian": Argument(kind=Kind.BOOLEAN, default=False),
}


def _file(arguments: Mapping[str, Any]) -> str:
    return str(apt_sources.parts() / f"{apt_sources.slug(arguments['name'])}.sources")


def _key_files(arguments: Mapping[str, Any]) -> list[str]:
    return [
        str(apt_sources.keyrings() / f"{apt_sources.slug(arguments['name'])}.{end}") for end in ("asc", "gpg")
    ]


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return all sources of the box, this one's mode and key, and the key that is wanted."""
    file = _file(arguments)
    state: dict[str, Any] = {"texts": apt_sources.read_all(), "seen": attributes.look(file), "key": None}
    state["keys"] = {path: digests.of_file(path) for path in _key_files(arguments) if os.path.isfile(path)}
    if arguments["state"] == "present" and arguments["signed_by"]:
        state["inline"] = _inline(arguments["signed_by"])
        state["key"] = _kept_key(arguments, state) or _wanted_key(arguments, box)
    return state


def _inline(signed_by: str) -> str | None:
    """Return a key that stands in the playbook, without what stands around it; None where `signed_by` names one."""
    if not openpgp.armored(signed_by.encode()):
        return None
    return _proved(signed_by.encode(), "`signed_by`")[0].decode()


def _proved(content: bytes, source: str) -> tuple[bytes, list[str]]:
    """Return keys alone, and their fingerprints."""
    try:
        return openpgp.alone(content), openpgp.fingerprints(content)
    except ValueError as error:
        raise ModuleError(f"{source} is no signing key: {error}") from error


def _kept_key(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the key on the box where the source that names it is otherwise as wanted: then none is fetched."""
    file = _file(arguments)
    for path, digest in state["keys"].items():
        key = {"path": path, "digest": digest, "content": "", "fingerprints": ""}
        fetched = "://" in arguments["signed_by"]
        if fetched and _same(state["texts"].get(file), _text(arguments, {"key": key})):
            return key
    return None


def _wanted_key(arguments: Mapping[str, Any], box: Box) -> dict[str, str] | None:
    """Return path, digest and content of a key that must be fetched; None for one on the box, or in the text."""
    source = arguments["signed_by"]
    if not source.startswith(("http://", "https://", "file://")):
        return None
    content, prints = _proved(download.fetch(source, box), source)
    asc, gpg = _key_files(arguments)
    return {"path": asc if openpgp.armored(content) else gpg, "digest": hashlib.sha256(content).hexdigest(),
            "content": content.decode("latin-1"), "fingerprints": " ".join(prints)}  # fmt: skip


def _text(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    fields = {name: arguments.get(name) for name in FIELDS}
    if state.get("inline"):
        fields["signed_by"] = state["inline"]
    if state["key"]:
        fields["signed_by"] = state["key"]["path"]
    return apt_sources.render(fields)


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return key, file and mode that differ, and other files that would contradict it."""
    file = _file(arguments)
    before = state["texts"].get(file)
    if arguments["state"] == "absent":
        gone = [path for path in (file, *state["keys"]) if path in state["keys"] or before is not None]
        return [Change(what=f"remove {path}", subject=path, before=before if path == file else None, after="",
                       data={"remove": path}) for path in gone]  # fmt: skip
    changes = []
    if (key := state["key"]) and state["keys"].get(key["path"]) != key["digest"]:
        changes.append(Change(what=f"key {key['fingerprints']} in {key['path']}", subject=key["path"],
                              data={"write": key["path"], "content": key["content"]}))  # fmt: skip
    text = _text(arguments, state)
    changes += _rival_changes(arguments, state, file, text)
    if not _same(before, text):
        changes.append(Change(what=f"write {file}", subject=file, before=before or "", after=text,
                              data={"write": file, "content": text}))  # fmt: skip
    elif state["seen"]:
        changes += attributes.differences(file, state["seen"], mode=arguments["mode"], uid=None, gid=None)
    return changes


def _same(before: str | None, text: str) -> bool:
    """Compare what the two say, so that another order of fields is no difference."""
    return before is not None and apt_sources.stanzas(before) == apt_sources.stanzas(text)


def _rival_changes(
    arguments: Mapping[str, Any], state: Mapping[str, Any], file: str, text: str
) -> list[Change]:
    if arguments["enabled"] is False:
        return []
    own = apt_sources.entries_of(file, text)
    rivals = apt_sources.rivals(own, state["texts"], file)
    more = [entry for entry in rivals if not apt_sources.covered(entry, own)]
    _refuse_other_keys(more, own)
    rivals = [entry for entry in rivals if entry not in more]
    changes = []
    for other in sorted({entry.file for entry in rivals}):
        before = state["texts"][other]
        after = apt_sources.without_rivals(other, before, [entry for entry in rivals if entry.file == other])
        what = f"{other} names the same source: " + ("switch it off there" if after else "remove it")
        data = {"write": other, "content": after} if after else {"remove": other}
        changes.append(Change(what=what, subject=other, before=before, after=after or "", data=data))
    return changes


def _refuse_other_keys(more: list[apt_sources.Entry], own: list[apt_sources.Entry]) -> None:
    """Stop where switching a file off would take packages away, and leaving it would stop apt."""
    keys = {entry.place: entry.signed_by for entry in own}
    for entry in more:
        if entry.signed_by != keys[entry.place]:
            has = f"`signed_by: {entry.signed_by}`" if entry.signed_by else "no `signed_by`"
            raise ModuleError(
                f"{entry.file} names {entry.uri} {entry.suite}, too, with {has}, and brings"
                f" {' '.join(entry.components)}:"
                " with two keys for one source apt reads no list at all. Say the same key here, or move all of the"
                " source to one file"
            )


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the key, switch rivals off, write the source."""
    own = _file(arguments)
    for change in changes:
        if "remove" in change.data:
            apt_sources.remove(change.data["remove"])
        elif "write" in change.data:
            path = change.data["write"]
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            is_key = path in _key_files(arguments)
            content = change.data["content"].encode("latin-1" if is_key else "utf-8")
            box.write(path, content, mode=0o644 if is_key else None)
    if arguments["state"] == "present" and (seen := attributes.look(own)):
        attributes.put(attributes.differences(own, seen, mode=arguments["mode"], uid=None, gid=None))


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    present = arguments["state"] == "present"
    facts: dict[str, Any] = {"dest": _file(arguments), "repo": _text(arguments, state) if present else None}
    facts["key_filename"] = state["key"]["path"] if state["key"] else None
    return facts


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("state", "present") == "absent":
        return None
    for key in ("uris", "suites"):
        if not arguments.get(key):
            return f"`{key}` is missing"
    exact = [suite for suite in arguments["suites"] if suite.endswith("/")]
    if exact and arguments.get("components"):
        return f"the suite '{exact[0]}' is a folder, so it has no components"
    if not exact and not arguments.get("components"):
        return "`components` is missing (only a suite that ends with / has none)"
    return None


MODULE = Module(
    names=("ansible.builtin.deb822_repository",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=check_arguments,
    summary="package sources in apt's newer format, with their keys",
    differs=(
        (
            "another file that names the same source and brings nothing more is switched off or removed, and told:"
            " with two keys for one source apt reads no list at all. One that brings more stays; with another key"
            " it is a fault"
        ),
        "neither python3-debian nor gpg is needed on the box",
        (
            "a key that a source already names is not fetched again, so that a converged run needs no network;"
            " to take a vendor's new key, remove the file of the old one from /etc/apt/keyrings"
        ),
    ),
)
