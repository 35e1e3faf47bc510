"""Takes one host through one play: sections, blocks with rescue and always, includes, handlers."""

from collections.abc import Sequence

from rigd.provision.language.actions import find_action
from rigd.provision.language.model import Block, Node, Play, Role, Task
from rigd.provision.run.ahead import Ahead
from rigd.provision.run.calls import HostOver
from rigd.provision.run.events import Noted
from rigd.provision.run.flow import HostEnded, PlayEnded, RoleEnded, Stopped, TaskFailed
from rigd.provision.run.handlers import due
from rigd.provision.run.play import HostPlay
from rigd.provision.run.prepare import Preparer
from rigd.provision.run.prepared import short
from rigd.provision.run.selection import flattened
from rigd.provision.run.tasks import TaskRunner

MOST_ROUNDS = 20
"""Handlers that notify handlers that notify ...: that many times, then the play is wrong."""


class Walker:
    """One host in one play."""

    def __init__(self, host: HostPlay) -> None:
        self._host = host
        self._run = host.run
        self._prepare = Preparer(host)
        self._ahead = Ahead(
            prepare=self._prepare, link_of=host.link, check=host.run.options.check,
            is_action=_is_action, alone=host.alone,
        )  # fmt: skip
        self._tasks = TaskRunner(host, self._ahead)
        self._roles_run: dict[str, Role] = {}
        """What a role's use is known by -> the use that the host has gone through."""

    def play(self, play: Play) -> None:
        """Run the whole play. Raises `TaskFailed`, `HostOver`, `Stopped`, ... where it does not come to its end."""
        try:
            for section in (play.pre_tasks, (*play.roles, *play.tasks), play.post_tasks):
                self._nodes(flattened(section, self._run.options.selection))
                # A handler that a broken run owes may use what the tasks register, so it waits for them.
                if section:
                    self._flush()
            self._flush()
            self._host.drop_unknown_handlers()
        except HostEnded:
            self._flush()
        except TaskFailed:
            if self._host.forces_handlers(play):
                self._flush()
            raise

    def _nodes(self, nodes: Sequence[Node]) -> None:
        role_over = None
        for index, node in enumerate(nodes):
            if isinstance(node, Block):
                self._block(node)
            elif (role_over is None or node.role is not role_over) and not self._role_has_run(node):
                self._ahead.look_at(nodes, index)
                try:
                    self._task(node)
                except RoleEnded:
                    role_over = node.role

    def _task(self, task: Task) -> None:
        if short(task) == "meta" and _is_action(task):
            self._meta(task)
            return
        result = self._tasks.run(task)
        if task.role and task.role.once and not result.get("skipped"):
            self._roles_run.setdefault(task.role.once, task.role)
        self._included(task)

    def _role_has_run(self, task: Task) -> bool:
        """Return whether another use of the task's role, the same as this one, has done something already."""
        return task.role is not None and self._roles_run.get(task.role.once, task.role) is not task.role

    def _included(self, task: Task) -> None:
        """Run what the last task has included, item by item."""
        found, self._host.included = self._host.included, []
        for index, included in enumerate(found):
            self._ahead.forget()
            with self._host.inside(included, f"{task.id}:{index}"):
                self._nodes(flattened(included.nodes, self._run.options.selection))
            self._ahead.forget()

    # --- blocks ---

    def _block(self, block: Block) -> None:
        selection = self._run.options.selection
        try:
            try:
                self._nodes(flattened(block.tasks, selection))
            except TaskFailed as failed:
                if not block.rescue:
                    raise
                self._run.recap.rescued(self._host.name)
                self._host.failed_in_block(failed)
                self._ahead.forget()
                self._nodes(flattened(block.rescue, selection))
        except TaskFailed:
            self._nodes(flattened(block.always, selection))
            raise
        except Stopped:
            # What was begun is tidied up, whoever ends the run.
            with self._host.deaf():
                self._nodes(flattened(block.always, selection))
            raise
        self._nodes(flattened(block.always, selection))

    # --- handlers ---

    def _flush(self) -> None:
        """Run the handlers that are owed, and those that they notify."""
        for _round in range(MOST_ROUNDS):
            if not self._due():
                return
            self._ahead.forget()
            self._pass()
        names = ", ".join(self._host.owed.names)
        self._run.tell(Noted(host=self._host.name, text=f"handlers notify one another without end: {names}"))

    def _pass(self) -> None:
        """Run handlers in their order; one that is notified meanwhile has its turn, if that is still to come."""
        done = 0
        while following := [found for found in self._due() if found[0] > done]:
            done, handler, paid = following[0]
            self._ahead.look_at([later for _number, later, _paid in following], 0)
            # Paid before it runs, so that one that is notified anew meanwhile runs again; written after it.
            self._host.owed.paid(paid)
            try:
                self._tasks.run(handler, handler=True)
                self._included(handler)
            except (TaskFailed, HostOver, Stopped):
                self._host.owed.add(paid)
                raise
            self._host.handled(paid)

    def _due(self) -> list[tuple[int, Task, tuple[str, ...]]]:
        """Return the handlers that are owed, each with its number in the play and what is paid with it."""
        numbers = {handler.id: number for number, handler in enumerate(self._host.handlers, start=1)}
        found = due(self._host.handlers, self._host.owed.names, self._host.handler_name)
        return [(numbers[handler.id], handler, paid) for handler, paid in found]

    # --- meta ---

    def _meta(self, task: Task) -> None:
        prepared = self._prepare(task)
        item = prepared.items[0]
        if item.settled is not None:
            if item.settled.get("failed"):
                raise TaskFailed(task, item.settled, name=prepared.name)
            return
        wanted = str(item.arguments["free"]).strip()
        if wanted == "flush_handlers":
            self._flush()
        elif wanted in _ENDS:
            raise _ENDS[wanted]
        elif wanted == "clear_facts":
            self._host.clear_facts()
        elif wanted == "reset_connection":
            self._host.boxes.reset()
        self._ahead.forget()


_ENDS: dict[str, type[Exception]] = {"end_host": HostEnded, "end_play": PlayEnded, "end_role": RoleEnded}


def _is_action(task: Task) -> bool:
    """Return whether the controller carries a task out itself, not by way of a module."""
    return find_action(task.action) is not None and short(task) not in {"template", "script"}
