"""Starts a helper behind a door (ssh, or this machine), with the rights of a user. One exec where it is in place.

The door opens a shell, the shell becomes the user (by sudo, or as root by itself), and Python becomes the helper:

    sh WRAP -> [sudo -n] -> sh LAUNCH -> python3 -I helper-<digest>     READY
                                      -> python3 -c unpack.py           NEED, and the helper is sent

No prompt is ever matched: words of our own tell how far it came, exit codes tell the rest.
"""

import contextlib
import hashlib
import shlex
import struct
import threading
from dataclasses import dataclass
from typing import Protocol

from rigd.provision.connection import packing
from rigd.provision.connection.client import BlobSource, Helper, Stream
from rigd.provision.connection.target import PYTHON, BecomeError, HostUnreachableError, Target
from rigd.provision.target import frames

START_DEADLINE_S = 60.0
PASSWORD_DEADLINE_S = 20.0
"""PAM lets a wrong password wait for a few seconds."""
NOISE_LIMIT_BYTES = 1 << 20
"""What a login shell may print before us."""
_WORD = b"RIGD-HELPER "

WRAP = """
if [ -z "$3" ] || [ "$(id -un)" = "$3" ]; then exec sh -c "$1" rigd "$2"; fi
if [ "$(id -u)" = 0 ]; then exec sh -c "$1" rigd "$2" "" --user "$3"; fi
command -v sudo >/dev/null 2>&1 || { echo RIGD-HELPER NO-SUDO; exit 127; }
if [ "$4" = ask ]; then exec sudo -k -S -p "" -u "$3" -- sh -c "$1" rigd "$2" "$SSH_CONNECTION"; fi
exec sudo -n -u "$3" -- sh -c "$1" rigd "$2" "$SSH_CONNECTION"
"""
"""$1 script, $2 its text argument, $3 user or nothing, $4 `ask` where sudo reads the password from the input."""

LAUNCH = """
p={python}
echo RIGD-HELPER ENTERED
code=$1; [ -n "$2" ] && export SSH_CONNECTION="$2"
[ $# -gt 2 ] && shift 2 || shift $#
command -v "$p" >/dev/null 2>&1 || {{ echo RIGD-HELPER NO-PYTHON; exit 127; }}
if [ -w /run ]; then d=/run/rigd-helper; else d="${{XDG_CACHE_HOME:-$HOME/.cache}}/rigd"; fi
f="$d/helper-{digest}"
[ -z "{fresh}" ] && [ -O "$f/__main__.py" ] && exec "$p" -I "$f" "$@"
exec "$p" -I -c "$code" "$d" {digest} "{fresh}" "$@"
"""
"""Root's helper lies where only root writes; not in rigd's own folders, which belong to the daemon's user."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command behind the door ended."""

    rc: int
    stdout: bytes
    stderr: bytes


class Door(Protocol):
    """Starts processes on a host as whoever we log in as."""

    login: str
    """Who that is."""

    def open(self, argv: list[str]) -> Stream:
        """Start a process, and give its streams."""

    def run(self, argv: list[str], *, stdin: bytes = b"", deadline_s: float) -> Ended:
        """Run a process to its end, its input closed after `stdin`."""

    def knock(self) -> bool | None:
        """Return whether another connection of the same kind comes through; None where there is none."""


class NoPythonError(HostUnreachableError):
    """The host has no Python that could run the helper."""


def wrapped(script: str, text: str, *, user: str | None, ask: bool = False) -> list[str]:
    """Return the command that runs a shell script as a user."""
    return ["sh", "-c", WRAP, "rigd", script, text, user or "", "ask" if ask else ""]


def start_helper(door: Door, target: Target, user: str | None, *, blobs: BlobSource) -> Helper:
    """Return a running helper of `user` (None: the login's own)."""
    if user == door.login:
        user = None
    helper = _try(door, target, user, blobs=blobs)
    if isinstance(helper, Helper):
        return helper
    if helper.word == "NO-SUDO":
        raise BecomeError(
            f"cannot become '{user}' on '{target.name}': there is no sudo",
            hint=f"log in as {user}, or as root install it: apt-get install sudo",
        )
    if helper.word == "NO-USER":
        raise BecomeError(
            f"there is no user '{user}' on '{target.name}'",
            hint="a task before this one may create it; else correct become_user",
        )
    if user is not None and not helper.entered:
        return _with_password(door, target, user, refused=helper, blobs=blobs)
    # What lies there may be broken: once more, sent anew.
    again = _try(door, target, user, blobs=blobs, fresh=True)
    if isinstance(again, Helper):
        return again
    raise HostUnreachableError(
        f"cannot start the helper on '{target.name}': {again.said or 'it ended at once'}",
        hint=f"may '{door.login}' run commands there? try: ssh {door.login}@{target.address or target.name} true",
    )


