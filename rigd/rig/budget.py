"""What `rigd budget` reckons with, beside the engine's own settings. The engine reads none of it."""

from typing import Annotated

from pydantic import AfterValidator, Field

from rigd.rig.model import Model
from rigd.rig.sizes import parse_size


def _checked_size(size: int | str) -> int | str:
    parse_size(size)
    return size


Size = Annotated[int | str, AfterValidator(_checked_size)]


class Budget(Model):
    """What the KV pool is reckoned from, where the engine's settings do not say it."""

    config: str | None = None
    """Path of the model's config.json or its folder, from the rig file's folder; left out, it is looked for where the
    engine finds the model: its folder, the mounts, the Hugging Face cache."""
    pool_tokens: Annotated[int, Field(ge=1)] | None = None
    """KV pool in tokens, as the engine once said it; goes before what is computed, and behind what a running engine
    says."""
    hit_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of prompt tokens that are expected in the prefix cache; none: the expected case is not reckoned."""
    card: str | None = None
    """Memory of each card, for a pool that is a share of it: a name such as `RTX 3090`, or GiB as CUDA tells them."""
    weights: Size | None = None
    """Weights on each card, for such a pool; read from the model's files if left out and they are there."""
    activation: Size | None = None
    """What else each card needs, for such a pool: activations, CUDA's context. Left out: 1.6 GiB, give or take 0.8; a
    log of one start tells it exactly (`rigd budget RIG --log FILE`)."""
