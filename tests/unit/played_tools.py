"""A box's programs as small scripts on PATH that give recorded answers: another distribution on this machine."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provisioning import Bench

from rigd.provision.target import kernel_modules, nvidia_facts

CARDS = """\
0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)
\tKernel driver in use: {driver}
0000:01:00.1 Audio device [0403]: NVIDIA Corporation GA102 High Definition Audio Controller [10de:1aef] (rev a1)
\tKernel driver in use: snd_hda_intel
0000:02:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)
\tKernel driver in use: {driver}
"""
DPKG_QUERY = r"""
table=$(cat {table}); rc=0; format=$3; shift 3
for wanted in "$@"; do
  found=$(echo "$table" | while read -r name version; do
    case "$name" in $wanted)
      case "$format" in
        *Architecture*) printf '%s\tamd64\tii \t%s\n' "$name" "$version" ;;
        *Abbrev*) printf '%s ii \n' "$name" ;;
      esac ;;
    esac
  done)
  if [ -n "$found" ]; then echo "$found"; else rc=1; fi
done
exit $rc
"""
APT_GET = r"""
seen=''
for word in "$@"; do
  case "$word" in
    install) seen=yes ;;
    -*|APT::*|Dpkg::*|Debug::*) ;;
    *) [ -z "$seen" ] || echo "Inst ${word%%=*} (1.0 Archive [amd64])" ;;
  esac
done
"""
APT_CACHE = r"""
case "$1" in
  pkgnames) cat {names} ;;
  show) for word in "$@"; do
          if grep -qxF "$word" {names}; then printf 'Package: %s\nDescription: x\n\n' "$word"; seen=1; fi
        done
        [ -n "$seen" ] ;;
  policy) if [ -n {archive} ]; then printf '%s:\n  Installed: (none)\n  Candidate: %s\n' "$2" {archive}; fi ;;
esac
"""
SYSTEMCTL = r"""
case "$*" in
  get-default*) echo graphical.target ;;
  cat*) exit 1 ;;
  show*) printf 'LoadState=not-found\nActiveState=inactive\nSubState=dead\n' ;;
  *) exit 1 ;;
