"""The KV pool: blocks that requests hold, and full ones that stay to be hit until somebody needs the room."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


def block_keys(tokens: Sequence[int], block_size: int, *, parent: int = 0) -> Iterator[int]:
    """Yield one key for each full block; a key stands for the block and everything before it."""
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = hash((parent, tuple(tokens[end - block_size : end])))
        yield parent


@dataclass(kw_only=True)
class Holding:
    """The blocks that one request holds: full ones by key, in order, and room that is not full yet."""

    keys: list[int] = field(default_factory=list)
    private: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks there are in all."""
        return len(self.keys) + self.private


class BlockPool:
    """A pool of `total` blocks with prefix hits and least-recently-used eviction.

    `sightings` is how often a block must have been computed before it can be hit: 1, or 2 for hybrid models,
    whose state snapshots appear with the second request, so that the third one hits.
    """

    def __init__(self, *, total: int, caching: bool = True, sightings: int = 1) -> None:
        self.total = total
        self._caching = caching
        self._sightings = sightings
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._seen: dict[int, int] = {}
        self._private = 0

    @property
    def used(self) -> int:
        """Blocks that requests hold now."""
        return len(self._held) + self._private

    @property
    def usage(self) -> float:
        """Share of the pool that requests hold now, 0 to 1."""
        return self.used / self.total if self.total else 0.0

    def hit(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` can be taken from the cache."""
        if not self._caching:
            return 0
        count = 0
        for key in keys:
            if not (key in self._held or key in self._idle) or self._seen.get(key, 0) < self._sightings:
                break
            count += 1
        return count

    def take(self, holding: Holding, keys: Sequence[int]) -> None:
        """Give cached blocks to a request."""
        for key in keys:
            self._idle.pop(key, None)
            self._held[key] = self._held.get(key, 0) + 1
            holding.keys.append(key)

    def grow(self, holding: Holding, blocks: int) -> bool:
        """Let a request hold `blocks` blocks in all, evicting idle ones; False when there is no room."""
        need = blocks - holding.blocks
        if need <= 0:
            return True
        if self.total - self.used < need:
            return False
        while self.total - self.used - len(self._idle) < need:
            key, _ = self._idle.popitem(last=False)
            self._seen.pop(key, None)
        holding.private += need
        self._private += need
        return True

    def seal(self, holding: Holding, keys: Sequence[int]) -> None:
        """Mark the request's next blocks as full, under their keys, so that others can hit them."""
        for key in keys:
            holding.private -= 1
            self._private -= 1
            self._idle.pop(key, None)
            self._held[key] = self._held.get(key, 0) + 1
            self._seen[key] = self._seen.get(key, 0) + 1
            holding.keys.append(key)

    def release(self, holding: Holding) -> None:
        """Take all blocks back; full ones stay to be hit, the last of a prompt going first."""
        self._private -= holding.private
        for key in reversed(holding.keys):
            self._held[key] -= 1
            if self._held[key]:
                continue
            del self._held[key]
            if self._caching:
                self._idle[key] = None
            else:
                self._seen.pop(key, None)
        holding.keys.clear()
        holding.private = 0
