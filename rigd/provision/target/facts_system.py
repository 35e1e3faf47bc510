"""Facts about the operating system: distribution, kernel, services, packages, clock, and what it runs in."""

import configparser
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.facts_files import assignments_of, lines_of, text_of

Facts = dict[str, Any]

FQDN_DEADLINE_S = 2.0
"""A name server that does not answer must not hold up a run."""
LOCAL_FACTS = "/etc/ansible/facts.d"
LOCAL_FACT_DEADLINE_S = 10.0

_NAMES: Mapping[str, str] = {
    "debian": "Debian", "ubuntu": "Ubuntu", "raspbian": "Raspbian", "linuxmint": "Linux Mint", "pop": "Pop!_OS",
    "fedora": "Fedora", "rhel": "RedHat", "centos": "CentOS", "rocky": "Rocky", "almalinux": "AlmaLinux",
    "arch": "Archlinux", "alpine": "Alpine", "opensuse-leap": "openSUSE Leap",
    "opensuse-tumbleweed": "openSUSE Tumbleweed",
}  # fmt: skip
"""ID of os-release -> Ansible's `distribution`."""
_FAMILIES: Mapping[str, str] = {
    "debian": "Debian", "ubuntu": "Debian", "rhel": "RedHat", "fedora": "RedHat", "centos": "RedHat",
    "arch": "Archlinux", "suse": "Suse", "opensuse": "Suse", "alpine": "Alpine",
}  # fmt: skip
"""ID, or a word of ID_LIKE -> Ansible's `os_family`."""
_PACKAGE_MANAGERS = (("/usr/bin/apt-get", "apt"), ("/usr/bin/dnf5", "dnf5"), ("/usr/bin/dnf", "dnf"),
                     ("/usr/bin/zypper", "zypper"), ("/usr/bin/pacman", "pacman"), ("/sbin/apk", "apk"))  # fmt: skip
_INITS: Mapping[str, str] = {
    "runit-init": "runit",
    "openrc-init": "openrc",
    "svscan": "svc",
    "procd": "openwrt_init",
}
_VENDORS: tuple[tuple[str, str, str], ...] = (
    ("product_name", r"KVM$|KVM Server$|Bochs$|AHV$", "kvm"),
    ("product_name", r"VMware", "VMware"),
    ("product_name", r"OpenStack (Compute|Nova)$", "openstack"),
    ("bios_vendor", r"Xen$", "xen"),
    ("bios_vendor", r"innotek GmbH$", "virtualbox"),
    ("bios_vendor", r"(Amazon EC2|DigitalOcean|Hetzner|Linode)$", "kvm"),
    ("sys_vendor", r"(QEMU|Amazon EC2|DigitalOcean|Google|Scaleway|Nutanix)$", "kvm"),
    ("sys_vendor", r"Microsoft Corporation$", "VirtualPC"),
    ("sys_vendor", r"Parallels", "parallels"),
)
"""File of the firmware's identity, what it holds -> Ansible's `virtualization_type` of a guest."""


def distribution() -> Facts:
    """Return the distribution's name, version, release and family."""
    release = assignments_of("/etc/os-release")
    name = release.get("ID", "")
    version = release.get("VERSION_ID", "NA")
    facts: Facts = {"distribution_file_path": "/etc/os-release", "distribution_file_parsed": True}
    if name == "debian" and (point := re.search(r"(\d+)\.(\d+)", text_of("/etc/debian_version"))):
        # Only this file knows the point release.
        version = point[0]
        facts["distribution_minor_version"] = point[2]
    alike = [name, *release.get("ID_LIKE", "").split()]
    family = next((_FAMILIES[word] for word in alike if word in _FAMILIES), None)
    shown = _NAMES.get(name, release.get("NAME", name))
    return facts | {
        "distribution": shown,
        "distribution_file_variety": family or shown,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "distribution_release": release.get("VERSION_CODENAME") or "NA",
        "os_family": family or shown,
    }


