"""What an incident holds, and how it reads. Pure: the table of its parts, their limits, its trail, its outcome.

An incident is a small folder about one failure, for the person who looks at midnight and for a bug report:

    incident.json    what happened, in the catalogue's words; versions; what was left out
    trail.jsonl      the journal around it: what rigd saw, decided and did
    engine.log       the end of the engine's output
    stacks.txt ...   what would have been gone after the stop
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOTAL_BYTES = 4 << 20
"""Most bytes of one incident."""
BEFORE_ENTRIES = 40
AFTER_ENTRIES = 60
"""Journal entries kept from before and from after the failure."""
_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file of an incident. Of a longer text the end is kept, or the beginning (`keep_end` False)."""

    name: str
    about: str
    limit_bytes: int
    keep_end: bool = True


PARTS = (
    Part(name="incident.json", about="what happened, versions, what was left out", limit_bytes=96 * _KIB),
    Part(name="trail.jsonl", about="the journal around it, one entry a line", limit_bytes=192 * _KIB),
    Part(name="engine.log", about="the end of the engine's output", limit_bytes=2048 * _KIB),
    Part(
        name="metrics.txt",
        about="the last page of the engine's /metrics",
        limit_bytes=512 * _KIB,
        keep_end=False,
    ),
    Part(name="gpus.json", about="NVML's readings before and after the stop", limit_bytes=64 * _KIB),
    Part(
        name="kernel.log",
        about="kernel lines: Xid, NVRM, out of memory and IOMMU first",
        limit_bytes=256 * _KIB,
        keep_end=False,
    ),
    Part(
        name="spec.json",
        about="what was launched; secrets are references",
        limit_bytes=128 * _KIB,
        keep_end=False,
    ),
    Part(
        name="processes.txt",
        about="the engine's processes before the stop",
        limit_bytes=128 * _KIB,
        keep_end=False,
    ),
    Part(
        name="stacks.txt",
        about="stacks of a hung engine's processes (py-spy)",
        limit_bytes=512 * _KIB,
        keep_end=False,
    ),
)
"""Every file that an incident may have."""
PART = {part.name: part for part in PARTS}

HUNG = frozenset({"engine_stalled", "ready_timeout", "cannot_serve", "health_failing"})
"""Failures of an engine that still runs and may be stuck: its stacks say where."""

KERNEL_FIRST = (
    "NVRM", "Xid", "nvidia", "oom-kill", "oom_kill", "Out of memory", "Killed process", "oom_reaper", "AMD-Vi",
    "IO_PAGE_FAULT", "DMAR", "fallen off the bus", "AER", "pcieport", "mce:", "Hardware Error", "segfault",
    "blocked for more than", "I/O error", "No space left",
)  # fmt: skip
"""What makes a kernel line one to read first."""

ENDS = {
    "ready": "recovered",
    "degraded": "serving, degraded",
    "gave-up": "given up",
    "stopped": "stopped as asked",
}
"""What a journal entry after the failure says of how it went on; `stopped` only when rigd stays stopped."""
LAST = frozenset({"recovered", "given up", "stopped as asked"})
"""Outcomes after which nothing belongs to the incident any more."""


def bounded(name: str, text: str) -> tuple[bytes, bool]:
    """Return a part's bytes within its limit, cut at a line, and whether it was cut."""
    part = PART[name]
    content = text.encode("utf-8", "replace")
    if len(content) <= part.limit_bytes:
        return content, False
    mark = b"[cut here: longer than an incident may be]\n"
    room = part.limit_bytes - len(mark)
    if part.keep_end:
        kept = content[-room:]
        return mark + kept[kept.find(b"\n") + 1 :], True
    kept = content[:room]
    return kept[: kept.rfind(b"\n") + 1] + mark, True


def kernel_text(lines: Sequence[str], heard: Sequence[str] = ()) -> str:
    """Return the kernel's lines: what the watch of the host heard, those that explain broken engines, then all."""
    first = [line for line in lines if any(word in line for word in KERNEL_FIRST)]
    watch = ["--- what the host's watch heard, with the time ---", *heard] if heard else []
    if not lines:
        return "\n".join([*watch, ""]) if watch else ""
    head = [*watch, "--- lines about GPUs, memory, buses and disks ---", *(first or ["none"])]
    return "\n".join([*head, f"--- the last {len(lines)} lines ---", *lines, ""])


