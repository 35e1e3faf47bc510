"""The laptop's side of a box: a folder of playbooks, an inventory and a state folder; runs as commands."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from box import Box

RUN_DEADLINE_S = 300
Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run ended, and all it told."""

    code: int
    events: list[Event]
    err: str
    took_s: float

    @property
    def recap(self) -> dict[str, int]:
        """Return the counts that are not 0 of the one host."""
        [counts] = self.events[-1]["hosts"].values()
        return {word: number for word, number in counts.items() if number}

    @property
    def tasks(self) -> dict[str, Event]:
        """Return each task's last event by its name."""
        return {event["name"]: event for event in self.events if event["event"] == "result"}

    @property
    def failures(self) -> list[str]:
        """Return what is wrong with each task that failed."""
        bad = [event for event in self.events if event.get("outcome") in ("failed", "unreachable")]
        return [f"{event['name']}: {event['result'].get('msg')}" for event in bad]


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a person types `rigd provision apply`."""

    box: Box
    folder: Path
    """Its home; holds `.ssh`, playbooks and the state folder."""

    def inventory(self, port: int) -> Path:
        """Return an inventory of the one host 'box', reached at this port."""
        path = self.folder / "hosts.ini"  # Of one name: a broken run is known by it.
        words = {"host": self.box.host, "port": port, "user": "root", "ssh_private_key_file": self.box.key}
        path.write_text("box " + " ".join(f"ansible_{name}={value}" for name, value in words.items()) + "\n")
        return path

    def command(self, playbook: str | Path, *more: str, port: int | None = None) -> list[str]:
        """Return the command that applies a playbook: a file, or a text that becomes one."""
        if isinstance(playbook, str):
            text, playbook = playbook, self.folder / "site.yml"
            playbook.write_text(text)
        inventory = self.inventory(port or self.box.port)
        return [sys.executable, "-m", "rigd.cli.main", "provision", "apply", str(playbook), "--accept-new", "--json",
                "--inventory", str(inventory), *more]  # fmt: skip

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of its commands."""
        return {**os.environ, "RIGD_STATE_DIR": str(self.folder / "state"), "HOME": str(self.folder)}

    def apply(self, playbook: str | Path, *more: str, port: int | None = None) -> Ran:
        """Run it to its end."""
        return ran_by(self.command(playbook, *more, port=port), self.environ)

    def check(self, playbook: str | Path, *more: str) -> Ran:
        """Say what would change."""
        command = self.command(playbook, *more)
        command[command.index("apply")] = "check"
        return ran_by(command, self.environ)


def ran_by(command: list[str], environ: Mapping[str, str]) -> Ran:
    """Run a command of `rigd provision --json` to its end."""
    began_s = time.monotonic()
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False
    )
    took_s = time.monotonic() - began_s
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return Ran(code=done.returncode, events=events, err=done.stderr, took_s=took_s)


def desk_of(box: Box, folder: Path) -> Desk:
    """Return a desk for a box in a folder of its own."""
    (folder / ".ssh").mkdir(mode=0o700, exist_ok=True)
    return Desk(box=box, folder=folder)
