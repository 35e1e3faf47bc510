"""For `rigd doctor`: rigd's own unit and user, a bare engine's Python, caches that grow stale. Reads only."""

import glob
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Box
from rigd.provision.target.doctor_gpu import text
from rigd.provision.target.doctor_rights import group_names, who
from rigd.provision.target.questions import NOT_THERE, ask

PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "UnitFileState", "User", "PrivateDevices", "ProtectClock", "DevicePolicy",
    "DeviceAllow", "ProtectProc", "ProcSubset", "PrivateTmp", "MemoryDenyWriteExecute", "KillMode", "TasksMax",
    "LimitMEMLOCK", "NRestarts", "DropInPaths", "Result",
)  # fmt: skip
SOCKETS = ("rigd-host-act.socket", "rigd-provision.socket", "rigd-gpu-settings.service")
Questions = Mapping[str, Any]


def service(box: Box, questions: Questions) -> "dict[str, Any]":
    """Return how rigd's units are, and the groups of its user."""
    shown = ask(box, ["systemctl", "show", "rigd.service", "-p", ",".join(PROPERTIES)], timeout_s=15)
    if shown.rc == NOT_THERE:
        return {"systemd": False}
    values = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    states = ask(box, ["systemctl", "is-active", *SOCKETS], timeout_s=15).stdout.split()
    user = who(questions.get("user"))
    version = ask(box, ["systemctl", "--version"], timeout_s=15).stdout.split()
    return {
        "systemd": True,
        "version": int(version[1]) if len(version) > 1 and version[1].isdigit() else None,
        "unit": values,
        "units": dict(zip(SOCKETS, states, strict=False)),
        "user": user.name,
        "groups": group_names(user),
    }


def process(box: Box, questions: Questions) -> "dict[str, Any]":
    """Return what a bare engine would run with: its program, Python, torch and vLLM, read from files alone."""
    name = questions.get("executable")
    if not name:
        return {"name": ""}
    path = questions.get("path") or box.environment().get("PATH")
    program = shutil.which(name, path=path) or ""
    home = os.path.dirname(os.path.dirname(os.path.realpath(program))) if program else ""
    packages = sorted(glob.glob(os.path.join(home, "lib/python3*/site-packages"))) if home else []
    found: dict[str, Any] = {
        "name": name,
        "program": program,
        "python": "",
        "torch": "",
        "cuda": "",
        "vllm": "",
    }
    for folder in packages:
        found["python"] = os.path.basename(os.path.dirname(folder)).removeprefix("python")
        said = text(os.path.join(folder, "torch/version.py"))
        found["torch"] = _match(r"__version__ = ['\"]([^'\"]+)", said)
        found["cuda"] = _match(r"cuda[^=\n]*= ['\"]([^'\"]+)", said)
        for place in glob.glob(os.path.join(folder, "vllm-*.dist-info")):
            found["vllm"] = os.path.basename(place).removeprefix("vllm-").removesuffix(".dist-info")
    return found


def _match(pattern: str, said: str) -> str:
    match = re.search(pattern, said)
    return match[1] if match else ""


def caches(_box: Box, questions: Questions) -> "list[dict[str, Any]]":
    """Return vLLM's notes on peer access, each with its age: they are known by the cards' numbers alone."""
    found: list[dict[str, Any]] = []
    for folder in questions.get("vllm_caches", ()):
        paths = glob.glob(os.path.join(folder, "gpu_p2p_access_cache_for_*.json"))[:20]
        found += [{"path": path, "made_s": os.stat(path).st_mtime} for path in paths]
    return found
