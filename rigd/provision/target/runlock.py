"""One run at a time on a box: a lock that the helper holds for as long as it lives, and says who holds it."""

import fcntl
import os
from typing import Any

PATH = "/run/lock/rigd-provision.lock"
VARIABLE = "RIGD_LOCK_FILE"
MOST_BYTES = 400


class RunLock:
    """The box's lock; the kernel lets go of it when the helper ends, however it ends."""

    def __init__(self) -> None:
        self._file: int | None = None

    def take(self, holder: str) -> dict[str, Any]:
        """Take the lock, and return `locked`; or return `busy` and who has it."""
        if self._file is not None:
            return {"event": "locked"}
        path = os.environ.get(VARIABLE) or PATH
        try:
            file = _opened(path)
        except OSError as error:
            # A box without /run/lock, or a lock that may not be read: nothing to be exclusive with.
            return {"event": "locked", "without": f"{path}: {error.strerror}"}
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            said = _holder(file)
            os.close(file)
            return {"event": "busy", "holder": said}
        self._file = file
        _write(file, f"{os.getpid()} {holder}")
        return {"event": "locked"}

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: str) -> int:
    """Return the lock's file: to write if that may be, else to read, which is enough for locking."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    if not os.path.exists(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
    # Without O_CREAT: in a folder that all may write to, the kernel refuses that for another's file.
    return os.open(path, (os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY) | flags)


def _holder(file: int) -> str:
    try:
        pid, _, text = os.pread(file, MOST_BYTES, 0).decode("utf-8", "replace").partition(" ")
    except OSError:
        return ""
    return text.strip() if pid.isdigit() and os.path.exists(f"/proc/{pid}") else ""


def _write(file: int, text: str) -> None:
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode()[:MOST_BYTES], 0)
    except OSError:
        return  # Somebody else's file: locked all the same, only without a name.
