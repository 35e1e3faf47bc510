"""What vLLM's `/metrics` page says about one engine, under the names of its versions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

_CACHE_INFO = "vllm:cache_config_info"

METRICS: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "generation_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "successes": ("vllm:request_success_total",),
    "steps": ("vllm:iteration_tokens_total_count",),
    "prefilled_tokens": ("vllm:request_prefill_kv_computed_tokens_sum",),
    "prefill_s": ("vllm:request_prefill_time_seconds_sum",),
}
"""Fields of `Counters` that are sums over engines, and the names by which vLLM's versions call them."""

_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_FIELD_OF = {name: field_name for field_name, names in METRICS.items() for name in names}
_WANTED = tuple(
    f"{name}{end}".encode() for name in (*_FIELD_OF, *_KV_USAGE, _CACHE_INFO) for end in ("{", " ")
)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What `/metrics` says, summed over engines. A counter that this engine does not have is 0."""

    running: float = 0.0
    waiting: float = 0.0
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    kv_usage: float = 0.0
    """Share of the KV pool in use, 0 to 1; of the fullest engine."""
    preemptions: float = 0.0
    prefix_queries: float = 0.0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: float = 0.0
    """Prompt tokens found there."""
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    successes: float = 0.0
    """Requests that ended, whatever the reason."""
    steps: float = 0.0
    """Steps of the engine that gave tokens."""
    prefilled_tokens: float = 0.0
    """Prompt tokens computed, of requests that ended."""
    prefill_s: float = 0.0
    """How long that took, requests added up. Seconds."""
    speculative: bool = False
    """Whether the engine decodes speculatively."""
    hybrid: bool = False
    """Whether the model has recurrent state: hits then need about three sightings."""
    block_size: int | None = None
    """Tokens of one KV block."""
    hit_step: int | None = None
    """Tokens in steps of which prefixes are found cached: a block, unless the engine says otherwise."""
    pool_tokens: int | None = None
    """Size of the KV pool in tokens."""

    @property
    def fingerprint(self) -> tuple[float, ...]:
        """Everything that only a working core moves. The same twice with work in flight means no progress.

        The KV usage is in it because nothing else moves while a long prompt is prefilled in pieces.
        """
        return (
            self.running,
            self.waiting,
            self.generation_tokens,
            self.prompt_tokens,
            self.kv_usage,
            self.preemptions,
            self.prefix_queries,
            self.prefix_hits,
            self.drafts,
            self.draft_tokens,
            self.accepted_tokens,
            self.successes,
            self.steps,
        )


def parse_counters(page: bytes) -> Counters | None:
    """Return what a `/metrics` page says about vLLM, or None when it says nothing.

    Only the wanted lines reach the parser: a page has 750 of them, and it is read every two seconds.
    """
    lines = [line for line in page.split(b"\n") if line.startswith(_WANTED)]
    sums: dict[str, float] = {}
    usage = 0.0
    cache: Mapping[str, str] = {}
    try:
        for family in text_string_to_metric_families(b"\n".join(lines).decode("utf-8", "replace") + "\n"):
            for sample in family.samples:
                if sample.name == _CACHE_INFO:
                    cache = sample.labels
                elif not math.isfinite(sample.value):
                    continue
                elif sample.name in _KV_USAGE:
                    usage = max(usage, sample.value)
                else:
                    name = _FIELD_OF[sample.name]
                    sums[name] = sums.get(name, 0.0) + sample.value
    except (ValueError, KeyError):
        return None
    if not sums:
        return None
    block = whole_number(cache.get("block_size"))
    pool = whole_number(cache.get("kv_cache_size_tokens"))
    blocks = whole_number(cache.get("num_gpu_blocks"))
    if pool is None and block and blocks:
        pool = block * blocks
    hybrid = cache.get("mamba_cache_mode") in ("align", "all")
    return Counters(
        kv_usage=usage,
        speculative="drafts" in sums,
        hybrid=hybrid,
        block_size=block,
        hit_step=_hit_step(cache, block, hybrid=hybrid),
        pool_tokens=pool,
        **sums,
    )


def _hit_step(cache: Mapping[str, str], block: int | None, *, hybrid: bool) -> int | None:
    """Return the tokens in steps of which hits count; attention and state blocks must both end there."""
    unit = whole_number(cache.get("prefix_match_unit"))
    state = whole_number(cache.get("mamba_block_size")) if hybrid else None
    if unit or not block:
        return unit or block
    return math.lcm(block, state) if state else block


def whole_number(value: Any) -> int | None:
    """Return a whole number, also from text and from a float without a fraction; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if math.isfinite(number) and number == int(number) else None
