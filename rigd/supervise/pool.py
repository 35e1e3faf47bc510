"""The KV pool and the time of a fresh start against the baseline of the same settings. Pure.

smaller than 0.9 of the baseline -> one restart onto a clean machine (stored first, never a second one)
smaller after that, too          -> it serves, degraded, and says both numbers
small for a day                  -> that is the baseline now
whole again                      -> a later shrinking earns its restart again
"""

from dataclasses import dataclass, replace

from rigd.supervise import baselines
from rigd.supervise.baselines import SECOND, SLOW_START_S, PoolRestart, of_digest
from rigd.supervise.decision import Decision, Entry
from rigd.supervise.moves import Policy
from rigd.supervise.state import State, Status, Trouble
from rigd.supervise.trend_rules import Trend

LEAST_ANSWER = 32
"""Mean tokens of a request whose acceptance is taken for the baseline: canaries are always the same easy text."""
KIND = Trend.POOL.value
HINT = "rigd status names who holds the cards' memory; engine.arguments.kv_cache_memory_bytes fixes the pool"


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    """A pool that is smaller than it should be, in tokens."""

    tokens: int
    usual: int

    def __str__(self) -> str:
        """Return it in words, with both numbers."""
        share = self.tokens / self.usual
        return f"The KV pool is {self.tokens:,} tokens, {share:.0%} of the {self.usual:,} of an earlier start"


def shrunk(status: Status, policy: Policy) -> Shrunk | None:
    """Return how the pool of the present engine has shrunk, None where it has not or nothing is known."""
    limits, load = policy.supervision.trends, status.vitals.load
    if status.engine is None or load is None or load.pool_tokens is None or not limits.enabled:
        return None
    known = of_digest(status.baselines, status.engine.digest)
    if (
        known is None
        or known.pool_tokens is None
        or load.pool_tokens >= limits.pool_share * known.pool_tokens
    ):
        return None
    return Shrunk(tokens=load.pool_tokens, usual=known.pool_tokens)


def after_start(status: Status, policy: Policy, *, now_s: float) -> tuple[Status, str | None]:
    """Return the status of a fresh start with what its pool comes to, and why to start again, if it earns that."""
    engine = status.engine
    if engine is None or status.ready_s is not None:  # It served before this daemon came: too late to ask.
        return status, None
    found, spent = shrunk(status, policy), status.pool_restart
    ours = spent is not None and spent.digest == engine.digest
    if found is None:
        whole = ours and status.vitals.load is not None and status.vitals.load.pool_tokens is not None
        return (replace(status, pool_restart=None) if whole else status), None
    if not ours:
        earned = PoolRestart(digest=engine.digest, start=engine.start, pool_tokens=found.tokens, at_s=now_s)
        why = f"{found}: starting once more onto a clean machine."
        return replace(status, pool_restart=earned), why
    trouble = Trouble(
        kind=KIND,
        engine=engine.id,
        sentence=f"{found}, and a restart onto a clean machine did not help.",
        hint=HINT,
        since_s=now_s,
    )
    others = tuple(one for one in status.troubles if one.kind != Trend.POOL)
    return replace(status, troubles=(*others, trouble)), None


def accepted_pool(status: Status, policy: Policy, *, now_s: float) -> Status:
    """Return the status with a small pool taken for the baseline once it has served long enough."""
    limits, engine, load = policy.supervision.trends, status.engine, status.vitals.load
    lasting = next((one for one in status.troubles if one.kind == Trend.POOL), None)
    if lasting is None or engine is None or now_s - lasting.since_s < limits.pool_accept_s:
        return status
    known = of_digest(status.baselines, engine.digest)
    if known is None or load is None or load.pool_tokens is None:
        return status
    new = replace(known, pool_tokens=load.pool_tokens, start=engine.start)
    return replace(
        status,
        baselines=baselines.kept(status.baselines, new),
        pool_restart=None,
        troubles=tuple(one for one in status.troubles if one is not lasting),
    )


def learnt(status: Status, policy: Policy, *, now_s: float) -> Decision | None:
    """Return the decision that writes down what healthy settings come to, None where nothing is new."""
    engine, ready_s, rules = status.engine, status.ready_s, policy.supervision
    if engine is None or ready_s is None or status.state is not State.READY or status.troubles:
        return None
    if engine.digest != policy.digest or now_s - ready_s < rules.healthy_stretch_s:
        return None
    before = of_digest(status.baselines, engine.digest)
    new = before
    if new is None or new.start != engine.start:
        load = status.vitals.load
        if load is None:
            return None
        startup_s = None if status.launched_s is None else round(ready_s - status.launched_s, 1)
        new = baselines.after_healthy_start(
            before,
            digest=engine.digest,
            start=engine.start,
            startup_s=startup_s,
            pool_tokens=load.pool_tokens,
        )
    new = replace(
        new,
        tokens_per_s=new.tokens_per_s if new.tokens_per_s is not None else _tokens_per_s(status),
        acceptance=new.acceptance if new.acceptance is not None else _acceptance(status),
    )
    if new == before:
        return None
    after = replace(status, baselines=baselines.kept(status.baselines, new))
    if before is not None and replace(new, start=before.start) == before:
        return Decision(status=after)  # Another start came to the same: nothing to tell.
    entry = Entry(
        kind="baseline",
        message=f"these settings when healthy: {baselines.said(new)}",
        data=(
            ("digest", new.digest),
            ("start", new.start),
            ("startup_s", new.startup_s),
            ("pool_tokens", new.pool_tokens),
            ("tokens_per_s", new.tokens_per_s),
            ("acceptance", new.acceptance),
        ),
    )
    return Decision(status=after, entries=(entry,))


def _tokens_per_s(status: Status) -> float | None:
    gauge = status.vitals.track.gauge(Trend.SLOW)
    if gauge is None or gauge.block is None or gauge.closed < SECOND:
        return None
    return round(gauge.block.tokens_per_s, 1)


def _acceptance(status: Status) -> float | None:
    gauge = status.vitals.track.gauge(Trend.ACCEPTANCE)
    if gauge is None or gauge.block is None or gauge.closed < SECOND or gauge.poor:
        return None
    if gauge.block.generation_tokens < LEAST_ANSWER * gauge.block.successes:
        return None
    return round(gauge.block.acceptance, 3)


def slow_start(before: Status, after: Status, policy: Policy) -> tuple[Entry, ...]:
    """Return the journal's line about a start that took far longer than usual; none where it did not."""
    fresh = before.ready_s is None and after.ready_s is not None
    if not fresh or after.engine is None or after.launched_s is None or after.ready_s is None:
        return ()
    known = of_digest(after.baselines, after.engine.digest)
    usual_s = None if known is None else known.startup_s
    took_s, limits = after.ready_s - after.launched_s, policy.supervision.trends
    if usual_s is None or not limits.enabled:
        return ()
    if took_s < limits.start_factor * usual_s or took_s - usual_s < SLOW_START_S:
        return ()
    message = f"this start took {took_s:.0f} s; the quickest with these settings took {usual_s:.0f} s"
    return (Entry(kind="slow-start", message=message, data=(("took_s", took_s), ("usual_s", usual_s))),)
