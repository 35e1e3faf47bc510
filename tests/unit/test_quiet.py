"""Quiet hours in a time zone, over midnight and over changes of the clock."""

from datetime import UTC, datetime

import pytest

from rigd.supervise.quiet import clock, quiet_until

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("now", "hours", "until"),
    [
        pytest.param("2026-11-30T23:00+01:00", "22:30-07:00", "2026-12-01T07:00+01:00", id="evening"),
        pytest.param("2026-12-01T06:59+01:00", "22:30-07:00", "2026-12-01T07:00+01:00", id="morning"),
        pytest.param("2026-12-01T07:00+01:00", "22:30-07:00", None, id="over"),
        pytest.param("2026-11-30T22:29+01:00", "22:30-07:00", None, id="not-yet"),
        pytest.param("2026-11-30T13:00+01:00", "12:00-14:00", "2026-11-30T14:00+01:00", id="noon"),
        pytest.param("2026-11-30T14:00+01:00", "12:00-14:00", None, id="after-noon"),
        pytest.param("2026-11-30T13:00+01:00", None, None, id="none"),
        pytest.param("2027-03-27T23:00+01:00", "22:30-07:00", "2027-03-28T07:00+02:00", id="short-night"),
        pytest.param("2026-10-24T23:00+02:00", "22:30-07:00", "2026-10-25T07:00+01:00", id="long-night"),
        pytest.param("2026-12-31T23:00+01:00", "22:30-07:00", "2027-01-01T07:00+01:00", id="new-year"),
    ],
)
def test_quiet_hours_end_at_a_time_of_day(now, hours, until):
    assert quiet_until(at(now), hours, BERLIN) == (None if until is None else at(until))


def test_the_zone_is_the_boxs_own_where_none_is_named():
    now = datetime.now(UTC).astimezone()
    hour = now.hour
    hours = f"{hour:02}:00-{(hour + 1) % 24:02}:00"

    assert quiet_until(now.timestamp(), hours, None) is not None


def test_moments_are_said_in_the_zone():
    assert clock(at("2026-11-30T14:03+00:00"), BERLIN) == "30 Nov 15:03"
