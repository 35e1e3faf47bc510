"""The one owner of `Status`: observe, decide, persist, act. Everybody else sends an observation and waits.

No lock is needed and no check-then-act is possible: requests are observations like any other, and their answers
come from the decision that took them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from rigd import log
from rigd.runtime.base import EngineRef
from rigd.supervise.decide import decide
from rigd.supervise.decision import (
    Action,
    Decision,
    Entry,
    Reply,
    UseKnownGood,
    UseOverlay,
    UseRules,
    UseSpecification,
)
from rigd.supervise.health import Vitals
from rigd.supervise.moves import Policy
from rigd.supervise.observations import Observation, Request, RequestKind
from rigd.supervise.overlay import KnobStep
from rigd.supervise.state import State, Status

LEAST_PAUSE_S = 0.02
TICK_S = 0.5
"""Longest pause between two decisions, in seconds: deadlines are noticed this late at most."""
QUEUE_LIMIT = 1000
"""Observations that may wait; a full queue drops probe results first, never a job's end or an exit."""
AGAIN_S = TICK_S
"""Pause before an exit or a job's end whose decision failed is decided once more, in seconds."""
REPLY_DEADLINE_S = 900.0
"""Longest wait for the answer to a request, in seconds (a parser check may take minutes)."""


class Effects(Protocol):
    """What the loop may do to the world. `begin` and `attend` return at once; results come as observations."""

    def begin(self, action: Action) -> None:
        """Begin to carry out an action."""
        ...

    def attend(self, status: Status) -> None:
        """Watch and probe the engine of `status`, and nothing else."""
        ...

    async def persist(self, status: Status, entries: tuple[Entry, ...]) -> None:
        """Store the status and append to the journal, before anything is acted on. Never raises."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy that belongs to the specification in use."""
        ...


class Supervisor:
    """Decides one observation at a time and applies the decision."""

    def __init__(
        self,
        policy: Policy,
        effects: Effects,
        *,
        now: Callable[[], float],
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.policy = policy
        self.status = Status()
        self.beat_s = now()
        """When the loop last went round; the watchdog and the API look at it."""
        self._effects = effects
        self._now = now
        self._jitter = jitter
        self._queue: asyncio.Queue[_News] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._requests = 0
        self._changed = asyncio.Event()
        self._log = log.get("supervisor")

    def observe(self, observation: Observation) -> None:
        """Hand in what was learnt. Call it from the event loop's own thread."""
        probe = any((observation.sample, observation.canary, observation.gpu_free_mib is not None))
        if probe and self._queue.qsize() >= QUEUE_LIMIT:
            return
        self._queue.put_nowait(_News(observation=observation))

    async def request(
        self,
        kind: RequestKind,
        *,
        digest: str | None = None,
        found: tuple[EngineRef, ...] = (),
        step: KnobStep | None = None,
        sections: tuple[str, ...] = (),
        why: str = "asked",
    ) -> Reply:
        """Ask for something and return the answer that the deciding loop gives."""
        if self._queue.qsize() >= QUEUE_LIMIT:
            return Reply(request=0, ok=False, message="too many requests are waiting", hint="rigd status")
        self._requests += 1
        number = self._requests
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request = Request(
            id=number, kind=kind, digest=digest, found=found, step=step, sections=sections, why=why
        )
        self.observe(Observation(request=request))
        try:
            async with asyncio.timeout(REPLY_DEADLINE_S):
                return await future
        except TimeoutError:
            return Reply(request=number, ok=False, message="no answer in time", hint="rigd events")
        finally:
            self._waiting.pop(number, None)

    async def wait(self, states: frozenset[State], timeout_s: float) -> bool:
        """Return True once the state is one of `states`, False when `timeout_s` is over first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.status.state not in states:
                    await self._changed.wait()
        return self.status.state in states

    async def run(self, first: Decision) -> None:
        """Apply the first decision, then decide for ever; end by cancellation."""
        await self._apply(first)
        while True:
            news = _News(observation=Observation())
            # Not `wait_for`: until Python 3.12 it loses a cancellation that comes together with its result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    news = await self._queue.get()
            self.beat_s = self._now()
            await self._apply(self._decide(news))

    def _pause_s(self) -> float:
        """Return how long to wait for news: until the next try is due, where one is, and a tick at most."""
        due_s = self.status.retry_s
        if due_s is None or self.status.state not in {State.BACKOFF, State.STOPPING}:
            return TICK_S
        return min(TICK_S, max(LEAST_PAUSE_S, due_s - self._now()))

    def _decide(self, news: "_News") -> Decision:
        observation = news.observation
        try:
            return decide(self.status, observation, self.policy, now_s=self.beat_s, jitter=self._jitter())
        except Exception as error:  # noqa: BLE001  (nothing may end the loop)
            # A bug in a decision must not leave the box unattended: the status stays, the next look decides.
            self._log.exception("decision failed", observation=str(observation)[:500], again=news.again)
            text = f"a decision failed: {type(error).__name__}: {error}"
            if observation.told_once:
                text = f"{text}; {self._keep(news)}"
            request = observation.request
            reply = () if request is None else (Reply(request=request.id, ok=False, message=text),)
            return Decision(
                status=self.status, entries=(Entry(kind="internal-error", message=text),), replies=reply
            )

    def _keep(self, news: "_News") -> str:
        """Have news that nobody tells a second time decided once more, a little later; return what comes of it."""
        if news.again:
            return "what was seen is dropped, and the probes and deadlines have to find it"
        again = replace(news, again=True)
        asyncio.get_running_loop().call_later(AGAIN_S, self._queue.put_nowait, again)
        return "what was seen is decided once more"

    async def _apply(self, decision: Decision) -> None:
        before = _kept(self.status)
        self.status = decision.status
        if decision.entries or _kept(decision.status) != before:
            await self._effects.persist(decision.status, decision.entries)
        for entry in decision.entries:
            self._log.info(entry.message, event_kind=entry.kind, **dict(entry.data))
        for action in decision.actions:
            self._begin(action)
        self._attend()
        for reply in decision.replies:
            future = self._waiting.get(reply.request)
            if future is not None and not future.done():
                future.set_result(reply)
        if decision.entries or decision.replies or _kept(decision.status) != before:
            self._changed.set()
            self._changed = asyncio.Event()

    def _begin(self, action: Action) -> None:
        try:
            self._effects.begin(action)
            if isinstance(action, UseSpecification | UseOverlay | UseKnownGood | UseRules):
                self.policy = self._effects.policy
        except Exception:  # noqa: BLE001  (nothing may end the loop)
            # The job's deadline in `overdue` takes it from here: the loop itself must go on.
            self._log.exception("an action could not be begun", action=type(action).__name__)

    def _attend(self) -> None:
        try:
            self._effects.attend(self.status)
        except Exception:  # noqa: BLE001  (nothing may end the loop)
            self._log.exception("the engine cannot be attended to", state=str(self.status.state))


@dataclass(frozen=True, kw_only=True)
class _News:
    """An observation that waits for its decision."""

    observation: Observation
    again: bool = False
    """Whether a decision about it has failed before."""


def _kept(status: Status) -> Status:
    """Return what of a status is worth storing: vitals are measured afresh by each daemon."""
    return replace(status, vitals=Vitals())
