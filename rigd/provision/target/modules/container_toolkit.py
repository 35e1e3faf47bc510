"""NVIDIA's container toolkit: four packages of one version, held, and a CDI file that fits the loaded driver."""

import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import apt_packages, cdi, dpkg, nvidia_facts, units
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

PACKAGES = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
            "libnvidia-container1")  # fmt: skip
REFRESH = "nvidia-cdi-refresh.service"
"""The unit of toolkit 1.18 and newer that makes the file at boot."""


def _apt(arguments: Mapping[str, Any]) -> dict[str, Any]:
    version = arguments["version"]
    return {"name": [f"{name}={version}" if version else name for name in PACKAGES], "state": "present",
            "allow_downgrade": True, "allow_change_held_packages": True}  # fmt: skip


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the packages, their holds, and both CDI files."""
    known = dpkg.packages(box, PACKAGES)
    unit = units.show(box, REFRESH) if arguments["cdi"] else {}
    return {
        "packages": apt_packages.probe(_apt(arguments), box),
        "versions": {name: known[name]["version"] for name in PACKAGES if dpkg.installed(known, name)},
        "held": [name for name in PACKAGES if known.get(name, {}).get("held")],
        "loaded": nvidia_facts.loaded_version(),
        "generated": cdi.read(cdi.GENERATED),
        "by_hand": cdi.read(cdi.BY_HAND),
        "unit": unit.get("LoadState") == "loaded",
        "known_to_apt": bool(
            box.run(["apt-cache", "show", "--no-all-versions", PACKAGES[0]], ok=None).stdout
        ),
        "check": box.check,
    }


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return packages to install, holds to set, and what to do about the CDI files."""
    if not state["known_to_apt"] and not state["versions"]:
        if state["check"]:
            return [
                Change(
                    what="install the NVIDIA container toolkit (once its repository is set up)", subject="apt"
                )
            ]
        raise ModuleError(
            "apt does not know nvidia-container-toolkit. Set up NVIDIA's repository"
            " (https://nvidia.github.io/libnvidia-container) by `deb822_repository`, and read the lists"
        )
    changes = apt_packages.difference(_apt(arguments), state["packages"])
    if len(set(state["versions"].values())) > 1 and not any(change.counts for change in changes):
        versions = ", ".join(f"{name} {version}" for name, version in state["versions"].items())
        raise ModuleError(
            f"the four packages are of different versions ({versions}). Say `version`, and all four take it"
        )
    if arguments["hold"] and (loose := [name for name in PACKAGES if name not in state["held"]]):
        changes.append(Change(what=f"hold {', '.join(loose)}", subject="apt-mark", data={"hold": loose}))
    if arguments["cdi"]:
        changes += _cdi_changes(state)
    return changes


def _cdi_changes(state: Mapping[str, Any]) -> list[Change]:
    texts = {
        "by-hand": (f"put {cdi.BY_HAND} aside: it was made by hand for driver"
                    f" {(state['by_hand'] or {}).get('version') or 'unknown'}, and {state['loaded']} is loaded"),
        "missing": f"make {cdi.GENERATED} for driver {state['loaded']}",
        "stale": (f"make {cdi.GENERATED} anew: it is for driver"
                  f" {(state['generated'] or {}).get('version') or 'unknown'}, and {state['loaded']} is loaded"),
    }  # fmt: skip
    wrong = cdi.judge(state["loaded"], state["generated"], state["by_hand"])
    return [Change(what=texts[word], subject="cdi", data={"cdi": word}) for word in wrong]


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Install, hold, and bring the CDI files in line."""
    if state["packages"].get("words") or state["packages"].get("automatic"):
        apt_packages.apply(_apt(arguments), state["packages"], changes, box)
    for change in changes:
        if "hold" in change.data:
            box.run(["apt-mark", "hold", *change.data["hold"]])
        elif change.data.get("cdi") == "by-hand":
            os.rename(cdi.BY_HAND, f"{cdi.BY_HAND}.aside")
        elif "cdi" in change.data:
            _refresh(box)


def _refresh(box: Box) -> None:
    if units.show(box, REFRESH).get("LoadState") == "loaded":
        box.run(["systemctl", "restart", REFRESH], timeout_s=120)
    else:
        os.makedirs(os.path.dirname(cdi.GENERATED), exist_ok=True)
        box.run(["nvidia-ctk", "cdi", "generate", f"--output={cdi.GENERATED}"], timeout_s=120)
    made = cdi.read(cdi.GENERATED)
    if made is None or made["version"] != nvidia_facts.loaded_version():
        raise ModuleError(
            f"{cdi.GENERATED} does not fit the loaded driver after it was made anew. Its maker's words:"
            f" `journalctl -u {REFRESH}`; `nvidia-ctk cdi list` shows what is known"
        )


def result(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    found = state["generated"] or state["by_hand"] or {"version": "", "devices": []}
    return {"versions": state["versions"], "driver": state["loaded"], "cdi_version": found["version"],
            "cdi_devices": found["devices"]}  # fmt: skip


MODULE = Module(
    names=("rigd.box.container_toolkit",),
    arguments={
        "version": Argument(),
        "hold": Argument(kind=Kind.BOOLEAN, default=True),
        "cdi": Argument(kind=Kind.BOOLEAN, default=True),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    summary="NVIDIA's container toolkit: four packages of one version, held; CDI fits the loaded driver",
)
