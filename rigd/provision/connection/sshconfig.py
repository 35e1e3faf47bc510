"""The person's ssh configuration, with `Include` followed, which paramiko's reader passes over in silence."""

import glob
from pathlib import Path
from typing import Any

from paramiko import SSHConfig

USER_FILE = Path("~/.ssh/config")
SYSTEM_FILE = Path("/etc/ssh/ssh_config")
DEPTH_LIMIT = 16
"""As OpenSSH has it; a file that includes itself ends here."""


def read(only: Path | None) -> SSHConfig:
    """Return the configuration of one file, or of the user's and the system's as OpenSSH merges them."""
    config = SSHConfig()
    sources = [(only, USER_FILE.parent)] if only is not None else [(USER_FILE, USER_FILE.parent),
                                                                   (SYSTEM_FILE, SYSTEM_FILE.parent)]  # fmt: skip
    for file, base in sources:
        # The first value that fits a host holds, so the user's file comes first.
        lines: Any = iter(
            _lines(file.expanduser(), base.expanduser(), depth=0)
        )  # A file's lines, without the file.
        config.parse(lines)
    return config


def _lines(file: Path, base: Path, *, depth: int) -> list[str]:
    """Return a file's lines with those of included files in their places; none where it cannot be read."""
    try:
        own = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError:
        return []
    lines: list[str] = []
    section = "Host *\n"
    for line in own:
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in ("host", "match"):
            section = line
        if word.lower() != "include":
            lines.append(line)
        elif depth < DEPTH_LIMIT:
            for pattern in rest.split():
                for name in sorted(glob.glob(str(base / Path(pattern.strip('"')).expanduser()))):  # noqa: PTH207
                    lines += [section, *_lines(Path(name), base, depth=depth + 1), "\n"]
            # What an included file began is over; the section that it stood in goes on.
            lines.append(section if section.endswith("\n") else section + "\n")
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines
