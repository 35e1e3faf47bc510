"""The longest context and the most sequences that a pool holds, and why not more."""

from dataclasses import dataclass

from rigd.budget.blocks import Layout
from rigd.budget.pool import Pool


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A largest number, and what keeps it from being larger."""

    value: int
    because: str


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What fits at most."""

    context: Bound
    """Tokens of one request, prompt and answer, alone in the pool."""
    sequences: tuple[tuple[int, Bound], ...]
    """For each length in tokens: how many such requests at once."""


def fit(
    pool: Pool, *, lengths: tuple[int, ...], max_num_seqs: int | None, model_context: int, wished: int | None
) -> Fit:
    """Return what fits; `lengths` are those asked about, `wished` is max_model_len where it is set."""
    return Fit(
        context=_longest(pool, model_context=model_context, wished=wished),
        sequences=tuple((length, _most(pool, length, max_num_seqs)) for length in lengths),
    )


def longest_in(layout: Layout, blocks: int, most: int) -> int:
    """Return the most tokens that one request may have in so many blocks, 0 if not even one."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if layout.request_blocks(middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low


def _longest(pool: Pool, *, model_context: int, wished: int | None) -> Bound:
    held = longest_in(pool.layout, pool.usable_blocks, 2 * max(model_context, wished or 0, pool.tokens.value))
    if held < min(model_context, wished or model_context):
        return Bound(
            value=held,
            because=f"the pool has {pool.usable_blocks:,} usable blocks, and a token more needs one more",
        )
    if wished is not None and wished <= model_context:
        whose = (
            "max_model_len, which is the model's own limit" if wished == model_context else "max_model_len"
        )
        return Bound(value=wished, because=f"{whose}; the pool would hold {held:,}")
    return Bound(value=model_context, because=f"the model's own limit; the pool would hold {held:,}")


def _most(pool: Pool, length: int, max_num_seqs: int | None) -> Bound:
    each = pool.layout.request_blocks(length)
    held = pool.usable_blocks // each
    if max_num_seqs is not None and max_num_seqs < held:
        return Bound(value=max_num_seqs, because=f"max_num_seqs; the pool would hold {held:,}")
    state = pool.layout.state_blocks
    part = f", {state} of them recurrent state" if state else ""
    return Bound(value=held, because=f"each takes {each:,} of {pool.usable_blocks:,} usable blocks{part}")
