"""For `rigd doctor --load`: the cards' links while data goes over them for some seconds. Nothing stays behind."""

import contextlib
import shutil
import threading
import time
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import nvidia_cards
from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.doctor_gpu import cards

COPY = """
import time, torch
host = torch.empty(1 << 28, dtype=torch.uint8).pin_memory()
there = [torch.empty(1 << 28, dtype=torch.uint8, device=f"cuda:{n}") for n in range(torch.cuda.device_count())]
until = time.time() + 8
while time.time() < until:
    for one in there:
        one.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
print("COPIED", len(there))
"""
LIMIT_S = 180.0
EVERY_S = 0.5
IN_USE_MIB = 1000
NAME = "rigd-doctor-load"
Questions = Mapping[str, Any]


def load(box: Box, questions: Questions) -> "dict[str, Any]":
    """Return the best link that each card showed at work; an error where nothing could be copied."""
    busy = [card["uuid"] for card in nvidia_cards.query(box) if (card["memory.used"] or 0) > IN_USE_MIB]
    if busy:
        return {"error": f"{', '.join(busy)} is in use: the links are looked at only while no engine runs"}
    argv = _command(questions, box)
    if argv is None:
        return {"error": "nothing here can copy: no image and no Python with torch is named by the rig file"}
    said: list[str] = []

    def copy() -> None:
        try:
            done = box.run(argv, ok=None, timeout_s=LIMIT_S)
            said.append(done.stdout + done.stderr)
        except ModuleError as error:
            said.append(str(error))

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    best: dict[str, dict[str, Any]] = {}
    until_s = time.monotonic() + LIMIT_S
    while thread.is_alive() and time.monotonic() < until_s:
        for card in cards(box, questions):
            known = best.get(card["address"])
            if known is None or (card["speed"] or 0) > (known["speed"] or 0):
                best[card["address"]] = card
        time.sleep(EVERY_S)
    if argv[0] == "docker":
        with contextlib.suppress(ModuleError):
            box.run(["docker", "rm", "-f", NAME], ok=None, timeout_s=60)
    if not said or "COPIED" not in said[0]:
        tail = " / ".join((said[0] if said else "").strip().splitlines()[-2:])
        return {"error": f"nothing was copied: {tail or 'it did not end in time'}"}
    return {"cards": list(best.values())}


def _command(questions: Questions, box: Box) -> "list[str] | None":
    if questions.get("image"):
        return ["docker", "run", "--rm", "--pull=never", "--gpus", "all", "--name", NAME, "--entrypoint", "python3",
                questions["image"], "-c", COPY]  # fmt: skip
    program = shutil.which(questions.get("executable") or "", path=box.environment().get("PATH"))
    if not program:
        return None
    with open(program, "rb") as file:
        first = file.readline(300).decode(errors="replace")
    return [first[2:].split()[0], "-c", COPY] if first.startswith("#!") and "python" in first else None
