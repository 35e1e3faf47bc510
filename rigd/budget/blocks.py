"""How vLLM lays a model's KV cache out in blocks: bytes of a block, and blocks that a request takes.

full attention   a block holds the keys and values of `block` tokens, for the layers of one group
window           the same, but blocks behind the window are given back
recurrent state  one state fills one block, for one layer of each group; so the block is made large enough for it
"""

import math
from dataclasses import dataclass

from rigd.budget.settings import PoolSettings
from rigd.budget.shape import ModelShape, Recurrent, StateKind
from rigd.errors import UsageError

WIDTHS = {"float32": 4, "float16": 2, "half": 2, "bfloat16": 2, "float": 4}
SCALE_BYTES = 4
MLA_BLOCK = 128
"""Blocks of hybrids with latent attention are whole multiples of this."""
CPU_LATENT_BLOCK = 16
"""The only block that the CPU's kernel for latent attention takes."""
FEW = 1.5
"""Up to this many times the fewest layers of a kind, a group is as large as the most of a kind."""
FLOAT32 = "float32"
KV_DTYPE = "engine.arguments.kv_cache_dtype"
STATE_BLOCKS = 2
"""State blocks of a request with prefix caching: the running one and the one before it."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Layers that share block tables."""

    kind: str
    layers: int
    """Layers in one of the groups of this kind, at most."""
    groups: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A KV cache in blocks, on each card."""

    block: int
    """Tokens of a block of full attention."""
    page_bytes: int
    """Bytes of a block in one layer."""
    block_bytes: int
    """Bytes of a block in the pool: the page times the layers of the largest group."""
    token_bytes: int
    """Bytes that each further token of a request takes, over all layers with full attention."""
    groups: tuple[Group, ...]
    state_bytes: int = 0
    """Bytes of one recurrent state before padding."""
    window: int = 0
    window_blocks: int = 0
    """Most blocks of a request in each group of windows."""
    state_blocks: int = 0
    """Blocks of a request, however short, that hold recurrent states: over all groups."""

    @property
    def padding(self) -> float:
        """Share of a state's block that is padding."""
        return 1 - self.state_bytes / self.page_bytes if self.state_bytes else 0.0

    def request_blocks(self, tokens: int) -> int:
        """Return the blocks that a request of this many tokens takes at most, prompt and answer together."""
        whole = math.ceil(tokens / self.block)
        blocks = self.state_blocks
        for group in self.groups:
            if group.kind == "full":
                blocks += whole * group.groups
            elif group.kind == "window":
                blocks += min(whole + 1, self.window_blocks) * group.groups
        return blocks


def lay_out(shape: ModelShape, settings: PoolSettings) -> Layout:
    """Return how the cache of a model is laid out under these settings. Raises `UsageError` where it cannot be."""
    heads = _heads(shape, settings.ranks)
    token = _token_bytes(shape, settings, heads)  # of one layer
    full = shape.full_layers + _draft_layers(shape, settings)
    state = 0
    block = settings.least_block
    if settings.on_cpu and shape.latent_dim is not None and shape.recurrent is None:
        block = CPU_LATENT_BLOCK
    if shape.recurrent is not None:
        state = _state_bytes(shape.recurrent, shape, settings)
        block = max(block, _block_for(state, token, shape, settings))
    page = block * token
    groups = _grouped(
        full=full, window=shape.window_layers, state=shape.recurrent.layers if shape.recurrent else 0
    )
    largest = max(group.layers for group in groups)
    states = next((group.groups for group in groups if group.kind == "state"), 0)
    return Layout(
        block=block,
        page_bytes=page,
        block_bytes=page * largest,
        token_bytes=token * full,
        groups=groups,
        state_bytes=state,
        window=shape.window or 0,
        window_blocks=_window_blocks(shape, settings, block),
        state_blocks=states
        * (
            (STATE_BLOCKS if settings.prefix_caching else 1)
            + settings.speculative_tokens
            + _checkpoint(shape, settings)
        ),
    )


