"""Bytes of a card's KV pool where only a share of the card is given: the card, less weights, less the rest."""

import math
import re

from rigd.budget.figure import Figure, Source
from rigd.budget.settings import GIB, PoolSettings
from rigd.errors import UsageError
from rigd.rig.sizes import parse_size

MIB = 2**20
ASSUMED_ACTIVATION = Figure(
    value=round(1.6 * GIB),
    source=Source.ASSUMED,
    note="activations and CUDA context of a model of some 30B on two cards: 1.6 GiB, give or take 0.8",
    error=round(0.8 * GIB),
)
CARD_ERROR = 128 * MIB
CARDS: dict[str, float] = {
    "rtx 3090": 23.6,
    "rtx 3090 ti": 23.6,
    "rtx 4090": 23.6,
    "rtx 5090": 31.4,
    "rtx a6000": 47.5,
    "l4": 22.0,
    "l40s": 44.4,
    "a100 40gb": 39.4,
    "a100 80gb": 79.2,
    "h100 80gb": 79.1,
}
"""GiB that CUDA reports as a card's whole memory; drivers differ by a tenth. Other cards are given in GiB."""
_NOISE = re.compile(r"\b(nvidia|geforce|gpu|pcie|sxm4?|hbm3)\b|[-_]")


def card_memory(card: str) -> Figure:
    """Return the memory of a card that is given by name or in GiB. Raises `UsageError`."""
    name = " ".join(_NOISE.sub(" ", card.lower()).split())
    gib = CARDS.get(name) or CARDS.get(f"rtx {name}")
    if gib is not None:
        note = f"{card}, as CUDA sees it"
        return Figure(value=round(gib * GIB), source=Source.STATED, note=note, error=CARD_ERROR)
    # A plain number is GiB here: nobody counts cards in bytes.
    plain = card.strip().replace(".", "", 1).isdigit()
    try:
        return Figure(value=parse_size(f"{card}gib" if plain else card), source=Source.STATED, note=card)
    except ValueError:
        raise UsageError(
            f"cannot tell the memory of the card {card!r}",
            hint=f"give it in GiB, for example --card 23.6, or as one of: {', '.join(sorted(CARDS))}",
        ) from None


def pool_memory(settings: PoolSettings, *, card: Figure, weights: Figure, activation: Figure) -> Figure:
    """Return what vLLM leaves for the pool of each card. Raises `UsageError` when nothing is left."""
    left = math.floor(card.value * settings.utilization) - weights.value - activation.value
    if left <= 0:
        raise UsageError(
            f"no memory is left for the KV pool: {card.value / GIB:.1f} GiB x {settings.utilization:g} less "
            f"{weights.value / GIB:.1f} GiB of weights and {activation.value / GIB:.1f} GiB of activations",
            hint="more cards (tensor_parallel_size), smaller weights, or a higher gpu_memory_utilization",
        )
    known = {Source.STATED, Source.READ}
    kinds = {card.source, weights.source, activation.source}
    return Figure(
        value=left,
        source=Source.COMPUTED if kinds <= known else Source.ASSUMED,
        note=f"{card.value / GIB:.2f} GiB x {settings.utilization:g} - weights {weights.value / GIB:.2f} "
        f"- activations {activation.value / GIB:.2f}",
        error=card.error + weights.error + activation.error,
    )
