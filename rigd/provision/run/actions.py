"""Actions that the controller carries out itself. Each takes the host, the task and one item, and gives a result.

How to add one: its arguments go into `language/actions.py`, what it does here, into `ACTIONS`.
"""

import re
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rigd.errors import RigdError, UsageError, explain
from rigd.provision.language import load
from rigd.provision.language.model import Expression, Included
from rigd.provision.run import results
from rigd.provision.run.events import Progress
from rigd.provision.run.play import HostPlay
from rigd.provision.run.prepared import Item, Prepared, truth
from rigd.provision.run.reboot import reboot
from rigd.provision.run.results import Result

Action = Callable[[HostPlay, Prepared, Item], Result]

DEFAULT_EXTENSIONS = ("yaml", "yml", "json")


def _debug(_host: HostPlay, prepared: Prepared, item: Item) -> Result:
    arguments = item.arguments
    if int(item.scope.value(arguments.get("verbosity") or 0)) > 0:
        return results.skipped("Verbosity threshold not met.")
    name = arguments.get("var")
    if name is None:
        given = {key: value for key, value in arguments.items() if key == "msg"}
        text = item.scope.arguments(given, prepared.task.argument_places).get("msg", "Hello world!")
        return results.done(msg=text, shown={"msg": text})
    try:
        value = item.scope.compute(str(name))
    except RigdError as error:
        value = f"VARIABLE IS NOT DEFINED! ({explain(error)})"
    return results.done(**{name: value}, shown={name: value})


def _set_fact(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    named = {str(item.scope.value(raw)): value for raw, value in item.arguments.items()}
    cached = truth(item.scope.value(named.pop("cacheable", False)))
    facts = item.scope.arguments(named, prepared.task.argument_places)
    if not facts:
        raise UsageError("set_fact sets no variable: write name: value")
    for name in facts:
        if not name.isidentifier():
            raise UsageError(f"set_fact: '{name}' is no name of a variable: letters, digits and underscores")
    host.set_facts(facts)
    if cached:
        host.learn(facts)
    return results.done(ansible_facts=facts)


def _assert(_host: HostPlay, prepared: Prepared, item: Item) -> Result:
    arguments = item.arguments
    conditions = arguments["that"] if isinstance(arguments["that"], list) else [arguments["that"]]
    place = prepared.task.argument_places.get("that", prepared.task.place)
    for condition in conditions:
        if not item.scope.holds(Expression(value=condition, place=place)):
            message = arguments.get("fail_msg", arguments.get("msg", "Assertion failed"))
            text = item.scope.value(message)
            return results.failed(_joined(text), assertion=str(condition), evaluated_to=False)
    text = _joined(item.scope.value(arguments.get("success_msg", "All assertions passed")))
    return results.done(msg=text)


def _joined(text: Any) -> str:
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _fail(_host: HostPlay, _prepared: Prepared, item: Item) -> Result:
    return results.failed(str(item.arguments["msg"]))


def _pause(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    arguments = item.arguments
    seconds = float(arguments["seconds"] or 0) + 60 * float(arguments["minutes"] or 0)
    if arguments["prompt"] and not prepared.secret:
        host.run.tell(Progress(host=host.name, text=str(arguments["prompt"]), lasting=True))
    if seconds and not prepared.check:
        host.wait(seconds)
    return results.done(delta=int(seconds), rc=0, stdout=f"Paused for {seconds} seconds", user_input="")


# --- includes ---


def _include_tasks(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    name = str(item.arguments["file"])
    included = load.load_tasks(
        name, prepared.task, variables=item.variables or None,
        extra_vars=host.run.options.extra_vars, roles_path=host.run.options.roles_path,
    )  # fmt: skip
    return _included(host, included, name)


def _include_role(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    arguments = item.arguments
    name = str(arguments["name"])
    parts = {part: arguments[f"{part}_from"] for part in ("tasks", "vars", "defaults", "handlers")}
    included = load.load_role(
        name, prepared.task, parts=parts, variables=item.variables or None,
        extra_vars=host.run.options.extra_vars, roles_path=host.run.options.roles_path,
    )  # fmt: skip
    if arguments["public"]:
        host.public_roles.extend(included.roles)
    return _included(host, included, name)


def _included(host: HostPlay, included: Included, name: str) -> Result:
    host.included.append(included)
    return results.done(include=name, remark=f"included: {name}")


def _include_vars(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    arguments = item.arguments
    found: dict[str, Any] = {}
    if arguments["dir"] is not None:
        paths = _vars_below(host, prepared, arguments)
    else:
        path = host.find(prepared.task, str(arguments["file"]), "vars")
        if path is None:
            raise UsageError(f"include_vars: there is no file '{arguments['file']}'")
        paths = [path]
    for path in paths:
        found |= load.load_vars(path)
    if arguments["name"]:
        found = {str(arguments["name"]): found}
    host.include_vars(found)
    return results.done(ansible_facts=found, ansible_included_var_files=[str(path) for path in paths])


def _vars_below(host: HostPlay, prepared: Prepared, arguments: Mapping[str, Any]) -> list[Path]:
    folder = host.find(prepared.task, str(arguments["dir"]), "vars")
    if folder is None or not folder.is_dir():
        raise UsageError(f"include_vars: there is no folder '{arguments['dir']}'")
    extensions = {f".{extension}" for extension in arguments["extensions"] or DEFAULT_EXTENSIONS}
    ignored = arguments["ignore_files"] or []
    matching = arguments["files_matching"]
    depth = int(arguments["depth"] or 0)
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(fnmatchcase(path.name, pattern) for pattern in ignored)
        and (not matching or re.search(str(matching), path.name))
        and (not depth or len(path.relative_to(folder).parts) <= depth)
    ]
    other = [path for path in found if path.suffix not in extensions]
    if other and not arguments["ignore_unknown_extensions"]:
        names = ", ".join(sorted(extensions))
        raise UsageError(
            f"include_vars: '{other[0]}' ends in none of {names} (ignore_unknown_extensions passes it)"
        )
    return [path for path in found if path not in other]


# --- the box itself ---


def _setup(host: HostPlay, _prepared: Prepared, item: Item) -> Result:
    facts = host.gather()
    wanted = [str(pattern).removeprefix("ansible_") for pattern in item.arguments.get("filter") or ()]
    shown = {
        f"ansible_{name}": value
        for name, value in facts.items()
        if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)
    }
    return {**results.done(), "ansible_facts": shown}


def _wait_for_connection(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    if prepared.check:
        return results.skipped("check mode waits for nothing")
    arguments = item.arguments
    host.wait(float(arguments["delay"] or 0))
    began_s = time.monotonic()
    # What an earlier task left of the connection must not answer.
    host.boxes.reset()
    host.boxes.back(None, float(arguments["timeout"] or 600))
    return results.done(elapsed=int(time.monotonic() - began_s))


ACTIONS: Mapping[str, Action] = {
    "debug": _debug,
    "set_fact": _set_fact,
    "assert": _assert,
    "fail": _fail,
    "pause": _pause,
    "include_tasks": _include_tasks,
    "include_role": _include_role,
    "include_vars": _include_vars,
    "setup": _setup,
    "gather_facts": _setup,
    "wait_for_connection": _wait_for_connection,
    "reboot": reboot,
}
