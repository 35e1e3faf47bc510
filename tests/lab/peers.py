"""Ansible beside rigd: the same playbook, inventory and box, with its own command."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import install

RUN_DEADLINE_S = 900
SSH_ALONE = (
    "-F none -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ControlMaster=auto -o ControlPersist=60s"
)
_OPTIONS = {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_PIPELINING": "1", "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOST_KEY_CHECKING": "0", "ANSIBLE_SSH_ARGS": SSH_ALONE, "LC_ALL": "C.UTF-8",
            "ANSIBLE_DEPRECATION_WARNINGS": "0"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Played:
    """How a run of Ansible's ended."""

    code: int
    tasks: list[tuple[str, Mapping[str, Any]]]
    """Name and result of each task, in order."""
    recap: Mapping[str, int]
    err: str
    took_s: float


def ansible(
    playbook: Path, inventory: Path | str, folder: Path, *more: str, options: Mapping[str, str] | None = None
) -> Played:
    """Run `ansible-playbook` to its end, with its quicker way of sending modules; `folder` is its home."""
    environ = os.environ | _OPTIONS | {"ANSIBLE_HOME": str(folder / "ansible"), "HOME": str(folder),
               "ANSIBLE_COLLECTIONS_PATH": str(install.default_folder() / "collections"),
               "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "c")} | dict(options or {})  # fmt: skip
    program = install.default_folder() / "peers/bin/ansible-playbook"
    began_s = time.monotonic()
    done = subprocess.run([str(program), "-i", str(inventory), str(playbook), *more], env=environ, check=False,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=RUN_DEADLINE_S)  # fmt: skip
    took_s = time.monotonic() - began_s
    if not done.stdout.lstrip().startswith("{"):
        raise AssertionError(done.stdout + done.stderr)
    told = json.loads(done.stdout)
    tasks = [(task["task"]["name"], result) for play in told["plays"] for task in play["tasks"]
             for result in task["hosts"].values()]  # fmt: skip
    [recap] = told["stats"].values()
    return Played(code=done.returncode, tasks=tasks, recap=recap, err=done.stderr, took_s=took_s)


def outcome(result: Mapping[str, Any]) -> str:
    """Return a task's outcome in the recap's words."""
    for word in ("unreachable", "failed", "skipped", "changed"):
        if result.get(word):
            return word
    return "ok"
