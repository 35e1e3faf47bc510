"""The package's own index for newcomers names files that are there, and its promise of an hour holds."""

import re
from pathlib import Path

from rigd import provision

FOLDER = Path(provision.__file__).parent
MOST_LINES = 3000


def test_core_is_there_and_as_short_as_the_index_says():
    assert provision.__doc__ is not None
    core = re.findall(r"^    (\w+/\S+\.py) ", provision.__doc__, re.MULTILINE)
    further = re.findall(r"`((?:run|language|connection|templating)/\w+)`", provision.__doc__)

    lines = {name: len((FOLDER / name).read_text().splitlines()) for name in core}

    assert len(core) > 10
    assert f"under {MOST_LINES:,} lines" in provision.__doc__
    assert sum(lines.values()) < MOST_LINES, lines
    assert all((FOLDER / f"{name}.py").is_file() for name in further)
