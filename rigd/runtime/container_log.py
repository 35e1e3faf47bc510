"""Copies a container's output into its start's log, from a thread; takes up again where an earlier daemon stopped.

Docker gives each record a time. A cursor beside the log keeps the time of the last record and how long the log was
with it. Whoever takes up again cuts the log back to that length and asks Docker for what came after: nothing is
lost, nothing is there twice, wherever the earlier daemon was killed.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rigd.adapters import docker
from rigd.adapters.docker import Client, DockerError, DockerMissingError, Stream
from rigd.log import get
from rigd.runtime import startlog

log = get("runtime.container_log")

CURSOR_NAME = "engine.log.cursor"
CURSOR_EVERY_S = 0.5
_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """How far the copy is: time of the last record, records of that very time, the log's length with them."""

    at: str = ""
    same: int = 0
    size: int = 0


def read_cursor(folder: Path) -> Cursor:
    """Return the cursor kept beside the log; the beginning where there is none."""
    try:
        seen = json.loads((folder / CURSOR_NAME).read_text(encoding="utf-8"))
        return Cursor(at=str(seen["at"]), same=int(seen["same"]), size=int(seen["size"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Cursor()


def split_record(record: bytes) -> tuple[str, bytes]:
    """Return the time that Docker put before a record, and the record."""
    stamp, blank, text = record.partition(b" ")
    return (stamp.decode("ascii", errors="replace"), text) if blank else ("", record)


class LogCopy(threading.Thread):
    """Copies until the container has ended and all of its output is there, or until told to stop."""

    def __init__(
        self,
        connect: Callable[[], Client],
        container: str,
        folder: Path,
        *,
        max_bytes: int,
        follow: bool = True,
    ) -> None:
        super().__init__(name=f"rigd-log-{container[:12]}", daemon=True)
        self._connect = connect
        self._container = container
        self._folder = folder
        self._max_bytes = max_bytes
        self._follow = follow
        self._stopped = threading.Event()
        self._stream: Stream[bytes] | None = None
        self._file = -1
        self._cursor = Cursor()
        self._kept_s = 0.0

    def stop(self) -> None:
        """End the copy soon; the cursor stays where it is."""
        self._stopped.set()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """Copy, through losses of Docker."""
        try:
            self._open()
        except OSError as error:
            log.warning("engine log cannot be written", folder=str(self._folder), error=str(error))
            return
        try:
            self._copy_to_end()
        finally:
            self._keep_cursor()
            os.close(self._file)

    def _open(self) -> None:
        path = startlog.prepare(self._folder)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._cursor = read_cursor(self._folder)
        if os.fstat(self._file).st_size > self._cursor.size:
            os.ftruncate(self._file, self._cursor.size)

    def _copy_to_end(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                client = self._connect()
                self._copy(client)
                failures = 0
                if not self._follow or not docker.inspect(self._connect(), self._container).running:
                    return
            except DockerMissingError:
                return
            except DockerError as error:
                if failures == 0:
                    log.info("engine log interrupted", container=self._container[:12], error=error.detail)
                failures += 1
            except Exception as error:  # noqa: BLE001  (this thread must outlive whatever the SDK does)
                log.warning("engine log interrupted", container=self._container[:12], error=repr(error))
                failures += 1
            self._stopped.wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])

    def _copy(self, client: Client) -> None:
        """Copy one connection's worth, leaving out what is there already."""
        before = self._cursor
        stream = docker.logs(client, self._container, since_s=_second(before.at), follow=self._follow)
        self._stream = stream
        skip = before.same
        try:
            for record in stream:
                if self._stopped.is_set():
                    return
                stamp, text = split_record(record)
                if stamp and before.at and stamp <= before.at:
                    if stamp < before.at:
                        continue
                    if skip > 0:
                        skip -= 1
                        continue
                self._write(stamp, text)
        finally:
            self._stream = None
            stream.close()

    def _write(self, stamp: str, text: bytes) -> None:
        size = self._cursor.size
        with contextlib.suppress(OSError):  # A full disk loses lines here; Docker still has them.
            size += os.write(self._file, text)
            if size > self._max_bytes and startlog.limit(self._folder / startlog.LOG_NAME, self._max_bytes):
                size = 0
        same = self._cursor.same + 1 if stamp == self._cursor.at else 1
        self._cursor = Cursor(at=stamp or self._cursor.at, same=same, size=size)
        if size == 0 or time.monotonic() - self._kept_s > CURSOR_EVERY_S:
            self._keep_cursor()

    def _keep_cursor(self) -> None:
        self._kept_s = time.monotonic()
        text = json.dumps({"at": self._cursor.at, "same": self._cursor.same, "size": self._cursor.size})
        with contextlib.suppress(OSError):
            startlog.write_private(self._folder / CURSOR_NAME, text)


def _second(stamp: str) -> int | None:
    """Return the whole second of a record's time; Docker sends everything from it on."""
    if not stamp:
        return None
    return int(datetime.fromisoformat(stamp.partition(".")[0].rstrip("Z")).replace(tzinfo=UTC).timestamp())
