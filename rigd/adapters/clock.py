"""A clock that reads like Unix time and never jumps while the daemon runs.

The wall clock is read once; from then on the monotonic clock moves it. A corrected wall clock, a leap or a wrong
battery clock can neither expire a deadline nor stretch one.
"""

import time
from pathlib import Path


class Clock:
    """Unix seconds at construction, plus the monotonic seconds since."""

    def __init__(self) -> None:
        self._base_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        """Return the seconds since 1970, as of this clock."""
        return self._base_s + time.monotonic()


def boot_id() -> str:
    """Return the kernel's id of this boot, or an empty string where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
