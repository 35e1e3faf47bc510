"""What a box says of its NVIDIA cards, driver and kernels. Reads only."""

import glob
import os
import re
from typing import Any

from rigd.provision.target import dpkg, facts_files
from rigd.provision.target.contract import Box
from rigd.provision.target.questions import ask

PROC_VERSION = "/proc/driver/nvidia/version"
OS_RELEASE = "/etc/os-release"
BOOT = "/boot"
RUNFILE = "/usr/bin/nvidia-uninstall"
EFI_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MODULES = ("nvidia", "nvidia-current")
"""Names of the module's file; the second is that of Debian's own packages."""
PACKAGES = ("*nvidia*", "libcuda1", "cuda-drivers*")


def os_release() -> dict[str, str]:
    """Return the fields of /etc/os-release."""
    return facts_files.assignments_of(OS_RELEASE)


def cards(box: Box) -> list[dict[str, str]]:
    """Return the NVIDIA graphics cards on the PCI bus, each with the kernel driver that has it."""
    answer = ask(box, ["lspci", "-Dnnk", "-d", "10de:"], timeout_s=60)
    found: list[dict[str, str]] = []
    for line in answer.stdout.splitlines():
        # 0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204]
        if match := re.match(r"([0-9a-f:.]+) (.+?) \[(03\d\d)\]: (.*)", line):
            found.append({"address": match[1], "name": match[4], "driver": ""})
        elif re.match(r"[0-9a-f]{4}:", line):
            found.append({})  # Sound or USB of the same card.
        elif "Kernel driver in use:" in line and found and found[-1]:
            found[-1]["driver"] = line.split(":", 1)[1].strip()
    return [card for card in found if card]


def loaded_version() -> str:
    """Return the version of the driver in the running kernel, "" where none is loaded."""
    match = re.search(
        r"(?:Kernel Module(?: for \S+)?|NVRM version:.*?)\s+(\d+\.\d+(?:\.\d+)?)",
        facts_files.text_of(PROC_VERSION),
    )
    return match[1] if match else ""


def secure_boot(box: Box) -> bool:
    """Return whether the firmware lets signed code run alone."""
    answer = ask(box, ["mokutil", "--sb-state"], timeout_s=30)
    text = answer.stdout + answer.stderr
    if "SecureBoot enabled" in text:
        return True
    if answer.rc == 0 or "not supported" in text or "doesn't support" in text:
        return False
    try:
        with open(EFI_SECURE_BOOT, "rb") as file:
            return file.read()[-1:] == b"\1"
    except OSError:
        return False


def mok_enrolled(box: Box) -> bool:
    """Return whether one of the box's own keys is known to the firmware."""
    for key in ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der"):
        if os.path.exists(key):
            answer = ask(box, ["mokutil", "--test-key", key], timeout_s=30)
            if "is already enrolled" in answer.stdout + answer.stderr:
                return True
    return False


def next_kernel(box: Box) -> str:
    """Return the kernel that boots next: the newest one installed, else the one that runs."""
    names = [name.removeprefix("vmlinuz-") for name in _names(BOOT) if name.startswith("vmlinuz-")]
    newest = os.uname().release if not names else names[0]
    for name in names[1:]:
        if dpkg.newer(box, name, newest):
            newest = name
    return newest


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def module(box: Box, kernel: str) -> dict[str, str]:
    """Return version and signer of the nvidia module for a kernel; "" where there is none."""
    for name in MODULES:
        version = ask(box, ["modinfo", "-k", kernel, "-F", "version", name], timeout_s=60)
        if version.rc == 0:
            signer = ask(box, ["modinfo", "-k", kernel, "-F", "signer", name], timeout_s=60)
            return {"version": version.stdout.strip(), "signer": signer.stdout.strip()}
    return {"version": "", "signer": ""}


