"""All services and their states, as facts."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Box, Module

RUNNING = ("active", "running")


def probe(_arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return name, state, status and source of each service that systemd knows."""
    services: dict[str, Any] = {}
    listing = box.run(["systemctl", "list-units", "--no-pager", "--type", "service", "--all", "--plain",
                       "--no-legend"], ok=None)  # fmt: skip
    for line in listing.stdout.splitlines():
        words = line.split()
        if not words[3:] or not words[0].endswith(".service"):
            continue
        name, loaded, _active, sub = words[:4]
        state = "running" if sub == "running" else "failed" if "failed" in words[1:4] else "stopped"
        status = loaded if loaded in ("not-found", "masked") else "failed" if state == "failed" else "unknown"
        services[name] = {"name": name, "state": state, "status": status, "source": "systemd"}
    files = box.run(["systemctl", "list-unit-files", "--no-pager", "--type", "service", "--all", "--plain",
                     "--no-legend"], ok=None)  # fmt: skip
    for line in files.stdout.splitlines():
        name, status = [*line.split(), "", ""][:2]
        if name.endswith(".service"):
            known = services.setdefault(
                name, {"name": name, "state": "inactive", "status": status, "source": "systemd"}
            )
            if known["status"] != "not-found":
                known["status"] = status
    return services


MODULE = Module(
    names=("ansible.builtin.service_facts",),
    arguments={},
    probe=probe,
    result=lambda _arguments, state: {"ansible_facts": {"services": state}},
    summary="all services and their states, as facts",
)
