"""The KV pool in blocks and tokens, as vLLM's line `KV cache size` counts them."""

from dataclasses import dataclass

from rigd.budget.blocks import Layout
from rigd.budget.figure import Figure, Source


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool of equal blocks on each card."""

    memory: Figure
    """Bytes on each card."""
    layout: Layout
    blocks: int
    """All blocks; one of them stays empty for ever."""
    context: int
    """Longest context, which the engine counts its tokens by."""
    tokens: Figure
    """The engine's own count: requests of the longest context that fit, times that context."""

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can have."""
        return max(self.blocks - 1, 0)

    @property
    def concurrency(self) -> float:
        """Requests of the longest context that fit, as the engine's line says it."""
        return self.blocks / self.layout.request_blocks(self.context)


def make_pool(layout: Layout, memory: Figure, context: int) -> Pool:
    """Return the pool that this memory of each card makes."""
    blocks = memory.value // layout.block_bytes
    tokens = count_tokens(layout, blocks, context)
    low = count_tokens(layout, max(memory.value - memory.error, 0) // layout.block_bytes, context)
    return Pool(
        memory=memory,
        layout=layout,
        blocks=blocks,
        context=context,
        tokens=Figure(
            value=tokens,
            source=Source.COMPUTED,
            note=f"{blocks:,} blocks of {layout.block:,} tokens, {layout.request_blocks(context):,} of them "
            f"for a request of {context:,}",
            error=tokens - low,
        ),
    )


def count_tokens(layout: Layout, blocks: int, context: int) -> int:
    """Return the tokens of so many blocks. Floating point on purpose: the engine's own rounding is kept."""
    return int(blocks / layout.request_blocks(context) * context)


def blocks_near(layout: Layout, tokens: int, context: int) -> int:
    """Return the number of blocks whose tokens come nearest to these."""
    guess = round(tokens * layout.request_blocks(context) / context)
    near = range(max(guess - 1, 0), guess + 2)
    return min(near, key=lambda blocks: abs(count_tokens(layout, blocks, context) - tokens))
