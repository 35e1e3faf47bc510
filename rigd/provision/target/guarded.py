"""Paths that no task may remove, however it is asked."""

import os

KEPT = frozenset(
    f"/{name}"
    for name in (
        "", "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root",
        "run", "sbin", "srv", "sys", "tmp", "usr", "usr/bin", "usr/lib", "usr/local", "usr/sbin", "usr/share", "var",
        "var/cache", "var/lib", "var/lib/dpkg", "var/lib/docker", "var/log",
    )
)  # fmt: skip
"""Folders without which a box is no box."""


def why_kept(path: str) -> "str | None":
    """Return why a path must not be removed, in a sentence; None when it may be."""
    real = os.path.normpath(os.path.join("/", path))
    followed = os.path.realpath(os.path.dirname(real))
    full = os.path.normpath(os.path.join(followed, os.path.basename(real)))
    if {real, full} & KEPT:
        return f"'{path}' belongs to the system: rigd never removes it"
    if os.path.ismount(full) and not os.path.islink(full):
        return f"'{path}' is a mount point: unmount it first (state: unmounted of the mount module)"
    if os.path.isdir(full) and not os.path.islink(full):
        inside = [point for point in mount_points() if point.startswith(full.rstrip("/") + "/")]
        if inside:
            return f"'{inside[0]}' is mounted below '{path}': unmount it first, or its data would go, too"
    return None


def mount_points() -> list[str]:
    """Return where file systems are mounted."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return [_unescaped(line.split()[4]) for line in table]
    except OSError:
        return []


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
