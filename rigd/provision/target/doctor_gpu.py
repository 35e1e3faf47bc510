"""For `rigd doctor`: cards as the bus has them, the driver, its library, the modules for the kernels. Reads only."""

import glob
import os
import re
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import cdi, nvidia_cards, nvidia_facts
from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.questions import ask

DEVICES = "/sys/bus/pci/devices"
NVIDIA, DISPLAY = "0x10de", "0x03"
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/nvidia", "/usr/lib", "/usr/lib/wsl/lib")
WATCHED = ("nvidia", "nvidia_uvm", "nvidia_drm", "nouveau", "nova_core", "nova_drm")
Questions = Mapping[str, Any]


def text(path: str) -> str:
    """Return what a small file holds, "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def cards(_box: Box, _questions: Questions, *, root: str = DEVICES) -> "list[dict[str, Any]]":
    """Return the NVIDIA cards on the bus: address, driver, link, size of the largest window into their memory."""
    found = []
    for address in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        place = os.path.join(root, address)
        if text(f"{place}/vendor").strip() != NVIDIA or not text(f"{place}/class").startswith(DISPLAY):
            continue
        driver = os.path.join(place, "driver")
        found.append({
            "address": address,
            "device": text(f"{place}/device").strip(),
            "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else "",
            "width": _number(text(f"{place}/current_link_width")),
            "width_max": _number(text(f"{place}/max_link_width")),
            "speed": _number(text(f"{place}/current_link_speed")),
            "speed_max": _number(text(f"{place}/max_link_speed")),
            "bar_mib": _bar_mib(text(f"{place}/resource")),
            "numa": _number(text(f"{place}/numa_node")),
        })  # fmt: skip
    return found


def _number(said: str) -> "float | None":
    match = re.match(r"\s*(-?\d+(?:\.\d+)?)", said)
    return float(match[1]) if match else None


def _bar_mib(said: str) -> "int | None":
    sizes = [
        int(row[1], 16) - int(row[0], 16) + 1
        for row in (line.split() for line in said.splitlines()[:6])
        if len(row) >= 2 and int(row[1], 16)  # noqa: PLR2004  (first and last address)
    ]
    return max(sizes) >> 20 if sizes else None


def driver(_box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return the driver that is loaded, the library that programs would load, and the device nodes."""
    loaded = [line.split(" ", 1)[0] for line in text("/proc/modules").splitlines()]
    library, changed_s = _library()
    return {
        "loaded": nvidia_facts.loaded_version(),
        "open": "Open Kernel Module" in text(nvidia_facts.PROC_VERSION),
        "library": library,
        "library_s": changed_s,
        "modules": [name for name in WATCHED if name in loaded],
        "nodes": sorted(os.path.basename(node) for node in glob.glob("/dev/nvidia*")),
        "runfile": os.path.exists(nvidia_facts.RUNFILE),
    }


def _library() -> "tuple[str, float | None]":
    for folder in LIBRARIES:
        place = os.path.realpath(os.path.join(folder, "libnvidia-ml.so.1"))
        version = os.path.basename(place).removeprefix("libnvidia-ml.so.")
        if os.path.exists(place) and "." in version:
            return version, os.stat(place).st_ctime
    return "", None


def smi(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return what nvidia-smi says of the cards, of CUDA, and of peer access."""
    try:
        found = nvidia_cards.query(box)
    except ModuleError as error:
        return {"error": str(error)}
    head = ask(box, ["nvidia-smi"], timeout_s=25).stdout
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)", head)
    return {
        "cards": found,
        "cuda": match[1] if match else "",
        "p2p": p2p(ask(box, ["nvidia-smi", "topo", "-p2p", "r"], timeout_s=25).stdout),
    }


def p2p(said: str) -> "list[str]":
    """Return the states of peer access between different cards: OK, CNS, GNS, TNS, NS, U, each once."""
    states = set()
    for line in re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines():
        words = line.split()
        if len(words) > 1 and re.fullmatch(r"GPU\d+", words[0]) and not words[1].startswith("GPU"):
            states |= {word for word in words[1:] if re.fullmatch(r"OK|[A-Z]?NS|U|DR", word)}
    return sorted(states)


def kernel(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return which kernels run and boot next, whether each has a driver, and what Secure Boot says of it."""
    following = nvidia_facts.next_kernel(box)
    running = os.uname().release
    on = nvidia_facts.secure_boot(box)
    return {
        "running": running,
        "next": following,
        "module": nvidia_facts.module(box, running),
        "next_module": nvidia_facts.module(box, following),
        "secure_boot": on,
        "mok_enrolled": on and nvidia_facts.mok_enrolled(box),
        "dkms": nvidia_facts.dkms(box),
        "command_line": text("/proc/cmdline").strip(),
    }


def cdi_specs(_box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return the CDI specifications: the generated one, and one that somebody made."""
    return {"generated": cdi.read(cdi.GENERATED), "by_hand": cdi.read(cdi.BY_HAND)}
