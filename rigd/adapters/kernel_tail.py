"""The kernel's last lines, as they are now: from /dev/kmsg, else from the journal. Blocks for a moment at most."""

import contextlib
import os
import re
import subprocess
import time

DEVICE = "/dev/kmsg"
_RECORD_BYTES = 8192
_MOST_RECORDS = 100_000
_JOURNAL_S = 2.0
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


def last_lines(count: int) -> tuple[list[str], str | None]:
    """Return the last lines with their wall-clock time, and why there are none where nobody lets us read them."""
    try:
        descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return _from_journal(count, f"{DEVICE}: {error.strerror}")
    try:
        records = _records(descriptor)
    finally:
        os.close(descriptor)
    return [line for record in records[-count:] if (line := _line(record)) is not None], None


def _records(descriptor: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            break
        except BrokenPipeError:  # The kernel overwrote what we were about to read; the next read goes on.
            continue
        except OSError:
            break
        if not record:
            break
        found.append(record)
    return found


def _line(record: bytes) -> str | None:
    """Return `TIME text` of one record: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`, then lines of fields."""
    head, separator, rest = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not separator or len(fields) < 3 or not fields[2].isdecimal():  # noqa: PLR2004  (the third is the time)
        return None
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(booted_s + int(fields[2]) / 1e6))
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), rest.partition("\n")[0])
    return f"{at} {''.join(letter if letter.isprintable() else ' ' for letter in text)}"


def _from_journal(count: int, problem: str) -> tuple[list[str], str | None]:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["journalctl", "-k", "-q", "--no-pager", "-o", "short-iso", "-n", str(count)],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_JOURNAL_S,
        )
        if done.returncode == 0 and done.stdout:
            return done.stdout.decode("utf-8", "replace").splitlines(), None
    return [], f"kernel lines cannot be read ({problem})"
