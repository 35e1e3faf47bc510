"""Where the NVIDIA driver comes from and which packages that means: a table, and the row that fits a box. Pure.

facts of the box (nvidia_facts) + what the operator wants -> the first fitting row -> names known to apt, or a stop
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rigd.provision.target.contract import ModuleError

CUDA_BRANCHES = {"12.2": 535, "12.4": 550, "12.6": 560, "12.8": 570, "12.9": 575, "13.0": 580, "13.1": 590,
                 "13.2": 595, "13.3": 610}  # fmt: skip
"""The first branch whose driver runs a container's CUDA; GeForce cards have no forward compatibility beyond it."""

ARCHIVE, VENDOR, STOP = "archive", "nvidia", "stop"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the decision table. None: does not matter."""

    distribution: str
    source: str
    why: str
    secure_boot: bool | None = None
    archive_enough: bool | None = None
    asked: str | None = None
    """Holds only where the operator names this source; None: where no other one is named."""
    packages: tuple[str, ...] = ()
    """With {branch} and {flavour}; "pinning" first, since it decides what the others resolve to."""
    dkms: bool = False


MOK = (
    "Secure Boot is on, and modules built on this box are signed by nobody that it knows. Either turn Secure Boot off"
    " in the firmware's setup, or enrol the box's own key: `mokutil --import /var/lib/dkms/mok.pub` (on Ubuntu"
    " /var/lib/shim-signed/mok/MOK.der), reboot, and confirm in the blue screen at the console (it cannot be"
    " done over"
    " ssh); then run this again"
)

UBUNTU_VENDOR = (
    "nvidia-driver-pinning-{branch}",
    "libnvidia-compute",
    "nvidia-dkms-open",
    "nvidia-persistenced",
)

TABLE = (
    Row(distribution="ubuntu", archive_enough=True, source=ARCHIVE,
        packages=("linux-modules-nvidia-{branch}-server-open-{flavour}",
                  "nvidia-headless-no-dkms-{branch}-server-open", "nvidia-utils-{branch}-server"),
        why="the archive's modules are built and signed by Canonical: no compiler, no DKMS, good with Secure Boot"),
    Row(distribution="ubuntu", asked=ARCHIVE, source=STOP, why="the archive has no branch that is new enough"),
    Row(distribution="ubuntu", asked=VENDOR, secure_boot=True, source=STOP,
        why=f"NVIDIA's driver was asked for, and is built on the box. {MOK}"),
    Row(distribution="ubuntu", asked=VENDOR, source=VENDOR, dkms=True, packages=UBUNTU_VENDOR,
        why="NVIDIA's driver was asked for"),
    Row(distribution="ubuntu", secure_boot=True, source=STOP,
        why=f"the archive has no branch that is new enough, and NVIDIA's own is built on the box. {MOK}"),
    Row(distribution="ubuntu", source=VENDOR, dkms=True, packages=UBUNTU_VENDOR,
        why="the archive has no branch that is new enough, and Secure Boot is off"),
    Row(distribution="debian", secure_boot=True, source=STOP, why=f"Debian's drivers are built on the box. {MOK}"),
    Row(distribution="debian", asked=ARCHIVE, archive_enough=True, source=ARCHIVE, dkms=True,
        packages=("linux-headers-{architecture}", "nvidia-kernel-dkms", "nvidia-smi", "libcuda1",
                  "nvidia-persistenced"),
        why="the archive's driver was asked for"),
    Row(distribution="debian", asked=ARCHIVE, source=STOP,
        why="the archive's driver is too old for the CUDA asked for"),
    Row(distribution="debian", source=VENDOR, dkms=True,
        packages=("nvidia-driver-pinning-{branch}", "linux-headers-{architecture}", "nvidia-driver-cuda",
                  "nvidia-kernel-open-dkms"),
        why="the archive's driver is too old for the CUDA 13 of today's images"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the operator wants."""

    branch: int | None = None
    cuda: str | None = None
    source: str | None = None

    @property
    def least(self) -> int:
        """Return the oldest branch that will do."""
        if self.branch:
            return self.branch
        if not self.cuda:
            return CUDA_BRANCHES["13.0"]
        ordered = sorted((_version(cuda), branch) for cuda, branch in CUDA_BRANCHES.items())
        fitting = [branch for cuda, branch in ordered if cuda >= _version(self.cuda)]
        if not fitting:
            raise ModuleError(
                f"CUDA {self.cuda} is newer than this table ({', '.join(CUDA_BRANCHES)}): say `branch` yourself,"
                f" the one"
                " that NVIDIA's release notes name for it"
            )
        return fitting[0]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to install, or why not to."""

    source: str
    branch: int | None
    packages: tuple[str, ...]
    why: str
    dkms: bool
    resolved: bool
    """False: the source is not set up yet, so that the names are not known to apt."""


def choose(facts: Mapping[str, Any], wish: Wish) -> Plan:
    """Return the plan for a box: the first row of the table that fits."""
    archive = archive_branch(facts, wish)
    unsigned = bool(facts["secure_boot"]) and not facts.get("mok_enrolled", False)
    for row in TABLE:
        fits = (
            row.distribution == facts["distribution"]
            and row.secure_boot in (None, unsigned)
            and row.archive_enough in (None, archive is not None)
            and _asked_for(row, wish)
        )
        if fits:
            return _plan(row, facts, wish, archive)
    raise ModuleError(f"rigd knows the NVIDIA driver on Ubuntu and Debian, not on '{facts['distribution']}'")


def _asked_for(row: Row, wish: Wish) -> bool:
    if row.asked is not None:
        return wish.source == row.asked
    return row.source == STOP or wish.source in (None, row.source)


def _plan(row: Row, facts: Mapping[str, Any], wish: Wish, archive: int | None) -> Plan:
    if row.source == STOP:
        return Plan(source=STOP, branch=None, packages=(), why=row.why, dkms=False, resolved=False)
    branch = archive if row.source == ARCHIVE else vendor_branch(facts, wish)
    names = tuple(
        name.format(branch=branch or wish.least, flavour=facts["flavour"], architecture=facts["architecture"])
        for name in row.packages
    )
    resolved = branch is not None and all(name in facts["available"] for name in names)
    return Plan(source=row.source, branch=branch or wish.least, packages=names, why=row.why, dkms=row.dkms,
                resolved=resolved)  # fmt: skip


def archive_branch(facts: Mapping[str, Any], wish: Wish) -> int | None:
    """Return the branch to take of the distribution's archive, or None where none is new enough."""
    if facts["distribution"] == "debian":
        have = facts.get("archive_version") or ""
        branch = int(have.split(".")[0]) if have[:1].isdigit() else 0
        return branch if branch >= wish.least and (not wish.branch or branch == wish.branch) else None
    # All three packages of a branch have to be there, and not as an empty shell of a later one.
    usable = [
        branch
        for branch in branches(facts["available"], r"nvidia-headless-no-dkms-(\d+)-server-open")
        if branch not in facts.get("transitional", ())
        and f"linux-modules-nvidia-{branch}-server-open-{facts['flavour']}" in facts["available"]
        and f"nvidia-utils-{branch}-server" in facts["available"]
    ]
    fitting = [
        branch for branch in usable if branch == wish.branch or (not wish.branch and branch >= wish.least)
    ]
    return max(fitting, default=None)


