"""Failures that no single line names: read from the numbers of an engine's status lines. Bounded memory."""

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from rigd.supervise.loglines import Line

_STATUS = re.compile(
    r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s,"
    r" Avg generation throughput: (?P<generation>[\d.]+) tokens/s,"
    r" Running: (?P<running>\d+) reqs,(?: Swapped: \d+ reqs,)? (?:Waiting|Pending): (?P<waiting>\d+) reqs"
    r"(?:.*?Preemptions: (?P<preemptions>\d+))?(?:.*?(?:GPU )?KV cache usage: (?P<kv>[\d.]+)%)?"
)
_ACCEPTANCE = re.compile(
    r"Mean acceptance length: (?P<length>[\d.]+)(?:.*?acceptance rate: (?P<rate>[\d.]+)%)?"
)
_POOL = re.compile(r"KV cache size: (?P<tokens>[\d,]+) tokens")
_NUMBERS = re.compile(r"\d+")
_RESIDENT = re.compile(r"^process_resident_memory_bytes(?:\{[^}]*\})? (?P<bytes>[\d.e+]+)")
_SPEAKS_OF_SPECULATION = re.compile(
    r"speculative_config=SpeculativeConfig\(|['\"]speculative_config['\"]: ['\"]?\{|--speculative-config"
)

