"""The ssh session that the helper was started by: whose address it is, and whether it still carries."""

import ipaddress
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Box
from rigd.provision.target.questions import ask

MOST_PARENTS = 16


def peer(environment: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return the address of the other side and our port, or None where no ssh session is above us.

    sudo takes the variable away, so the environments of the processes above are read, too.
    """
    text = (environment or os.environ).get("SSH_CONNECTION", "")
    pid = os.getppid()
    for _ in range(MOST_PARENTS):
        if text or pid <= 1:
            break
        text = _variable(pid, "SSH_CONNECTION")
        pid = _parent(pid)
    words = text.split()
    if len(words) != 4:  # noqa: PLR2004  (address and port of either side)
        return None
    return words[0].split("%")[0], int(words[3])


def _variable(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return ""
    found = [pair.partition(b"=")[2] for pair in pairs if pair.startswith(name.encode() + b"=")]
    return found[0].decode(errors="replace") if found else ""


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def carries(box: Box, address: str) -> bool:
    """Return whether what we send still arrives: nothing to that address waits for an answer."""
    answer = ask(box, ["ss", "-Htin", "state", "established", "dst", address], timeout_s=10)
    return "unacked:" not in answer.stdout or "lastrcv:" not in answer.stdout


def covered(rules: list[dict[str, Any]], address: str, port: int) -> bool:
    """Return whether one of these allowing rules lets the address reach the port. Pure."""
    other = ipaddress.ip_address(address)
    for rule in rules:
        network = ipaddress.ip_network(rule["from"], strict=False)
        if other.version == network.version and other in network and (rule["port"] in ("any", str(port))):
            return True
    return False
