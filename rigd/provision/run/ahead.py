"""Reads ahead: while one task is probed, those after it that do not depend on it are probed in the same frame.

    probe(task 1) -> the box answers for 1, 2, 3, ... up to the first that differs
    apply(task 3) -> the box changes 3 and answers for the next in the same round trip

What was read is thrown away as soon as something changes. After a change the first batch is short and each one that
follows is twice as long: a first run, where everything differs, does not probe all that is left after every task.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from rigd.provision.language.model import Node, Task
from rigd.provision.run.calls import Answer, Call, Link
from rigd.provision.run.known import NotYetKnownError
from rigd.provision.run.prepared import Prepared, short

LONGEST_BATCH = 64

_TRANSPARENT = frozenset({"debug", "assert", "fail", "set_fact"})
"""Actions of the controller that touch no box: what comes after them may be read before their turn."""
_SETS_FACTS = frozenset({"service_facts", "package_facts", "getent", "mount_facts"})

Prepare = Callable[[Task, frozenset[str]], Prepared]
"""Prepares a task while some names are not known yet; raises `NotYetKnownError` if it needs one of them."""
LinkOf = Callable[[Call], Link]


def names_set(task: Task) -> frozenset[str] | None:
    """Return the variables that a task sets, None if they cannot be foretold."""
    names = {task.register} if task.register else set()
    if short(task) == "set_fact":
        if any("{{" in str(name) for name in task.arguments):
            return None
        names |= set(task.arguments)
    return frozenset(names)


def stops(task: Task, *, alone: bool) -> bool:
    """Return whether nothing after this task may be read before its turn."""
    return bool(
        task.delegate_to is not None
        or task.async_s
        or (task.run_once and not alone)
        or short(task) in _SETS_FACTS
        or names_set(task) is None
        or (task.loop and (task.loop.pause_s or task.loop.break_when))
    )


class Ahead:
    """What was prepared and probed before its turn, for one host."""

    def __init__(
        self,
        *,
        prepare: Prepare,
        link_of: LinkOf,
        check: bool,
        is_action: Callable[[Task], bool],
        alone: bool,
    ) -> None:
        """`alone`: no other host is in the play, so `run_once` waits for nobody."""
        self._prepare = prepare
        self._link_of = link_of
        self._check = check
        self._is_action = is_action
        self._alone = alone
        self._prepared: dict[str, Prepared] = {}
        self._answers: dict[str, Answer] = {}
        self._batch = LONGEST_BATCH
        self._upcoming: Sequence[Node] = ()
        self._next = 0

    def look_at(self, nodes: Sequence[Node], index: int) -> None:
        """Say what comes after the task that is about to run."""
        self._upcoming, self._next = nodes, index + 1

    def forget(self) -> None:
        """Throw away all that was read: the box, or what is known of it, has changed."""
        self._answers.clear()
        self._prepared.clear()

    def prepared(self, task: Task) -> Prepared:
        """Return the task with its values filled in."""
        found = self._prepared.pop(task.id, None)
        return found or self._prepare(task, frozenset())

    def probe(self, task: Task, call: Call, rest: Sequence[Call]) -> Answer:
        """Return what a call would change; `rest` are the task's own calls after it."""
        answer = self._answers.pop(call.id, None)
        if answer is not None:
            return answer
        link = self._link_of(call)
        calls = [call, *self._following(task, call, rest, self._batch - 1)]
        answers = link.probe(calls, stop_at_change=not self._check)
        self._keep(calls[1:], answers[1:])
        self._batch = min(LONGEST_BATCH, self._batch * 2)
        return answers[0]

    def apply(self, task: Task, call: Call, rest: Sequence[Call]) -> Answer:
        """Carry out a call."""
        link = self._link_of(call)
        self._answers.clear()
        if link.local:
            # No way to save, and what comes may read files of this machine through lookups: see them changed.
            then: list[Call] = []
            self.forget()
        else:
            then = list(self._following(task, call, rest, 1))
        self._batch = 1 + len(then)
        answer, answers = link.apply(call, then)
        self._keep(then, answers)
        return answer

    def again(self, call: Call) -> Answer:
        """Probe a call anew, alone."""
        return self._link_of(call).probe([call], stop_at_change=True)[0]

    def _keep(self, calls: Sequence[Call], answers: Sequence[Answer]) -> None:
        for call, answer in zip(calls, answers, strict=False):
            self._answers[call.id] = answer

    def _following(self, task: Task, call: Call, rest: Sequence[Call], limit: int) -> Iterator[Call]:
        """Yield calls after this one that may be probed now, for the same helper."""
        if stops(task, alone=self._alone):
            return
        left = limit
        for later in chain(rest, self._later(task)):
            if (later.user, later.on) != (call.user, call.on):
                return
            if later.id in self._answers:
                continue
            if left <= 0:
                return
            left -= 1
            yield later

    def _later(self, task: Task) -> Iterator[Call]:
        """Yield the calls of the tasks after this one, as far as nothing in between may change what they find."""
        unknown = names_set(task) or frozenset()
        for node in islice(self._upcoming, self._next, None):
            if not isinstance(node, Task) or stops(node, alone=self._alone):
                return
            if self._is_action(node) and short(node) not in _TRANSPARENT:
                return
            yield from self._calls(node, unknown)
            unknown |= names_set(node) or frozenset()

    def _calls(self, task: Task, unknown: frozenset[str]) -> Sequence[Call]:
        if self._is_action(task):
            return ()
        known = self._prepared.get(task.id)
        if known is None:
            try:
                known = self._prepare(task, unknown)
            except NotYetKnownError:
                return ()
            self._prepared[task.id] = known
        return known.calls
