"""What of a model decides how large its KV cache is."""

import enum
from dataclasses import dataclass


class StateKind(enum.StrEnum):
    """How a recurrent layer keeps its state."""

    GATED_DELTA_NET = "gated_delta_net"
    MAMBA2 = "mamba2"


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    """Layers whose state does not grow with the request: linear attention, Mamba."""

    kind: StateKind
    layers: int
    key_heads: int
    """Of Mamba 2: the groups that B and C have."""
    value_heads: int
    key_dim: int
    """Of Mamba 2: the size of the state."""
    value_dim: int
    kernel: int
    """Width of the short convolution before it."""
    state_dtype: str | None = None
    """Number format that the model asks for; None: it says nothing."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A model as the KV cache sees it, whole: not yet split over cards."""

    model_type: str
    dtype: str | None
    """Number format of weights and activations; None: the file says nothing."""
    max_context: int
    full_layers: int
    """Layers with attention over the whole context."""
    kv_heads: int
    head_dim: int
    latent_dim: int | None = None
    """Multi-head latent attention: numbers kept for each token and layer, on every card."""
    window_layers: int = 0
    """Layers with attention over the last `window` tokens only."""
    window: int | None = None
    recurrent: Recurrent | None = None
    draft_layers: int = 0
    """Layers with a KV cache of their own that the model brings for multi-token prediction."""
