"""Whether a user of the box may read or write a path, asked by somebody else (often root). Knows modes alone."""

import grp
import os
import pwd
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Who:
    """A user, with all groups."""

    name: str
    uid: int
    groups: "frozenset[int]"


def who(name: "str | None") -> Who:
    """Return a user by name; whoever looks where there is no such user."""
    if name:
        try:
            known = pwd.getpwnam(name)
        except KeyError:
            known = None
        if known is not None:
            return Who(name=name, uid=known.pw_uid, groups=frozenset(os.getgrouplist(name, known.pw_gid)))
    uid = os.geteuid()
    try:
        own = pwd.getpwuid(uid).pw_name
    except KeyError:
        own = str(uid)
    return Who(name=own, uid=uid, groups=frozenset((os.getegid(), *os.getgroups())))


def group_names(user: Who) -> "list[str]":
    """Return the names of a user's groups."""
    known = {one.gr_gid: one.gr_name for one in grp.getgrall()}
    return sorted(known.get(gid, str(gid)) for gid in user.groups)


def may(path: str, user: Who, bit: int) -> bool:
    """Return whether the user may read (4) or write (2) the path, every folder on the way being open to it."""
    if user.uid == 0:
        return True
    place = os.path.realpath(path)
    above = os.path.dirname(place)
    while above != "/":
        if not _has(above, user, 1):
            return False
        above = os.path.dirname(above)
    return _has(place, user, bit)


def _has(path: str, user: Who, bit: int) -> bool:
    try:
        seen = os.stat(path)
    except OSError:
        return False
    shift = 6 if seen.st_uid == user.uid else 3 if seen.st_gid in user.groups else 0
    return bool(seen.st_mode >> shift & bit)
