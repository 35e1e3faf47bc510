"""Runs one task on one host: all items of its loop; keeps, counts and tells what came of it.

prepared -> each item (`tries.py`) -> result -> registered, facts kept -> counted, told -> or raises `TaskFailed`
"""

import time
from collections.abc import Mapping, Sequence

from rigd.errors import RigdError
from rigd.provision.language.model import Expression, Task
from rigd.provision.run import results
from rigd.provision.run.ahead import Ahead
from rigd.provision.run.calls import Lost
from rigd.provision.run.events import ItemEnded, Outcome, TaskEnded, TaskStarted
from rigd.provision.run.flow import TaskFailed
from rigd.provision.run.play import HostPlay
from rigd.provision.run.prepared import Item, Prepared, short, truth
from rigd.provision.run.results import Result
from rigd.provision.run.tries import ItemRun, with_result


class TaskRunner:
    """Runs tasks of one host in one play."""

    def __init__(self, host: HostPlay, ahead: Ahead) -> None:
        self._host = host
        self._run = host.run
        self._ahead = ahead

    def run(self, task: Task, *, handler: bool = False) -> Result:
        """Run a task and return its result; raises `TaskFailed` or `HostOver` where the play cannot go on."""
        self._host.check_stop()
        began_s = time.monotonic()
        prepared = self._prepared(task)
        self._run.tell(
            TaskStarted(
                host=self._host.name,
                name=prepared.name,
                place=str(task.place),
                action=task.action,
                handler=handler,
            )
        )
        result = self._host.once(prepared, lambda: self._items(prepared))
        return self._close(prepared, result, began_s)

    def _prepared(self, task: Task) -> Prepared:
        try:
            return self._ahead.prepared(task)
        except Lost as lost:
            # A fact was to be read for it.
            settled = results.unreachable(str(lost))
            return Prepared(task=task, id=task.id, name=task.name or short(task), settled=settled)

    # --- items ---

    def _items(self, prepared: Prepared) -> Result:
        if prepared.settled is not None:
            return prepared.settled
        if not prepared.looped:
            return ItemRun(self._host, self._ahead, prepared, prepared.items[0], 0).result()
        found: list[Result] = []
        for index, item in enumerate(prepared.items):
            if index and prepared.task.loop and prepared.task.loop.pause_s:
                self._host.wait(float(item.scope.value(prepared.task.loop.pause_s)))
            result = {**ItemRun(self._host, self._ahead, prepared, item, index).result(), **item.variables}
            found.append(result)
            self._tell_item(prepared, item, result)
            if result.get("unreachable"):
                break
            if prepared.task.loop and self._breaks(prepared.task.loop.break_when, item, prepared, result):
                break
        return results.of_loop(found)

    def _breaks(
        self, conditions: Sequence[Expression], item: Item, prepared: Prepared, result: Result
    ) -> bool:
        if not conditions or result.get("skipped"):
            return False
        scope = with_result(item.scope, prepared.task, result)
        return all(scope.holds(condition) for condition in conditions)

    def _tell_item(self, prepared: Prepared, item: Item, result: Result) -> None:
        self._run.tell(
            ItemEnded(
                host=self._host.name,
                name=prepared.name,
                label="(censored due to no_log)" if prepared.secret else item.label,
                outcome=_outcome(result),
                result=results.shown(result, secret=prepared.secret, diff=prepared.diff),
            )
        )

    # --- the end of a task ---

    def _close(self, prepared: Prepared, result: Result, began_s: float) -> Result:
        task = prepared.task
        if task.register:
            self._host.register(task.register, results.registered(result), unknown=_unknown(result))
        keep = {"set_fact": self._host.set_facts, "include_vars": self._host.include_vars}.get(
            short(task), self._host.learn
        )
        # Also what another host has learned for this one (`run_once`).
        for each in (result, *(result.get("results", ()) if prepared.looped else ())):
            if isinstance(facts := each.get("ansible_facts"), Mapping):
                keep(facts)
        outcome = _outcome(result)
        ignored = self._ignored(task, outcome)
        changed = bool(result.get("changed"))
        for _each in range(max(1, len(self._host.included))):
            # Of a looped include each that is included counts, as with Ansible.
            self._run.recap.count(self._host.name, outcome, ignored=ignored, changed=changed)
        self._run.tell(
            TaskEnded(
                host=self._host.name,
                name=prepared.name,
                place=str(task.place),
                outcome=outcome,
                result=results.shown(result, secret=prepared.secret, diff=prepared.diff),
                took_s=time.monotonic() - began_s,
                ignored=ignored,
                looped=prepared.looped and bool(result.get("results")),
            )
        )
        if ignored or outcome not in {Outcome.FAILED, Outcome.UNREACHABLE}:
            return result
        if outcome is Outcome.UNREACHABLE:
            lost = Lost(str(result.get("msg", "")))
            lost.told = True
            raise lost
        raise TaskFailed(task, result, name=prepared.name)

    def _ignored(self, task: Task, outcome: Outcome) -> bool:
        raw = {Outcome.FAILED: task.ignore_errors, Outcome.UNREACHABLE: task.ignore_unreachable}.get(outcome)
        try:
            return raw is not None and truth(self._host.scope(task).value(raw))
        except RigdError:
            return False


def _outcome(result: Result) -> Outcome:
    outcome = results.outcome_of(result)
    return Outcome.OK if outcome is Outcome.CHANGED and result.get("inherited") else outcome


def _unknown(result: Result) -> bool:
    return bool(result.get("unknown"))
