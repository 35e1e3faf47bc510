"""From a task to calls: loop, conditions, arguments, rights and environment with every value filled in."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rigd.errors import RigdError, UsageError
from rigd.provision.language.actions import find_action
from rigd.provision.language.arguments import check_arguments
from rigd.provision.language.faults import kind_of
from rigd.provision.language.model import Loop, Task
from rigd.provision.run.calls import Call
from rigd.provision.run.detached import detached
from rigd.provision.run.play import HostPlay
from rigd.provision.run.prepared import Item, Prepared, flat, short, truth
from rigd.provision.run.results import Result, skipped
from rigd.provision.run.scope import Scope
from rigd.provision.target import modules


class Preparer:
    """Prepares the tasks of one host."""

    def __init__(self, host: HostPlay) -> None:
        self._host = host
        self._options = host.run.options

    def __call__(self, task: Task, unknown: frozenset[str] = frozenset()) -> Prepared:
        """Return the task with every value filled in; what is wrong with it becomes its result."""
        try:
            scope = self._host.scope(task, unknown)
            secret = self._flag(scope, task.no_log)
            shell = Prepared(
                task=task,
                id=f"{self._host.path}{task.id}",
                name=self._shown_name(task, None if secret else scope),
                secret=secret,
                looped=task.loop is not None,
                check=self._options.check if task.check_mode is None else self._flag(scope, task.check_mode),
                diff=self._options.diff if task.diff is None else self._flag(scope, task.diff),
            )
        except RigdError as error:
            return Prepared(task=task, id=task.id, name=task.name or short(task), secret=True,
                            settled=self._host.wrong(task, error))  # fmt: skip
        scope = scope.hushed() if secret else scope
        if task.loop is None:
            return replace(shell, items=(self._item(shell, scope, 0, {}, None),))
        return self._looped(shell, task.loop, scope)

    @staticmethod
    def _shown_name(task: Task, scope: Scope | None) -> str:
        """Return the task's name as a person sees it: its role first, templates filled in where that may be."""
        name = task.name or short(task)
        if scope is not None and "{{" in name:
            try:
                name = str(scope.value(name))
            except RigdError:
                name = task.name or short(task)
        return f"{task.role.name} : {name}" if task.role else name

    def _looped(self, shell: Prepared, loop: Loop, scope: Scope) -> Prepared:
        task = shell.task
        try:
            values = scope.items(loop)
        except RigdError as error:
            # A loop over something that is only there when the condition holds is no mistake.
            return replace(shell, settled=self._skipped_anyway(task, scope) or self._host.wrong(task, error))
        items = []
        for index, value in enumerate(values):
            variables = {loop.variable: value, "ansible_loop_var": loop.variable}
            if loop.index_variable:
                variables |= {loop.index_variable: index, "ansible_index_var": loop.index_variable}
            if loop.extended:
                variables["ansible_loop"] = _extended(values, index, loop.extended_allitems)
            items.append(self._item(shell, scope, index, variables, value))
        return replace(shell, items=tuple(items))

    def _skipped_anyway(self, task: Task, scope: Scope) -> Result | None:
        try:
            return self._unmet(task, scope)
        except RigdError:
            return None

    def _item(
        self, shell: Prepared, scope: Scope, index: int, variables: Mapping[str, Any], value: Any
    ) -> Item:
        task = shell.task
        inner = scope.plus(variables) if variables else scope
        item = Item(scope=inner, value=value, variables=variables)
        try:
            if unmet := self._unmet(task, inner):
                return replace(item, label=self._label(task, inner, value), settled=unmet)
            item = replace(item, label=self._label(task, inner, value))
            return self._called(shell, item, index)
        except RigdError as error:
            return replace(item, settled=self._host.wrong(task, error))

    def _label(self, task: Task, scope: Scope, value: Any) -> str:
        if task.loop is None:
            return ""
        return str(value if task.loop.label is None else scope.value(task.loop.label))

    def _unmet(self, task: Task, scope: Scope) -> Result | None:
        """Return the result of a task whose conditions do not all hold."""
        for condition in task.when:
            if not scope.holds(condition):
                return skipped("Conditional result was False", false_condition=str(condition.value))
        return None

    def _called(self, shell: Prepared, item: Item, index: int) -> Item:
        task, scope = shell.task, item.scope
        if task.left_out:
            raise UsageError(task.left_out)
        arguments = self._arguments(task, scope)
        filed = self._host.files_for(task, scope, arguments, diff=shell.diff and not shell.secret)
        name = filed.module if filed else task.action
        module = None if filed is None and find_action(name) else modules.module_of(name)
        if module is None:
            return replace(item, arguments=arguments, user=self._user(task, scope))
        check = shell.check and not _only_looks(task)
        call = Call(
            id=f"{shell.id}#{index}",
            module=module,
            short=name,
            arguments=filed.arguments if filed else arguments,
            blobs=filed.blobs if filed else {},
            environment=self._environment(task, scope),
            check=check,
            diff=shell.diff and not shell.secret,
            timeout_s=self._number(scope, task.timeout_s),
            secret=shell.secret,
            user=self._user(task, scope),
            on=None if task.delegate_to is None else str(scope.value(task.delegate_to)),
            handlers=tuple(str(name) for name in flat(scope.value(list(task.notify)))),
        )
        seconds = self._number(scope, task.async_s)
        if seconds:
            call = replace(call, timeout_s=call.timeout_s or seconds)
        if seconds and not self._number(scope, task.poll_s):
            call = detached(call, seconds, short(task))
        return replace(item, call=call)

    def _arguments(self, task: Task, scope: Scope) -> dict[str, Any]:
        raw = task.arguments
        if find_action(task.action) and short(task) in _TEMPLATED_LATER:
            # Conditions, and variables that are to stay as they are written.
            return dict(raw)
        return check_arguments(task.action, scope.arguments(raw, task.argument_places))

    def _user(self, task: Task, scope: Scope) -> str | None:
        wanted = task.become.wanted
        if wanted is None:
            wanted = self._options.become or scope.get("ansible_become", default=False)
        if not self._flag(scope, wanted):
            return None
        user = task.become.user or self._options.become_user or scope.get("ansible_become_user", default=None)
        return str(scope.value(user)) if user else "root"

    def _environment(self, task: Task, scope: Scope) -> dict[str, str]:
        found: dict[str, str] = {}
        for raw in task.environment:
            value = scope.value(raw)
            for one in value if isinstance(value, list) else [value]:
                if one and not isinstance(one, Mapping):
                    raise UsageError(f"'environment' takes a mapping, and here is {kind_of(one)}")
                if one:
                    found |= {str(key): "" if text is None else str(text) for key, text in one.items()}
        return found

    @staticmethod
    def _flag(scope: Scope, raw: Any) -> bool:
        return truth(scope.value(raw))

    @staticmethod
    def _number(scope: Scope, raw: Any) -> float:
        value = scope.value(raw)
        try:
            return float(value or 0)
        except (TypeError, ValueError):
            raise UsageError(f"'{value}' is no number of seconds") from None


_TEMPLATED_LATER = frozenset({"assert", "set_fact", "debug"})


def _only_looks(task: Task) -> bool:
    """Return whether a task that could change things says of itself that it never does."""
    return (
        task.changed_when is not None
        and len(task.changed_when) == 1
        and task.changed_when[0].value in (False, "false", "False")
        and short(task) in {"command", "shell", "script", "raw"}
    )


def _extended(values: list[Any], index: int, allitems: Any) -> dict[str, Any]:
    count = len(values)
    found: dict[str, Any] = {
        "index": index + 1,
        "index0": index,
        "revindex": count - index,
        "revindex0": count - index - 1,
        "first": index == 0,
        "last": index == count - 1,
        "length": count,
    }
    if allitems:
        found["allitems"] = values
    if index:
        found["previtem"] = values[index - 1]
    if index < count - 1:
        found["nextitem"] = values[index + 1]
    return found
