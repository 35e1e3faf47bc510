"""The rig file's section about failures that only the numbers show: `supervision.trends`."""

from typing import Annotated

from pydantic import Field

from rigd.rig.model import Model, Seconds

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Trends(Model):
    """Failures that only the numbers show: when they count, and how long an answer waits."""

    enabled: bool = True
    """False: counters, speed and memory are shown and never judged."""
    acceptance_floor: Share = 0.05
    """Less than this share of the draft tokens accepted: speculation has collapsed (healthy MTP keeps half). A
    restart, then speculation off."""
    acceptance_share: Share = 0.3
    """Less than this share of the baseline's acceptance is told and not acted on: texts differ."""
    acceptance_draft_tokens: Count = 3000
    """Draft tokens that are judged at a time: half a minute of one stream."""
    undrafted_tokens: Count = 1000
    """Tokens generated without one draft, although speculation is configured: the drafter is missing."""
    preemptions_per_request: Annotated[float, Field(gt=0)] = 0.5
    """Preemptions for each finished request that are thrash; a few are healthy (one request in fourteen)."""
    preemptions: Count = 20
    """Fewer preemptions than this in `preemption_stretch_s` are never thrash."""
    preemption_stretch_s: Seconds = 300.0
    """How long preemptions are counted before they are judged."""
    rate_share: Share = 0.4
    """A request that is alone decodes slower than this share of the baseline's speed: told. Hard texts alone, with
    fewer drafts accepted, cost up to half."""
    rate_busy_s: Seconds = 60.0
    """Time of decoding alone that is judged at a time."""
    memory_interval_s: Seconds = 60.0
    """How often the memory of the engine's processes is read."""
    memory_stretch_s: Seconds = 7200.0
    """Time over which growth is fitted; a quarter of it is the least that is judged."""
    memory_least_gib: Annotated[float, Field(gt=0)] = 0.5
    """Growth within that time that is no noise any more."""
    memory_tell_s: Seconds = 172800.0
    """Growth that fills the box within this time is told: two days are time to act at leisure."""
    memory_restart_s: Seconds = 10800.0
    """Growth that fills the box within this time is answered by a restart, before the kernel kills the engine."""
    pool_share: Share = 0.9
    """A KV pool below this share of the same settings' baseline earns one restart onto a clean machine; 0: never."""
    pool_accept_s: Seconds = 86400.0
    """A smaller pool that has served for this long becomes the new baseline."""
    start_factor: Annotated[float, Field(ge=1)] = 2.0
    """A start that takes this many times the baseline's time is noted in the journal; caches may have been cold."""
    idle_wait_s: Seconds = 1800.0
    """How long an answer that restarts waits until nothing runs: answers are right, only slow."""
    again_s: Seconds = 86400.0
    """A trend that comes back within this time after its restart is answered by the next step instead."""