esac
"""


@dataclass(kw_only=True)
class Played:
    """One box: its facts, its packages, and what its programs say."""

    facts: dict[str, Any]
    os_release: str
    archive: tuple[str, ...] = ()
    """Names of packages that apt knows."""
    archive_driver: str = ""
    installed: dict[str, str] = field(default_factory=dict)
    driver: str = "nouveau"
    """That has the cards; "" where there are no cards."""
    secure_boot: bool = False
    kernels: tuple[str, ...] = ()
    modules: dict[str, str] = field(default_factory=dict)
    """Kernel -> version of its nvidia module."""
    signer: str = ""
    tools: dict[str, str] = field(default_factory=dict)
    """Further programs: name -> script."""

    def scripts(self, folder: Path) -> dict[str, str]:
        table, names = folder / "packages", folder / "names"
        table.write_text("".join(f"{name} {version}\n" for name, version in self.installed.items()))
        names.write_text("".join(f"{name}\n" for name in self.archive))
        versions = " ".join(f"{kernel}) echo {version} ;;" for kernel, version in self.modules.items())
        state = "SecureBoot enabled" if self.secure_boot else "SecureBoot disabled"
        version = f'case "$2" in {versions} *) exit 1 ;; esac'
        modinfo = f'case "$4" in signer) echo {shlex.quote(self.signer)} ;; *) {version} ;; esac'
        return {
            "lspci": f"cat <<'E'\n{CARDS.format(driver=self.driver)}E\n" if self.driver else "true",
            "mokutil": f'case "$1" in --sb-state) echo {state!r} ;; *) echo "$2 is not enrolled" ;; esac',
            "modinfo": modinfo,
            "uname": f'case "$1" in -r) echo {self.facts["kernel"]} ;; *) exec /usr/bin/uname "$@" ;; esac',
            "ls": f'case "$*" in *vmlinuz*) printf "%s\\n" {" ".join(f"/boot/vmlinuz-{k}" for k in self.kernels)} ;;'
            ' */snap/docker*) exit 1 ;; *) exec /usr/bin/ls "$@" ;; esac',
            "dpkg-query": DPKG_QUERY.replace("{table}", str(table)),
            "apt-get": APT_GET,
            "apt-cache": APT_CACHE.replace("{names}", str(names)).replace(
                "{archive}", f"'{self.archive_driver}'"
            ),
            "dpkg": 'case $1 in --print-architecture) echo amd64 ;; *) exec /usr/bin/dpkg "$@" ;; esac',
            "systemctl": SYSTEMCTL,
            "dkms": "true",
            "cloud-init": "echo 'status: done'",
            "df": "printf 'x x\\n/dev/sda1 1 1 104857600 1%% /\\n'",
            "nvidia-smi": "exit 9",
            "docker": "exit 1",
            "dockerd": "exit 1",
            "tailscale": "exit 1",
            **self.tools,
        }

    def play(self, folder: Path, monkeypatch) -> Bench:
        """Put the programs first on PATH; give what runs playbooks on this box."""
        programs = folder / "programs"
        programs.mkdir()
        for name, text in self.scripts(folder).items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        boot = folder / "boot"
        boot.mkdir()
        for kernel in self.kernels:
            (boot / f"vmlinuz-{kernel}").touch()
        release = folder / "os-release"
        release.write_text(self.os_release)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin")
        monkeypatch.setenv("RIGD_STATE_DIR", str(folder / "state"))
        monkeypatch.setattr(nvidia_facts, "OS_RELEASE", str(release))
        monkeypatch.setattr(nvidia_facts, "BOOT", str(boot))
        monkeypatch.setattr(kernel_modules, "BOOT", boot)
        bench = Bench(folder)
        bench.box.facts = self.facts
        return bench


def box_facts(distribution: str, version: str, release: str, kernel: str) -> dict[str, Any]:
    return {
        "distribution": distribution, "distribution_version": version, "distribution_major_version": version[:2],
        "distribution_release": release, "kernel": kernel, "architecture": "x86_64", "service_mgr": "systemd",
        "virtualization_type": "container", "memtotal_mb": 65536, "os_family": "Debian",
    }  # fmt: skip


def branch(number: int, flavour: str = "generic") -> tuple[str, ...]:
    """Return Ubuntu's packages of a branch."""
    return (f"linux-modules-nvidia-{number}-server-open-{flavour}", f"nvidia-headless-no-dkms-{number}-server-open",
            f"nvidia-utils-{number}-server")  # fmt: skip


def noble(**more: Any) -> Played:
    kernel = "6.8.0-79-generic"
    return Played(facts=box_facts("Ubuntu", "24.04", "noble", kernel), os_release="ID=ubuntu\nVERSION_ID=24.04\n",
                  **{"archive": (*branch(535), *branch(580)), "kernels": (kernel,), **more})  # fmt: skip


def jammy(**more: Any) -> Played:
    kernel = "6.8.0-60-generic"
    return Played(facts=box_facts("Ubuntu", "22.04", "jammy", kernel), os_release="ID=ubuntu\nVERSION_ID=22.04\n",
                  **{"archive": branch(580, "generic-hwe-22.04"), "kernels": (kernel,), **more})  # fmt: skip


def resolute(**more: Any) -> Played:
    kernel = "7.0.0-28-generic"
    return Played(facts=box_facts("Ubuntu", "26.04", "resolute", kernel), os_release="ID=ubuntu\nVERSION_ID=26.04\n",
                  **{"archive": branch(580), "kernels": (kernel,), "driver": "NovaCore", **more})  # fmt: skip


def trixie(**more: Any) -> Played:
    kernel = "6.12.48+deb13-amd64"
    names = ("nvidia-driver-pinning-580", "linux-headers-amd64", f"linux-headers-{kernel}", "nvidia-driver-cuda",
             "nvidia-kernel-open-dkms")  # fmt: skip
    return Played(facts=box_facts("Debian", "13.1", "trixie", kernel), os_release="ID=debian\nVERSION_ID=13\n",
                  **{"archive": names, "archive_driver": "550.163.01-4", "kernels": (kernel,), **more})  # fmt: skip