def vendor_branch(facts: Mapping[str, Any], wish: Wish) -> int | None:
    """Return the branch to take of NVIDIA's repository, or None where it is not set up or has none that fits."""
    known = branches(facts["available"], r"nvidia-driver-pinning-(\d+)")
    fitting = [
        branch for branch in known if branch == wish.branch or (not wish.branch and branch >= wish.least)
    ]
    # The oldest that will do: it has been in use for longest.
    return min(fitting, default=None)


def branches(names: Iterable[str], pattern: str) -> list[int]:
    """Return the branches that package names mention."""
    return sorted({int(match[1]) for name in names if (match := re.fullmatch(pattern, name))})


FAMILIES = {
    ARCHIVE: ("linux-modules-nvidia-.*", "nvidia-headless-.*", r"nvidia-driver-\d+.*", r"nvidia-(utils|dkms)-\d+.*"),
    VENDOR: ("nvidia-driver-pinning-.*", "nvidia-dkms-open", "nvidia-open", "nvidia-driver-cuda", "libnvidia-compute",
             "nvidia-kernel-open-dkms"),
}  # fmt: skip
"""Names that only one of the two sources has, on Ubuntu."""


def foreign(installed: Iterable[str], plan: Plan, distribution: str) -> list[str]:
    """Return installed driver packages of the other source: the two do not mix."""
    if distribution != "ubuntu" or plan.source not in FAMILIES:
        return []
    other = "|".join(FAMILIES[VENDOR if plan.source == ARCHIVE else ARCHIVE])
    return sorted(name for name in installed if re.fullmatch(other, name))
