"""Which versions of each client these files were tried with, and which are of the same generation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Known:
    """One client's versions."""

    program: str
    """What tells its version with `--version`; empty: there is no such program."""
    tried: str
    """The version whose own program read the file in a test."""
    from_version: tuple[int, ...] = ()
    """The first that is known to have the keys that matter."""
    before: tuple[int, ...] = ()
    """The first of a generation that nobody has looked at."""


KNOWN: Mapping[str, Known] = {
    # `limit.input` and `chunkTimeout` are in its types since 1.3; `headerTimeout` since 1.16, before which it is
    # ignored. Its types of the next generation have `providers` with `api` and `request` instead.
    "opencode": Known(program="opencode", tried="1.18.33", from_version=(1, 3), before=(2,)),
    # Of the others nobody looked at versions before the tried one's own series.
    "kilo": Known(program="kilo", tried="7.7.9", from_version=(7, 7), before=(8,)),
    "pi": Known(program="pi", tried="1.6.0", from_version=(1, 6), before=(2,)),
    "claude-code": Known(program="claude", tried="2.1.332", from_version=(2, 1), before=(3,)),
    "codex": Known(program="codex", tried="0.171.0", from_version=(0, 171), before=(1,)),
    "openai-env": Known(program="", tried=""),
}
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def version_in(said: str) -> str | None:
    """Return the version in what a program says about itself."""
    found = _VERSION.search(said)
    return None if found is None else found.group()


def doubt(client: str, version: str) -> str | None:
    """Return why a file for this version may be wrong, as a sentence; None: the version is known."""
    known = KNOWN[client]
    found = _VERSION.search(version)
    if found is None:
        return f"'{version}' is no version of {client}"
    parts = tuple(int(part) for part in found.groups() if part is not None)
    if known.from_version and parts < known.from_version:
        first = ".".join(str(part) for part in known.from_version)
        return f"{client} {version} is older than {first}: it may not know all keys of the file"
    if known.before and parts >= known.before:
        return f"{client} {version} is newer than what rigd knows ({known.tried}): its keys may be others"
    return None