def check_password(door: Door, target: Target, user: str) -> None:
    """Raise BecomeError unless sudo takes the password that the target has."""
    if target.become_password is None:
        raise BecomeError(
            f"sudo on '{target.name}' wants the password of '{door.login}'",
            hint="give it with --ask-become-pass, or let sudo ask for none: "
            f"{door.login} ALL=(ALL) NOPASSWD: ALL in /etc/sudoers.d/{door.login}",
        )
    # Its input ends after one password, so a wrong one ends sudo instead of letting it ask again for ever.
    tried = door.run(
        ["sudo", "-k", "-S", "-p", "", "-u", user, "--", "true"],
        stdin=target.become_password.encode() + b"\n", deadline_s=PASSWORD_DEADLINE_S,
    )  # fmt: skip
    if tried.rc != 0:
        said = tried.stderr.decode(errors="replace").strip().splitlines()
        raise BecomeError(
            f"sudo on '{target.name}' does not let '{door.login}' become '{user}' with the password given"
            + (f": {said[-1].strip()}" if said else ""),
            hint="check the password, and `sudo -l` there",
        )


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """The helper did not start."""

    entered: bool
    """Whether we had become the user by then."""
    word: str
    """The last that our script said."""
    said: str
    """The last that its programs said."""


def _with_password(door: Door, target: Target, user: str, *, refused: _Refused, blobs: BlobSource) -> Helper:
    try:
        check_password(door, target, user)
    except BecomeError as error:
        # sudo's own reason tells more than that no password was given: not in sudoers, no tty, ...
        raise error from (BecomeError(refused.said) if refused.said else None)
    helper = _try(door, target, user, blobs=blobs, ask=True)
    if isinstance(helper, Helper):
        return helper
    raise BecomeError(
        f"cannot become '{user}' on '{target.name}': {helper.said or helper.word or 'sudo ended'}"
    )


def _try(
    door: Door, target: Target, user: str | None, *, blobs: BlobSource, ask: bool = False, fresh: bool = False
) -> Helper | _Refused:
    script = LAUNCH.format(
        python=shlex.quote(target.python), digest=packing.digest(), fresh="fresh" if fresh else ""
    )
    stream = door.open(wrapped(script, packing.unpacker(), user=user, ask=ask))
    # A stream has no clock of its own; closed, it ends whoever waits for it.
    watch = threading.Timer(START_DEADLINE_S, stream.close)
    watch.daemon = True
    watch.start()
    try:
        if ask and target.become_password is not None:
            with contextlib.suppress(OSError):
                stream.send(target.become_password.encode() + b"\n")
        reader = frames.Reader(stream.receive)
        words = _negotiate(stream, reader)
        if words[-1:] == ["READY"]:
            return Helper(stream, reader, host=target.name, blobs=blobs, knock=door.knock)
        said = stream.last_words().strip().splitlines()
        stream.close()
    finally:
        watch.cancel()
    last = said[-1].strip() if said else ""
    # What Python itself says of its age goes to stderr.
    word = last.removeprefix(_WORD.decode()) if last.startswith(_WORD.decode()) else "".join(words[-1:])
    kind, _, version = word.partition(" ")
    if kind in ("NO-PYTHON", "OLD-PYTHON"):
        raise _no_python(target, version)
    return _Refused(entered="ENTERED" in words, word=kind, said=last)


def _no_python(target: Target, old: str) -> NoPythonError:
    """Return what to tell of a host without a Python for the helper; `old`: the version of one that is there."""
    hint = "let rigd install it with --bootstrap, or there: apt-get install python3"
    what = "there is no Python there"
    if target.python != PYTHON:
        what = f"there is no '{target.python}' there"
        hint = "check ansible_python_interpreter; without it rigd takes the box's python3"
    if old:
        what = f"Python is too old there ({old}, 3.10 is needed)"
    return NoPythonError(f"cannot start the helper on '{target.name}': {what}", hint=hint)


def _negotiate(stream: Stream, reader: frames.Reader) -> list[str]:
    """Send the helper where it is wanted; return all words said, READY last if it is."""
    words: list[str] = []
    while words[-1:] != ["READY"]:
        if reader.skip_past(_WORD, limit_bytes=NOISE_LIMIT_BYTES) is None:
            break
        line = reader.skip_past(b"\n", limit_bytes=NOISE_LIMIT_BYTES) or b""
        words.append(line.decode(errors="replace"))
        if line == b"NEED":
            archive = packing.archive()
            header = frames.SYNC + struct.pack(">I", len(archive)) + hashlib.sha256(archive).digest()
            with contextlib.suppress(OSError):
                stream.send(header + archive)
    return words
