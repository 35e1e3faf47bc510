"""One item of a task: probe, (journal: started -> apply), its conditions, further tries, (journal: done)."""

from collections.abc import Mapping, Sequence
from typing import Any

from rigd.errors import RigdError
from rigd.provision.language.model import Expression, Task
from rigd.provision.run import results
from rigd.provision.run.actions import ACTIONS
from rigd.provision.run.ahead import Ahead
from rigd.provision.run.calls import Answer, Call, Lost
from rigd.provision.run.events import Progress
from rigd.provision.run.journal import Journal, JournalError
from rigd.provision.run.past import HostPast, task_in_play
from rigd.provision.run.play import HostPlay
from rigd.provision.run.prepared import Item, Prepared, flat, short
from rigd.provision.run.results import Result
from rigd.provision.run.scope import Scope

DEFAULT_RETRIES = 3


class ItemRun:
    """One item of one task, through all its tries."""

    def __init__(self, host: HostPlay, ahead: Ahead, prepared: Prepared, item: Item, index: int) -> None:
        self._host = host
        self._run = host.run
        self._ahead = ahead
        self._prepared = prepared
        self._task = prepared.task
        self._item = item
        self._rest = [later.call for later in prepared.items[index + 1 :] if later.call and not later.settled]
        self._started = False
        self._inherited = False

    def result(self) -> Result:
        """Return what came of it, written down if it changed something."""
        if self._item.settled is not None:
            return self._item.settled
        try:
            result = self._tries()
        except Lost as lost:
            return results.unreachable(str(lost))
        except JournalError:
            # No task's failure: without a journal the run may change nothing, whatever it ignores.
            raise
        except RigdError as error:
            result = self._host.wrong(self._task, error)
        self._remember(result)
        return result

    def _tries(self) -> Result:
        count, until = self._policy()
        for attempt in range(1, count + 1):
            result = self._once(again=attempt > 1)
            if count == 1 or result.get("skipped"):
                return self._judged(result)
            # Known before it is judged: `changed_when: result.attempts > 1`.
            result = self._judged({**result, "attempts": attempt})
            scope = with_result(self._item.scope, self._task, result)
            if all(scope.holds(condition) for condition in until) if until else not result.get("failed"):
                return result
            if attempt < count:
                self._tell_retry(count - attempt)
                self._host.wait(float(scope.value(self._task.delay_s) or 0))
        return {**result, "attempts": count - 1, "failed": True}

    def _policy(self) -> tuple[int, Sequence[Expression]]:
        """Return how often the task is tried at most, and until when: Ansible's retries come after a first try."""
        raw = self._task.retries
        if raw is None and not self._task.until:
            return 1, ()
        retries = DEFAULT_RETRIES if raw is None else int(self._item.scope.value(raw) or 0)
        return max(1, retries + 1), self._task.until

    def _tell_retry(self, left: int) -> None:
        self._run.tell(
            Progress(
                host=self._host.name,
                text=f"FAILED - RETRYING: [{self._host.name}]: {self._prepared.name} ({left} retries left).",
                lasting=True,
            )
        )

    def _once(self, *, again: bool) -> Result:
        call = self._item.call
        if call is None:
            action = ACTIONS[short(self._task)]
            return action(self._host, self._prepared, self._item)
        answer = self._ahead.again(call) if again else self._ahead.probe(self._task, call, self._rest)
        if answer.skipped:
            return results.skipped("check mode cannot foretell it", unknown=True,
                                   remark="skipped: check mode cannot foretell it")  # fmt: skip
        if answer.failed is None and answer.changes and not call.check:
            answer = self._apply(call)
        return self._told(answer)

    def _apply(self, call: Call) -> Answer:
        if not self._started:
            self._journal.started(
                self._host.name, self._host.play_key, call.id,
                name=self._prepared.name, handlers=call.handlers,
            )  # fmt: skip
            self._started = True
        return self._ahead.apply(self._task, call, self._rest)

    def _told(self, answer: Answer) -> Result:
        # A command that failed did run; so Ansible counts it as changed, and conditions may ask for it.
        changed = answer.changed if answer.failed is None else "rc" in answer.facts and self._started
        if not changed and answer.failed is None and self._changed_before:
            # The run that was broken off changed it, and what hung on that change is still to be done.
            self._inherited = changed = True
        if short(self._task) == "script" and answer.failed is None and not changed:
            # As Ansible has it: a command that need not run is ok, a script is skipped.
            return results.skipped(str(answer.facts.get("msg", "")))
        result = results.of_answer(answer, changed=changed)
        if self._item.call and self._item.call.job and answer.failed is None:
            result |= {"started": 1, "finished": 0, "ansible_job_id": self._item.call.job}
        if self._prepared.diff and answer.changes:
            result["diff"] = results.diffs(answer)
        return result

    def _judged(self, result: Result) -> Result:
        """Return the result as `changed_when` and `failed_when` see it."""
        if result.get("skipped"):
            return result
        scope = with_result(self._item.scope, self._task, result)
        if self._task.changed_when is not None:
            result["changed"] = all(scope.holds(condition) for condition in self._task.changed_when)
            scope = with_result(self._item.scope, self._task, result)
        if self._task.failed_when is not None:
            result["failed"] = all(scope.holds(condition) for condition in self._task.failed_when)
            result["failed_when_result"] = result["failed"]
        if self._inherited and result.get("changed"):
            result["remark"] = "changed by the run that was broken off"
            result["inherited"] = True
        return result

    def _remember(self, result: Result) -> None:
        """Write down what came of the item, and owe the handlers of a change."""
        call = self._item.call
        names = call.handlers if call else self._notified()
        changed = bool(result.get("changed")) and not result.get("inherited")
        failed = bool(result.get("failed"))
        if self._started and call:
            owed = changed or failed
            self._journal.done(
                self._host.name, self._host.play_key, call.id,
                changed=owed, handlers=names if owed else (),
            )  # fmt: skip
        if changed and not failed and names and (unknown := self._host.notify(names, written=self._started)):
            result["failed"] = True
            result["msg"] = f"there is no handler '{unknown[0]}' to notify"

    def _notified(self) -> tuple[str, ...]:
        return tuple(str(name) for name in flat(self._item.scope.value(list(self._task.notify))))

    @property
    def _journal(self) -> Journal:
        return self._run.journal

    @property
    def _changed_before(self) -> bool:
        past: HostPast = self._host.past
        key = task_in_play(self._host.play_key, f"{self._item.call.id}" if self._item.call else "")
        return not self._prepared.check and key in past.changed


def with_result(scope: Scope, task: Task, result: Mapping[str, Any]) -> Scope:
    """Return the scope in which conditions on a result are read: under its registered name, or none."""
    return scope.plus({task.register: results.registered(result)}) if task.register else scope
