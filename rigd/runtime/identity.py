"""Which process an engine is, written down beside its log, so that the next daemon finds the same one."""

import json
from dataclasses import dataclass
from pathlib import Path

from rigd.adapters import proc
from rigd.adapters.proc import ProcessId
from rigd.rig.schema import RuntimeKind
from rigd.runtime import startlog
from rigd.runtime.base import EngineRef

NAME = "identity.json"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The engine's first process and the recorder that waits for it."""

    root: ProcessId
    recorder: ProcessId
    digest: str


def engine_id(root: ProcessId) -> str:
    """Return what no other process can have, reboots included."""
    return f"{root.pid}:{root.ticks}:{proc.boot_id()}"


def ref_of(root: ProcessId, *, start: int, digest: str) -> EngineRef:
    """Return the reference to an engine that runs as a process."""
    return EngineRef(
        runtime=RuntimeKind.PROCESS,
        id=engine_id(root),
        pid=root.pid,
        start=start,
        digest=digest,
        created_s=proc.started_s(root),
    )


def root_of(ref: EngineRef) -> ProcessId | None:
    """Return the process that a reference names; None when it is of another boot or not a process."""
    pid, _, rest = ref.id.partition(":")
    ticks, _, boot = rest.partition(":")
    if not (pid.isdigit() and ticks.isdigit()) or boot != proc.boot_id():
        return None
    return ProcessId(pid=int(pid), ticks=int(ticks))


def write(folder: Path, identity: Identity) -> None:
    """Keep the identity in the start's folder."""
    text = json.dumps(
        {
            "boot": proc.boot_id(),
            "root": [identity.root.pid, identity.root.ticks],
            "recorder": [identity.recorder.pid, identity.recorder.ticks],
            "digest": identity.digest,
        }
    )
    startlog.write_private(folder / NAME, text + "\n")


def read(folder: Path) -> Identity | None:
    """Return the identity kept there; None when there is none of this boot."""
    try:
        seen = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if seen["boot"] != proc.boot_id():
            return None
        root, recorder = seen["root"], seen["recorder"]
        return Identity(
            root=ProcessId(pid=int(root[0]), ticks=int(root[1])),
            recorder=ProcessId(pid=int(recorder[0]), ticks=int(recorder[1])),
            digest=str(seen["digest"]),
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
