"""A fake engine for the runtimes' contract tests: standard library only, so that it runs in any container.

    fake_engine.py FOLDER [--core] [--workers N] [--ignore-term] [--orphan] [--linger SECONDS] [--exit CODE]
                   [--die SECONDS] [--flood LINES] [--ticks N] [--show VARIABLE] [--helper]

Writes `FOLDER`/NAME.pid for each of its processes. Children rename themselves as vLLM's do.
"""

import argparse
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_NAME = 15


def rename(name):
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def note(folder, name):
    (folder / f"{name}.pid").write_text(str(os.getpid()))


def child(folder, name, *, grandchildren=0, new_session=False, ignore_term=False):
    """Fork a process that lives until it is ended, as `name`."""
    pid = os.fork()
    if pid:
        return pid
    if new_session:
        os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignore_term else signal.SIG_DFL)
    rename(name)
    for number in range(grandchildren):
        child(folder, f"VLLM::Worker_TP{number}", ignore_term=ignore_term)
    note(folder, name.replace(":", "_"))
    while True:
        time.sleep(60)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--core", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--orphan", action="store_true")
    parser.add_argument("--linger", type=float, default=0.0)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--die", type=float)
    parser.add_argument("--flood", type=int, default=0)
    parser.add_argument("--show", action="append", default=[])
    parser.add_argument("--helper", action="store_true")
    parser.add_argument("--ticks", type=int, default=0)
    return parser.parse_args()


def talk(given):
    print("fake engine starting", flush=True)
    for name in given.show:
        print(f"{name}={os.environ.get(name)}", flush=True)
    for number in range(given.flood):
        print(f"line {number} " + "x" * 80, flush=number % 100 == 0)
    print("to stderr", file=sys.stderr, flush=True)


def main():
    given = arguments()

    def leave(number, _frame):
        print(f"signal {number}, ending", flush=True)
        time.sleep(given.linger)
        sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if given.ignore_term else leave)
    talk(given)
    if given.core:
        child(given.folder, "VLLM::EngineCor", grandchildren=given.workers, ignore_term=given.ignore_term)
    if given.orphan:
        child(given.folder, "VLLM::Worker_TP9", new_session=True, ignore_term=given.ignore_term)
    if given.helper and os.fork() == 0:
        os._exit(0)
    note(given.folder, "root")
    wanted = 1 + (1 + given.workers if given.core else 0) + given.orphan
    while len(list(given.folder.glob("*.pid"))) < wanted:
        time.sleep(0.01)
    print("fake engine up", flush=True)
    if given.exit is not None:
        os._exit(given.exit)
    if given.die is not None:
        time.sleep(given.die)
        os.kill(os.getpid(), signal.SIGKILL)
    for number in range(given.ticks):
        print(f"tick {number}", flush=True)
        time.sleep(0.01)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
