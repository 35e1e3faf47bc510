"""CDI: the file that tells Docker what a GPU is, and whether it speaks of the driver that is loaded."""

import os
import re
from typing import Any

GENERATED = "/var/run/cdi/nvidia.yaml"
BY_HAND = "/etc/cdi/nvidia.yaml"


def version_of(text: str) -> str:
    """Return the driver version that a specification mounts, "" where it names none."""
    match = re.search(r"lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)", text)
    return match[1] if match else ""


def devices_of(text: str) -> list[str]:
    """Return the names of its devices: indices, UUIDs, all."""
    part = text.split("\ndevices:", 1)[-1] if "\ndevices:" in f"\n{text}" else ""
    names: list[str] = []
    for line in part.splitlines():
        if re.match(r"[a-zA-Z]", line):
            break  # The next key of the file.
        if match := re.match(r"\s{0,4}(?:- )?name: [\"']?([^\s\"']+)", line):
            names.append(match[1])
    return names


def read(path: str) -> dict[str, Any] | None:
    """Return version and devices of a specification, None where there is no such file."""
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return {"version": version_of(text), "devices": devices_of(text)}


def judge(loaded: str, generated: dict[str, Any] | None, by_hand: dict[str, Any] | None) -> list[str]:
    """Return what is wrong with the specifications, seen from the driver that is loaded. Pure."""
    if not loaded:
        return []  # Nothing can be made before the driver runs; the boot after it does it.
    wrong = []
    if by_hand is not None and by_hand["version"] != loaded:
        wrong.append("by-hand")
    if generated is None and (by_hand is None or "by-hand" in wrong):
        wrong.append("missing")
    elif generated is not None and generated["version"] != loaded:
        wrong.append("stale")
    return wrong
