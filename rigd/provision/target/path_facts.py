"""What `stat` and `find` tell of a path, in Ansible's words."""

import os
import stat
from typing import Any

from rigd.provision.target import attributes
from rigd.provision.target.contract import Argument

ALGORITHM = Argument(
    default="sha1",
    choices=("md5", "sha1", "sha224", "sha256", "sha384", "sha512"),
    aliases=("checksum", "checksum_algo"),
)
_KINDS = {"isblk": stat.S_ISBLK, "ischr": stat.S_ISCHR, "isdir": stat.S_ISDIR, "isfifo": stat.S_ISFIFO,
          "islnk": stat.S_ISLNK, "isreg": stat.S_ISREG, "issock": stat.S_ISSOCK}  # fmt: skip
_PERMISSIONS = {
    "rusr": stat.S_IRUSR, "wusr": stat.S_IWUSR, "xusr": stat.S_IXUSR, "rgrp": stat.S_IRGRP, "wgrp": stat.S_IWGRP,
    "xgrp": stat.S_IXGRP, "roth": stat.S_IROTH, "woth": stat.S_IWOTH, "xoth": stat.S_IXOTH, "isuid": stat.S_ISUID,
    "isgid": stat.S_ISGID,
}  # fmt: skip


def facts_of(path: str, seen: os.stat_result) -> dict[str, Any]:
    """Return kind, permissions, owner, size and times."""
    return {
        "path": path, "mode": f"{stat.S_IMODE(seen.st_mode):04o}", "size": seen.st_size, "uid": seen.st_uid,
        "gid": seen.st_gid, "pw_name": attributes.user_name(seen.st_uid),
        "gr_name": attributes.group_name(seen.st_gid),
        "inode": seen.st_ino, "dev": seen.st_dev, "nlink": seen.st_nlink, "atime": seen.st_atime,
        "mtime": seen.st_mtime, "ctime": seen.st_ctime,
        **{name: test(seen.st_mode) for name, test in _KINDS.items()},
        **{name: bool(seen.st_mode & bit) for name, bit in _PERMISSIONS.items()},
    }  # fmt: skip