def _heads(shape: ModelShape, ranks: int) -> int:
    """Return the KV heads on each card: split, or the same on several cards when there are fewer than cards."""
    if shape.latent_dim is not None:
        return 1
    if shape.kv_heads > ranks and shape.kv_heads % ranks:
        raise UsageError(
            f"{shape.kv_heads} KV heads cannot be split over {ranks} cards",
            hint=f"engine.arguments.tensor_parallel_size: a divisor of {shape.kv_heads}",
        )
    return max(1, shape.kv_heads // ranks)


def _draft_layers(shape: ModelShape, settings: PoolSettings) -> int:
    """Return the layers that multi-token prediction adds; other drafters are another model's."""
    return shape.draft_layers if settings.speculative_method == "mtp" else 0


def model_dtype(shape: ModelShape, settings: PoolSettings) -> str:
    """Return the number format of the activations."""
    if settings.dtype != "auto":
        return settings.dtype
    return "bfloat16" if shape.dtype in {None, "float32"} else str(shape.dtype)


def _token_bytes(shape: ModelShape, settings: PoolSettings, heads: int) -> int:
    """Return the bytes of one token in one layer with attention."""
    own = _model_width(shape, settings)
    kind = settings.kv_dtype
    dim = shape.head_dim
    if shape.latent_dim is not None:
        if kind == "fp8_ds_mla":
            return 656
        return shape.latent_dim * (
            1 if kind.startswith("fp8") else own if kind == "auto" else _width(kind, KV_DTYPE)
        )
    if kind in {"int8_per_token_head", "fp8_per_token_head"}:
        return heads * (2 * dim + 2 * SCALE_BYTES)
    if kind == "int4_per_token_head":
        return heads * (2 * (dim // 2) + 2 * SCALE_BYTES)
    if kind.startswith("nvfp4"):
        return 2 * heads * (dim // 2 + dim // 16)
    if kind.startswith("fp8"):
        return 2 * heads * dim
    return 2 * heads * dim * (own if kind == "auto" else _width(kind, KV_DTYPE))


def _model_width(shape: ModelShape, settings: PoolSettings) -> int:
    """Return the bytes of one number of the activations."""
    said_by = "the model's dtype" if settings.dtype == "auto" else "engine.arguments.dtype"
    return _width(model_dtype(shape, settings), said_by)


def _width(dtype: str, said_by: str) -> int:
    try:
        return WIDTHS[dtype]
    except KeyError:
        raise UsageError(
            f"cannot reckon the KV pool: {said_by} {dtype!r} is a number format that rigd does not know",
            hint=f"it knows {', '.join(sorted(WIDTHS))}, and fp8, int8_per_token_head, nvfp4 for the cache",
        ) from None


# --- recurrent states ---


def _state_bytes(recurrent: Recurrent, shape: ModelShape, settings: PoolSettings) -> int:
    """Return the bytes of one layer's state on one card: the convolution's last inputs, and the recurrent state."""
    conv_width = _model_width(shape, settings)
    state = state_dtype(recurrent, settings)
    state_width = conv_width if state is None else _width(state, "engine.arguments.mamba_ssm_cache_dtype")
    rows = recurrent.kernel - 1 + settings.speculative_tokens
    if recurrent.kind is StateKind.GATED_DELTA_NET:
        keys = 2 * recurrent.key_heads * recurrent.key_dim
        channels = keys + recurrent.value_heads * recurrent.value_dim
    else:
        groups = recurrent.key_heads
        if groups % settings.ranks:
            groups = settings.ranks  # Each card needs every group that one of its heads belongs to.
        channels = recurrent.value_heads * recurrent.value_dim + 2 * groups * recurrent.key_dim
    if channels % settings.ranks or recurrent.value_heads % settings.ranks:
        raise UsageError(
            f"the {recurrent.value_heads} heads of the recurrent layers cannot be split over {settings.ranks} cards",
            hint=f"engine.arguments.tensor_parallel_size: a divisor of {recurrent.value_heads}",
        )
    heads = recurrent.value_heads // settings.ranks
    numbers = heads * recurrent.value_dim * recurrent.key_dim
    return channels // settings.ranks * rows * conv_width + numbers * state_width


def state_dtype(recurrent: Recurrent, settings: PoolSettings) -> str | None:
    """Return the number format of recurrent states; None: that of the activations."""
    wished = settings.state_dtype
    if wished == "auto" and recurrent.state_dtype is not None:
        wished = recurrent.state_dtype
    if settings.wide_cpu and (wished == "auto" or recurrent.kind is not StateKind.GATED_DELTA_NET):
        return FLOAT32
    return None if wished == "auto" else wished


def _block_for(state: int, token: int, shape: ModelShape, settings: PoolSettings) -> int:
    """Return the least block whose page of attention holds a recurrent state."""
    step = max(settings.block_step, settings.least_block, MLA_BLOCK if shape.latent_dim is not None else 0)
    block = step * math.ceil(state / (step * token))
    return settings.block_step * math.ceil(block / settings.block_step)


def _checkpoint(shape: ModelShape, settings: PoolSettings) -> int:
    """Return the further blocks that Mamba 2 keeps for a prompt's last reusable state."""
    mamba = shape.recurrent is not None and shape.recurrent.kind is StateKind.MAMBA2
    return 1 if mamba and settings.prefix_caching else 0


# --- groups ---


def _grouped(*, full: int, window: int, state: int) -> tuple[Group, ...]:
    """Return the groups: as many layers in each as the rarest kind has, so that blocks of all groups are alike."""
    kinds = {"full": full, "window": window, "state": state}
    counts = {kind: layers for kind, layers in kinds.items() if layers}
    fewest, most = min(counts.values()), max(counts.values())
    size = most if most < fewest * FEW else fewest
    found = []
    for kind, layers in counts.items():
        groups = math.ceil(layers / size)
        found.append(Group(kind=kind, layers=math.ceil(layers / groups), groups=groups))
    return tuple(found)


def _window_blocks(shape: ModelShape, settings: PoolSettings, block: int) -> int:
    """Return the most blocks of a request in one group of windows: the window, and what is in flight."""
    if shape.window is None:
        return 0
    in_flight = settings.overlapped_batches * settings.batched_tokens
    return math.ceil((shape.window - 1 + in_flight) / block) + 1
