"""Everything that `rigd doctor` looks at on a box, gathered at once. Reads only, and judges nothing.

Each part runs in a thread of its own with a deadline: a tool that is missing, a driver that hangs or a disk that is
dead is a fact (`{"error": ...}`) and no end of the others.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rigd.provision.target import doctor_docker, doctor_gpu, doctor_host, doctor_load, doctor_service
from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.processes import TaskCancelled

DEADLINE_S = 30.0
Questions = Mapping[str, Any]
Gather = Callable[[Box, Questions], Any]

PARTS: "dict[str, Gather]" = {
    "system": doctor_host.system,
    "memory": doctor_host.memory,
    "disks": doctor_host.disks,
    "fstab": doctor_host.fstab,
    "clock": doctor_host.clock,
    "network": doctor_host.network,
    "updates": doctor_host.updates,
    "reboot": doctor_host.reboot,
    "tailscale": doctor_host.tailscale,
    "cards": doctor_gpu.cards,
    "driver": doctor_gpu.driver,
    "smi": doctor_gpu.smi,
    "kernel": doctor_gpu.kernel,
    "cdi": doctor_gpu.cdi_specs,
    "docker": doctor_docker.docker,
    "image": doctor_docker.image,
    "toolkit": doctor_docker.toolkit,
    "service": doctor_service.service,
    "process": doctor_service.process,
    "caches": doctor_service.caches,
}


def gather(box: Box, questions: Questions, *, deadline_s: float = DEADLINE_S) -> "dict[str, Any]":
    """Return part -> facts. `questions` says what the rig file names: image, paths, executable, caches."""
    found: dict[str, Any] = {}
    threads = []
    for name, part in PARTS.items():
        thread = threading.Thread(target=_one, args=(name, part, box, questions, found), daemon=True)
        thread.start()
        threads.append(thread)
    until_s = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    late = {"error": f"did not answer within {deadline_s:g} s"}
    facts = {"at_s": time.time(), **{name: found.get(name, late) for name in PARTS}}
    if questions.get("load"):
        # After the others, which look at a box at rest.
        _one("load", doctor_load.load, box, questions, facts)
    return facts


def _one(name: str, part: Gather, box: Box, questions: Questions, found: "dict[str, Any]") -> None:
    try:
        found[name] = part(box, questions)
    except TaskCancelled:
        return
    except ModuleError as error:
        found[name] = {"error": str(error)}
    except Exception as error:  # noqa: BLE001  (whatever a box answers, the other parts are told)
        found[name] = {"error": f"{type(error).__name__}: {error}"}
