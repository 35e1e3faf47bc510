"""The engine's counters at one moment, as the supervisor's judgements use them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Load:
    """The engine's counters at one moment. `progress` changes whenever the engine does any work."""

    running: int
    waiting: int
    progress: tuple[float, ...]
    kv_usage: float | None = None
    generation_tokens: float = 0
    prompt_tokens: float = 0
    prefix_queries: float = 0
    prefix_hits: float = 0
    drafts: float = 0
    draft_tokens: float = 0
    accepted_tokens: float = 0
    preemptions: float = 0
    successes: float = 0
    """Requests that ended, whatever the reason."""
    pool_tokens: int | None = None
    """Size of the KV pool in tokens, where the engine says it."""
