"""A whole run: plays in order, every host of a play in a thread of its own, and the recap at the end."""

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rigd.errors import ExitCode, RigdError, UsageError
from rigd.provision.connection.link import connect
from rigd.provision.connection.target import Target
from rigd.provision.language.model import Host, Inventory, Play, Playbook
from rigd.provision.run.boxes import Boxes, Connect, TargetOf
from rigd.provision.run.calls import HostOver, Lost
from rigd.provision.run.events import Event, Noted, PlayStarted, Progress, RunEnded, TaskEnded, Tell
from rigd.provision.run.flow import Once, PlayEnded, RebootsHere, Stop, Stopped, TaskFailed
from rigd.provision.run.journal import Journal, JournalError, NoJournal, Runs
from rigd.provision.run.options import RunOptions
from rigd.provision.run.past import Past
from rigd.provision.run.play import HostPlay
from rigd.provision.run.results import Result, failed, outcome_of, sentence, unreachable
from rigd.provision.run.scopes import Scopes
from rigd.provision.run.selection import beginning_at
from rigd.provision.run.state import HostState, RunState
from rigd.provision.run.walk import Walker

DEBUG_VARIABLE = "RIGD_DEBUG"
Members = Sequence[HostState]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended."""

    exit_code: int
    recap: Mapping[str, Mapping[str, int]]
    run: str
    reboot: Callable[[], None] | None = None
    """This machine has to be rebooted: asks for it."""


class Engine:
    """Carries out a playbook."""

    def __init__(
        self,
        playbook: Playbook,
        inventory: Inventory,
        options: RunOptions,
        *,
        hosts_of: Callable[[str], Sequence[Host]],
        target_of: Callable[[str, Mapping[str, Any]], Target],
        runs: Runs,
        digest: str,
        tell: Tell,
        way: Connect = connect,
    ) -> None:
        """`hosts_of` gives the hosts of a play's pattern, with the command line's limit applied."""
        self._playbook = playbook
        self._inventory = inventory
        self._options = options
        self._hosts_of = hosts_of
        self._target_of = target_of
        self._runs = runs
        self._digest = digest
        self._tell_out = tell
        self._telling = threading.Lock()
        self._way = way
        self._reboot: Callable[[], None] | None = None
        self._hosts: dict[str, HostState] = {}
        self.stop = Stop()
        """Ask it, and the run ends after the tasks that run now."""

    def run(self) -> Ended:
        """Run all plays and return how it ended."""
        began_s = time.monotonic()
        scopes = Scopes(self._playbook, self._inventory, self._options)
        plays = self._plays(scopes)
        past = self._past()
        journal = self._journal(plays, past)
        run = RunState(
            options=self._options,
            tell=self._tell,
            journal=journal,
            scopes=scopes,
            stop=self.stop,
            target_of=self._target_of,
        )
        hosts = self._hosts = self._states(plays, past, scopes)
        try:
            self._run_plays(run, plays, hosts)
            return self._end(run, began_s)
        finally:
            if self._reboot is None:
                # Else the reboot is asked for later, over these, and written down.
                journal.close()
                for host in hosts.values():
                    host.close()

    def abort(self) -> None:
        """End what runs, too: on every box, with all that it started."""
        self.stop.ask()
        for host in list(self._hosts.values()):
            host.abort()

    # --- before the first play ---

    def _plays(self, scopes: Scopes) -> list[tuple[str, Play, list[Host]]]:
        """Return the plays with their key in the journal and their hosts."""
        found = []
        wanted = self._options.start_at
        for index, play in enumerate(self._playbook.plays):
            own = play
            if wanted is not None:
                begun = _beginning_at(play, wanted)
                if begun is None:
                    continue
                own, wanted = begun, None
            found.append(
                (f"{index}:{play.name or play.hosts}", own, list(self._hosts_of(scopes.pattern(play))))
            )
        if wanted is not None:
            raise UsageError(
                f"there is no task '{wanted}' to start at", hint="names may hold * as a wildcard"
            )
        return found

    def _past(self) -> Past | None:
        if self._options.fresh:
            return None
        past = self._runs.broken_run(self._digest)
        if past is not None and past.damaged:
            lost = f"{past.damaged} damaged lines; what they said it owed (handlers, a reboot) is not known"
            self._tell(Noted(text=f"warning: the journal of run {past.id} has {lost}"))
        if past is None or not any(
            left.changed or any(left.pending.values()) or left.reboots for left in past.hosts.values()
        ):
            return None
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(past.at_s))
        self._tell(
            Noted(
                text=f"going on with run {past.id} of {when}, which did not come to its end (--fresh: start anew)"
            )
        )
        return past

    def _journal(self, plays: Sequence[tuple[str, Play, list[Host]]], past: Past | None) -> Journal:
        if self._options.check:
            return NoJournal()
        names = list(dict.fromkeys(host.name for _key, _play, hosts in plays for host in hosts))
        return self._runs.begin(
            playbook=str(self._playbook.path), digest=self._digest, hosts=names, past=past
        )

    def _states(
        self, plays: Sequence[tuple[str, Play, list[Host]]], past: Past | None, scopes: Scopes
    ) -> dict[str, HostState]:
        states: dict[str, HostState] = {}
        for host in (host for _key, _play, hosts in plays for host in hosts):
            if host.name in states:
                continue
            states[host.name] = HostState(host=host, reach=self._reach, known=scopes.known(host.name))
            if past is not None:
                states[host.name].past = past.of(host.name)
        return states

    def _reach(self, name: str, target_of: TargetOf) -> Boxes:
        def tell(text: str) -> None:
            self._tell(Progress(host=name, text=text))

        lock = None if self._options.check else f"run of {self._playbook.path.name}"
        return Boxes(name, target_of, tell, way=self._way, lock=lock)

    # --- plays ---

    def _run_plays(
        self, run: RunState, plays: Sequence[tuple[str, Play, list[Host]]], hosts: Mapping[str, HostState]
    ) -> None:
        for key, play, members in plays:
            if run.stop.asked or self._reboot is not None:
                return
            there = [hosts[host.name] for host in members if not hosts[host.name].out]
            for state in there:
                run.recap.open(state.host.name)
            if members and not there:
                # As Ansible says it: no hosts left.
                return
            name = run.scopes.play_name(play)
            self._tell(PlayStarted(name=name, hosts=tuple(state.host.name for state in there)))
            if not members:
                self._tell(Noted(text="skipping: no hosts matched"))
                continue
            self._play(run, key, play, there)

    def _play(self, run: RunState, key: str, play: Play, there: Members) -> None:
        once = Once([state.host.name for state in there], run.stop)
        alone = len(there) == 1
        hosts = [HostPlay(run, state, play, key=key, once=once, alone=alone) for state in there]
        run.scopes.enter(play, hosts)
        if alone:
            self._host(hosts[0], play)
            once.leave(hosts[0].name)
            return
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (for several hosts only)

        with ThreadPoolExecutor(max_workers=self._options.forks, thread_name_prefix="host") as pool:

            def through(host: HostPlay) -> None:
                try:
                    self._host(host, play)
                finally:
                    once.leave(host.name)

            for future in [pool.submit(through, host) for host in hosts]:
                future.result()

    def _host(self, host: HostPlay, play: Play) -> None:
        """Take one host through a play; whatever happens to it, the others go on."""
        try:
            if host.ended:
                return
            Walker(host).play(play)
        except PlayEnded:
            host.end_play()
        except RebootsHere as reboot:
            self._reboot = reboot.ask
        except (TaskFailed, Stopped):
            host.state.out = True
        except HostOver as over:
            host.state.out = True
            if not over.told:
                self._broke_off(host, unreachable(str(over)) if isinstance(over, Lost) else failed(str(over)))
        except RigdError as error:
            host.state.out = True
            self._broke_off(host, failed(sentence(error)))
        except Exception as error:  # noqa: BLE001  (the boundary of a host's thread: the others go on)
            host.state.out = True
            self._broke_off(host, failed(_unexpected(error)))
            if os.environ.get(DEBUG_VARIABLE):
                traceback.print_tb(error.__traceback__)

    def _broke_off(self, host: HostPlay, result: Result) -> None:
        """Tell what ended a host's part of the run outside of any task."""
        outcome = outcome_of(result)
        host.run.recap.count(host.name, outcome)
        self._tell(TaskEnded(host=host.name, name="", place="", outcome=outcome, result=result))

    # --- the end ---

    def _end(self, run: RunState, began_s: float) -> Ended:
        counts = run.recap.counts()
        code = self._code(run)
        state = "done" if code is ExitCode.DONE else "failed"
        if self._reboot is not None:
            state = "rebooting"
        elif run.stop.asked:
            state = "stopped"
        elif state == "done" and self._options.start_at is not None:
            # What a broken run left in the tasks before that one is still to be done.
            state = "partial"
        try:
            run.journal.end(state, counts)
        except JournalError as error:
            self._tell(Noted(text=f"warning: {sentence(error)}"))
        self._tell(
            RunEnded(
                hosts=counts,
                took_s=time.monotonic() - began_s,
                exit_code=int(code),
                check=self._options.check,
                run=None if self._options.check else run.journal.id,
            )
        )
        return Ended(exit_code=int(code), recap=counts, run=run.journal.id, reboot=self._reboot)

    def _code(self, run: RunState) -> ExitCode:
        if run.recap.any("failed") or run.stop.asked:
            return ExitCode.FAILED
        if run.recap.any("unreachable"):
            return ExitCode.UNREACHABLE
        if self._reboot is not None or (self._options.check and run.recap.any("changed")):
            return ExitCode.NOT_SO
        return ExitCode.DONE

    def _tell(self, event: Event) -> None:
        with self._telling:
            try:
                self._tell_out(event)
            except OSError:
                # Nobody listens any more (`| head`, a terminal that is gone): end in good order, and in silence.
                self._tell_out = _nobody
                self.stop.ask()


def _nobody(_event: Event) -> None:
    return


def _beginning_at(play: Play, name: str) -> Play | None:
    """Return the play from the first task of this name on, None if it has none."""
    sections: dict[str, Any] = {}
    found = False
    for section in ("pre_tasks", "roles", "tasks", "post_tasks"):
        if found:
            continue
        begun = beginning_at(getattr(play, section), name)
        sections[section] = begun or ()
        found = begun is not None
    return replace(play, **sections) if found else None


def _unexpected(error: Exception) -> str:
    """Return a sentence about an error that nobody foresaw; its own text may hold what no_log hides."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = f" at {where[0].filename}:{where[0].lineno}" if where else ""
    return f"this should not have happened: {type(error).__name__}{at} ({DEBUG_VARIABLE}=1 shows the details)"
