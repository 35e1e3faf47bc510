"""For `rigd doctor`: system, memory, disks, clock, network, updates, Tailscale. Reads only."""

import contextlib
import json
import os
import pwd
import re
import resource
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import nvidia_facts
from rigd.provision.target.contract import Box
from rigd.provision.target.doctor_gpu import text
from rigd.provision.target.doctor_rights import Who, may, who
from rigd.provision.target.questions import NOT_THERE, ask

DISK_S = 10.0
GIB = 2**30
LISTENING = "0A"
Questions = Mapping[str, Any]


def system(box: Box, questions: Questions) -> "dict[str, Any]":
    """Return what the box is, and who looks."""
    release = nvidia_facts.os_release()
    virtual = ask(box, ["systemd-detect-virt"], timeout_s=10)
    user = pwd.getpwuid(os.geteuid()).pw_name if _known(os.geteuid()) else str(os.geteuid())
    return {
        "hostname": os.uname().nodename,
        "distribution": release.get("ID", ""),
        "release": release.get("VERSION_ID", ""),
        "name": release.get("PRETTY_NAME", ""),
        "kernel": os.uname().release,
        "architecture": os.uname().machine,
        "virtual": "" if virtual.rc == NOT_THERE else virtual.stdout.strip(),
        "user": user,
        "uid": os.geteuid(),
        "runs_as": who(questions.get("user")).name,
    }


def _known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def memory(_box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return main memory, swap, /dev/shm, and the limits of whoever looks."""
    rows = dict(re.findall(r"^(\w+):\s+(\d+) kB", text("/proc/meminfo"), re.MULTILINE))
    shm = os.statvfs("/dev/shm")  # noqa: S108  (this is what is looked at)
    return {
        "total_gib": round(int(rows.get("MemTotal", 0)) / 2**20, 1),
        "available_gib": round(int(rows.get("MemAvailable", 0)) / 2**20, 1),
        "swap_gib": round(int(rows.get("SwapTotal", 0)) / 2**20, 1),
        "shm_gib": round(shm.f_blocks * shm.f_frsize / GIB, 2),
        "shm_free_gib": round(shm.f_bavail * shm.f_frsize / GIB, 2),
        "memlock": _limit(resource.RLIMIT_MEMLOCK),
        "nofile": _limit(resource.RLIMIT_NOFILE),
    }


def _limit(which: int) -> "list[int]":
    """Return soft and hard limit; -1 is none."""
    return [-1 if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which)]


def disks(_box: Box, questions: Questions) -> "dict[str, dict[str, Any]]":
    """Return room, device and rights of each path; of one that is not there, of the nearest folder that is."""
    user = who(questions.get("user"))
    found: dict[str, dict[str, Any]] = {}
    threads = []
    for path in dict.fromkeys(("/", *questions.get("paths", ()))):
        thread = threading.Thread(target=_disk, args=(path, user, found), daemon=True)
        thread.start()
        threads.append((path, thread))
    for path, thread in threads:
        thread.join(DISK_S)
        if thread.is_alive():
            found[path] = {"error": f"does not answer within {DISK_S:g} s (a dead network disk?)"}
    return dict(found)


def _disk(path: str, user: Who, found: "dict[str, dict[str, Any]]") -> None:
    nearest = path
    while not os.path.exists(nearest) and nearest != "/":
        nearest = os.path.dirname(nearest) or "/"
    try:
        room, seen = os.statvfs(nearest), os.stat(nearest)
    except OSError as error:
        found[path] = {"error": error.strerror or str(error)}
        return
    found[path] = {
        "there": nearest == path,
        "nearest": nearest,
        "device": seen.st_dev,
        "free_gib": round(room.f_bavail * room.f_frsize / GIB, 1),
        "total_gib": round(room.f_blocks * room.f_frsize / GIB, 1),
        "files_free": room.f_favail if room.f_files else None,
        "read_only": bool(room.f_flag & os.ST_RDONLY),
        "readable": may(nearest, user, 4),
        "writable": may(nearest, user, 2) and not room.f_flag & os.ST_RDONLY,
        "empty_mount_point": _is_empty(nearest),
    }


def _is_empty(path: str) -> bool:
    try:
        return os.path.isdir(path) and not os.listdir(path)
    except OSError:
        return False


def fstab(_box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return the mount points that /etc/fstab names and that are not mounted now."""
    mounted = {line.split()[1] for line in text("/proc/self/mounts").splitlines() if len(line.split()) > 1}
    missing = []
    for line in text("/etc/fstab").splitlines():
        words = line.split()
        if len(words) < 4 or words[0].startswith("#") or not words[1].startswith("/"):  # noqa: PLR2004  (columns)
            continue
        if "noauto" not in words[3].split(",") and words[1] not in mounted:
            missing.append(words[1])
    return {"missing": missing}


def clock(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return whether the network sets the clock; None where nothing says."""
    answer = ask(box, ["timedatectl", "show", "-p", "NTPSynchronized", "-p", "NTP"], timeout_s=10)
    said = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
    return {
        "synchronised": {"yes": True, "no": False}.get(said.get("NTPSynchronized", "")),
        "service": {"yes": True, "no": False}.get(said.get("NTP", "")),
    }


def network(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return who listens, this box's addresses by interface, and whether ufw is on."""
    answer = ask(box, ["ip", "-j", "address"], timeout_s=10)
    addresses: dict[str, list[str]] = {}
    with contextlib.suppress(ValueError):
        for one in json.loads(answer.stdout or "[]"):
            addresses[one["ifname"]] = [each["local"] for each in one.get("addr_info", ()) if "local" in each]
    return {
        "listening": listening(text("/proc/net/tcp"), text("/proc/net/tcp6")),
        "addresses": addresses,
        "ufw": "ENABLED=yes" in text("/etc/ufw/ufw.conf"),
    }


def listening(four: str, six: str) -> "list[dict[str, Any]]":
    """Return address, port and user of each listening socket, as /proc/net/tcp and tcp6 tell it."""
    found = []
    for table, family in ((four, socket.AF_INET), (six, socket.AF_INET6)):
        for line in table.splitlines()[1:]:
            words = line.split()
            if len(words) > 7 and words[3] == LISTENING:  # noqa: PLR2004  (columns)
                address, port = words[1].split(":")
                found.append(
                    {"address": _address(address, family), "port": int(port, 16), "uid": int(words[7])}
                )
    return found


def _address(said: str, family: int) -> str:
    """Return an address that the kernel tells as 32-bit words in the machine's own order."""
    raw = bytes.fromhex(said)
    words = struct.unpack(f"={len(raw) // 4}I", raw)
    return (
        socket.inet_ntop(family, struct.pack(f">{len(words)}I", *words))
        if family == socket.AF_INET6
        else (socket.inet_ntop(family, struct.pack("<I", struct.unpack(">I", raw)[0])))
    )


def updates(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return whether updates come by themselves, from where, and what is held."""
    dump = ask(box, ["apt-config", "dump"], timeout_s=20)
    if dump.rc == NOT_THERE:
        return {"apt": False}
    values: dict[str, list[str]] = {}
    for name, value in re.findall(r'^([\w:./-]+?)(?:::)? "(.*)";$', dump.stdout, re.MULTILINE):
        values.setdefault(name, []).append(value)
    known = ask(box, ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n",
                      "*nvidia*", "libcuda1", "linux-image-*", "unattended-upgrades"], timeout_s=20)  # fmt: skip
    installed = [line[3:] for line in known.stdout.splitlines() if line[1:2] == "i"]
    return {
        "apt": True,
        "unattended": "unattended-upgrades" in installed
        and any(value not in ("", "0") for value in values.get("APT::Periodic::Unattended-Upgrade", ())),
        "blacklist": [one for one in values.get("Unattended-Upgrade::Package-Blacklist", ()) if one],
        "held": ask(box, ["apt-mark", "showhold"], timeout_s=20).stdout.split(),
        "driver_packages": [name for name in installed if "nvidia" in name or name == "libcuda1"],
        "kernel_packages": [name for name in installed if name.startswith("linux-image-")],
        "half_done": len(os.listdir("/var/lib/dpkg/updates"))
        if os.path.isdir("/var/lib/dpkg/updates")
        else 0,
    }


def reboot(_box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return whether the system asks for a reboot, and because of which packages."""
    asked = [path for path in ("/run/reboot-required", "/var/run/reboot-required") if os.path.exists(path)]
    return {"required": bool(asked), "packages": sorted(set(text("/run/reboot-required.pkgs").split()))}


def tailscale(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return the state of the tailnet and when this box's key expires."""
    answer = ask(box, ["tailscale", "status", "--json"], timeout_s=15)
    if answer.rc == NOT_THERE:
        return {"there": False}
    try:
        said = json.loads(answer.stdout)
    except ValueError:
        return {"there": True, "state": "", "problem": (answer.stderr or answer.stdout).strip()[-300:]}
    own = said.get("Self") or {}
    return {
        "there": True,
        "state": said.get("BackendState", ""),
        "online": own.get("Online"),
        "expires": own.get("KeyExpiry"),
        "tags": own.get("Tags") or [],
        "addresses": own.get("TailscaleIPs") or [],
        "name": str(own.get("DNSName", "")).rstrip("."),
        "health": [str(one) for one in said.get("Health") or ()][:5],
        "version": said.get("Version", ""),
    }
