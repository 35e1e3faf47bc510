"""The engine's settings as far as they decide the KV pool, from a rig file."""

from dataclasses import dataclass

from rigd.budget.figure import Figure, Source
from rigd.rig.schema import Rig, SecretRef

GIB = 2**30
CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
CPU_MARK = "VLLM_CPU_"
CPU_BLOCK, CPU_STEP = 128, 32
CARD_BLOCK, CARD_STEP = 16, 16
CARD_UTILIZATION = 0.92
"""vLLM 0.32's default of gpu_memory_utilization."""
CARD_BATCHED_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """What an engine is launched with, defaults filled in."""

    ranks: int = 1
    """Cards (or CPU ranks) that share the model."""
    max_model_len: int | None = None
    """Longest context; None: the model's own."""
    max_num_seqs: int | None = None
    dtype: str = "auto"
    kv_dtype: str = "auto"
    state_dtype: str = "auto"
    block: int | None = None
    """Tokens of a block as wished; None: the backend's own."""
    on_cpu: bool = False
    wide_cpu: bool = False
    """A CPU with AVX512-BF16, on which vLLM keeps recurrent states in float32 unless it is told otherwise."""
    prefix_caching: bool = True
    speculative_tokens: int = 0
    speculative_method: str | None = None
    batched_tokens: int = CARD_BATCHED_TOKENS
    overlapped_batches: int = 2
    """Batches in flight: two with asynchronous scheduling, the default on cards."""
    utilization: float = CARD_UTILIZATION
    pool_bytes: Figure | None = None
    """KV pool of each card, where it is given in bytes."""

    @property
    def least_block(self) -> int:
        """Block size before anything enlarges it."""
        return self.block or (CPU_BLOCK if self.on_cpu else CARD_BLOCK)

    @property
    def block_step(self) -> int:
        """Tokens of which the backend's kernels want whole multiples in a block."""
        return CPU_STEP if self.on_cpu else CARD_STEP


def settings_of(rig: Rig, *, wide_cpu: bool = False) -> PoolSettings:
    """Return what a rig file launches; `wide_cpu` as in `PoolSettings`, for engines on the CPU."""
    arguments, environment = rig.engine.arguments, rig.engine.environment
    on_cpu = any(name.startswith(CPU_MARK) for name in environment)
    speculative = arguments.speculative
    length = arguments.max_model_len
    return PoolSettings(
        ranks=arguments.tensor_parallel_size or 1,
        max_model_len=length if isinstance(length, int) else None,
        max_num_seqs=arguments.max_num_seqs,
        dtype=arguments.dtype or "auto",
        kv_dtype=arguments.kv_cache_dtype or "auto",
        state_dtype=arguments.mamba_ssm_cache_dtype or "auto",
        block=arguments.block_size,
        on_cpu=on_cpu,
        wide_cpu=on_cpu and wide_cpu,
        prefix_caching=arguments.enable_prefix_caching is not False,
        speculative_tokens=speculative.num_speculative_tokens if speculative else 0,
        speculative_method=speculative.method if speculative else None,
        batched_tokens=arguments.max_num_batched_tokens or CARD_BATCHED_TOKENS,
        overlapped_batches=1 if on_cpu or arguments.async_scheduling is False else 2,
        utilization=arguments.gpu_memory_utilization or CARD_UTILIZATION,
        pool_bytes=_pool_bytes(arguments.kv_cache_memory_bytes, environment.get(CPU_SPACE)),
    )


def _pool_bytes(stated: int | None, space: str | SecretRef | None) -> Figure | None:
    """Return the pool's bytes; on the CPU the variable goes before the argument."""
    if isinstance(space, str) and space.strip().isdigit() and int(space):
        return Figure(value=int(space) * GIB, source=Source.STATED, note=f"{CPU_SPACE}={space.strip()} (GiB)")
    if stated is not None:
        return Figure(value=stated, source=Source.STATED, note="kv_cache_memory_bytes")
    return None
