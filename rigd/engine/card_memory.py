"""How much of a card an engine may ask for. Pure."""

MARGIN_GIB = 0.3
"""What the engine's own context takes before vLLM looks at what is free."""


def utilization_that_fits(free_gib: float, total_gib: float) -> float | None:
    """Return the share of a card that is free, less a margin, in hundredths rounded down; None: there is none."""
    if total_gib <= 0:
        return None
    share = int((free_gib - MARGIN_GIB) / total_gib * 100) / 100
    return share if share > 0 else None
