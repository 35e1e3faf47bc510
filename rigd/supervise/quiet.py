"""Quiet hours and times of day in a time zone. Pure but for the box's own zone where none is named."""

from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

MINUTES_IN_HOUR = 60


def zone_of(name: str | None) -> tzinfo | None:
    """Return a time zone; None is the box's own."""
    return None if name is None else ZoneInfo(name)


def local(at_s: float, name: str | None) -> datetime:
    """Return a moment in the zone."""
    return datetime.fromtimestamp(at_s, zone_of(name)).astimezone(zone_of(name))


def clock(at_s: float, name: str | None) -> str:
    """Return a moment as people say it: `30 Nov 14:03`."""
    return local(at_s, name).strftime("%d %b %H:%M")


def quiet_until(now_s: float, hours: str | None, name: str | None) -> float | None:
    """Return when the quiet hours end that hold now, in Unix seconds; None while it is not quiet.

    The end is a time of day: on the two days when clocks change, the night is an hour longer or shorter.
    """
    if hours is None:
        return None
    begin, end = (_minute(text) for text in hours.split("-"))
    now = local(now_s, name)
    minute = now.hour * MINUTES_IN_HOUR + now.minute
    inside = begin <= minute < end if begin < end else minute >= begin or minute < end
    if not inside:
        return None
    day = now.date() + timedelta(days=1 if minute >= end else 0)
    wall = datetime(
        day.year, day.month, day.day, end // MINUTES_IN_HOUR, end % MINUTES_IN_HOUR, tzinfo=zone_of(name)
    )
    return wall.timestamp()


def _minute(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * MINUTES_IN_HOUR + int(minute)
