"""One rig's budget, from everything that is known about it."""

from dataclasses import dataclass

from rigd.budget.blocks import Layout, lay_out
from rigd.budget.channels import Limits, Plan, make_plan
from rigd.budget.figure import Figure, Source
from rigd.budget.fit import Fit, fit, longest_in
from rigd.budget.memory import ASSUMED_ACTIVATION, card_memory, pool_memory
from rigd.budget.pool import Pool, blocks_near, make_pool
from rigd.budget.readback import LogSays
from rigd.budget.settings import PoolSettings, settings_of
from rigd.budget.shape import ModelShape
from rigd.rig.schema import Rig
from rigd.rig.sizes import parse_size

OTHER_DRAFTERS = ("eagle", "eagle3", "draft_model", "dflash", "medusa")
AUTO = "auto"
NOT_RECKONED = (
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "num_gpu_blocks_override",
    "disable_hybrid_kv_cache_manager",
    "mamba_block_size",
    "mamba_cache_mode",
    "kv_cache_dtype_skip_layers",
    "hf_overrides",
)
"""Arguments that change the pool in ways that are not followed here."""
RECKONED_VERSION = "0.32"
SILENT = LogSays()


@dataclass(frozen=True, kw_only=True)
class Given:
    """What was found about a rig outside its file."""

    shape: ModelShape | None = None
    shape_from: str = ""
    """The file that the shape was read from, or why there is none."""
    weights: Figure | None = None
    """Bytes of the weights on each card."""
    card: Figure | None = None
    """Memory of each card, as the command line says it."""
    measured: Figure | None = None
    """Tokens of the pool of an engine that runs."""
    log: LogSays = SILENT
    wide_cpu: bool = False
    hit_rate: float | None = None
    """Goes before that of the rig file."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """All that `rigd budget` says."""

    rig: str
    settings: PoolSettings
    shape: ModelShape | None
    shape_from: str
    layout: Layout | None
    computed: Pool | None
    """The pool from bytes of memory; None where shape or memory is not known."""
    used: Figure | None
    """Tokens that the plan is made with: measured, else stated, else computed."""
    activation: Figure | None
    """With a log and a card: what of each card is neither weights nor pool."""
    implied: Pool | None
    """The pool whose tokens come nearest to those: what its blocks and bytes must be."""
    plan: Plan | None
    fit: Fit | None
    unknown: tuple[str, ...]
    """What was not known, or is not reckoned, and may explain a deviation."""

    @property
    def deviation(self) -> float | None:
        """How far the computed pool is from the one that is measured or stated, as a share of that."""
        if self.computed is None or self.used is None or self.used is self.computed.tokens:
            return None
        return self.computed.tokens.value / self.used.value - 1


def reckon(rig: Rig, given: Given) -> Budget:
    """Return a rig's budget. Raises `UsageError` where model and settings contradict one another."""
    settings = settings_of(rig, wide_cpu=given.wide_cpu)
    unknown: list[str] = []
    card = given.card or (card_memory(rig.budget.card) if rig.budget.card else None)
    layout = None if given.shape is None else lay_out(given.shape, settings)
    computed = None
    context = None
    if given.shape is not None and layout is not None:
        memory = _memory(rig, settings, given, card, unknown)
        context = _context(rig, settings, given.shape, layout, memory)
        computed = None if memory is None else make_pool(layout, memory, context)
        unknown += _doubts(rig, settings, given.shape)
    else:
        unknown.append(given.shape_from)
    used = _used(rig, given, computed)
    implied = _implied(layout, used, computed, context)
    limits = None
    if used is not None:
        limits = Limits(
            pool=used,
            max_model_len=context if given.shape is not None else settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            layout=layout,
            blocks=None if implied is None else implied.usable_blocks,
        )
    hit_rate = given.hit_rate if given.hit_rate is not None else rig.budget.hit_rate
    return Budget(
        rig=rig.name,
        settings=settings,
        shape=given.shape,
        shape_from=given.shape_from,
        layout=layout,
        computed=computed,
        used=used,
        activation=None if card is None else given.log.activation(settings, card),
        implied=implied,
        plan=make_plan(rig.channels, limits, hit_rate=hit_rate)
        if limits is not None and rig.channels
        else None,
        fit=_fit(rig, settings, given.shape, implied),
        unknown=tuple(unknown),
    )


