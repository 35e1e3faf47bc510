"""What ends a task list early, and how a run is broken off: exceptions for the first, one flag for the second."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rigd.provision.language.model import Task
from rigd.provision.run.results import Result

WAKE_S = 0.5


class TaskFailed(Exception):  # noqa: N818  (what happened, not a fault of ours)
    """A task failed; the nearest `rescue` takes it, or the host is through."""

    def __init__(self, task: Task, result: Result, *, name: str) -> None:
        super().__init__(name)
        self.task = task
        self.result = result
        self.name = name


class Stopped(Exception):  # noqa: N818
    """A person or the system ends the run: `always` sections run, nothing else."""


class HostEnded(Exception):  # noqa: N818
    """`meta: end_host`: this host is through with the play, and all is well."""


class PlayEnded(Exception):  # noqa: N818
    """`meta: end_play`: every host is through with the play."""


class RoleEnded(Exception):  # noqa: N818
    """`meta: end_role`: the rest of the role is left out."""


class RebootsHere(Exception):  # noqa: N818
    """The controller itself has to be rebooted, and the run goes on after the boot."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__("this machine has to be rebooted")
        self.ask = ask
        """Asks for it; called once everything is written down."""


class Stop:
    """Says that the run is to end, to all its threads."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        """End the run as soon as the tasks that run now are through."""
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Return whether the run is to end."""
        return self._asked.is_set()

    def check(self) -> None:
        """Raise `Stopped` if the run is to end."""
        if self.asked:
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Wait, or raise `Stopped` as soon as the run is to end."""
        if self._asked.wait(max(0.0, seconds)):
            raise Stopped


@dataclass(frozen=True, kw_only=True)
class _Shared:
    result: Result


class Once:
    """`run_once`: the first host of the play that is still there runs the task, the others take its result."""

    def __init__(self, hosts: Sequence[str], stop: Stop) -> None:
        self.over = False
        """Whether the play has ended for all its hosts (`meta: end_play`)."""
        self._waiting = list(hosts)
        self._results: dict[str, _Shared] = {}
        self._changed = threading.Condition()
        self._stop = stop

    def share(self, host: str, key: str, run: Callable[[], Result]) -> Result:
        """Return the result of a task, run by this host or another."""
        with self._changed:
            while key not in self._results and self._waiting and self._waiting[0] != host:
                # Woken by a result or a host that is through; now and then to see whether the run is to end.
                self._changed.wait(WAKE_S)
                self._stop.check()
            known = self._results.get(key)
        if known is not None:
            return known.result
        result = run()
        with self._changed:
            self._results[key] = _Shared(result=result)
            self._changed.notify_all()
        return result

    def leave(self, host: str) -> None:
        """Wait for this host no longer: it is through with the play."""
        with self._changed:
            if host in self._waiting:
                self._waiting.remove(host)
            self._changed.notify_all()
