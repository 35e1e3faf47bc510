"""Package sources in apt's older format, one line each."""

import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import apt_packages, apt_sources, attributes
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

ARGUMENTS = {
    "repo": Argument(required=True),
    "state": Argument(default="present", choices=("present", "absent")),
    "filename": Argument(),
    "mode": Argument(kind=Kind.MODE),
    "update_cache": Argument(kind=Kind.BOOLEAN, default=True, aliases=("update-cache",)),
    "update_cache_retries": Argument(kind=Kind.INTEGER, default=5),
    "update_cache_retry_max_delay": Argument(kind=Kind.INTEGER, default=12),
    "validate_certs": Argument(kind=Kind.BOOLEAN, default=True),
    "install_python_apt": Argument(kind=Kind.BOOLEAN, default=True),
    "codename": Argument(left_out="it is about PPAs, which need Launchpad: write them as deb822_repository"),
}


def _entry(arguments: Mapping[str, Any]) -> apt_sources.Entry:
    entry = apt_sources.parse_line(arguments["repo"])
    if entry is None or not entry.enabled:
        raise ModuleError(
            f"'{arguments['repo']}' is no source: write `deb [options] ADDRESS SUITE COMPONENTS`"
        )
    return entry


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return all sources of the box."""
    if arguments["repo"].startswith("ppa:"):
        raise ModuleError(
            "PPAs need Launchpad's answers: write the source as `deb822_repository` with its key's address"
        )
    _entry(arguments)
    return {"texts": apt_sources.read_all()}


def _own_file(arguments: Mapping[str, Any]) -> str:
    name = (
        f"{arguments['filename']}.list"
        if arguments["filename"]
        else apt_sources.suggested_file(arguments["repo"])
    )
    return str(apt_sources.parts() / name)


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the files whose lines differ."""
    wanted = _entry(arguments)
    line = " ".join(arguments["repo"].split())
    matching = {
        file: [old for old in text.splitlines() if _is(old, wanted)]
        for file, text in state["texts"].items()
        if not file.endswith(".sources") and any(_is(old, wanted) for old in text.splitlines())
    }
    if arguments["state"] == "absent":
        return [
            _change(file, state["texts"][file], _without(state["texts"][file], wanted)) for file in matching
        ]
    if any(" ".join(old.split()) == line for lines in matching.values() for old in lines):
        return []
    rivals = apt_sources.rivals([wanted], state["texts"], "")
    if others := [entry for entry in rivals if entry.signed_by != wanted.signed_by]:
        raise ModuleError(
            f"{others[0].file} names the same source with another key ('{others[0].signed_by or 'none'}'), and"
            f" with two"
            f" keys apt reads no list at all. Remove that file by a task before this one"
        )
    if covered := [entry for entry in rivals if set(wanted.components) <= set(entry.components)]:
        # Written in the newer format, and the same: a second line would only make apt warn.
        return [] if covered[0].file.endswith(".sources") else _line_change(arguments, state, wanted, line)
    return _line_change(arguments, state, wanted, line)


def _is(line: str, wanted: apt_sources.Entry) -> bool:
    entry = apt_sources.parse_line(line)
    if entry is None or not entry.enabled:
        return False
    return (*entry.place, entry.components, entry.signed_by) == (
        *wanted.place,
        wanted.components,
        wanted.signed_by,
    )


def _line_change(
    arguments: Mapping[str, Any], state: Mapping[str, Any], wanted: apt_sources.Entry, line: str
) -> list[Change]:
    file = _own_file(arguments)
    before = state["texts"].get(file, "")
    kept = "".join(f"{old}\n" for old in before.splitlines() if not _is(old, wanted))
    return [_change(file, before, f"{kept}{line}\n")]


def _without(text: str, wanted: apt_sources.Entry) -> str:
    return "".join(f"{old}\n" for old in text.splitlines() if not _is(old, wanted))


def _change(file: str, before: str, after: str) -> Change:
    what = f"write {file}" if after.strip() else f"remove {file}"
    return Change(what=what, subject=file, before=before, after=after, data={"file": file, "text": after})


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the files, and read the package lists."""
    for change in changes:
        file, text = change.data["file"], change.data["text"]
        if text.strip() or not file.startswith(str(apt_sources.parts())):
            os.makedirs(os.path.dirname(file), exist_ok=True)
            box.write(file, text.encode())
            if arguments["mode"] is not None and (seen := attributes.look(file)):
                attributes.put(attributes.differences(file, seen, mode=arguments["mode"], uid=None, gid=None))
        else:
            apt_sources.remove(file)
    if arguments["update_cache"]:
        try:
            apt_packages.update(box, tries=int(arguments["update_cache_retries"]))
        except ModuleError:
            # As Ansible: a source that cannot be read must not stay, since it breaks every later task.
            for change in changes:
                if change.before:
                    box.write(change.data["file"], change.before.encode())
                else:
                    apt_sources.remove(change.data["file"])
            raise


MODULE = Module(
    names=("ansible.builtin.apt_repository",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda arguments, _state: {"repo": arguments["repo"], "state": arguments["state"]},
    summary="package sources in apt's older format",
    differs=(
        "PPAs are left out",
        "a source that is there with another key is a fault that names the file, where apt would read no list at all",
    ),
)
