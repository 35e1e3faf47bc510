"""/metrics under vLLM's names."""

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from rigd.sim.arguments import Settings
from rigd.sim.lines import Log
from rigd.sim.link import Call
from rigd.sim.window import Window

STATS_EVERY_S = 10.0

_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)
_FIRST: tuple[float, ...] = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
)
_FIRST += (80.0, 160.0, 640.0, 2560.0)
_BETWEEN = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_WHOLE: tuple[float, ...] = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
)
_WHOLE += (960.0, 1920.0, 7680.0)
_COUNTS = (1, 2, 5, 10, 20)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

_GAUGES = {
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_COUNTERS = {
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "external_prefix_cache_queries": "External prefix cache queries from KV connector cross-instance "
    "cache sharing, "
    "in terms of number of queried tokens.",
    "external_prefix_cache_hits": "External prefix cache hits from KV connector cross-instance cache "
    "sharing, in "
    "terms of number of cached tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
    "num_preemptions": "Cumulative number of preemption from the engine.",
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "generation_tokens": "Number of generation tokens processed.",
}
_DRAFT_COUNTERS = {
    "spec_decode_num_drafts": "Number of spec decoding drafts.",
    "spec_decode_num_draft_tokens": "Number of draft tokens.",
    "spec_decode_num_accepted_tokens": "Number of accepted tokens.",
}
_HISTOGRAMS = {
    "request_prompt_tokens": ("Number of prefill tokens processed.", _TOKENS),
    "request_generation_tokens": ("Number of generation tokens processed.", _TOKENS),
    "iteration_tokens_total": ("Histogram of number of tokens per engine_step.", _STEP),
    "request_max_num_generation_tokens": (
        "Histogram of maximum number of requested generation tokens.",
        _TOKENS,
    ),
    "request_params_n": ("Histogram of the n request parameter.", _COUNTS),
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        _TOKENS,
    ),
    "request_inference_time_seconds": ("Histogram of time spent in RUNNING phase for request.", _WHOLE),
    "request_time_per_output_token_seconds": (
        "Histogram of time_per_output_token_seconds per request.",
        _BETWEEN,
    ),
    "request_params_max_tokens": ("Histogram of the max_tokens request parameter.", _TOKENS),
    "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", _FIRST),
    "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", _BETWEEN),
    "e2e_request_latency_seconds": ("Histogram of e2e request latency in seconds.", _WHOLE),
    "request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", _WHOLE),
    "request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", _WHOLE),
}
_REASONS = ("stop", "length", "abort", "error", "repetition")
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")