def trail_of(events: Iterable[Mapping[str, Any]], at_s: float) -> list[Mapping[str, Any]]:
    """Return the journal around a failure at `at_s`: some entries before it, those that follow until it is over."""
    before = [event for event in events if event["at_s"] < at_s]
    after: list[Mapping[str, Any]] = []
    for event in events:
        if event["at_s"] < at_s or len(after) >= AFTER_ENTRIES:
            continue
        if event["kind"] == "failure" and event["at_s"] > at_s and after and _over(after):
            break  # The next failure is a story of its own.
        after.append(event)
        if event["kind"] in {"ready", "gave-up"}:
            break
    return [*before[-BEFORE_ENTRIES:], *after]


def outcome_of(trail: Iterable[Mapping[str, Any]], at_s: float) -> tuple[str, float | None]:
    """Return how it went on, in a word or two, and after how many seconds; what has not ended is `open`."""
    found: tuple[str, float | None] = ("open", None)
    for event in trail:
        if event["at_s"] < at_s:
            continue
        kind = event["kind"]
        stays = kind != "stopped" or (event.get("data") or {}).get("to") == "stopped"
        if kind in ENDS and stays:
            found = (ENDS[kind], round(event["at_s"] - at_s, 1))
        if kind in {"ready", "gave-up"}:
            break
    return found


def told(trail: Iterable[Mapping[str, Any]], at_s: float) -> bool:
    """Return whether a trail has come to its end: nothing that follows belongs to it."""
    after = [entry for entry in trail if entry["at_s"] >= at_s]
    return len(after) >= AFTER_ENTRIES or outcome_of(after, at_s)[0] in LAST


def next_steps(document: Mapping[str, Any]) -> list[str]:
    """Return what a person does next about an incident, most useful first."""
    number, start = document["id"], document["start"]
    steps = [document["hint"]] if document.get("hint") else []
    outcome = document.get("outcome")
    if outcome == "given up":
        steps.append("rigd start  (after the cause is removed; rigd tries no more by itself)")
    elif outcome in {"recovered", "serving, degraded"}:
        steps.append("nothing at once: the engine serves again; rigd status")
    else:
        steps.append("rigd status --watch")
    if start:
        steps.append(f"rigd logs --start {start}")
    steps.append(f"rigd incidents {number} --bundle incident-{number}.tar.gz  (for a bug report)")
    return list(dict.fromkeys(steps))


def contents_text(document: Mapping[str, Any]) -> str:
    """Return the note that lies in a bundle: what is inside, and what was left out."""
    lines = [
        f"Incident {document['id']} of rig {document['rig']['name']}: {document['class']}",
        document["sentence"],
        "",
        "Inside:",
        *[
            f"  {part['name']:<14} {part['bytes']:>9,} bytes  {PART[part['name']].about}"
            f"{' (cut)' if part['cut'] else ''}"
            for part in document["parts"]
            if part["name"] in PART
        ],
        "",
        "Left out:",
        *[f"  {text}" for text in left_out_of(document)],
        "",
    ]
    return "\n".join(lines)


def left_out_of(document: Mapping[str, Any]) -> list[str]:
    """Return what an incident does not hold, as lines for a person."""
    masked = [f"{count} x {name}, replaced" for name, count in sorted(document["redacted"].items())]
    return [*masked, *document["left_out"]] or ["nothing was found that had to be"]


def trail_text(trail: Iterable[Mapping[str, Any]]) -> str:
    """Return a trail as it is kept: one entry a line."""
    return "".join(json.dumps(entry, ensure_ascii=False, default=str) + "\n" for entry in trail)


def trail_from(text: str) -> list[dict[str, Any]]:
    """Return the trail that was kept; a line that cannot be read is left out."""
    found = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "at_s" in entry and "kind" in entry:
            found.append(entry)
    return found


def _over(after: Sequence[Mapping[str, Any]]) -> bool:
    return any(event["kind"] in {"backoff", "waiting", "aside", "launched", "starting"} for event in after)
