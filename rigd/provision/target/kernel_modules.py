"""Kernel modules: loaded, built in, named for the next boot; initial ram disks older than what they should hold."""

import os
import re
from pathlib import Path

from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.questions import ask

MODPROBE = Path("/etc/modprobe.d")
LOAD = Path("/etc/modules-load.d")
BOOT = Path("/boot")
REBUILD_TIMEOUT_S = 1200.0


def plain(name: str) -> str:
    """Return a module's name as the kernel spells it."""
    return name.replace("-", "_")


def loaded(name: str) -> bool:
    """Return whether the module is there now, loaded or built in."""
    return os.path.isdir(f"/sys/module/{plain(name)}") or plain(name) in _listed() or built_in(name)


def _listed() -> set[str]:
    try:
        return {
            line.split()[0] for line in Path("/proc/modules").read_text(encoding="utf-8").splitlines() if line
        }
    except OSError:
        return set()


def built_in(name: str) -> bool:
    """Return whether the running kernel has the module inside."""
    try:
        text = Path(f"/lib/modules/{os.uname().release}/modules.builtin").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(plain(Path(line).name.split(".ko")[0]) == plain(name) for line in text.splitlines())


def ram_disks() -> list[Path]:
    """Return the initial ram disks of the installed kernels."""
    return sorted(
        path for path in BOOT.glob("initrd.img-*") if not path.name.endswith((".old", ".bak", ".dpkg-bak"))
    )


def stale_ram_disks(file: Path) -> list[str]:
    """Return the kernels whose ram disk is older than this file of /etc/modprobe.d, so that it cannot hold it."""
    try:
        changed_s = file.stat().st_mtime
    except OSError:
        return []
    return [disk.name.removeprefix("initrd.img-") for disk in ram_disks() if disk.stat().st_mtime < changed_s]


def rebuild_ram_disks(box: Box, file: Path) -> None:
    """Make the ram disks of all kernels anew, and look that they hold the file."""
    box.progress("making the initial ram disks anew (update-initramfs -u -k all)")
    box.run(["update-initramfs", "-u", "-k", "all"], timeout_s=REBUILD_TIMEOUT_S)
    for disk in ram_disks():
        listing = ask(box, ["lsinitramfs", str(disk)], timeout_s=120)
        if listing.rc == 0 and str(file).lstrip("/") not in listing.stdout:
            raise ModuleError(
                f"{disk} was made anew and does not hold {file}: the drivers it forbids would load at boot."
                " See `update-initramfs -v -u`"
            )


def without(text: str, line: str) -> str:
    """Return a file's text without the lines that say this, comments kept."""
    kept = [old for old in text.splitlines() if _words(old) != _words(line)]
    return "".join(f"{old}\n" for old in kept)


def has_line(text: str, line: str) -> bool:
    return any(_words(old) == _words(line) for old in text.splitlines())


def _words(line: str) -> list[str]:
    return [plain(word) for word in re.split(r"\s+", line.partition("#")[0].strip()) if word]
