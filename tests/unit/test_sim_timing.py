"""The double's clock against what the two rigs published, within 10 %. Time is added up, not waited for."""

import random
from dataclasses import dataclass, field

import pytest

from rigd.sim.cache import BlockPool
from rigd.sim.scheduler import Request, Scheduler
from rigd.sim.timing import ACCEPTANCE, PROFILES, Profile, keep_probability, step_s

BLOCK = 16
DRAFTS = 3
PROMPT = 130_000
HIT_RATE = 0.968


@dataclass(kw_only=True)
class VirtualEngine:
    """The scheduler and the timing model with a clock that only counts."""

    profile: Profile
    now_s: float = 0.0
    first_s: dict[str, float] = field(default_factory=dict)
    tokens: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            pool=BlockPool(total=self.profile.pool_tokens // BLOCK),
            block_size=BLOCK,
            max_num_seqs=8,
            max_num_batched_tokens=4096,
            drafts=DRAFTS,
        )
        self._random = random.Random(1)  # noqa: S311  (the same run twice, not a secret)
        self._keep = keep_probability(self.profile.acceptance, DRAFTS)

    def add(self, name: str, prompt: list[int], answer: int) -> None:
        self.scheduler.add(Request(id=name, prompt=prompt, answer=[7] * answer, reason="length"))

    def run(self) -> None:
        while not self.scheduler.idle:
            step = self.scheduler.plan()
            pieces = [(one.start, one.tokens) for one in step.prefills]
            self.now_s += step_s(self.profile, pieces, len(step.decodes))
            for produced in self.scheduler.commit(step, self._accept):
                self.tokens += produced.tokens
                self.first_s.setdefault(produced.id, self.now_s)

    def _accept(self) -> int:
        kept = 0
        while kept < DRAFTS and self._random.random() < self._keep:
            kept += 1
        return kept


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(index * 7 + seed) % 50_000 for index in range(length)]


def decode_rate(profile: Profile, sessions: int, answer: int = 2000) -> float:
    """Return tokens a second in all, prefill not counted."""
    engine = VirtualEngine(profile=profile)
    for session in range(sessions):
        engine.add(str(session), prompt(64, session * 1000), answer)
    engine.run()
    return engine.tokens / (engine.now_s - max(engine.first_s.values()))


def test_rig_b_cold_prompt_takes_140_s_to_its_first_token():
    engine = VirtualEngine(profile=PROFILES["rig-b"])
    engine.add("cold", prompt(PROMPT), 1)
    engine.run()

    assert engine.first_s["cold"] == pytest.approx(140, rel=0.1)


def test_rig_b_turn_with_96_8_percent_cached_takes_6_5_s():
    engine = VirtualEngine(profile=PROFILES["rig-b"])
    shared = prompt(int(PROMPT * HIT_RATE))
    engine.add("cold", [*shared, *prompt(PROMPT - len(shared), 11)], 1)
    engine.run()
    began_s = engine.now_s
    engine.add("warm", [*shared, *prompt(PROMPT - len(shared), 13)], 1)
    engine.run()

    assert engine.first_s["warm"] - began_s == pytest.approx(6.5, rel=0.1)


def test_rig_b_one_session_decodes_80_to_90_tokens_a_second():
    assert decode_rate(PROFILES["rig-b"], 1) == pytest.approx(85, rel=0.1)


def test_rig_b_two_sessions_get_42_tokens_a_second_each():
    assert decode_rate(PROFILES["rig-b"], 2) / 2 == pytest.approx(42, rel=0.1)


def test_rig_a_four_requests_decode_113_tokens_a_second_in_all():
    assert decode_rate(PROFILES["rig-a"], 4) == pytest.approx(113, rel=0.1)


def test_rig_a_prefills_more_than_1000_tokens_a_second():
    engine = VirtualEngine(profile=PROFILES["rig-a"])
    engine.add("cold", prompt(40_000), 1)
    engine.run()

    assert 40_000 / engine.now_s > 1000


@pytest.mark.parametrize(("name", "tokens"), [("rig-a", 691_176), ("rig-b", 732_000)])
def test_pools_are_the_published_ones(name, tokens):
    assert PROFILES[name].pool_tokens == tokens


def test_acceptance_is_the_mean_over_all_draft_tokens():
    keep = keep_probability(ACCEPTANCE, DRAFTS)
    mean = sum(keep**position for position in range(1, DRAFTS + 1)) / DRAFTS

    assert mean == pytest.approx(ACCEPTANCE, abs=0.001)


@pytest.mark.parametrize(("acceptance", "drafts", "keep"), [(0.0, 3, 0.0), (1.0, 3, 1.0), (0.5, 0, 0.0)])
def test_acceptance_at_its_ends(acceptance, drafts, keep):
    assert keep_probability(acceptance, drafts) == keep


def test_speed_divides_every_time_and_nothing_else():
    fast = PROFILES["rig-b"].faster(10)

    assert fast.step_s == pytest.approx(PROFILES["rig-b"].step_s / 10)
    assert fast.startup.weights_s == pytest.approx(PROFILES["rig-b"].startup.weights_s / 10)
    assert fast.pool_tokens == PROFILES["rig-b"].pool_tokens
