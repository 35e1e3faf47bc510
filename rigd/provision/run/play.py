"""One host in one play: its variables, its ways to boxes, the handlers that it owes."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigd.errors import RigdError
from rigd.provision.connection.target import Target
from rigd.provision.language.model import Included, Play, Role, Task
from rigd.provision.language.search import find_file
from rigd.provision.run.boxes import Boxes
from rigd.provision.run.calls import Call, Link, Lost
from rigd.provision.run.events import Noted
from rigd.provision.run.files import filed
from rigd.provision.run.flow import Once, PlayEnded, Stopped, TaskFailed
from rigd.provision.run.handlers import Owed, matching
from rigd.provision.run.past import HostPast
from rigd.provision.run.prepared import Filed, Prepared, short, truth
from rigd.provision.run.results import Result, failed, registered, sentence, skipped
from rigd.provision.run.scope import Scope
from rigd.provision.run.state import HostState, RunState


class HostPlay:
    """One host in one play."""

    def __init__(
        self, run: RunState, state: HostState, play: Play, *, key: str, once: Once, alone: bool
    ) -> None:
        self.run = run
        self.state = state
        self.play_key = key
        """What the journal calls the play: it stays the same when lines move."""
        self.alone = alone
        """Whether no other host is in the play."""
        self.handlers: list[Task] = list(play.handlers)
        self.public_roles: list[Role] = list(play.public_roles)
        self.included: list[Included] = []
        """What the task that just ran has included, item by item."""
        self.owed = Owed(state.past.pending.get(key, ()))
        self.path = ""
        self._play = self._roles_play = play
        self._boxes: Boxes | None = None
        self._once = once
        self._deaf = False
        if self.owed:
            names = ", ".join(self.owed.names)
            run.tell(
                Noted(host=self.name, text=f"handlers still to run from the run that was broken off: {names}")
            )

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self.state.host.name

    @property
    def past(self) -> HostPast:
        """What a broken run left on the host."""
        return self.state.past

    @property
    def boxes(self) -> Boxes:
        """The ways to the boxes that the host's tasks run on. Raises `RigdError` for a connection that is not so."""
        if self._boxes is None:
            variables = self.run.scopes.connection(self, self.name)
            key = repr(sorted(variables.items()))
            known = self.state.reached.get(key)
            if known is None:
                known = self.state.reached[key] = self.state.reach(self.name, self._target)
            self._boxes = known
        return self._boxes

    def link(self, call: Call) -> Link:
        """Return the link that a call goes over."""
        return self.boxes.link(call)

    def _target(self, name: str) -> Target:
        return self.run.target_of(name, self.run.scopes.connection(self, name))

    # --- variables ---

    def scope(self, task: Task, unknown: frozenset[str] = frozenset()) -> Scope:
        """Return what a task sees; names in `unknown` raise `NotYetKnownError`."""
        return self.run.scopes.of(self, task, unknown)

    @property
    def play(self) -> Play:
        """The play."""
        return self._play

    @property
    def play_with_roles(self) -> Play:
        """The play with the roles that were made public while it runs."""
        if len(self.public_roles) != len(self._roles_play.public_roles):
            self._roles_play = replace(self._play, public_roles=tuple(self.public_roles))
        return self._roles_play

    def wrong(self, task: Task, error: RigdError) -> Result:
        """Return the result of a task whose values cannot be made out; in check mode that may be no fault of it."""
        name = self.run.scopes.first_used(self, task, self.state.known.unforetold)
        if name is None or not self.run.options.check:
            return failed(sentence(error))
        text = f"unknown: depends on '{name}', which check mode cannot know"
        return skipped(text, unknown=True, remark=text)

    def register(self, name: str, result: Result, *, unknown: bool) -> None:
        """Keep a task's result under a name."""
        known = self.state.known
        known.registered[name] = result
        if unknown:
            known.unforetold.add(name)
        else:
            known.unforetold.discard(name)

    def set_facts(self, facts: Mapping[str, Any]) -> None:
        """Set variables for the rest of the run, as set_fact does."""
        self.state.known.registered.update(facts)

    def include_vars(self, found: Mapping[str, Any]) -> None:
        """Set variables as include_vars does."""
        self.state.known.included.update(found)

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Take facts that a module tells."""
        self.state.known.learn(facts)

    def gather(self) -> Mapping[str, Any]:
        """Read the box's facts now."""
        facts = self.boxes.of(self.boxes.any_user()).facts()
        self.state.known.facts = {**self.state.known.facts, **facts}
        self.state.known.gathered = True
        return facts

    def gather_of(self, name: str) -> None:
        """Read the facts of another host, over a way of this host's own."""
        known = self.run.scopes.known(name)
        try:
            known.facts = {**self.boxes.of(None, name).facts(), **known.facts}
        except Lost as lost:
            # It is the other that is gone: here a task cannot be filled in, and may be rescued.
            raise RigdError(f"the facts of '{name}' are not to be had: {lost}") from None
        known.gathered = True

    def clear_facts(self) -> None:
        """Forget all facts; they are read again when one is used."""
        self.state.known.forget()

    def rebooted(self) -> None:
        """Forget what a reboot may have changed."""
        self.state.known.gathered = False

    def failed_in_block(self, failed: TaskFailed) -> None:
        """Tell the rescue section what failed."""
        task = {"name": failed.task.name or "", "action": failed.task.action}
        self.state.known.special |= {
            "ansible_failed_task": task,
            "ansible_failed_result": registered(failed.result),
        }

    # --- files of the controller ---

    def find(self, task: Task, name: str, kind: str) -> Path | None:
        """Return where a file that the task names lies, None if nowhere."""
        return find_file(name, kind, task, self._play.folder)

    def files_for(
        self, task: Task, scope: Scope, arguments: Mapping[str, Any], *, diff: bool
    ) -> Filed | None:
        """Return what becomes of an action that brings files of the controller; None for others."""
        return filed(
            short(task), arguments, diff=diff,
            find=lambda name, kind: self.find(task, name, kind),
            render=scope.template,
        )  # fmt: skip

    # --- handlers ---

    def handler_name(self, handler: Task) -> str | None:
        """Return a handler's name with its templates filled in."""
        if handler.name is None or "{{" not in handler.name:
            return handler.name
        try:
            return str(self.scope(handler).value(handler.name))
        except RigdError:
            return handler.name

    def notify(self, names: Sequence[str], *, written: bool) -> tuple[str, ...]:
        """Owe handlers; return those names that mean none. `written`: the journal has them already."""
        unknown = tuple(name for name in names if not matching(self.handlers, name, self.handler_name))
        new = self.owed.add(name for name in names if name not in unknown)
        if new and not written and not self.run.options.check:
            self.run.journal.notified(self.name, self.play_key, new)
        return unknown

    def handled(self, names: Sequence[str]) -> None:
        """Note that these handlers have run."""
        if names and not self.run.options.check:
            self.run.journal.handled(self.name, self.play_key, names)

    def drop_unknown_handlers(self) -> None:
        """Say which handlers a broken run owed that the playbook no longer has, and owe them no longer."""
        gone = self.owed.names
        if gone:
            text = f"owed from the run before, but no longer in the playbook: {', '.join(gone)}"
            self.run.tell(Noted(host=self.name, text=text))
            self.owed.paid(gone)
            self.handled(gone)

    def forces_handlers(self, play: Play) -> bool:
        """Return whether handlers run although a task failed."""
        return truth(play.force_handlers or False)

    # --- the way through the play ---

    def once(self, prepared: Prepared, run: Callable[[], Result]) -> Result:
        """Run a task, or take another host's result of it where `run_once` says so."""
        task = prepared.task
        if self.alone or not task.run_once or not truth(self.scope(task).value(task.run_once)):
            return run()
        return self._once.share(self.name, prepared.id, run)

    @contextlib.contextmanager
    def inside(self, included: Included, way: str) -> Iterator[None]:
        """Run what a task has included: its handlers are known from now on; ids begin with the way there."""
        known = {handler.id for handler in self.handlers}
        self.handlers.extend(handler for handler in included.handlers if handler.id not in known)
        before = self.path
        self.path = f"{before}{way}/"
        try:
            yield
        finally:
            self.path = before

    def check_stop(self) -> None:
        """Raise `Stopped` if the run is to end, or `PlayEnded`, unless what runs now tidies up."""
        if not self._deaf:
            self.run.stop.check()
            if self._once.over:
                raise PlayEnded

    @property
    def ended(self) -> bool:
        """Whether the play has ended for all its hosts."""
        return self._once.over

    def end_play(self) -> None:
        """End the play for all its hosts."""
        self._once.over = True

    def wait(self, seconds: float) -> None:
        """Wait; raises `Stopped` if the run is to end."""
        self.check_stop()
        try:
            self.run.stop.wait(seconds)
        except Stopped:
            if not self._deaf:
                raise

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """Tidy up, although the run is to end."""
        self._deaf = True
        try:
            yield
        finally:
            self._deaf = False
