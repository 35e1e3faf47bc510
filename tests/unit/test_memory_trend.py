"""Growth of the engine's memory: told with its speed and its end, and never mistaken for caches that fill."""

import random

import pytest

from rigd.rig.trends import Trends
from rigd.supervise.memory_trend import (
    GIB,
    POINTS_LIMIT,
    MemorySample,
    grade,
    growth,
    sentence,
    with_reading,
)
from rigd.supervise.trend_rules import Grade

LIMITS = Trends()


def readings(own_gib, *, hours=2.0, left_gib=40.0, tokens=lambda _hour: 0.0):
    """Return the window after readings a minute apart; `own_gib` gives the memory at an hour."""
    points = ()
    for minute in range(int(hours * 60) + 1):
        hour = minute / 60
        own = int(own_gib(hour) * GIB)
        sample = MemorySample(
            engine="e", at_s=minute * 60.0, own_bytes=own, left_bytes=int(left_gib * GIB) - own
        )
        points = with_reading(points, sample, tokens(hour), LIMITS)
    return points


def test_steady_growth_says_its_speed_and_when_the_box_is_full():
    found = growth(readings(lambda hour: 10 + 2 * hour), LIMITS)

    assert found.gib_per_h == pytest.approx(2, rel=0.02)
    assert sentence(found) == (
        "The engine's memory grows by 2.00 GiB an hour and never shrinks: 10.0 to 14.0 GiB within 2.0 h; the box is "
        "full in 13.0 h."
    )


def test_noise_does_not_hide_growth():
    noise = random.Random(1)  # noqa: S311  (the same noise each time, not a secret)

    found = growth(readings(lambda hour: 10 + 2 * hour + noise.uniform(-0.2, 0.2)), LIMITS)

    assert found.gib_per_h == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    "own_gib",
    [
        pytest.param(lambda _hour: 10.0, id="flat"),
        pytest.param(lambda hour: 14 - hour, id="shrinking"),
        pytest.param(lambda hour: 10 if hour < 1 else 14, id="one-step"),
        pytest.param(lambda hour: 10 + min(hour, 0.5) * 8, id="a-cache-that-fills"),
        pytest.param(lambda hour: 10 + hour * 0.05, id="too-little"),
    ],
)
def test_what_is_no_leak(own_gib):
    assert growth(readings(own_gib), LIMITS) is None


def test_growth_with_the_work_is_put_down_to_the_work():
    found = growth(readings(lambda hour: 10 + 2 * hour, tokens=lambda hour: 1e6 * hour**2), LIMITS)

    assert found is None


def test_growth_under_steady_work_is_a_leak():
    assert growth(readings(lambda hour: 10 + 2 * hour, tokens=lambda hour: 1e6 * hour), LIMITS) is not None


def test_young_window_says_nothing():
    assert growth(readings(lambda hour: 10 + 20 * hour, hours=0.4), LIMITS) is None


@pytest.mark.parametrize(
    ("left_gib", "expected"),
    [(14 + 100, Grade.FINE), (14 + 20, Grade.POOR), (14 + 4, Grade.GRAVE)],
    ids=["in-two-days", "tomorrow", "soon"],
)
def test_how_soon_the_box_is_full_decides(left_gib, expected):
    found = growth(readings(lambda hour: 10 + 2 * hour, left_gib=left_gib), LIMITS)

    assert grade(found, LIMITS) is expected


def test_window_is_bounded_and_holds_the_newest_reading():
    points = readings(lambda hour: 10 + hour, hours=30)

    assert len(points) <= POINTS_LIMIT
    assert points[-1].at_s == 30 * 3600
    assert points[-1].at_s - points[0].at_s <= LIMITS.memory_stretch_s


def test_readings_closer_than_the_window_needs_do_not_push_old_ones_out():
    points = ()
    for second in range(3600):
        sample = MemorySample(engine="e", at_s=float(second), own_bytes=1, left_bytes=1)
        points = with_reading(points, sample, 0.0, LIMITS)

    assert points[0].at_s == 0
    assert points[-1].at_s == 3599
