"""The child of `notify`: reads letters from stdin, hands them to Apprise, writes a line of JSON for each.

The only place that imports Apprise. Receivers are told side by side, each in order; after a refusal the rest of
a receiver's letters is left. Ends at its deadline whatever hangs, also when its daemon is long gone.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from typing import Any

import apprise

Letter = dict[str, str]
THROTTLE_LIMIT_S = 10.0
"""Longest pause that Apprise makes between two letters of its own accord; later letters wait for another day."""


class _Said(logging.Handler):
    """Keeps what Apprise says, by thread: it tells why only in its log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._mine = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        self._mine.lines = [*self.taken(), record.getMessage()]

    def taken(self) -> list[str]:
        """Return what this thread heard."""
        return list(getattr(self._mine, "lines", []))

    def forget(self) -> None:
        self._mine.lines = []


class Child:
    """One batch."""

    def __init__(self, record: int | None) -> None:
        self._record = record
        self._said = _Said()
        self._write = threading.Lock()
        logger = logging.getLogger("apprise")
        logger.handlers = [self._said]
        logger.setLevel(logging.WARNING)
        logger.propagate = False

    def tell(self, letters: list[Letter]) -> None:
        """Deliver the letters of one receiver."""
        try:
            service = apprise.Apprise.instantiate(letters[0]["url"], suppress_exceptions=True)
        except Exception as error:  # noqa: BLE001  (a plugin's bug is that receiver's trouble alone)
            return self._say(letters[0], ok=False, detail=type(error).__name__)
        if service is None:
            return self._say(letters[0], ok=False, detail="Apprise does not understand the URL")
        if "overflow=" not in letters[0]["url"]:
            service.overflow_mode = apprise.OverflowMode.TRUNCATE  # A long text is cut, not refused.
        service.request_rate_per_sec = min(service.request_rate_per_sec, THROTTLE_LIMIT_S)
        for letter in letters:
            if not self._send(service, letter):
                return None
        return None

    def _send(self, service: Any, letter: Letter) -> bool:
        self._said.forget()
        try:
            ok = bool(service.notify(title=letter["title"], body=letter["body"], notify_type=letter["level"]))
            detail = "" if ok else "; ".join(self._said.taken()) or "refused"
        except Exception as error:  # noqa: BLE001  (as above)
            ok, detail = False, type(error).__name__
        self._say(letter, ok=ok, detail=detail)
        return ok

    def _say(self, letter: Letter, *, ok: bool, detail: str) -> None:
        line = json.dumps({"id": letter["id"], "name": letter["name"], "ok": ok, "detail": detail}) + "\n"
        with self._write:
            if self._record is not None and ok:
                with contextlib.suppress(OSError):
                    os.write(self._record, line.encode())
                    os.fsync(self._record)
            with contextlib.suppress(OSError):  # The daemon may be gone.
                os.write(1, line.encode())


def main() -> None:
    """Deliver what stdin says, then end, at the deadline at the latest."""
    document = json.loads(sys.stdin.buffer.read())
    child = Child(document["record"])
    by_name: dict[str, list[Letter]] = {}
    for letter in document["letters"]:
        by_name.setdefault(letter["name"], []).append(letter)
    threads = [
        threading.Thread(target=child.tell, args=(letters,), daemon=True) for letters in by_name.values()
    ]
    until_s = time.monotonic() + float(document["deadline_s"])
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    os._exit(0)  # Threads that hang are not waited for.


if __name__ == "__main__":
    main()
