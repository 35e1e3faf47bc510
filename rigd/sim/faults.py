"""What goes wrong on request, and when. A fault file is read again when it changes."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.sim.signatures import SIGNATURES

_LOOK_EVERY_S = 0.1

FAULTS = {
    # At the start.
    "slow-start": "seconds that loading takes longer",
    "fail-at-start": f"end with exit code 1 after the log of: {', '.join(SIGNATURES)}",
    "oom-unless-max-num-seqs": "out of memory while warming up, unless --max-num-seqs is at most N",
    "mamba-blocks": "too few state blocks, stated in the error, unless --max-num-seqs is at most N",
    "kv-max-len": "pool too small, the error states N, unless --max-model-len is at most N",
    "exit-at-start": "end while loading with this exit code (0 counts)",
    "hang-at-start": "never get past loading",
    "poisoned-cache": "compiling fails while anything lies in the torch_compile_cache of VLLM_CACHE_ROOT",
    "pool-share": "the KV pool of this start is this share of what it should be",
    # When serving.
    "die-after": "engine core dies N seconds after it is ready",
    "die-at-request": "engine core dies at the first request",
    "exit-after": "API server ends N seconds after it is ready",
    "exit-code": "exit code of exit-after; 0 if left out",
    "freeze": "engine core stops answering at once, until the fault is taken away",
    "freeze-after": "engine core stops answering N seconds after it is ready",
    "stall": "engine core stands still for N seconds at the next request, then goes on",
    "garbage": "every answer is exclamation marks",
    "empty": "every answer is empty",
    "http-500": "every completion is answered with 500",
    "slow-health": "seconds that /health takes",
    "acceptance-collapse": "no draft token is kept any more",
    "acceptance": "share of draft tokens that is kept, in place of --sim-acceptance",
    "no-drafts": "no token is drafted: the drafter is missing",
    "preempt": "the newest request is pushed out of the KV pool every N steps",
    "leak": "MiB a second by which the engine core grows",
    "log-flood": "lines a second on the log",
    # At the end.
    "refuse-term": "nobody ends at TERM",
    "orphans": "core and workers outlive a killed API server, in a session of their own",
}
"""Names and what their value means."""


class FaultsError(Exception):
    """The fault file says something that there is not."""


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The faults at one moment."""

    values: dict[str, str]

    def on(self, name: str) -> bool:
        """Whether the fault is on: named, and not `false` or `off`."""
        return self.values.get(name, "off").lower() not in ("off", "false", "none", "null")

    def number(self, name: str) -> float | None:
        """Return the fault's value as a number; 0 if it is on without one, None if it is off."""
        if not self.on(name):
            return None
        text = self.values[name]
        try:
            return float(text)
        except ValueError:
            return 0.0

    def text(self, name: str) -> str | None:
        """Return the fault's value, None if it is off."""
        return self.values[name] if self.on(name) else None


class Faults:
    """The faults of one process: those of the command line, and over them those of the file."""

    def __init__(self, given: tuple[tuple[str, str], ...], file: Path | None) -> None:
        self._given = dict(given)
        self._file = file
        self._stamp: tuple[int, int] | None = None
        self._looked_s = 0.0
        self._now = Switches(values=dict(given))

    def now(self) -> Switches:
        """Return the faults that are on now. A file that cannot be read leaves them as they were."""
        now_s = time.monotonic()
        if self._file is None or now_s - self._looked_s < _LOOK_EVERY_S:
            return self._now
        self._looked_s = now_s
        try:
            found = os.stat(self._file)  # noqa: PTH116  (called ten times a second)
        except OSError:
            self._stamp = None
            self._now = Switches(values=dict(self._given))
            return self._now
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            try:
                self._now = Switches(values=self._given | read(self._file))
            except (OSError, FaultsError):
                return self._now  # Half written; the next look finds it whole.
            self._stamp = stamp
        return self._now


def read(file: Path) -> dict[str, str]:
    """Return the faults that a file names; an empty file names none."""
    text = file.read_text(encoding="utf-8").strip()
    try:
        found: Any = json.loads(text) if text else {}
    except ValueError as error:
        raise FaultsError(f"cannot read the fault file '{file}': {error}") from error
    if not isinstance(found, dict):
        raise FaultsError(f"cannot use the fault file '{file}': it is not an object")
    if unknown := sorted(set(found) - set(FAULTS)):
        raise FaultsError(f"cannot use the fault file '{file}': no fault {', '.join(unknown)}")
    return {name: "" if value is True else str(value) for name, value in found.items()}