class Metrics:
    """The numbers of one API server."""

    def __init__(self, settings: Settings, out: Log) -> None:
        self._log = out
        self._settings = settings
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        counters = _DRAFT_COUNTERS | _COUNTERS if settings.drafts else _COUNTERS
        self._counters = {name: self._counter(name, text) for name, text in counters.items()}
        self._gauges = {name: self._gauge(name, text) for name, text in _GAUGES.items()}
        self._histograms = {name: self._histogram(name, *how) for name, how in _HISTOGRAMS.items()}
        self._success = self._labelled(
            Counter, "request_success", "Count of successfully processed requests."
        )("finished_reason", _REASONS)
        self._sources = self._labelled(
            Counter, "prompt_tokens_by_source", "Number of prompt tokens by source."
        )("source", _SOURCES)
        self._positions = (
            self._labelled(
                Counter, "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position."
            )("position", tuple(str(position) for position in range(settings.drafts)))
            if settings.drafts
            else {}
        )
        self._describe_cache()
        self._window = Window()

    def text(self) -> bytes:
        """Return the page."""
        return generate_latest(self.registry)

    def observe(self, message: dict[str, Any], calls: dict[str, Call]) -> None:
        """Book what one step of the core reports."""
        tally = message["tally"]
        self._gauges["num_requests_running"].set(message["running"])
        self._gauges["num_requests_waiting"].set(message["waiting"])
        self._gauges["kv_cache_usage_perc"].set(message["kv"])
        self._counters["prefix_cache_queries"].inc(tally["queries"])
        self._counters["prefix_cache_hits"].inc(tally["hits"])
        self._counters["num_preemptions"].inc(tally["preemptions"])
        accepted = sum(tally["accepted_per_position"])
        if self._settings.drafts:
            self._counters["spec_decode_num_drafts"].inc(tally["drafts"])
            self._counters["spec_decode_num_draft_tokens"].inc(tally["draft_tokens"])
            self._counters["spec_decode_num_accepted_tokens"].inc(accepted)
            for position, count in enumerate(tally["accepted_per_position"]):
                self._positions[str(position)].inc(count)
        generated = 0
        for call_id, tokens, finished, cached in message["out"]:
            generated += tokens
            if call_id in calls:
                self._observe_call(calls[call_id], tokens, finished, cached)
        self._counters["generation_tokens"].inc(generated)
        self._histograms["iteration_tokens_total"].observe(message["computed"] + generated)
        self._window.add(message, generated, accepted)

    def write_statistics(self) -> None:
        """Write vLLM's lines about the last ten seconds; none when nothing has happened."""
        window, self._window = self._window, self._window.next()
        window.write(self._log, self._settings.device)

    def _observe_call(self, call: Call, tokens: int, finished: str | None, cached: int | None) -> None:
        now_s = time.monotonic()
        if call.first_s is None:
            call.first_s = now_s
            self._histograms["time_to_first_token_seconds"].observe(now_s - call.added_s)
            self._histograms["request_prefill_time_seconds"].observe(now_s - call.added_s)
            self._counters["prompt_tokens"].inc(len(call.prompt))
            self._counters["prompt_tokens_cached"].inc(cached or 0)
            self._sources["local_cache_hit"].inc(cached or 0)
            computed = len(call.prompt) - (cached or 0)
            self._sources["local_compute"].inc(computed)
            self._histograms["request_prefill_kv_computed_tokens"].observe(computed)
        elif call.last_s is not None and tokens:
            self._histograms["inter_token_latency_seconds"].observe((now_s - call.last_s) / tokens)
        call.last_s = now_s
        if finished is not None:
            self._success[finished].inc()
            self._histograms["request_prompt_tokens"].observe(len(call.prompt))
            self._histograms["request_generation_tokens"].observe(len(call.answer))
            self._histograms["request_params_max_tokens"].observe(len(call.answer))
            self._histograms["request_max_num_generation_tokens"].observe(len(call.answer))
            self._histograms["request_params_n"].observe(1)
            self._histograms["request_inference_time_seconds"].observe(now_s - call.added_s)
            each_s = (now_s - call.first_s) / max(len(call.answer) - 1, 1)
            self._histograms["request_time_per_output_token_seconds"].observe(each_s)
            self._histograms["e2e_request_latency_seconds"].observe(now_s - call.added_s)
            self._histograms["request_decode_time_seconds"].observe(now_s - call.first_s)

    def _counter(self, name: str, text: str) -> Counter:
        metric = Counter(f"vllm:{name}", text, ("model_name", "engine"), registry=self.registry)
        return metric.labels(self._settings.name, "0")

    def _gauge(self, name: str, text: str) -> Gauge:
        metric = Gauge(f"vllm:{name}", text, ("model_name", "engine"), registry=self.registry)
        return metric.labels(self._settings.name, "0")

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        metric = Histogram(
            f"vllm:{name}", text, ("model_name", "engine"), buckets=buckets, registry=self.registry
        )
        return metric.labels(self._settings.name, "0")

    def _labelled(
        self, kind: type[Counter], name: str, text: str
    ) -> Callable[[str, tuple[str, ...]], dict[str, Counter]]:
        def make(label: str, values: tuple[str, ...]) -> dict[str, Counter]:
            metric = kind(f"vllm:{name}", text, ("model_name", "engine", label), registry=self.registry)
            return {value: metric.labels(self._settings.name, "0", value) for value in values}

        return make

    def _describe_cache(self) -> None:
        settings = self._settings
        facts = {
            "block_size": settings.block_size,
            "cache_dtype": "auto",
            "enable_prefix_caching": settings.prefix_caching,
            "engine": 0,
            "gpu_memory_utilization": 0.92,
            "kv_cache_max_concurrency": settings.blocks * settings.block_size / settings.max_model_len,
            "kv_cache_memory_bytes": round(settings.pool_tokens * settings.profile.bytes_per_token),
            "kv_cache_size_tokens": settings.blocks * settings.block_size,
            "mamba_block_size": None,
            "mamba_cache_mode": "align" if settings.hybrid else "none",
            "num_gpu_blocks": settings.blocks,
            "num_gpu_blocks_override": None,
            "prefix_caching_hash_algo": "sha256",
            "sliding_window": None,
        }
        gauge = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            tuple(facts),
            registry=self.registry,
        )
        gauge.labels(**{name: str(value) for name, value in facts.items()}).set(1)
