"""Counters become blocks of work; each rule judges its own, and an idle engine is never judged."""

import pytest

from rigd.rig.schema import Speculative
from rigd.rig.trends import Trends
from rigd.supervise.baselines import Baseline
from rigd.supervise.load import Load
from rigd.supervise.trend_rules import RULES, Standard, Trend
from rigd.supervise.trend_track import Track, after_load

MTP = Speculative(method="mtp", num_speculative_tokens=3)
HEALTHY = Baseline(digest="d1", start=1, tokens_per_s=85.0, acceptance=0.52)
STANDARD = Standard(limits=Trends(), speculative=MTP, baseline=HEALTHY)
PAUSE_S = 10.0
EVERY_S = 2.0


class Engine:
    """Counters that go on from look to look."""

    def __init__(self, standard=STANDARD):
        self.standard = standard
        self.track = Track()
        self.at_s = 0.0
        self.counters = dict.fromkeys(
            (
                "generation_tokens",
                "prompt_tokens",
                "prefix_queries",
                "drafts",
                "draft_tokens",
                "accepted_tokens",
                "preemptions",
                "successes",
            ),
            0.0,
        )
        self.look()

    def look(self, *, running=0, waiting=0, every_s=EVERY_S, **more):
        for name, value in more.items():
            self.counters[name] += value
        self.at_s += every_s
        load = Load(running=running, waiting=waiting, progress=(self.at_s,), **self.counters)
        self.track = after_load(self.track, load, self.standard, at_s=self.at_s, pause_s=PAUSE_S)

    def decode(self, seconds, *, tokens_per_s=85.0, acceptance=0.52, drafts=True, running=1):
        """Decode for a while, as an engine with three drafts a step does."""
        for _ in range(int(seconds / EVERY_S)):
            tokens = tokens_per_s * EVERY_S
            steps = tokens / (1 + 3 * acceptance) if drafts else 0.0
            self.look(
                running=running,
                generation_tokens=tokens,
                drafts=steps,
                draft_tokens=3 * steps,
                accepted_tokens=3 * steps * acceptance,
            )

    def gauge(self, trend):
        return self.track.gauge(trend)


@pytest.mark.parametrize(
    ("acceptance", "poor", "grave"),
    [
        pytest.param(0.52, False, False, id="healthy"),
        pytest.param(0.2, False, False, id="a-hard-text"),
        pytest.param(0.1, True, False, id="far-under-the-baseline"),
        pytest.param(0.01, True, True, id="collapsed"),
    ],
)
def test_acceptance_is_judged_over_enough_drafts(acceptance, poor, grave):
    engine = Engine()
    engine.decode(120, acceptance=acceptance)
    gauge = engine.gauge(Trend.ACCEPTANCE)

    assert gauge.closed >= 2
    assert (gauge.poor == gauge.closed, gauge.grave == gauge.closed) == (poor, grave)


def test_few_drafts_are_not_judged():
    engine = Engine()
    engine.decode(10, acceptance=0.0)

    assert engine.gauge(Trend.ACCEPTANCE).closed == 0


def test_without_a_baseline_only_the_floor_counts():
    engine = Engine(Standard(limits=Trends(), speculative=MTP))
    engine.decode(120, acceptance=0.1)

    assert engine.gauge(Trend.ACCEPTANCE).poor == 0


@pytest.mark.parametrize(
    ("speculative", "missing"),
    [
        pytest.param(MTP, True, id="mtp"),
        pytest.param(None, False, id="no-speculation"),
        pytest.param(Speculative(method="ngram", num_speculative_tokens=3), False, id="drafts-at-times"),
    ],
)
def test_tokens_without_a_draft_show_a_missing_drafter(speculative, missing):
    engine = Engine(Standard(limits=Trends(), speculative=speculative))
    engine.decode(60, drafts=False)

    assert (engine.gauge(Trend.NO_DRAFTS).poor > 0) is missing


def test_answers_of_one_token_need_no_draft():
    engine = Engine()
    for _ in range(200):
        engine.look(running=1, generation_tokens=20, successes=20)

    assert engine.gauge(Trend.NO_DRAFTS).closed == 0


def test_drafter_that_looks_for_seen_text_is_told_of_and_never_acted_on():
    ngram = Speculative(method="ngram", num_speculative_tokens=3)
    engine = Engine(Standard(limits=Trends(), speculative=ngram))
    engine.decode(120, acceptance=0.0)

    assert (engine.gauge(Trend.ACCEPTANCE).poor > 0, engine.gauge(Trend.ACCEPTANCE).grave) == (True, 0)


@pytest.mark.parametrize(
    ("preemptions", "successes", "grave"),
    [
        pytest.param(1.0, 1.0, True, id="thrash"),
        pytest.param(0.07, 1.0, False, id="one-in-fourteen"),
        pytest.param(0.5, 0.0, True, id="nothing-ends"),
        pytest.param(0.0, 1.0, False, id="none"),
    ],
)
def test_preemptions_are_thrash_when_many_for_each_request(preemptions, successes, grave):
    engine = Engine()
    for _ in range(200):
        engine.look(running=4, preemptions=preemptions, successes=successes, generation_tokens=10)

    assert (engine.gauge(Trend.PREEMPTIONS).grave > 0) is grave


@pytest.mark.parametrize(("tokens_per_s", "slow"), [(85.0, False), (45.0, False), (20.0, True)])
def test_speed_is_that_of_a_request_alone(tokens_per_s, slow):
    engine = Engine()
    engine.decode(130, tokens_per_s=tokens_per_s)

    assert (engine.gauge(Trend.SLOW).poor > 0) is slow
    assert engine.gauge(Trend.SLOW).block.tokens_per_s == pytest.approx(tokens_per_s)


def test_many_requests_prompts_and_pauses_say_nothing_about_speed():
    engine = Engine()
    engine.decode(200, running=4, tokens_per_s=20)
    for _ in range(60):
        engine.look(running=1, generation_tokens=10, prompt_tokens=1000)
        engine.look(running=1)
        engine.look(running=1, generation_tokens=10, successes=1)
        engine.look(running=1, generation_tokens=10, every_s=PAUSE_S + 1)

    assert engine.gauge(Trend.SLOW).closed == 0


def test_idle_engine_is_never_judged():
    engine = Engine()
    for _ in range(2000):
        engine.look()

    assert [gauge.poor for gauge in engine.track.gauges] == [0] * len(RULES)


def test_counters_that_begin_again_begin_new_blocks():
    engine = Engine()
    engine.decode(120, acceptance=0.0)
    engine.counters = dict.fromkeys(engine.counters, 0.0)
    engine.look()

    assert [gauge.closed for gauge in engine.track.gauges] == [0] * len(RULES)


def test_one_good_block_ends_a_row_of_poor_ones():
    engine = Engine()
    engine.decode(120, acceptance=0.0)
    engine.decode(60, acceptance=0.5)

    assert engine.gauge(Trend.ACCEPTANCE).poor == 0
