"""Who owns a path and who may use it: read, compare, set. Modes in octal or in symbols, as chmod reads them."""

import grp
import os
import pwd
import re
import stat
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Change, Kind, ModuleError

ARGUMENTS: dict[str, Argument] = {
    "mode": Argument(kind=Kind.MODE),
    "owner": Argument(),
    "group": Argument(),
    "attributes": Argument(aliases=("attr",), left_out="file-system flags (chattr) are not kept by rigd"),
    "seuser": Argument(left_out="Debian and Ubuntu run no SELinux"),
    "serole": Argument(left_out="Debian and Ubuntu run no SELinux"),
    "setype": Argument(left_out="Debian and Ubuntu run no SELinux"),
    "selevel": Argument(left_out="Debian and Ubuntu run no SELinux"),
    "unsafe_writes": Argument(kind=Kind.BOOLEAN, left_out="a file is always written in one step"),
}
_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[rwxXst]*|[ugo]))+)$")
_OPERATION = re.compile(r"([-+=])([ugo]|[rwxXst]*)")
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_BITS = {"r": 4, "w": 2, "x": 1}


def look(path: str, *, follow: bool = False) -> dict[str, Any] | None:
    """Return what a path is: kind, mode, owner, size, target; None where there is nothing."""
    try:
        found = os.stat(path) if follow else os.lstat(path)
    except FileNotFoundError:
        if follow and os.path.islink(path):
            return look(path)  # A link that leads nowhere is seen as the link.
        return None
    except NotADirectoryError:
        return None
    except OSError as error:
        raise ModuleError(f"cannot look at '{path}': {error.strerror}") from error
    kind = next((name for name, test in _KINDS.items() if test(found.st_mode)), "file")
    seen: dict[str, Any] = {
        "kind": kind,
        "mode": stat.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "atime_ns": found.st_atime_ns,
        "inode": found.st_ino,
        "device": found.st_dev,
        "links": found.st_nlink,
    }
    if kind == "link":
        seen["target"] = os.readlink(path)
    return seen


_KINDS = {"link": stat.S_ISLNK, "directory": stat.S_ISDIR, "file": stat.S_ISREG}


def wanted_mode(wish: Any, now: int, *, directory: bool, mask: int | None = None) -> int:
    """Return the mode that `wish` asks for, from the present one; `mask` is the umask (that of the process)."""
    if isinstance(wish, int):
        return wish
    text = str(wish).strip()
    if re.fullmatch(r"(0o)?[0-7]{1,5}", text):
        return int(text.removeprefix("0o"), 8)
    mode = now
    for clause in text.split(","):
        found = _CLAUSE.fullmatch(clause.strip())
        if found is None:
            raise ModuleError(f"mode '{text}' is neither octal nor symbolic such as u=rw,g=r,o=r")
        who, operations = found.groups()
        for sign, permissions in _OPERATION.findall(operations):
            mode = _applied(
                mode, who, sign, permissions, directory=directory, mask=_umask() if mask is None else mask
            )
    return mode


def _applied(mode: int, who: str, sign: str, permissions: str, *, directory: bool, mask: int) -> int:
    everyone = not who or "a" in who
    bits = clear = 0
    for user, shift in _SHIFTS.items():
        if not everyone and user not in who:
            continue
        three = _three(mode, permissions, directory=directory) << shift
        bits |= three if who else three & ~mask
        clear |= 7 << shift
        if user == "u" and "s" in permissions:
            bits |= stat.S_ISUID
        if user == "g" and "s" in permissions:
            bits |= stat.S_ISGID
    if "t" in permissions:
        bits |= stat.S_ISVTX
    if sign == "+":
        return mode | bits
    if sign == "-":
        return mode & ~bits
    special = (stat.S_ISUID if "u" in who else 0) | (stat.S_ISGID if "g" in who else 0)
    return mode & ~(clear | special) | bits


def _three(mode: int, permissions: str, *, directory: bool) -> int:
    if permissions in _SHIFTS:
        return mode >> _SHIFTS[permissions] & 7
    bits = sum(_BITS[letter] for letter in set(permissions) & set(_BITS))
    if "X" in permissions and (directory or mode & 0o111):
        bits |= 1
    return bits


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def new_file_mode() -> int:
    """Return the mode of a file that is made without one being asked for."""
    return 0o666 & ~_umask()


def identity(arguments: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the wanted uid and gid; None where nothing is wanted. Unknown names are an error."""
    owner, group = arguments.get("owner"), arguments.get("group")
    return _uid(owner), _gid(group)


def _uid(owner: Any) -> int | None:
    if owner is None:
        return None
    if str(owner).isdigit():
        return int(owner)
    try:
        return pwd.getpwnam(str(owner)).pw_uid
    except KeyError:
        raise ModuleError(
            f"there is no user '{owner}' on this box: create it first, or check the name"
        ) from None


def _gid(group: Any) -> int | None:
    if group is None:
        return None
    if str(group).isdigit():
        return int(group)
    try:
        return grp.getgrnam(str(group)).gr_gid
    except KeyError:
        raise ModuleError(
            f"there is no group '{group}' on this box: create it first, or check the name"
        ) from None


def names(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that Ansible's file modules give: mode as text, owner and group by name and number."""
    return {
        "mode": f"{seen['mode']:04o}",
        "owner": user_name(seen["uid"]),
        "group": group_name(seen["gid"]),
        "uid": seen["uid"],
        "gid": seen["gid"],
        "size": seen["size"],
        "state": {"link": "link", "directory": "directory"}.get(seen["kind"], "file"),
    }


def user_name(uid: int) -> str:
    """Return the name of a user, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return the name of a group, or the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def differences(
    path: str,
    seen: Mapping[str, Any],
    *,
    mode: Any = None,
    uid: int | None = None,
    gid: int | None = None,
    mask: int | None = None,
) -> list[Change]:
    """Return what of mode and owner differs from what is wanted. A link has no mode of its own."""
    found: list[Change] = []
    if mode is not None and seen["kind"] != "link":
        wish = wanted_mode(mode, seen["mode"], directory=seen["kind"] == "directory", mask=mask)
        if wish != seen["mode"]:
            found.append(_change(path, "mode", f"{seen['mode']:04o}", f"{wish:04o}", {"mode": wish}))
    if uid is not None and uid != seen["uid"]:
        found.append(_change(path, "owner", user_name(seen["uid"]), user_name(uid), {"uid": uid}))
    if gid is not None and gid != seen["gid"]:
        found.append(_change(path, "group", group_name(seen["gid"]), group_name(gid), {"gid": gid}))
    return found


def _change(path: str, what: str, before: str, after: str, data: dict[str, Any]) -> Change:
    return Change(what=f"{what} {before} -> {after}", subject=path, data={"path": path, **data})


def put(changes: list[Change]) -> None:
    """Carry out the changes that `differences` found, owner before mode: chown takes set-user-id bits away."""
    for change in changes:
        data = change.data
        try:
            if "uid" in data or "gid" in data:
                os.lchown(data["path"], data.get("uid", -1), data.get("gid", -1))
        except OSError as error:
            raise ModuleError(f"cannot change the owner of '{data['path']}': {error.strerror}") from error
    for change in changes:
        if "mode" in change.data:
            try:
                os.chmod(change.data["path"], change.data["mode"])
            except OSError as error:
                raise ModuleError(
                    f"cannot change the mode of '{change.data['path']}': {error.strerror}"
                ) from error
