"""The statistics lines that vLLM writes every ten seconds."""

import time
from typing import Any

from rigd.sim.lines import Log


class Window:
    """What has happened since the last lines; the hit rate counts from the start, as there."""

    def __init__(self, *, was_busy: bool = False, queries: int = 0, hits: int = 0) -> None:
        self.since_s = time.monotonic()
        self.was_busy = was_busy
        self.queries = queries
        self.hits = hits
        self.prompt = self.generated = self.preemptions = self.running = self.waiting = 0
        self.drafts = self.draft_tokens = self.accepted = 0
        self.positions: list[int] = []
        self.kv = 0.0

    @property
    def busy(self) -> bool:
        """Whether any token was computed."""
        return bool(self.prompt or self.generated)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came from the cache."""
        return self.hits / self.queries if self.queries else 0.0

    def next(self) -> "Window":
        """Return the window after this one."""
        window = Window(was_busy=self.busy, queries=self.queries, hits=self.hits)
        window.running, window.waiting, window.kv = self.running, self.waiting, self.kv
        return window

    def add(self, message: dict[str, Any], generated: int, accepted: int) -> None:
        """Add what one step of the core reports."""
        tally = message["tally"]
        self.prompt += message["computed"]
        self.generated += generated
        self.running, self.waiting, self.kv = message["running"], message["waiting"], message["kv"]
        self.queries += tally["queries"]
        self.hits += tally["hits"]
        self.preemptions += tally["preemptions"]
        self.drafts += tally["drafts"]
        self.draft_tokens += tally["draft_tokens"]
        self.accepted += accepted
        positions = tally["accepted_per_position"]
        self.positions = [
            a + b for a, b in zip(self.positions or [0] * len(positions), positions, strict=True)
        ]

    def write(self, out: Log, device: str) -> None:
        """Write the lines; none when nothing has happened in this window and the one before."""
        if not (self.busy or self.was_busy):
            return
        took_s = time.monotonic() - self.since_s
        parts = [
            f"Avg prompt throughput: {self.prompt / took_s:.1f} tokens/s",
            f"Avg generation throughput: {self.generated / took_s:.1f} tokens/s",
            f"Running: {self.running} reqs",
            f"Waiting: {self.waiting} reqs",
            *([f"Preemptions: {self.preemptions}"] if self.preemptions else []),
            f"{device} KV cache usage: {self.kv:.1%}",
            *([f"Prefix cache hit rate: {self.hit_rate:.1%}"] if self.queries else []),
        ]
        out.info("loggers.py:335", f"Engine 000: {', '.join(parts)}")
        if self.drafts:
            out.info("metrics.py:120", f"SpecDecoding metrics: {', '.join(self._draft_parts(took_s))}")

    def _draft_parts(self, took_s: float) -> list[str]:
        rates = ", ".join(f"{count / self.drafts:.3f}" for count in self.positions)
        return [
            f"Mean acceptance length: {1 + self.accepted / self.drafts:.2f}",
            f"Accepted throughput: {self.accepted / took_s:.2f} tokens/s",
            f"Drafted throughput: {self.draft_tokens / took_s:.2f} tokens/s",
            f"Accepted: {self.accepted} tokens",
            f"Drafted: {self.draft_tokens} tokens",
            f"Per-position acceptance rate: {rates}",
            f"Avg Draft acceptance rate: {self.accepted / max(self.draft_tokens, 1):.1%}",
        ]
