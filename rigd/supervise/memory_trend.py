"""Does the engine's own memory grow for hours? A line through a bounded window of readings. Pure.

What counts is memory that no file backs (in RAM and swapped out): model files in the page cache come and go. Growth
counts where both halves of the window show it, and where the work did not grow with it: caches fill, then stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rigd.rig.trends import Trends
from rigd.supervise.trend_rules import Grade

GIB = 1024.0**3
HOUR_S = 3600.0
POINTS_LIMIT = 120
"""Readings in the window; closer ones are left out."""
LEAST_POINTS = 8
LEAST_SHARE = 0.25
"""Share of the window that must be filled before it is judged."""
STEADY = 0.5
"""Each half of the window grows at least this share of the whole's speed."""
BUSIER = 1.5
"""Work of the second half, as a multiple of the first's, from which growth is put down to the work."""


@dataclass(frozen=True, kw_only=True)
class MemorySample:
    """One reading of the memory of one engine's processes."""

    engine: str
    at_s: float
    own_bytes: int
    """Memory of the whole tree that no file backs."""
    left_bytes: int
    """What the box, or the container, still has to give."""


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """A reading, and the tokens that the engine had worked on by then."""

    at_s: float
    own_bytes: float
    left_bytes: float
    tokens: float


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How the memory grows."""

    bytes_per_s: float
    over_s: float
    first_bytes: float
    last_bytes: float
    full_s: float
    """Until nothing is left, at this speed."""

    @property
    def gib_per_h(self) -> float:
        """Growth in GiB an hour."""
        return self.bytes_per_s * HOUR_S / GIB


def with_reading(
    points: tuple[MemoryPoint, ...], sample: MemorySample, tokens: float, limits: Trends
) -> tuple[MemoryPoint, ...]:
    """Return the window with one more reading; it never holds more than `POINTS_LIMIT`."""
    point = MemoryPoint(
        at_s=sample.at_s, own_bytes=sample.own_bytes, left_bytes=sample.left_bytes, tokens=tokens
    )
    within = tuple(one for one in points if 0 <= sample.at_s - one.at_s <= limits.memory_stretch_s)
    apart_s = limits.memory_stretch_s / POINTS_LIMIT
    if len(within) > 1 and within[-1].at_s - within[-2].at_s < apart_s:
        within = within[:-1]  # The newest reading is always there; what it replaces was too close.
    return (*within, point)[-POINTS_LIMIT:]


def growth(points: Sequence[MemoryPoint], limits: Trends) -> Growth | None:
    """Return how the memory grows, None where it does not or it cannot be said yet."""
    if not judged(points, limits):
        return None
    first, last = points[0], points[-1]
    over_s = last.at_s - first.at_s
    middle_s = first.at_s + over_s / 2
    early = [point for point in points if point.at_s <= middle_s]
    late = [point for point in points if point.at_s >= middle_s]
    speed = _slope(points)
    if speed <= 0 or speed * over_s < limits.memory_least_gib * GIB:
        return None
    if min(_slope(early), _slope(late)) < STEADY * speed or _busier(early, late):
        return None
    return Growth(
        bytes_per_s=speed,
        over_s=over_s,
        first_bytes=first.own_bytes,
        last_bytes=last.own_bytes,
        full_s=max(0.0, last.left_bytes) / speed,
    )


def judged(points: Sequence[MemoryPoint], limits: Trends) -> bool:
    """Return whether the window says anything yet."""
    if len(points) < LEAST_POINTS:
        return False
    return points[-1].at_s - points[0].at_s >= LEAST_SHARE * limits.memory_stretch_s


def grade(found: Growth | None, limits: Trends) -> Grade:
    """Return what the growth comes to."""
    if found is None or found.full_s > limits.memory_tell_s:
        return Grade.FINE
    return Grade.GRAVE if found.full_s <= limits.memory_restart_s else Grade.POOR


def sentence(found: Growth) -> str:
    """Say it to a person, with its numbers."""
    return (
        f"The engine's memory grows by {found.gib_per_h:.2f} GiB an hour and never shrinks: "
        f"{found.first_bytes / GIB:.1f} to {found.last_bytes / GIB:.1f} GiB within {_hours(found.over_s)}; the "
        f"box is full in {_hours(found.full_s)}."
    )


def _slope(points: Sequence[MemoryPoint]) -> float:
    """Return the slope of the line of least squares, in bytes a second."""
    if not points:
        return 0.0
    mean_s = sum(point.at_s for point in points) / len(points)
    mean = sum(point.own_bytes for point in points) / len(points)
    spread = sum((point.at_s - mean_s) ** 2 for point in points)
    together = sum((point.at_s - mean_s) * (point.own_bytes - mean) for point in points)
    return together / spread if spread else 0.0


def _busier(early: Sequence[MemoryPoint], late: Sequence[MemoryPoint]) -> bool:
    before = early[-1].tokens - early[0].tokens
    after = late[-1].tokens - late[0].tokens
    return after > BUSIER * before and after > 0


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.1f} h" if seconds >= HOUR_S else f"{seconds / 60:.0f} min"