def _context(
    rig: Rig, settings: PoolSettings, shape: ModelShape, layout: Layout, memory: Figure | None
) -> int:
    """Return the longest context: as set, else the model's own; with `auto` what fits, if that is less."""
    if settings.max_model_len is not None:
        return settings.max_model_len
    if rig.engine.arguments.max_model_len != AUTO or memory is None:
        return shape.max_context
    usable = memory.value // layout.block_bytes - 1
    return longest_in(layout, usable, shape.max_context) or shape.max_context


def _used(rig: Rig, given: Given, computed: Pool | None) -> Figure | None:
    """Return the pool's tokens from the best source there is."""
    if given.measured is not None:
        return given.measured
    if given.log.pool_tokens is not None:
        return Figure(value=given.log.pool_tokens, source=Source.READ, note="the log's line KV cache size")
    if rig.budget.pool_tokens is not None:
        return Figure(value=rig.budget.pool_tokens, source=Source.STATED, note="budget.pool_tokens")
    return None if computed is None else computed.tokens


def _implied(
    layout: Layout | None, used: Figure | None, computed: Pool | None, context: int | None
) -> Pool | None:
    if computed is not None and used is computed.tokens:
        return computed
    if layout is None or used is None or context is None:
        return None
    blocks = blocks_near(layout, used.value, context)
    note = f"what {used.value:,} tokens take"
    memory = Figure(value=blocks * layout.block_bytes, source=Source.COMPUTED, note=note)
    return make_pool(layout, memory, context)


def _memory(
    rig: Rig, settings: PoolSettings, given: Given, card: Figure | None, unknown: list[str]
) -> Figure | None:
    """Return the bytes of the pool on each card, from whatever says most exactly how many."""
    if settings.pool_bytes is not None:
        return settings.pool_bytes
    if given.log.available is not None:
        return given.log.available
    if settings.on_cpu:
        unknown.append(
            "the pool's bytes: without VLLM_CPU_KVCACHE_SPACE the engine takes a share of the free memory"
        )
        return None
    weights = given.weights
    if rig.budget.weights is not None:
        weights = Figure(value=parse_size(rig.budget.weights), source=Source.STATED, note="budget.weights")
    if card is None or weights is None:
        missing = [
            *(["the card's memory (budget.card, --card)"] if card is None else []),
            *(["the weights on each card (budget.weights)"] if weights is None else []),
        ]
        unknown.append(
            f"the pool's bytes: no kv_cache_memory_bytes, and for a share of the card {' and '.join(missing)}"
        )
        return None
    activation = ASSUMED_ACTIVATION
    if rig.budget.activation is not None:
        stated = parse_size(rig.budget.activation)
        activation = Figure(value=stated, source=Source.STATED, note="budget.activation")
    if rig.engine.arguments.gpu_memory_utilization is None:
        unknown.append(f"gpu_memory_utilization: not set, so vLLM's default of {settings.utilization:g}")
    if activation.source is Source.ASSUMED:
        unknown.append(activation.note)
    return pool_memory(settings, card=card, weights=weights, activation=activation)


def _doubts(rig: Rig, settings: PoolSettings, shape: ModelShape) -> list[str]:
    """Return what is not reckoned, or was taken for granted."""
    found = []
    if not rig.engine.version.startswith(RECKONED_VERSION):
        found.append(f"vLLM {rig.engine.version}: the arithmetic is that of {RECKONED_VERSION}")
    extra = {name.replace("-", "_") for name in rig.engine.arguments.extra}
    found += [
        f"engine.arguments.extra: {name} is not reckoned with" for name in NOT_RECKONED if name in extra
    ]
    if settings.speculative_method in OTHER_DRAFTERS:
        found.append(
            f"the layers of the {settings.speculative_method} drafter: another model's, and not counted"
        )
    if settings.speculative_method == "mtp" and not shape.draft_layers:
        found.append("the prediction layers: the model's config.json names none, so none are counted")
    if settings.dtype == "auto" and shape.dtype is None:
        found.append("dtype: neither the rig file nor the model says it, so bfloat16")
    if shape.window_layers and rig.engine.arguments.max_num_batched_tokens is None and not settings.on_cpu:
        found.append(
            f"max_num_batched_tokens: not set, so {settings.batched_tokens:,} for what windows keep in flight"
        )
    return found


def _fit(rig: Rig, settings: PoolSettings, shape: ModelShape | None, pool: Pool | None) -> Fit | None:
    if pool is None or shape is None:
        return None
    lengths = {channel.context + channel.output for channel in rig.channels} | {pool.context}
    return fit(
        pool,
        lengths=tuple(sorted(lengths, reverse=True)),
        max_num_seqs=settings.max_num_seqs,
        model_context=shape.max_context,
        wished=settings.max_model_len,
    )
