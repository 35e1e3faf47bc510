"""Facts about whom the helper runs as, and by which Python."""

import os
import pwd
import sys
from typing import Any

Facts = dict[str, Any]


def user() -> Facts:
    """Return the user's entry."""
    uid = os.geteuid()
    ids = {
        "user_uid": uid,
        "real_user_id": os.getuid(),
        "effective_user_id": uid,
        "real_group_id": os.getgid(),
        "effective_group_id": os.getegid(),
    }
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        home = os.environ.get("HOME", "/")
        return ids | {
            "user_id": str(uid),
            "user_gid": os.getegid(),
            "user_gecos": "",
            "user_dir": home,
            "user_shell": "",
        }
    return ids | {
        "user_id": entry.pw_name,
        "user_gid": entry.pw_gid,
        "user_gecos": entry.pw_gecos,
        "user_dir": entry.pw_dir,
        "user_shell": entry.pw_shell,
    }


def environment() -> Facts:
    """Return the login's environment."""
    return {"env": dict(os.environ)}


def python() -> Facts:
    """Return the Python that runs the helper."""
    seen = sys.version_info
    return {
        "python": {
            "version": {
                "major": seen.major, "minor": seen.minor, "micro": seen.micro,
                "releaselevel": seen.releaselevel, "serial": seen.serial,
            },
            "version_info": list(seen),
            "executable": sys.executable,
            "has_sslcontext": True,
            "type": sys.implementation.name,
        },
        "python_version": ".".join(map(str, seen[:3])),
    }  # fmt: skip


TABLE = (
    (frozenset({"user_id", "user_uid", "user_gid", "user_gecos", "user_dir", "user_shell", "real_user_id",
                "effective_user_id", "real_group_id", "effective_group_id"}), user),
    (frozenset({"env"}), environment),
    (frozenset({"python", "python_version"}), python),
)  # fmt: skip
