"""How long things take: a small model whose constants come from what two real rigs published.

Prefill of one token at depth d costs `prefill_s + prefill_depth_s * d`: the weights, and attention over what
is before it. A decode step of a batch costs `step_s * (1 + step_share * (batch - 1))`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

ACCEPTANCE = 0.52
"""Share of draft tokens that rig B's engine kept."""


@dataclass(frozen=True, kw_only=True)
class Startup:
    """Seconds of each phase between the process and `/health`."""

    init_s: float
    weights_s: float
    compile_s: float
    profile_s: float
    capture_s: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One machine with one model."""

    name: str
    prefill_s: float
    prefill_depth_s: float
    step_s: float
    step_share: float
    overhead_s: float
    """Fixed cost of a step: scheduling, sampling, the way to the client."""
    first_request_s: float
    """What the very first request costs more (kernels compiled on use)."""
    pool_tokens: int
    bytes_per_token: float
    """KV bytes of one token on each card."""
    startup: Startup
    acceptance: float = ACCEPTANCE

    def faster(self, speed: float) -> "Profile":
        """Return the same machine, `speed` times as fast in everything."""
        start = self.startup
        return replace(
            self,
            prefill_s=self.prefill_s / speed,
            prefill_depth_s=self.prefill_depth_s / speed,
            step_s=self.step_s / speed,
            overhead_s=self.overhead_s / speed,
            first_request_s=self.first_request_s / speed,
            startup=Startup(
                init_s=start.init_s / speed,
                weights_s=start.weights_s / speed,
                compile_s=start.compile_s / speed,
                profile_s=start.profile_s / speed,
                capture_s=start.capture_s / speed,
            ),
        )


# Rig B: 130K tokens cold take 140 s; with 96.8 % of them cached 6.5 s. Two equations, two unknowns: a token
# costs 0.575 ms, and 7.72 ns more for each token before it. One session decodes 85 tok/s (80 to 90) with 2.56
# tokens a step (3 drafts, 52 % kept), and two share it evenly (42 each): a step costs twice as much for two.
RIG_B = Profile(
    name="rig-b",
    prefill_s=5.75e-4,
    prefill_depth_s=7.72e-9,
    step_s=0.0296,
    step_share=1.0,
    overhead_s=0.0005,
    first_request_s=2.0,
    pool_tokens=732_000,
    bytes_per_token=13_388_056_064 / 732_000,
    startup=Startup(init_s=9.0, weights_s=26.0, compile_s=32.0, profile_s=8.0, capture_s=14.0),
)

# Rig A: its engine log shows more than 1,000 tok/s of prefill and 113 tok/s of generation with up to four
# requests in the batch; the runs' own arithmetic gives about 45 tok/s to a request that is alone.
RIG_A = Profile(
    name="rig-a",
    prefill_s=7.0e-4,
    prefill_depth_s=7.72e-9,
    step_s=0.0564,
    step_share=0.198,
    overhead_s=0.0005,
    first_request_s=2.0,
    pool_tokens=691_176,
    bytes_per_token=13_388_056_064 / 732_000,
    startup=Startup(init_s=11.0, weights_s=38.0, compile_s=41.0, profile_s=9.0, capture_s=17.0),
)

FAST = Profile(
    name="fast",
    prefill_s=2.0e-6,
    prefill_depth_s=0.0,
    step_s=0.001,
    step_share=0.1,
    overhead_s=0.0,
    first_request_s=0.0,
    pool_tokens=262_144,
    bytes_per_token=18_290.0,
    startup=Startup(init_s=0.05, weights_s=0.15, compile_s=0.1, profile_s=0.05, capture_s=0.05),
)

PROFILES = {profile.name: profile for profile in (FAST, RIG_A, RIG_B)}


def prefill_s(profile: Profile, start: int, tokens: int) -> float:
    """Return the seconds to compute `tokens` prompt tokens after `start` others."""
    return profile.prefill_s * tokens + profile.prefill_depth_s * tokens * (start + tokens / 2)


def decode_s(profile: Profile, batch: int) -> float:
    """Return the seconds of one decode step for `batch` requests."""
    return profile.step_s * (1 + profile.step_share * (batch - 1)) if batch else 0.0


def step_s(profile: Profile, prefills: Iterable[tuple[int, int]], decodes: int) -> float:
    """Return the seconds of one step: pieces of prompts (start, tokens), and requests that decode."""
    prefill = math.fsum(prefill_s(profile, start, tokens) for start, tokens in prefills)
    return profile.overhead_s + prefill + decode_s(profile, decodes)


def keep_probability(acceptance: float, drafts: int) -> float:
    """Return the chance to keep a draft token after a kept one, so that the mean is `acceptance`."""
    if drafts == 0 or acceptance <= 0:
        return 0.0
    if acceptance >= 1:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-6:  # noqa: PLR2004  (finer than any figure published)
        middle = (low + high) / 2
        mean = math.fsum(middle**position for position in range(1, drafts + 1)) / drafts
        low, high = (middle, high) if mean < acceptance else (low, middle)
    return low
