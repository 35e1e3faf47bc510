"""Users of the box: what the system says of one, and their password's hash and expiry where root asks."""

import grp
import os
import pwd
from pathlib import Path
from typing import Any

from rigd.provision.target import attributes

SHADOW = Path("/etc/shadow")
DAY_S = 86400
EXPIRES = 7
"""The field of shadow(5) with the day on which an account ends."""


def find(name: str) -> dict[str, Any] | None:
    """Return a user's entry with primary group and further groups by name, or None."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return {
        "name": entry.pw_name,
        "uid": entry.pw_uid,
        "gid": entry.pw_gid,
        "group": attributes.group_name(entry.pw_gid),
        "comment": entry.pw_gecos,
        "home": entry.pw_dir,
        "shell": entry.pw_shell,
        "home_exists": os.path.isdir(entry.pw_dir),
        "groups": sorted(group.gr_name for group in grp.getgrall()
                         if name in group.gr_mem and group.gr_gid != entry.pw_gid),
        **_secret_entry(name),
    }  # fmt: skip


def group_id(group: str) -> int | None:
    """Return the number of a group given by name or number; None where there is none."""
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        pass
    try:
        return grp.getgrgid(int(group)).gr_gid
    except (KeyError, ValueError):
        return None


def _secret_entry(name: str) -> dict[str, Any]:
    try:
        lines = SHADOW.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {"hash": None, "expires_days": None}
    for line in lines:
        fields = line.split(":")
        if fields[0] == name:
            days = fields[EXPIRES] if len(fields) > EXPIRES else ""
            return {"hash": fields[1], "expires_days": int(days) if days.lstrip("-").isdigit() else None}
    return {"hash": None, "expires_days": None}


def home_of(name: str) -> tuple[str, int, int]:
    """Return home, uid and gid of a user, by name or number."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        entry = pwd.getpwuid(int(name))
    return entry.pw_dir, entry.pw_uid, entry.pw_gid
