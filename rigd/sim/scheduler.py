"""Which requests run in a step: continuous batching over the KV pool. No clock, no I/O."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rigd.sim.cache import BlockPool, Holding, block_keys


@dataclass(kw_only=True, eq=False)
class Request:
    """One prompt and the answer that the double will give, token by token."""

    id: str
    prompt: Sequence[int]
    answer: Sequence[int]
    reason: str
    """Why the answer ends: `stop` or `length`."""
    computed: int = 0
    """Tokens whose KV is in the pool."""
    produced: int = 0
    cached: int | None = None
    """Prompt tokens found in the cache at the first admission."""
    holding: Holding = field(default_factory=Holding)
    keys: list[int] = field(default_factory=list)
    preemptions: int = 0

    @property
    def length(self) -> int:
        """Tokens known so far."""
        return len(self.prompt) + self.produced

    @property
    def decoding(self) -> bool:
        """Whether only the newest token is left to compute."""
        return self.produced > 0 and self.computed == self.length - 1

    def token(self, index: int) -> int:
        """Return the token at `index` of prompt and answer together."""
        return self.prompt[index] if index < len(self.prompt) else self.answer[index - len(self.prompt)]


@dataclass(frozen=True, kw_only=True)
class Prefill:
    """A piece of one prompt to compute in this step."""

    request: Request
    start: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step computes."""

    prefills: tuple[Prefill, ...] = ()
    decodes: tuple[Request, ...] = ()
    preempted: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.prefills or self.decodes)


@dataclass(frozen=True, kw_only=True)
class Produced:
    """What one request got out of a step."""

    id: str
    tokens: int
    finished: str | None = None
    cached: int | None = None
    """Told with the first token: prompt tokens that came from the cache."""


@dataclass(kw_only=True)
class Tally:
    """Counters since the last look; the engine reports and clears them with every step."""

    queries: int = 0
    hits: int = 0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)


class Scheduler:
    """First come, first served; chunked prefill; the newest request is preempted when the pool is full."""

    def __init__(
        self, *, pool: BlockPool, block_size: int, max_num_seqs: int, max_num_batched_tokens: int, drafts: int
    ) -> None:
        self.pool = pool
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.tally = Tally(accepted_per_position=[0] * drafts)
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._drafts = drafts
        self.drafting = True
        """False: the drafter is missing; tokens come one a step, and nothing is counted."""

    @property
    def idle(self) -> bool:
        """Whether there is no request at all."""
        return not (self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request."""
        request.keys = list(block_keys(request.prompt, self._block_size))
        self.waiting.append(request)

    def abort(self, request_id: str) -> None:
        """Forget a request wherever it is."""
        for request in [one for one in self.running if one.id == request_id]:
            self.running.remove(request)
            self.pool.release(request.holding)
        self.waiting = deque(one for one in self.waiting if one.id != request_id)

    def push_out(self) -> None:
        """Preempt the newest request, as a full pool would; it is computed again from its beginning."""
        if self.running:
            self._preempt(self.running[-1])

    def plan(self) -> Step:
        """Choose what the next step computes, and give it its blocks."""
        budget = self._budget
        before = self.tally.preemptions
        prefills: list[Prefill] = []
        decodes: list[Request] = []
        for request in tuple(self.running):
            if request not in self.running:
                continue  # Preempted by an earlier one of this step.
            want = 1 + self._drafts if request.decoding else request.length - request.computed
            tokens = min(want, budget)
            if tokens <= 0 or not self._make_room(request, tokens):
                continue
            budget -= tokens
            if request.decoding:
                decodes.append(request)
            else:
                prefills.append(Prefill(request=request, start=request.computed, tokens=tokens))
        if self.tally.preemptions == before:
            prefills += self._admit(budget)
        return Step(
            prefills=tuple(one for one in prefills if one.request in self.running),
            decodes=tuple(one for one in decodes if one in self.running),
            preempted=self.tally.preemptions - before,
        )

    def commit(self, step: Step, accept: Callable[[], int]) -> tuple[Produced, ...]:
        """Book the step's results; `accept` says how many draft tokens a decode step keeps."""
        produced = [self._prefilled(one) for one in step.prefills]
        produced += [self._decoded(one, accept()) for one in step.decodes]
        return tuple(one for one in produced if one is not None)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_size)

    def _make_room(self, request: Request, tokens: int) -> bool:
        while not self.pool.grow(request.holding, self._blocks(request.computed + tokens)):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(request.holding)
        request.computed = 0
        request.preemptions += 1
        self.tally.preemptions += 1
        self.waiting.appendleft(request)

    def _admit(self, budget: int) -> list[Prefill]:
        admitted: list[Prefill] = []
        while self.waiting and budget > 0 and len(self.running) < self._max_num_seqs:
            request = self.waiting[0]
            hits = self._hits(request)
            start = hits * self._block_size
            tokens = min(request.length - start, budget)
            self.pool.take(request.holding, request.keys[:hits])
            if not self.pool.grow(request.holding, self._blocks(start + tokens)):
                self.pool.release(request.holding)
                break
            self.waiting.popleft()
            self.running.append(request)
            request.computed = start
            if request.cached is None:
                request.cached = start
                self.tally.queries += len(request.prompt)
                self.tally.hits += start
            budget -= tokens
            admitted.append(Prefill(request=request, start=start, tokens=tokens))
        return admitted

    def _hits(self, request: Request) -> int:
        """Return the blocks to take from the cache.

        The last token is always computed, so that there is something to sample from; with draft tokens one
        more block is given up, as the drafter needs the hidden states before them.
        """
        most = (request.length - 1) // self._block_size
        hits = min(self.pool.hit(request.keys), most)
        return max(0, hits - 1) if self._drafts else hits

    def _seal(self, request: Request) -> None:
        full = request.computed // self._block_size
        for block in range(len(request.keys), full):
            start = block * self._block_size
            tokens = [request.token(index) for index in range(start, start + self._block_size)]
            parent = request.keys[-1] if request.keys else 0
            request.keys += block_keys(tokens, self._block_size, parent=parent)
        self.pool.seal(request.holding, request.keys[len(request.holding.keys) : full])

    def _prefilled(self, piece: Prefill) -> Produced | None:
        request = piece.request
        request.computed = piece.start + piece.tokens
        if request.computed < request.length:
            self._seal(request)
            return None
        return self._give(request, 1)

    def _decoded(self, request: Request, accepted: int) -> Produced:
        if self._drafts and self.drafting:
            self.tally.drafts += 1
            self.tally.draft_tokens += self._drafts
            for position in range(accepted):
                self.tally.accepted_per_position[position] += 1
        tokens = min(1 + accepted, len(request.answer) - request.produced)
        request.computed += tokens
        return self._give(request, tokens)

    def _give(self, request: Request, tokens: int) -> Produced:
        first = request.produced == 0
        request.produced += tokens
        self._seal(request)
        finished = request.reason if request.produced >= len(request.answer) else None
        if finished is not None:
            self.running.remove(request)
            self.pool.release(request.holding)
        return Produced(
            id=request.id, tokens=tokens, finished=finished, cached=request.cached if first else None
        )
