"""Drivers that must not load, in the file and in the initial ram disks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigd.provision.target import kernel_modules
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module


def _lines(arguments: Mapping[str, Any]) -> list[str]:
    names = [f"blacklist {name}" for name in arguments["name"]]
    return [*names, *(arguments["lines"] or [])]


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return the file's text, and the kernels whose initial ram disk is older than it."""
    file = Path(arguments["blacklist_file"])
    text = file.read_text(encoding="utf-8") if file.is_file() else None
    return {"text": text, "stale": kernel_modules.stale_ram_disks(file)}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the file's new text, and whether ram disks have to be made anew."""
    path, before = arguments["blacklist_file"], state["text"] or ""
    after = before
    for line in _lines(arguments):
        has = kernel_modules.has_line(after, line)
        if arguments["state"] == "absent":
            after = kernel_modules.without(after, line)
        elif not has:
            after += ("" if after.endswith("\n") or not after else "\n") + f"{line}\n"
    changes = []
    if after != before:
        changes.append(
            Change(what=f"write {path}", subject=path, before=before, after=after, data={"text": after})
        )
    kernels = [disk.name.removeprefix("initrd.img-") for disk in kernel_modules.ram_disks()]
    due = kernels if changes else state["stale"]
    if due:
        changes.append(
            Change(what=f"make the initial ram disks anew ({', '.join(due)})", subject="initramfs")
        )
    return changes


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the file, then make the ram disks anew: a driver in them loads before the file is ever read."""
    file = Path(arguments["blacklist_file"])
    for change in changes:
        if "text" in change.data:
            file.parent.mkdir(parents=True, exist_ok=True)
            box.write(str(file), change.data["text"].encode(), mode=0o644)
        else:
            kernel_modules.rebuild_ram_disks(box, file)


MODULE = Module(
    names=("community.general.kernel_blacklist", "rigd.box.kernel_blacklist"),
    arguments={
        "name": Argument(kind=Kind.LIST, elements=Kind.TEXT, required=True),
        "state": Argument(default="present", choices=("present", "absent")),
        "blacklist_file": Argument(kind=Kind.PATH, default="/etc/modprobe.d/blacklist-ansible.conf"),
        "lines": Argument(kind=Kind.LIST, elements=Kind.TEXT),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    summary="drivers that must not load, in the file and in the initial ram disks",
    differs=(
        (
            "the initial ram disks of all kernels are made anew when one is older than the file, because a"
            " driver in them"
            " loads before the file is read"
        ),
        "`name` may be a list, and `lines` holds further lines (options nouveau modeset=0); Ansible has neither",
    ),
)
