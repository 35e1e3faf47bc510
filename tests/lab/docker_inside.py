"""What lets Docker run in a box: rights, a disk that is no layer itself, and what it writes to may be written to."""

import contextlib
from pathlib import Path

RIGHTS = ("--capability=all", "--system-call-filter=@keyring bpf")
GROUPS = Path("/sys/fs/cgroup")
NAME = "lab-docker-inside.service"
UNIT = r"""
[Unit]
Description=What a machine of its own may write to, and a box may not: control groups, settings of the network
DefaultDependencies=no
Before=docker.service
[Service]
Type=oneshot
ExecStart=/bin/sh -ec 'mount --bind /proc/sys/net /proc/sys/net; mount -o remount,bind,rw /proc/sys/net'
ExecStart=/bin/sh -ec '[ ! -e /sys/fs/cgroup/cgroup.controllers ] || exit 0; \
  for name in cpu cpuacct cpuset memory devices freezer blkio pids; do \
  ! mountpoint -q /sys/fs/cgroup/$name || umount /sys/fs/cgroup/$name; \
  mount -t cgroup -o $name cgroup /sys/fs/cgroup/$name; done'
[Install]
WantedBy=sysinit.target
"""


def prepare(root: Path) -> None:
    """Give a box what it needs at every boot; Docker itself it installs, or does not."""
    units = root / "etc/systemd/system"
    (units / NAME).write_text(UNIT)
    wanted = units / "sysinit.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / NAME).symlink_to(f"../{NAME}")
    _disk(root).mkdir()


def options(root: Path) -> list[str]:
    """Return the words for nspawn."""
    return [f"--bind={_disk(root)}:/var/lib/docker", *RIGHTS]


def forget_groups(root: Path) -> None:
    """Remove what containers leave when a box ends under them: on a machine of its own they end with the power."""
    for container in _disk(root).glob("containers/*"):
        for group in GROUPS.glob(f"*/docker/{container.name}"):
            with contextlib.suppress(OSError):
                group.rmdir()


def _disk(root: Path) -> Path:
    return root.with_name("docker")
