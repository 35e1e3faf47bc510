"""File systems in /etc/fstab, and mounted."""

import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import fstab, guarded
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

NETWORK = ("nfs", "nfs4", "cifs", "sshfs", "fuse.sshfs", "ceph", "9p")
ALWAYS_THERE = ("tmpfs", "proc", "sysfs", "bind", "overlay", "none", "swap", "devtmpfs", "cgroup2")
TAGS = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}
MOUNT_TIMEOUT_S = 120.0

ARGUMENTS = {
    "path": Argument(kind=Kind.PATH, required=True, aliases=("name",)),
    "src": Argument(),
    "fstype": Argument(),
    "opts": Argument(),
    "state": Argument(
        required=True,
        choices=("mounted", "present", "unmounted", "absent", "remounted", "ephemeral", "absent_from_fstab"),
    ),
    "dump": Argument(default="0"),
    "passno": Argument(default="0"),
    "fstab": Argument(kind=Kind.PATH, default="/etc/fstab"),
    "backup": Argument(kind=Kind.BOOLEAN, default=False),
    "boot": Argument(kind=Kind.BOOLEAN, default=True),
    "opts_no_log": Argument(kind=Kind.BOOLEAN, default=False, left_out="use `no_log` on the task"),
}


def _entry(arguments: Mapping[str, Any]) -> dict[str, str]:
    opts = arguments["opts"] or "defaults"
    if not arguments["boot"] and "noauto" not in opts.split(","):
        opts += ",noauto"
    return {"src": arguments["src"] or "", "path": arguments["path"], "fstype": arguments["fstype"] or "auto",
            "opts": opts, "dump": str(arguments["dump"]), "passno": str(arguments["passno"])}  # fmt: skip


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return the fstab, what is mounted at the path, and whether the disk is there."""
    try:
        with open(arguments["fstab"], encoding="utf-8") as file:
            text = file.read()
    except OSError:
        text = ""
    path = os.path.realpath(arguments["path"])
    here = [mount for mount in fstab.mounted() if mount["path"] == path]
    return {"text": text, "mounted": here[-1] if here else None, "exists": os.path.isdir(arguments["path"]),
            "missing_device": _missing_device(arguments["src"] or "")}  # fmt: skip


def _missing_device(src: str) -> str:
    """Return why the source is not there, or ""."""
    tag, sign, value = src.partition("=")
    device = (
        f"/dev/disk/{TAGS[tag]}/{value}" if sign and tag in TAGS else src if src.startswith("/dev/") else ""
    )
    return src if device and not os.path.exists(device) else ""


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return what to write, mount or unmount; refuse what would take the system's own away."""
    wanted, path = arguments["state"], arguments["path"]
    changes: list[Change] = []
    if wanted in ("unmounted", "absent"):
        if state["mounted"]:
            if guarded.place_of(path) in guarded.KEPT - {"/mnt"}:
                raise ModuleError(f"'{path}' belongs to the system: rigd never unmounts it")
            changes.append(_act("umount", path, f"unmount {path}"))
        if wanted == "absent":
            changes += _fstab_change(arguments, state, fstab.without_entry(state["text"], path))
        return changes
    if wanted == "absent_from_fstab":
        return _fstab_change(arguments, state, fstab.without_entry(state["text"], path))
    if wanted == "remounted":
        if not state["mounted"]:
            raise ModuleError(f"'{path}' is not mounted, so it cannot be remounted")
        return [_act("remount", path, f"mount {path} again with its options", once=True)]
    entry = _entry(arguments)
    if wanted in ("present", "mounted") and entry not in fstab.entries(state["text"]):
        changes += _fstab_change(arguments, state, fstab.with_entry(state["text"], entry))
    if wanted in ("mounted", "ephemeral"):
        changes += _mounting(arguments, state, path, rewritten=bool(changes))
    return changes


def _mounting(
    arguments: Mapping[str, Any], state: Mapping[str, Any], path: str, *, rewritten: bool
) -> list[Change]:
    if state["mounted"]:
        return (
            [_act("remount", path, f"mount {path} again with its new options", once=True)]
            if rewritten
            else []
        )
    if state["missing_device"]:
        raise ModuleError(
            f"there is no {state['missing_device']} on this box, so '{path}' cannot be mounted. `lsblk -f` shows the"
            " disks with their UUIDs; a new one needs a file system first, which rigd never makes"
        )
    if guarded.place_of(path) in guarded.NEVER_COVERED:
        raise ModuleError(f"'{path}' belongs to the system: rigd never mounts anything over it")
    act = "mount" if arguments["state"] == "mounted" else "ephemeral"
    return [_act(act, path, f"mount {path}")]


def _act(act: str, path: str, what: str, *, once: bool = False) -> Change:
    return Change(what=what, subject=path, data={"act": act}, once=once)


def _fstab_change(arguments: Mapping[str, Any], state: Mapping[str, Any], after: str) -> list[Change]:
    if after == state["text"]:
        return []
    return [Change(what=f"write {arguments['fstab']}", subject=arguments["fstab"], before=state["text"], after=after,
                   data={"act": "fstab", "text": after})]  # fmt: skip


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the table first, then mount by it; or unmount first."""
    path = arguments["path"]
    if arguments["state"] in ("mounted", "ephemeral") and not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
    entry = _entry(arguments)
    words = {
        "umount": ["umount", path],
        "mount": ["mount", "-T", arguments["fstab"], path],
        "remount": ["mount", "-o", "remount", path],
        "ephemeral": ["mount", "-t", entry["fstype"], "-o", entry["opts"], entry["src"], path],
    }
    for change in changes:
        if change.data["act"] == "fstab":
            box.write(arguments["fstab"], change.data["text"].encode(), backup=arguments["backup"])
        else:
            box.run(words[change.data["act"]], timeout_s=MOUNT_TIMEOUT_S)
    if (
        arguments["state"] == "absent"
        and os.path.isdir(path)
        and not os.path.ismount(path)
        and not os.listdir(path)
        and guarded.place_of(path) not in guarded.KEPT
    ):
        os.rmdir(path)


def result(arguments: Mapping[str, Any], _state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry, with a warning where the box would not come up without the disk."""
    entry = _entry(arguments)
    facts: dict[str, Any] = {**entry, "name": arguments["path"], "fstab": arguments["fstab"]}
    options = entry["opts"].split(",")
    kept = arguments["state"] in ("mounted", "present")
    if kept and "nofail" not in options and "noauto" not in options and entry["fstype"] not in ALWAYS_THERE:
        late = ",_netdev" if entry["fstype"] in NETWORK and "_netdev" not in options else ""
        facts["warnings"] = [
            (
                f"without `nofail` the box does not boot when '{arguments['path']}' is missing;"
                f" add nofail,x-systemd.device-timeout=30{late} to `opts`"
            )
        ]
    return facts


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    needs = arguments.get("state") in ("mounted", "present", "ephemeral")
    if needs and not (arguments.get("src") and arguments.get("fstype")):
        return f"`state: {arguments['state']}` needs `src` and `fstype`"
    return None


MODULE = Module(
    names=("ansible.posix.mount",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=check_arguments,
    summary="file systems in /etc/fstab, and mounted; never makes one",
    differs=(
        "the system's own places are never unmounted, and nothing is mounted over its programs and settings",
        "an entry without `nofail` is told as a warning, because the box would not boot without that disk",
        "`state: absent` leaves a folder that is not empty",
    ),
)
