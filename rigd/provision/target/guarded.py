"""Wishes that cost the box, or cut off whoever works on it: refused, however they are spelt."""

import os
import pwd

from rigd.provision.target import fstab
from rigd.provision.target.contract import ModuleError

KEPT = frozenset(
    f"/{name}"
    for name in (
        "", "bin", "boot", "boot/efi", "boot/grub", "dev", "etc", "etc/apt", "etc/group", "etc/pam.d", "etc/passwd",
        "etc/shadow", "etc/ssh", "etc/sudoers", "etc/systemd", "etc/systemd/system", "home", "lib", "lib32", "lib64",
        "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "usr/bin", "usr/lib",
        "usr/lib/modules", "usr/lib/systemd", "usr/local", "usr/sbin", "usr/share", "var", "var/cache", "var/lib",
        "var/lib/apt", "var/lib/containerd", "var/lib/docker", "var/lib/dpkg", "var/lib/rigd", "var/log", "var/tmp",
    )
)  # fmt: skip
"""Folders and files without which a box is no box."""
MIXED = KEPT - {
    f"/{name}" for name in ("media", "mnt", "opt", "srv", "usr/local", "var/lib/rigd", "var/tmp", "tmp")
}
"""Folders in which files of many owners and modes lie, as their programs need them."""
NEVER_COVERED = frozenset(
    f"/{name}"
    for name in ("", "bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "usr/bin",
                 "usr/lib", "usr/sbin", "var/lib/dpkg")
)  # fmt: skip
"""Folders that a mount must not hide."""
RIGHTS = frozenset({"root", "sudo", "admin", "wheel"})
"""Groups by which a user becomes root."""
MOST_PARENTS = 32


def place_of(path: str) -> str:
    """Return a path without `..`, double slashes and links on the way; a link at its end stays one."""
    folder, name = os.path.split(os.path.normpath(os.path.join("/", path)))
    return os.path.normpath("/" + os.path.join(os.path.realpath(folder), name).lstrip("/"))


def why_kept(path: str) -> "str | None":
    """Return why a path must not be removed, in a sentence; None when it may be."""
    place = place_of(path)
    if {place, os.path.normpath("/" + path.lstrip("/"))} & KEPT:
        return f"'{path}' belongs to the system: rigd never removes it"
    if os.path.islink(place) or not os.path.isdir(place):
        return None
    points = [mount["path"] for mount in fstab.mounted()]
    if place in points or os.path.ismount(place):
        return f"'{path}' is a mount point: unmount it first (state: unmounted of the mount module)"
    inside = [point for point in points if point.startswith(place.rstrip("/") + "/")]
    if inside:
        return f"'{inside[0]}' is mounted below '{path}': unmount it first, or its data would go, too"
    for name in sorted(at_work()):
        if place == os.path.realpath(pwd.getpwnam(name).pw_dir):
            return (
                f"'{path}' is the home of '{name}', who works on the box now: log in as another user for that"
            )
    return None


def refuse_mixed(path: str) -> None:
    """Raise for a system folder, where one owner or mode for all below would be the end of it."""
    if os.path.realpath(path) in MIXED:
        raise ModuleError(
            f"'{path}' belongs to the system, and its files need different owners and modes: rigd never changes all"
            " below it. Name the folders that are meant"
        )


def at_work() -> "set[str]":
    """Return the users who work on the box now by this process: its own, and those of the processes above it."""
    found: set[str] = set()
    pid = os.getpid()
    for _ in range(MOST_PARENTS):
        status = _status(pid)
        if not status:
            break
        found |= _names({int(status["Uid"].split()[0])})
        pid = int(status["PPid"])
    return found


def _status(pid: int) -> "dict[str, str]":
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            pairs = (line.partition(":") for line in file)
            return {name: value.strip() for name, _, value in pairs if name in ("Uid", "PPid")}
    except OSError:
        return {}


def _names(uids: "set[int]") -> "set[str]":
    return {entry.pw_name for entry in pwd.getpwall() if entry.pw_uid in uids}
