"""The log, line by line in vLLM's form, on standard output."""

import os
import time


def write(text: str) -> None:
    """Write whole lines at once, so that processes do not cut one another's."""
    data = text.encode()
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:
            return  # Nobody reads the log any more; vLLM does not end for that either.


class Log:
    """The lines of one process: `(EngineCore pid=42) INFO 11-30 02:40:00 [core.py:133] ...`."""

    def __init__(self, process: str, pid: int | None = None) -> None:
        """Write as `process`; `pid` if it is not the one that writes."""
        self._process = process
        self._pid = pid

    def info(self, where: str, message: str) -> None:
        """Write at level INFO; `where` is vLLM's file and line."""
        self._write("INFO", where, message)

    def warning(self, where: str, message: str) -> None:
        """Write at level WARNING."""
        self._write("WARNING", where, message)

    def error(self, where: str, message: str) -> None:
        """Write at level ERROR; each line of a traceback gets the prefix, as there."""
        self._write("ERROR", where, message)

    def _write(self, level: str, where: str, message: str) -> None:
        at = time.strftime("%m-%d %H:%M:%S")
        head = f"({self._process} pid={self._pid or os.getpid()}) {level} {at} [{where}] "
        write("".join(f"{head}{line}\n" for line in message.split("\n")))


def progress_bar(title: str, done: int, total: int, took_s: float, *, shards: bool) -> str:
    """Return a progress bar as tqdm leaves it in a log that is not a terminal."""
    share = done / total if total else 1.0
    spent = f"{int(took_s) // 60:02d}:{int(took_s) % 60:02d}"
    left = (
        "?"
        if done == 0
        else f"{int(took_s / share - took_s) // 60:02d}:{int(took_s / share - took_s) % 60:02d}"
    )
    rate = "?it/s" if done == 0 else f"{done / max(took_s, 1e-3):5.2f}it/s"
    if shards:
        return f"{title}: {share:4.0%} Completed | {done}/{total} [{spent}<{left}, {rate}]\n"
    width = 10
    bar = "█" * int(width * share) + " " * (width - int(width * share))
    return f"{title}: {share:4.0%}|{bar}| {done}/{total} [{spent}<{left}, {rate}]\n"
