"""Files of /proc, /sys and /etc, and logs: their text, or nothing."""

MOST_CHARACTERS = 16 << 20
"""A file is a small one, or the log of a build."""


def text_of(path: str) -> str:
    """Return a small file's text without the white space around it; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MOST_CHARACTERS).strip()
    except OSError:
        return ""


def lines_of(path: str) -> "list[str]":
    """Return a small file's lines; none where it cannot be read."""
    return text_of(path).splitlines()


def assignments_of(path: str) -> "dict[str, str]":
    """Return `NAME=value` lines as os-release has them, quotes taken off."""
    pairs = (line.partition("=") for line in lines_of(path) if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
