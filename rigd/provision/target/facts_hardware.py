"""Facts about the machine: memory, processors, firmware, mounted file systems."""

import os
import re
from typing import Any

from rigd.provision.target.facts_files import lines_of, text_of

Facts = dict[str, Any]

_FIRMWARE = {
    "bios_date": "bios_date", "bios_vendor": "bios_vendor", "bios_version": "bios_version",
    "board_name": "board_name", "board_vendor": "board_vendor", "board_version": "board_version",
    "product_name": "product_name", "product_version": "product_version", "product_serial": "product_serial",
    "product_uuid": "product_uuid", "system_vendor": "sys_vendor",
}  # fmt: skip
"""Fact -> file of the firmware's identity."""
_NETWORK_TYPES = ("nfs", "nfs4", "cifs", "smb3", "sshfs", "fuse.sshfs", "glusterfs", "ceph")
"""Asked for its size, a file system whose server is gone answers never."""


def memory() -> Facts:
    """Return memory and swap in MiB."""
    seen = {}
    for line in lines_of("/proc/meminfo"):
        name, _, rest = line.partition(":")
        if number := re.match(r"\s*(\d+)", rest):
            seen[name] = int(number[1]) // 1024
    total, free = seen.get("MemTotal", 0), seen.get("MemFree", 0)
    swap_total, swap_free = seen.get("SwapTotal", 0), seen.get("SwapFree", 0)
    nocache_free = free + seen.get("Cached", 0) + seen.get("Buffers", 0)
    return {
        "memtotal_mb": total,
        "memfree_mb": free,
        "swaptotal_mb": swap_total,
        "swapfree_mb": swap_free,
        "memory_mb": {
            "real": {"total": total, "free": free, "used": total - free},
            "nocache": {"free": nocache_free, "used": total - nocache_free},
            "swap": {
                "total": swap_total, "free": swap_free, "used": swap_total - swap_free,
                "cached": seen.get("SwapCached", 0),
            },
        },
    }  # fmt: skip


def processors() -> Facts:
    """Return how many processors there are, and which."""
    named: list[str] = []
    sockets: dict[str, set[str]] = {}
    package = "0"
    for line in lines_of("/proc/cpuinfo"):
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in ("processor", "vendor_id", "model name"):
            named.append(value)
        elif name == "physical id":
            package = value
            sockets.setdefault(package, set())
        elif name == "core id":
            sockets.setdefault(package, set()).add(value)
    threads = sum(1 for line in lines_of("/proc/cpuinfo") if line.startswith("processor"))
    count = len(sockets) or threads or 1
    cores = max((len(cores) for cores in sockets.values()), default=0) or 1
    each = max(1, threads // (count * cores))
    return {
        "processor": named,
        "processor_count": count,
        "processor_cores": cores,
        "processor_threads_per_core": each,
        "processor_vcpus": each * count * cores,
        "processor_nproc": len(os.sched_getaffinity(0)),
    }


def firmware() -> Facts:
    """Return what the firmware says of the machine; `NA` where it says nothing, or only to root."""
    return {fact: text_of(f"/sys/devices/virtual/dmi/id/{file}") or "NA" for fact, file in _FIRMWARE.items()}


def load() -> Facts:
    """Return the load, and how long the machine has been up."""
    loads = os.getloadavg()
    uptime = text_of("/proc/uptime").partition(" ")[0]
    return {
        "loadavg": dict(zip(("1m", "5m", "15m"), loads)),  # noqa: B905  (three and three; this is Python 3.10, too)
        "uptime_seconds": int(float(uptime or 0)),
    }


def mounts() -> Facts:
    """Return the mounted file systems that lie on a device or a server."""
    uuids = _uuids()
    found = []
    for line in lines_of("/proc/mounts"):
        device, where, kind, options, dump, check = (
            *(_plain(word) for word in line.split()),
            "",
            "",
            "",
            "",
            "",
        )[:6]
        if not (device.startswith(("/", "\\")) or ":/" in device) or kind == "none":
            continue
        found.append({
            "device": device, "mount": where, "fstype": kind, "options": options,
            "dump": int(dump or 0), "passno": int(check or 0),
            "uuid": uuids.get(os.path.realpath(device), "N/A"),
            **_sizes(where, kind),
        })  # fmt: skip
    return {"mounts": found}


def _sizes(where: str, kind: str) -> Facts:
    if kind in _NETWORK_TYPES:
        return {}
    try:
        seen = os.statvfs(where)
    except OSError:
        return {}
    return {
        "size_total": seen.f_frsize * seen.f_blocks,
        "size_available": seen.f_frsize * seen.f_bavail,
        "block_size": seen.f_bsize,
        "block_total": seen.f_blocks,
        "block_available": seen.f_bavail,
        "block_used": seen.f_blocks - seen.f_bavail,
        "inode_total": seen.f_files,
        "inode_available": seen.f_favail,
        "inode_used": seen.f_files - seen.f_favail,
    }


def _uuids() -> "dict[str, str]":
    folder = "/dev/disk/by-uuid"
    try:
        return {os.path.realpath(os.path.join(folder, name)): name for name in os.listdir(folder)}
    except OSError:
        return {}


def _plain(word: str) -> str:
    """Return a word of /proc/mounts with its escaped spaces and tabs as they are."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


TABLE = (
    (frozenset({"memtotal_mb", "memfree_mb", "swaptotal_mb", "swapfree_mb", "memory_mb"}), memory),
    (frozenset({"processor", "processor_count", "processor_cores", "processor_threads_per_core", "processor_vcpus",
                "processor_nproc"}), processors),
    (frozenset(_FIRMWARE), firmware),
    (frozenset({"loadavg", "uptime_seconds"}), load),
    (frozenset({"mounts"}), mounts),
)  # fmt: skip