def lsb() -> Facts:
    """Return what `lsb_release` would say, whether it is installed or not."""
    release = assignments_of("/etc/os-release")
    version = release.get("VERSION_ID", "")
    return {
        "lsb": {
            "id": _NAMES.get(release.get("ID", ""), release.get("NAME", "")),
            "description": release.get("PRETTY_NAME", ""),
            "release": version,
            "major_release": version.split(".")[0],
            "codename": release.get("VERSION_CODENAME", ""),
        }
    }


def platform() -> Facts:
    """Return the kernel, the architecture and the host's names."""
    seen = os.uname()
    bits = "64" if sys.maxsize > 2**32 else "32"
    fqdn = _fqdn(seen.nodename)
    return {
        "system": seen.sysname,
        "kernel": seen.release,
        "kernel_version": seen.version,
        "machine": seen.machine,
        "architecture": "i386" if re.fullmatch(r"i[3-6]86", seen.machine) else seen.machine,
        "userspace_bits": bits,
        "userspace_architecture": "i386" if bits == "32" and seen.machine == "x86_64" else seen.machine,
        "nodename": seen.nodename,
        "hostname": seen.nodename.split(".")[0],
        "fqdn": fqdn,
        "domain": fqdn.partition(".")[2],
        "machine_id": text_of("/etc/machine-id") or text_of("/var/lib/dbus/machine-id"),
    }


def service_manager() -> Facts:
    """Return what runs the services."""
    first = os.path.basename(text_of("/proc/1/comm"))
    if first and first != "init" and not first.endswith("sh"):
        return {"service_mgr": _INITS.get(first, first)}
    # A process 1 of that name may be anything; what is on the disk tells more.
    if os.path.isdir("/run/systemd/system") or os.path.basename(os.path.realpath("/sbin/init")) == "systemd":
        return {"service_mgr": "systemd"}
    return {"service_mgr": "sysvinit" if os.path.isdir("/etc/init.d") else "service"}


def package_manager() -> Facts:
    """Return what installs packages."""
    return {"pkg_mgr": next((name for path, name in _PACKAGE_MANAGERS if os.path.exists(path)), "unknown")}


def clock() -> Facts:
    """Return the box's own time in Ansible's many spellings."""
    now_s = time.time()
    local, utc = time.localtime(now_s), time.gmtime(now_s)
    micro = f"{int(now_s % 1 * 1e6):06d}"
    shapes = {
        "year": "%Y", "month": "%m", "weekday": "%A", "weekday_number": "%w", "weeknumber": "%W", "day": "%d",
        "hour": "%H", "minute": "%M", "second": "%S", "date": "%Y-%m-%d", "time": "%H:%M:%S",
        "iso8601_basic_short": "%Y%m%dT%H%M%S", "tz": "%Z", "tz_offset": "%z",
    }  # fmt: skip
    return {
        "date_time": {
            **{name: time.strftime(shape, local) for name, shape in shapes.items()},
            "epoch": str(int(now_s)),
            "epoch_int": str(int(now_s)),
            "iso8601": time.strftime("%Y-%m-%dT%H:%M:%SZ", utc),
            "iso8601_micro": time.strftime("%Y-%m-%dT%H:%M:%S.", utc) + micro + "Z",
            "iso8601_basic": time.strftime("%Y%m%dT%H%M%S", local) + micro,
            "tz_dst": time.tzname[1],
        }
    }


def security() -> Facts:
    """Return what guards the kernel."""
    enforcing = text_of("/sys/fs/selinux/enforce")
    modes = {"1": "enforcing", "0": "permissive"}
    selinux = (
        {"status": "enabled", "mode": modes.get(enforcing, "unknown")}
        if enforcing
        else {"status": "disabled"}
    )
    return {
        "selinux": selinux,
        "apparmor": {"status": "enabled" if os.path.exists("/sys/kernel/security/apparmor") else "disabled"},
        "fips": text_of("/proc/sys/crypto/fips_enabled") == "1",
    }  # fmt: skip


def kernel_command_line() -> Facts:
    """Return the words that the kernel was started with; a word without a value is true."""
    once: Facts = {}
    all_of: Facts = {}
    for word in text_of("/proc/cmdline").split():
        name, equals, value = word.partition("=")
        once[name] = value if equals else True
        if name not in all_of:
            all_of[name] = once[name]
        else:
            known = all_of[name] if isinstance(all_of[name], list) else [all_of[name]]
            all_of[name] = [*known, once[name]]
    return {"cmdline": once, "proc_cmdline": all_of}


