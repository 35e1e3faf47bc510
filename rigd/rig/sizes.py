"""Sizes as Docker reads them: `16gb`, `48GiB`, `512m` and plain bytes; every unit counts in steps of 1024."""

import re

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*$", re.IGNORECASE)
_STEP = 1024
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(size: int | str) -> int:
    """Return a size in bytes. Raises ValueError, in a sentence, on what is none."""
    if isinstance(size, int):
        if size < 1:
            raise ValueError(f"a size must be at least 1 byte, not {size}")
        return size
    found = _SIZE.match(size)
    if found is None:
        raise ValueError(f"{size!r} is no size; write it like 512mb, 16gb or 48GiB")
    count = round(float(found[1]) * float(_STEP ** _POWERS[found[2].lower()]))
    if count < 1:
        raise ValueError(f"a size must be at least 1 byte, not {size}")
    return count
