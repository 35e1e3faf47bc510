"""The ladder that proves two cards: bound, linked, computing, talking. What was seen becomes rungs. Pure.

bound -> answers -> link -> shared memory -> cuda (allocate, copy, compare) -> collective (value-checked)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NARROW = 4
"""A link of fewer lanes than this is a riser or a slot of the chipset, and slows tensor parallelism for good."""

SCRIPT = r"""
import json, os, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def copies(count):
    rows = []
    host = torch.arange(1 << 24, dtype=torch.int32)
    for index in range(count):
        there = host.to(f"cuda:{index}", copy=True)
        equal = bool((there.cpu() == host).all())
        rows.append({"card": index, "name": torch.cuda.get_device_name(index), "equal": equal})
        for other in range(count):
            if other != index:
                again = there.to(f"cuda:{other}")
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(8):
                    again.copy_(there)
                torch.cuda.synchronize()
                took = time.perf_counter() - began
                rows.append({"card": index, "to": other, "equal": bool((again.cpu() == host).all()),
                             "gib_s": round(8 * host.numel() * 4 / took / 2**30, 2)})
    return rows

def rank(index, count, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(index)
    dist.init_process_group("nccl", rank=index, world_size=count)
    wrong = 0
    for step in range(20):
        value = torch.full((1 << 20,), float(index + 1 + step), device=f"cuda:{index}")
        dist.all_reduce(value)
        wrong += int((value != sum(float(r + 1 + step) for r in range(count))).sum())
    with open(f"{path}.{index}", "w") as file:
        file.write(str(wrong))
    dist.destroy_process_group()

if __name__ == "__main__":
    answer = {"cuda": torch.version.cuda, "count": torch.cuda.device_count(), "copies": [], "wrong": None}
    print("RIGD " + json.dumps(answer), flush=True)
    answer["copies"] = copies(answer["count"])
    print("RIGD " + json.dumps(answer), flush=True)
    if answer["count"] > 1:
        mp.spawn(rank, args=(answer["count"], "/tmp/rigd-ranks"), nprocs=answer["count"])
        answer["wrong"] = sum(int(open(f"/tmp/rigd-ranks.{r}").read()) for r in range(answer["count"]))
        print("RIGD " + json.dumps(answer), flush=True)
"""
"""Runs in the engine's own image, where torch is. Each line is the whole answer so far: a hang has its place."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of the ladder. ok None: not looked at, and `evidence` says why."""

    name: str
    ok: bool | None
    evidence: str
    hint: str = ""


def bound(cards: Sequence[Mapping[str, Any]], wanted: int) -> Rung:
    """Every card is on the bus and belongs to the driver."""
    told = ", ".join(f"{card['address']} {card['driver'] or 'no driver'}" for card in cards) or "none"
    wrong = [card["driver"] for card in cards if card["driver"] != "nvidia"]
    hint = ""
    if len(cards) < wanted:
        hint = "a card is missing on the bus: power, seating, riser; the firmware's PCIe settings (Above 4G decoding)"
    elif wrong:
        other = next((name for name in wrong if name), "")
        hint = (f"{other} took the card: put it on the blacklist (`rigd.box.kernel_blacklist`) and reboot" if other
                else "no driver took the card: `rigd.box.nvidia_driver`, then reboot")  # fmt: skip
    return Rung(name="bound", ok=len(cards) >= wanted and not wrong, evidence=told, hint=hint)


def answers(cards: Sequence[Mapping[str, Any]] | None, fault: str, wanted: int) -> Rung:
    """nvidia-smi sees as many as there are."""
    if cards is None:
        return Rung(name="answers", ok=False, evidence=fault, hint="see `dmesg | grep -i -e nvrm -e xid`")
    told = ", ".join(f"{card['index']:g} {card['name']} driver {card['driver_version']}" for card in cards)
    enough = len(cards) >= wanted
    hint = "" if enough else "a card fell off the bus (Xid 79 in `dmesg`): power supply, riser, or heat"
    return Rung(name="answers", ok=enough, evidence=told, hint=hint)


def link(cards: Sequence[Mapping[str, Any]]) -> Rung:
    """Judge the lanes: are they all there? The generation idles low, so it is told, not judged."""
    told, narrow = [], []
    for card in cards:
        now, most = card["pcie.link.width.current"], card["pcie.link.width.max"]
        if now is None or most is None:
            continue
        told.append(f"{card['uuid']}: x{now:g} of x{most:g}, generation {card['pcie.link.gen.current'] or 0:g} now of"
                    f" {card['pcie.link.gen.max'] or 0:g}")  # fmt: skip
        if now < NARROW:
            narrow.append(str(card["uuid"]))
    if not told:
        return Rung(name="link", ok=None, evidence="the cards do not tell (a virtual machine?)")
    hint = f"{', '.join(narrow)}: a mining riser or a slot that shares its lanes (M.2)" if narrow else ""
    return Rung(name="link", ok=not narrow, evidence="; ".join(told), hint=hint)


def shared_memory(size_bytes: int) -> Rung:
    """Judge the host's /dev/shm, through which NCCL and vLLM's workers pass what they share."""
    gib = size_bytes / 2**30
    hint = "tensor parallelism passes data through it: mount it larger, or give the container shm_size 16g"
    return Rung(
        name="shared memory",
        ok=gib >= 1,
        evidence=f"it holds {gib:.1f} GiB",
        hint="" if gib >= 1 else hint,
    )


def read_script(output: str) -> dict[str, Any] | None:
    """Return the last answer of the script, None where it never came so far."""
    lines = [line[5:] for line in output.splitlines() if line.startswith("RIGD ")]
    return dict(json.loads(lines[-1])) if lines else None


def cuda(answer: Mapping[str, Any] | None, wanted: int, tail: str) -> Rung:
    """Judge the image's own CUDA: it finds the cards, and what is copied to and fro comes back as it was."""
    if answer is None:
        hint = (
            "the image's CUDA is newer than the driver (error 804)?"
            if "804" in tail
            else "see the words above"
        )
        return Rung(name="cuda", ok=False, evidence=tail or "it said nothing", hint=hint)
    bad = [row for row in answer["copies"] if not row["equal"]]
    speeds = ", ".join(
        f"{row['card']}>{row['to']} {row['gib_s']} GiB/s" for row in answer["copies"] if "to" in row
    )
    evidence = (
        f"CUDA {answer['cuda']}, {answer['count']} cards, {len(answer['copies'])} copies compared; {speeds}"
    )
    if answer["count"] < wanted:
        return Rung(
            name="cuda",
            ok=False,
            evidence=evidence,
            hint="the container does not get every card: CDI, Docker",
        )
    if not answer["copies"]:
        return Rung(name="cuda", ok=False, evidence=evidence, hint=f"it ended while it copied: {tail}")
    hint = (
        "copies between cards come out wrong: keep P2P off (NCCL_P2P_DISABLE=1), check riser and IOMMU"
        if bad
        else ""
    )
    return Rung(name="cuda", ok=not bad, evidence=evidence, hint=hint)


def collective(answer: Mapping[str, Any] | None, tail: str) -> Rung:
    """NCCL adds up over the cards, and adds up right."""
    if answer is None or not answer["copies"]:
        return Rung(name="collective", ok=None, evidence="not reached")
    if answer["count"] < 2:  # noqa: PLR2004  (it takes two)
        return Rung(name="collective", ok=None, evidence="one card has nobody to talk to")
    hint = "keep P2P off (NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce); with it off already: ACS and IOMMU"
    if answer["wrong"] is None:
        return Rung(name="collective", ok=False, evidence=f"it never came to an end: {tail}", hint=hint)
    wrong = answer["wrong"]
    evidence = f"20 all-reduces of 4 MiB, {wrong} wrong values"
    return Rung(name="collective", ok=wrong == 0, evidence=evidence, hint=hint if wrong else "")
