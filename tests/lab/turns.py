"""Whose turn it is on a machine of two cores: tests and daemons before the ranks of a real engine.

Ranks spin (`sched_yield`) while they work. Two of them on a machine's only two cores take these for ten seconds
at a time from every other session; a client, or a daemon, that stands still so long sees nothing of what it
waits for, and failures that are none. The weight of a whole session decides, not the niceness of its processes.
"""

import contextlib
from pathlib import Path

FIRST, USUAL, LAST = -10, 0, 10


def take_turn(pid: int, weight: int) -> None:
    """Give the session of this process its place; coming first is for root, and left out for others."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(weight))
