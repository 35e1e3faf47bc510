"""The ssh session that the helper was started by: where from, where to, and whether it still carries."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from rigd.provision.target.contract import Box
from rigd.provision.target.questions import ask

MOST_PARENTS = 16


@dataclass(frozen=True, kw_only=True)
class Session:
    """Whoever works on the box now, as a firewall sees the next one of the same kind."""

    address: str
    """Of the other side."""
    own_address: str
    port: int
    """Of our sshd."""
    interface: str = ""
    """By which it comes in; "" where that is not known."""


def present(environment: Mapping[str, str] | None = None) -> Session | None:
    """Return the session, its interface left open; None where no ssh session is above us.

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
    return Session(address=words[0].split("%")[0], own_address=words[2].split("%")[0], port=int(words[3]))


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


def interface(box: Box, session: Session) -> str:
    """Return the interface that the way back to the other side takes; "" where `ip` does not tell."""
    words = ask(box, ["ip", "-o", "route", "get", session.address], timeout_s=10).stdout.split()
    return words[words.index("dev") + 1] if "dev" in words[:-1] else ""


def carries(box: Box, session: Session) -> bool:
    """Return whether what we send still arrives: nothing to the other side waits for an answer."""
    answer = ask(box, ["ss", "-Htin", "state", "established", "dst", session.address], timeout_s=10)
    return "unacked:" not in answer.stdout or "lastrcv:" not in answer.stdout