def name_servers() -> Facts:
    """Return what /etc/resolv.conf says."""
    dns: Facts = {}
    for line in lines_of("/etc/resolv.conf"):
        word, *rest = line.split() or [""]
        if word == "nameserver" and rest:
            dns.setdefault("nameservers", []).extend(rest[:1])
        elif word in ("search", "sortlist"):
            dns[word] = rest
        elif word == "domain" and rest:
            dns["domain"] = rest[0]
    return {"dns": dns}


def local_facts() -> Facts:
    """Return the facts that the box's owner has put into a folder: JSON, INI, or a program that prints either."""
    try:
        names = sorted(name for name in os.listdir(LOCAL_FACTS) if name.endswith(".fact"))
    except OSError:
        names = []
    return {"local": {name.removesuffix(".fact"): _local(os.path.join(LOCAL_FACTS, name)) for name in names}}


def virtualization() -> Facts:
    """Return the container or the virtual machine that this is, or that it can host others."""
    kind = _container() or next(
        (kind for file, pattern, kind in _VENDORS if re.match(pattern, _firmware(file))), ""
    )
    if kind:
        return {"virtualization_type": kind, "virtualization_role": "guest"}
    modules = {line.split(" ")[0] for line in lines_of("/proc/modules")}
    if "kvm" in modules or os.path.exists("/dev/kvm"):
        return {"virtualization_type": "kvm", "virtualization_role": "host"}
    return {"virtualization_type": "NA", "virtualization_role": "NA"}


def _container() -> str:
    groups = text_of("/proc/1/cgroup")
    for pattern, kind in ((r"/docker(/|-[0-9a-f]+\.scope)", "docker"), (r"/lxc/|/machine-lxc", "lxc"),
                          (r"/system\.slice/containerd\.service", "containerd")):  # fmt: skip
        if re.search(pattern, groups):
            return kind
    for word in text_of("/proc/1/environ").split("\0"):
        if word.startswith("container="):
            kind = word.partition("=")[2]
            return kind if kind in ("lxc", "podman") else "container"
    return text_of("/run/systemd/container") or ("docker" if os.path.exists("/.dockerenv") else "")


def _firmware(name: str) -> str:
    return text_of(f"/sys/devices/virtual/dmi/id/{name}")


def _fqdn(nodename: str) -> str:
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(socket.getfqdn()), daemon=True)
    asking.start()
    asking.join(FQDN_DEADLINE_S)
    return found[0] if found else nodename


def _local(path: str) -> Any:
    text = text_of(path)
    if os.access(path, os.X_OK):
        try:
            done = subprocess.run(
                [path],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LOCAL_FACT_DEADLINE_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"error loading facts as {path} could not be run: {error}"
        text = done.stdout.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        pass
    sections = configparser.ConfigParser(interpolation=None)
    try:
        sections.read_string(text)
    except configparser.Error as error:
        return f"error loading facts as JSON or INI: {path}: {error}"
    return {name: dict(sections[name]) for name in sections.sections()}


TABLE = (
    (frozenset({"distribution", "distribution_version", "distribution_major_version", "distribution_minor_version",
                "distribution_release", "distribution_file_path", "distribution_file_parsed",
                "distribution_file_variety", "os_family"}), distribution),
    (frozenset({"lsb"}), lsb),
    (frozenset({"system", "kernel", "kernel_version", "machine", "architecture", "userspace_bits",
                "userspace_architecture", "nodename", "hostname", "fqdn", "domain", "machine_id"}), platform),
    (frozenset({"service_mgr"}), service_manager),
    (frozenset({"pkg_mgr"}), package_manager),
    (frozenset({"date_time"}), clock),
    (frozenset({"selinux", "apparmor", "fips"}), security),
    (frozenset({"cmdline", "proc_cmdline"}), kernel_command_line),
    (frozenset({"dns"}), name_servers),
    (frozenset({"local"}), local_facts),
)  # fmt: skip
VIRTUAL_TABLE = ((frozenset({"virtualization_type", "virtualization_role"}), virtualization),)