def dkms(box: Box) -> list[dict[str, str]]:
    """Return what DKMS says of nvidia: version, kernel and state (installed, built, added)."""
    answer = ask(box, ["dkms", "status"], timeout_s=120)
    # nvidia/580.95.05, 6.1.0-30-amd64, x86_64: installed        (before DKMS 3: nvidia, 580.95.05, ...; Debian's own
    # packages call it nvidia-current)
    pattern = re.compile(r"nvidia[^/,]*[/,]\s*([^,:]+)(?:, ([^,]+), [^:]+)?: (\w+)")
    matches = [match for line in answer.stdout.splitlines() if (match := pattern.match(line))]
    return [
        {"version": match[1].strip(), "kernel": (match[2] or "").strip(), "state": match[3]}
        for match in matches
    ]


def read(box: Box) -> dict[str, Any]:
    """Return everything that the decision needs."""
    release = os_release()
    known = dpkg.packages(box, PACKAGES)
    kernel = next_kernel(box)
    on = secure_boot(box)
    distribution = release.get("ID", "")
    names = ask(box, ["apt-cache", "pkgnames"], timeout_s=120).stdout.split()
    available = sorted(
        name for name in names if "nvidia" in name or name.startswith(("linux-headers-", "libcuda1"))
    )
    return {
        "distribution": distribution,
        "release": release.get("VERSION_ID", ""),
        "architecture": dpkg.architecture(box),
        "running_kernel": os.uname().release,
        "next_kernel": kernel,
        "flavour": flavour(kernel, release.get("VERSION_ID", ""), available),
        "secure_boot": on,
        "mok_enrolled": on and mok_enrolled(box),
        "cards": cards(box),
        "loaded": loaded_version(),
        "module": module(box, kernel),
        "installed": {name: entry["version"] for name, entry in known.items()
                      if ":" not in name and entry["installed"]},
        "available": available,
        "transitional": transitional(box, available) if distribution == "ubuntu" else [],
        "archive_version": _candidate(box, "nvidia-kernel-dkms") if distribution == "debian" else "",
        "runfile": os.path.exists(RUNFILE),
    }  # fmt: skip


def flavour(kernel: str, release: str, available: list[str]) -> str:
    """Return the end of Ubuntu's names for modules of this kernel: generic, generic-hwe-24.04, ..."""
    plain = re.sub(r"^[\d.]+-\d+-?", "", kernel) or "generic"
    hwe = f"{plain}-hwe-{release}"
    general = re.match(r"[\d.]+", kernel)
    # Two lines of kernels share a name; which one this is, the module package of the exact version tells.
    if any(name.endswith(f"-{hwe}") for name in available) and general and _is_hwe(general[0], release):
        return hwe
    return plain


_GENERAL = {"22.04": "5.15", "24.04": "6.8", "26.04": "7.0"}


def _is_hwe(version: str, release: str) -> bool:
    first = _GENERAL.get(release)
    return first is not None and not version.startswith(f"{first}.") and version != first


def transitional(box: Box, available: list[str]) -> list[int]:
    """Return the branches whose packages are empty shells that bring a later branch."""
    found = []
    names = [name for name in available if re.fullmatch(r"nvidia-headless-no-dkms-\d+-server-open", name)]
    if not names:
        return []
    answer = ask(box, ["apt-cache", "show", "--no-all-versions", *names], timeout_s=60)
    for stanza in answer.stdout.split("\n\n"):
        match = re.search(r"^Package: nvidia-headless-no-dkms-(\d+)-server-open$", stanza, re.MULTILINE)
        if match and re.search(
            r"^(?:Description\S*:|Section:).*(?:ransitional|oldlibs)", stanza, re.MULTILINE
        ):
            found.append(int(match[1]))
    return sorted(found)


def _candidate(box: Box, name: str) -> str:
    answer = ask(box, ["apt-cache", "policy", name], timeout_s=60)
    match = re.search(r"Candidate: (\S+)", answer.stdout)
    return match[1] if match and match[1] != "(none)" else ""


def build_log_tail() -> str:
    """Return the end of the last log of a failed DKMS build."""
    logs = glob.glob("/var/lib/dkms/nvidia*/*/build/make.log")
    if not logs:
        return ""
    latest = max(logs, key=os.path.getmtime)
    lines = [line for line in facts_files.lines_of(latest) if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return f"{latest}:\n" + "\n".join((errors or lines)[-6:])
