"""Proves the cards, rung by rung, and says which one does not hold."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rigd.provision.target import gpu_ladder, nvidia_cards, nvidia_facts
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError
from rigd.provision.target.gpu_ladder import Rung

ARGUMENTS = {
    "cards": Argument(kind=Kind.INTEGER, default=2),
    "image": Argument(),
    "docker_arguments": Argument(
        kind=Kind.LIST, elements=Kind.TEXT, default=["--device", "nvidia.com/gpu=all"]
    ),
    "environment": Argument(kind=Kind.MAPPING),
    "timeout": Argument(kind=Kind.INTEGER, default=180),
}
NCCL_DEFAULTS = {"NCCL_P2P_DISABLE": "1"}
"""Without a bridge between the cards this is what works; `environment` says otherwise for a patched driver."""

FROM_STDIN = "cat > /tmp/rigd_smoke.py && exec python3 /tmp/rigd_smoke.py"
"""A file, because the ranks are processes that import it again."""


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Climb the rungs that only look; those that compute need an image and happen in `apply`."""
    wanted = arguments["cards"]
    try:
        cards, fault = nvidia_cards.query(box), ""
    except ModuleError as error:
        cards, fault = None, str(error)
    space = os.statvfs("/dev/shm")  # noqa: S108  (this is what is looked at)
    rungs = [
        gpu_ladder.bound(nvidia_facts.cards(box), wanted),
        gpu_ladder.answers(cards, fault, wanted),
        gpu_ladder.link(cards) if cards else Rung(name="link", ok=None, evidence="not reached"),
        gpu_ladder.shared_memory(space.f_blocks * space.f_frsize),
    ]
    return {"rungs": [asdict(rung) for rung in rungs]}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the computing rungs, which leave nothing behind; stop at a rung that does not hold."""
    _stop_at_broken(state["rungs"])
    if not arguments["image"]:
        return []
    what = f"copy, compare and add up on the cards in {arguments['image']}"
    return [Change(what=what, subject="gpu", counts=False, once=True)]


def _stop_at_broken(rungs: list[dict[str, Any]]) -> None:
    for rung in rungs:
        if rung["ok"] is False:
            hint = f". {rung['hint']}" if rung["hint"] else ""
            raise ModuleError(
                f"the rung '{rung['name']}' does not hold: {rung['evidence']}{hint}", rungs=rungs
            )


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], _changes: list[Change], box: Box
) -> Mapping[str, Any]:
    """Run the script in the image and judge what it said."""
    environment = {
        **NCCL_DEFAULTS,
        **{str(key): str(value) for key, value in (arguments["environment"] or {}).items()},
    }
    argv = ["docker", "run", "--rm", "-i", "--pull=never", "--ipc=host", "--ulimit", "memlock=-1",
            "--name", "rigd-gpu-smoke", *arguments["docker_arguments"],
            *(word for name, value in environment.items() for word in ("-e", f"{name}={value}")),
            "--entrypoint", "sh", arguments["image"], "-c", FROM_STDIN]  # fmt: skip
    box.progress("copying, comparing and adding up on the cards")
    try:
        answer = box.run(argv, stdin=gpu_ladder.SCRIPT.encode(), ok=None, timeout_s=arguments["timeout"])
        output, error = answer.stdout, answer.stderr
    except ModuleError as late:
        output, error = str(late.facts.get("stdout", "")), f"{late}\n{late.facts.get('stderr', '')}"
    finally:
        box.run(["docker", "rm", "-f", "rigd-gpu-smoke"], ok=None, timeout_s=60)
    tail = " / ".join(line for line in error.strip().splitlines()[-3:])
    told = gpu_ladder.read_script(output)
    rungs = [*state["rungs"], asdict(gpu_ladder.cuda(told, arguments["cards"], tail)),
             asdict(gpu_ladder.collective(told, tail))]  # fmt: skip
    _stop_at_broken(rungs)
    return {"rungs": rungs}


MODULE = Module(
    names=("rigd.box.gpu_smoke",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: {"rungs": state["rungs"]},
    summary="proves the cards rung by rung: bound, answering, linked; with `image` also adding up right",
    differs=(
        "booting the engine and its canary are the last rungs, and `rigd up --until ready` climbs them",
    ),
)
