"""For `rigd doctor`: which Docker there is and how it works, the engine's image, NVIDIA's toolkit. Reads only."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import dpkg
from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.questions import NOT_THERE, ask

SOCKET = "/var/run/docker.sock"
DAEMON_JSON = "/etc/docker/daemon.json"
PACKAGES = (
    "docker-ce",
    "docker.io",
    "podman-docker",
    "docker-ce-rootless-extras",
    "containerd.io",
    "containerd",
)
TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
KEPT = (
    "ServerVersion", "Driver", "DriverStatus", "CgroupDriver", "CgroupVersion", "DockerRootDir", "CDISpecDirs",
    "SecurityOptions", "LiveRestoreEnabled", "DefaultRuntime",
)  # fmt: skip
Questions = Mapping[str, Any]


def docker(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return flavour, version and settings of Docker."""
    program = shutil.which("docker", path=box.environment().get("PATH")) or ""
    answer = ask(box, ["docker", "info", "--format", "{{json .}}"], timeout_s=25)
    info = _json(answer.stdout) if answer.rc == 0 else {}
    errors = [str(error) for error in info.get("ServerErrors") or ()]
    answers = bool(info.get("ServerVersion"))
    said = "; ".join(errors) or answer.stderr.strip()[-300:]
    return {
        "program": os.path.realpath(program) if program else "",
        "snap": "/snap/" in program or "/snap/" in os.path.realpath(program or "/"),
        "packages": _installed(box, PACKAGES),
        "answers": answers,
        "problem": "" if answers or answer.rc == NOT_THERE else said,
        "socket": os.path.exists(SOCKET),
        "info": {key: info.get(key) for key in KEPT},
        "runtimes": sorted(info.get("Runtimes") or {}),
        "daemon_json": daemon_json(),
        "published": _published(box) if answers else [],
    }


def _installed(box: Box, names: "tuple[str, ...]") -> "dict[str, str]":
    try:
        known = dpkg.packages(box, names)
    except ModuleError:  # Not a Debian.
        return {}
    return {name: entry["version"] for name, entry in known.items() if ":" not in name and entry["installed"]}


def _json(text: str) -> "dict[str, Any]":
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def daemon_json(path: str = DAEMON_JSON) -> "dict[str, Any]":
    """Return whether Docker's settings can be read as JSON, and what they hold."""
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read(1 << 20)
    except FileNotFoundError:
        return {"there": False}
    except OSError as error:
        return {"there": True, "unreadable": error.strerror or str(error)}
    try:
        found = json.loads(content) if content.strip() else {}
    except ValueError as error:
        return {"there": True, "error": str(error)}
    if not isinstance(found, dict):
        return {"there": True, "error": "it is no object"}
    kept = {
        key: found.get(key)
        for key in ("features", "runtimes", "exec-opts", "data-root", "live-restore", "default-runtime")
    }
    return {"there": True, "keys": sorted(found), **kept}


def _published(box: Box) -> "list[dict[str, Any]]":
    """Return the ports that running containers publish, with the address that they are open on."""
    answer = ask(box, ["docker", "ps", "--format", "{{json .}}"], timeout_s=25)
    found = []
    for line in answer.stdout.splitlines()[:200]:
        one = _json(line)
        found += [
            {"container": one.get("Names", ""), "address": match[1].strip("[]"), "port": int(match[2])}
            for match in re.finditer(r"(\S+):(\d+)(?:-\d+)?->", str(one.get("Ports", "")))
        ]
    return found


def image(box: Box, questions: Questions) -> "dict[str, Any]":
    """Return what the engine's image says of CUDA; `there` False: it is not on this box."""
    name = questions.get("image")
    if not name:
        return {"there": False, "name": ""}
    answer = ask(box, ["docker", "image", "inspect", name], timeout_s=25)
    if answer.rc != 0:
        return {"there": False, "name": name}
    one = (json.loads(answer.stdout) or [{}])[0]
    values = dict(line.split("=", 1) for line in (one.get("Config") or {}).get("Env") or () if "=" in line)
    return {
        "there": True,
        "name": name,
        "size_gib": round(int(one.get("Size") or 0) / 2**30, 1),
        "cuda": values.get("CUDA_VERSION", ""),
        "require": values.get("NVIDIA_REQUIRE_CUDA", ""),
        "architecture": one.get("Architecture", ""),
    }


def toolkit(box: Box, _questions: Questions) -> "dict[str, Any]":
    """Return the versions of NVIDIA's container toolkit: of its packages, and of the program."""
    answer = ask(box, ["nvidia-ctk", "--version"], timeout_s=15)
    match = re.search(r"(\d+\.\d+\.\d+)", answer.stdout)
    return {"program": match[1] if match else "", "packages": _installed(box, TOOLKIT)}