STALLED_LINES = 5
"""Status lines in a row without a token, with requests running (50 s at vLLM's interval)."""
WAITS = 5
"""Waits for a worker in a row, a minute each, that are no long compile or prefill any more."""
COLLAPSED_LINES = 3
NOTHING_ACCEPTED = 1.01
"""Mean acceptance length at which no draft counts: each step yields its own token and no more."""
SILENT_DRAFT_LINES = 6
BUSY_LINES = 3
GAP_S = (30.0, 3600.0)
"""Silence between status lines with requests running that counts as a stall."""
SHRUNK = 0.9
KV_FULL_PERCENT = 90.0
KV_LOW_PERCENT = 40.0
CAPPED_RUNNING = 3
"""Requests that run at most when state blocks are what is short (as reported for two cards)."""
THRASH = 20
"""Preemptions that are more than healthy."""
GIB = 1024.0**3


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the numbers show, and the line that shows it last."""

    line_number: int
    text: str
    captured: dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class _Status:
    line: Line
    prompt: float
    generation: float
    running: int
    waiting: int
    preemptions: int | None
    kv_percent: float | None

    @property
    def stalled(self) -> bool:
        return self.running > 0 and self.generation == 0 and self.prompt == 0


@dataclass(kw_only=True)
class Statistics:
    """Watches the status lines of a log."""

    NEEDLES: ClassVar[tuple[str, ...]] = (
        "avg prompt throughput:",
        "mean acceptance length:",
        "kv cache size:",
        "process_resident_memory_bytes",
        "speculative",
        "no available shared memory broadcast block",
    )

    _recent: deque[_Status] = field(default_factory=lambda: deque(maxlen=12))
    _stalled: int = 0
    _waits: int = 0
    """Waits for a worker since the last token."""
    _last_wait: Line | None = None
    _collapsed: int = 0
    _draft_lines: int = 0
    _busy_without_drafts: int = 0
    _speculates: bool = False
    _acceptance: tuple[Line, float] | None = None
    _pools: list[tuple[Line, int]] = field(default_factory=list)
    _pool_of_start: tuple[Line, int] | None = None
    _resident: deque[tuple[Line, float]] = field(default_factory=lambda: deque(maxlen=200))
    _gaps: list[tuple[Line, float]] = field(default_factory=list)
    _stalls: int = 0
    _preempted: tuple[int, int] | None = None

    def see(self, line: Line, found: list[str]) -> bool:
        """Take in one cleaned line that contains the needles `found`; true if it says nothing but numbers."""
        if "avg prompt throughput:" in found and (match := _STATUS.search(line.text)):
            self._status(line, match)
            return True
        if "no available shared memory broadcast block" in found:
            self._waits += 1
            self._last_wait = line
            return True
        if "mean acceptance length:" in found and (match := _ACCEPTANCE.search(line.text)):
            self._drafts(line, match)
            return True
        if "process_resident_memory_bytes" in found and (match := _RESIDENT.search(line.text)):
            self._resident.append((line, float(match["bytes"])))
            return True
        if "kv cache size:" in found and (match := _POOL.search(line.text)):
            self._pool(line, int(match["tokens"].replace(",", "")))
        if "speculative" in found and _SPEAKS_OF_SPECULATION.search(line.text):
            self._speculates = True
        return False

    def _drafts(self, line: Line, match: re.Match[str]) -> None:
        self._draft_lines += 1
        length = float(match["length"])
        rate = match["rate"]
        collapsed = length <= NOTHING_ACCEPTED and (rate is None or float(rate) < 1)
        self._collapsed = self._collapsed + 1 if collapsed else 0
        self._acceptance = (line, length)

    def new_start(self) -> None:
        """Forget what belongs to the engine that ended; its KV pool stays for comparison."""
        if self._pool_of_start is not None:
            self._pools = [*self._pools, self._pool_of_start][-10:]
        self._pool_of_start = None
        self._recent.clear()
        self._waits = self._stalled = self._collapsed = self._draft_lines = self._busy_without_drafts = 0
        self._speculates = False
        self._acceptance = None
        self._preempted = None

    def _pool(self, line: Line, tokens: int) -> None:
        if self._pool_of_start is None or tokens <= self._pool_of_start[1]:
            self._pool_of_start = (line, tokens)

    def _status(self, line: Line, match: re.Match[str]) -> None:
        status = _Status(
            line=line,
            prompt=float(match["prompt"]),
            generation=float(match["generation"]),
            running=int(match["running"]),
            waiting=int(match["waiting"]),
            preemptions=int(match["preemptions"]) if match["preemptions"] else None,
            kv_percent=float(match["kv"]) if match["kv"] else None,
        )
        if self._recent:
            self._gap(self._recent[-1], status)
        self._recent.append(status)
        self._stalled = self._stalled + 1 if status.stalled else 0
        if status.generation > 0 or status.prompt > 0:
            self._waits = 0
        if status.generation > 0:
            self._busy_without_drafts += 1
        if status.preemptions is not None:
            first = self._preempted[0] if self._preempted else status.preemptions
            self._preempted = (min(first, status.preemptions), status.preemptions)

    def _gap(self, before: _Status, now: _Status) -> None:
        if before.running == 0 or not before.line.time or not now.line.time:
            return
        gap_s = float(_seconds(now.line.time) - _seconds(before.line.time))
        if GAP_S[0] <= gap_s <= GAP_S[1]:
            self._stalls += 1
            if len(self._gaps) < 50:  # noqa: PLR2004  (enough to show)
                self._gaps.append((now.line, gap_s))

    def finish(self) -> None:
        """Take the end of the log into account."""
        if self._pool_of_start is not None:
            self._pools.append(self._pool_of_start)

    def findings(self) -> list[tuple[str, Finding]]:
        """Return the kinds that the numbers show, the gravest first."""
        found = [
            ("stall_forever", self._stall()),
            ("spec_accept_collapse", self._collapse()),
            ("kv_pool_shrunk", self._shrunk()),
            ("preempt_thrash", self._thrash()),
            ("drafter_missing", self._no_drafts()),
            ("spec_concurrency_cap", self._capped()),
            ("host_ram_leak", self._leak()),
            ("stall_selfheal", self._healed()),
            ("slow_not_stuck", self._slow()),
        ]
        return [(kind, finding) for kind, finding in found if finding is not None][:1]

    def _stall(self) -> Finding | None:
        last = self._recent[-1] if self._recent else None
        if last is None:
            return None
        if self._waits >= WAITS and self._last_wait is not None and last.running > 0:
            return _finding(self._last_wait, running=last.running, waits=self._waits)
        if self._stalled < STALLED_LINES:
            return None
        return _finding(last.line, running=last.running, waiting=last.waiting, lines=self._stalled)

    def _collapse(self) -> Finding | None:
        if self._collapsed < COLLAPSED_LINES or self._acceptance is None:
            return None
        return _finding(self._acceptance[0], mean_acceptance_length=self._acceptance[1])

    def _shrunk(self) -> Finding | None:
        if len(self._pools) < 2:  # noqa: PLR2004  (nothing to compare with)
            return None
        best = max(tokens for _, tokens in self._pools[:-1])
        line, tokens = self._pools[-1]
        if tokens >= SHRUNK * best:
            return None
        return _finding(line, kv_tokens=tokens, earlier_kv_tokens=best, percent=round(100 * tokens / best))

    def _thrash(self) -> Finding | None:
        last = self._recent[-1] if self._recent else None
        if last is None or self._preempted is None:
            return None
        many = self._preempted[1] - self._preempted[0] >= THRASH
        if not many or (last.kv_percent is not None and last.kv_percent < KV_FULL_PERCENT):
            return None
        return _finding(last.line, preemptions=self._preempted[1], kv_usage_percent=last.kv_percent or 100.0)

    def _no_drafts(self) -> Finding | None:
        if not self._speculates or self._draft_lines or self._busy_without_drafts < SILENT_DRAFT_LINES:
            return None
        last = self._recent[-1]
        return _finding(last.line, tokens_per_s=last.generation)

    def _capped(self) -> Finding | None:
        recent = list(self._recent)[-BUSY_LINES:]
        capped = [
            s
            for s in recent
            if 0 < s.running <= CAPPED_RUNNING
            and s.waiting > 0
            and s.kv_percent is not None
            and s.kv_percent < KV_LOW_PERCENT
        ]
        speculates = self._speculates or self._draft_lines
        if len(recent) < BUSY_LINES or len(capped) < len(recent) or not speculates or capped[-1].running < 2:  # noqa: PLR2004
            return None
        last = capped[-1]
        return _finding(
            last.line, running=last.running, waiting=last.waiting, kv_usage_percent=last.kv_percent or 0.0
        )

    def _leak(self) -> Finding | None:
        values = [value for _, value in self._resident]
        rising = all(later >= earlier * 0.99 for earlier, later in pairwise(values))
        if len(values) < 4 or not rising or values[-1] < 1.5 * values[0]:  # noqa: PLR2004  (a trend, not noise)
            return None
        return _finding(
            self._resident[-1][0], first_gib=round(values[0] / GIB, 2), last_gib=round(values[-1] / GIB, 2)
        )

    def _healed(self) -> Finding | None:
        if not self._gaps:
            return None
        line, gap_s = max(self._gaps, key=lambda gap: gap[1])
        return _finding(line, gap_s=int(gap_s), stalls=self._stalls)

    def _slow(self) -> Finding | None:
        recent = list(self._recent)[-BUSY_LINES:]
        waiting = len(recent) == BUSY_LINES and all(
            s.waiting > s.running > 0 and s.generation > 0 for s in recent
        )
        if not waiting:
            return None
        last = recent[-1]
        return _finding(last.line, running=last.running, waiting=last.waiting, tokens_per_s=last.generation)


def _finding(line: Line, **captured: str | float) -> Finding:
    return Finding(line_number=line.number, text=line.text[:500], captured=dict(captured))


def _seconds(time: str) -> int:
    """Return seconds of `MM-DD HH:MM:SS`; months count 31 days, only differences of minutes matter."""
    months, days, hours, minutes, seconds = map(int, _NUMBERS.findall(time))
    return (((months * 31 + days) * 24 + hours) * 60 + minutes) * 60 + seconds
