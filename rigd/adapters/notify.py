"""Delivers messages through Apprise, in a short-lived child process.

A child, because Apprise with its plugins costs more memory than all of the daemon, and because a process can be
ended at its deadline, which a thread that waits for a name server cannot. URLs go in on stdin and come back
never. What was delivered is also written to a record that outlives a killed daemon: the child goes on, holds
the record's lock while it lives, and the next daemon reads there what it needs not send again.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.adapters.blocking import run_blocking

DEADLINE_S = 40.0
"""Longest delivery of one batch; a receiver that hangs is given up then."""
STARTUP_S = 20.0
"""What a loaded box may take to start the child, on top of that."""
DISK_S = 5.0
ANSWER_LIMIT = 2**20
INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
"""Variables of the daemon that the child sees; everything else, and every secret, is kept from it."""


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One message to one receiver. `url` is secret."""

    id: str
    name: str
    url: str
    title: str
    body: str
    level: str


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What came of one letter."""

    id: str
    name: str
    ok: bool
    detail: str = ""


class RecordBusyError(Exception):
    """A delivery that an earlier daemon began is still under way."""


class Record:
    """The file in which a delivery under way says what it has done; mode 0600, one delivery at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int | None:
        """What the child writes to, and keeps locked; None where the disk gave none."""
        return self._descriptor

    async def take(self) -> tuple[Delivery, ...]:
        """Lock the record and return what is in it. Raises `RecordBusyError`.

        A disk that does not answer gives none, and is no reason not to deliver.
        """
        try:
            self._descriptor = await run_blocking(self._open, deadline_s=DISK_S)
            return await run_blocking(self._read, deadline_s=DISK_S)
        except BlockingIOError as error:
            raise RecordBusyError("a delivery is under way") from error
        except (OSError, TimeoutError):
            return ()

    async def clear(self) -> None:
        """Forget what is in the record: it is stored elsewhere by now."""
        if (descriptor := self._descriptor) is not None:
            with contextlib.suppress(OSError, TimeoutError):
                await run_blocking(lambda: os.ftruncate(descriptor, 0), deadline_s=DISK_S)

    def release(self) -> None:
        """Let go of the lock; a child that still lives keeps it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _read(self) -> tuple[Delivery, ...]:
        return _deliveries(self._path.read_bytes()[:ANSWER_LIMIT])


async def send(
    letters: Sequence[Letter], record: Record | None = None, *, deadline_s: float = DEADLINE_S
) -> tuple[Delivery, ...]:
    """Deliver the letters and return what came of each; in order for each receiver, receivers side by side.

    After a letter that was refused, the later ones for the same receiver are not tried and not in the result.
    Never raises for what goes wrong with a delivery; it is ended soon after `deadline_s`.
    """
    descriptor = None if record is None else record.descriptor
    document = {
        "letters": [vars(letter) for letter in letters],
        "deadline_s": deadline_s,
        "record": descriptor,
    }
    content = json.dumps(document).encode()
    limit_s = deadline_s + STARTUP_S
    try:
        # The thread's own limit comes first; the second is for a machine that cannot even end the child.
        answer = await run_blocking(
            lambda: _child(content, descriptor, limit_s=limit_s), deadline_s=limit_s + DISK_S
        )
    except subprocess.TimeoutExpired:
        return _all_failed(letters, (), f"no answer within {limit_s:.0f} s")
    except (OSError, TimeoutError) as error:
        return _all_failed(letters, (), f"cannot start the delivery: {error}")
    done = _deliveries(answer)
    return (*done, *_all_failed(letters, done, "the delivery ended before its time"))


def _child(content: bytes, descriptor: int | None, *, limit_s: float) -> bytes:
    """Return what the child says; a daemon that ends meanwhile leaves the child to end by itself."""
    with subprocess.Popen(
        [sys.executable, "-m", "rigd.adapters.notify_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in INHERITED if name in os.environ},
        pass_fds=() if descriptor is None else (descriptor,),
        start_new_session=True,  # Ctrl-C at `rigd up` is not meant for it.
    ) as process:
        try:
            out, _ = process.communicate(content, timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return out[:ANSWER_LIMIT]


def _all_failed(letters: Sequence[Letter], done: Sequence[Delivery], why: str) -> tuple[Delivery, ...]:
    """Return a failure for each receiver of which nothing is known."""
    known = {delivery.name for delivery in done}
    first: dict[str, Letter] = {}
    for letter in letters:
        first.setdefault(letter.name, letter)
    return tuple(
        Delivery(id=letter.id, name=name, ok=False, detail=why)
        for name, letter in first.items()
        if name not in known
    )


def _deliveries(content: bytes) -> tuple[Delivery, ...]:
    """Return the deliveries of a text of one JSON object a line; a line cut off by a kill is left out."""
    found = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            item: dict[str, Any] = json.loads(line)
            detail = str(item.get("detail", ""))
            found.append(
                Delivery(id=str(item["id"]), name=str(item["name"]), ok=item["ok"] is True, detail=detail)
            )
    return tuple(found)
