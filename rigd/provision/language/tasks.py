"""Lists of tasks: blocks, tasks and handlers, each with everything that is handed down to it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rigd.provision.language import keywords, left_out
from rigd.provision.language.actions import BUILTIN, Signature, find_signature, known_names
from rigd.provision.language.arguments import faults_in
from rigd.provision.language.faults import nearest
from rigd.provision.language.freeform import free_text, key_values
from rigd.provision.language.keywords import is_template, unknown_keyword
from rigd.provision.language.loader import MOST_DEPTH, Loader, as_mapping, texts
from rigd.provision.language.model import Block, Expression, Loop, Node, Place, Scope, Task
from rigd.provision.language.scope import in_file, inside
from rigd.provision.language.search import find_tasks
from rigd.provision.language.source import YamlList, YamlMap
from rigd.provision.templating import syntax

_INCLUDES = frozenset(BUILTIN + name for name in ("include_tasks", "include_role"))
_WITHOUT_LOOPS = frozenset(BUILTIN + name for name in ("import_tasks", "import_role", "meta"))
_BY_VALUE = ("action", "local_action")
"""Keywords under which a module is named."""
_EXPRESSIONS = {BUILTIN + "debug": "var", BUILTIN + "assert": "that"}
"""Arguments that hold expressions instead of templates."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A task's module and arguments."""

    name: str
    signature: Signature | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    left_out: str = ""


def read_nodes(loader: Loader, items: Any, scope: Scope) -> tuple[Node, ...]:
    """Return the blocks and tasks of a list; what is wrong with them is noted."""
    if not isinstance(items, YamlList):
        return ()
    found: list[Node] = []
    for index, item in enumerate(items):
        if isinstance(item, YamlMap):
            found.extend(_node(loader, item, scope))
        elif item is not None:
            loader.fault(
                items.place_of(index), "a task must be a mapping: the name of a module and its arguments"
            )
    return tuple(found)


def read_file(loader: Loader, path: Path, scope: Scope) -> tuple[Node, ...]:
    """Return the blocks and tasks of a file."""
    below = in_file(scope, path)
    if below.depth > MOST_DEPTH:
        place = Place(file=path, line=1, column=1)
        loader.fault(
            place, f"imports and includes go more than {MOST_DEPTH} files deep; does one import itself?"
        )
        return ()
    return read_nodes(loader, loader.read_tasks(path), below)


def tasks_of(nodes: tuple[Node, ...]) -> Iterator[Task]:
    """Yield the tasks of nodes, those in blocks, too."""
    for node in nodes:
        if isinstance(node, Task):
            yield node
        else:
            yield from tasks_of((*node.tasks, *node.rescue, *node.always))


def _node(loader: Loader, keys: YamlMap, scope: Scope) -> tuple[Node, ...]:
    if not {"block", "rescue", "always"}.isdisjoint(keys):
        return (_block(loader, keys, scope),)
    return _task(loader, keys, scope)


def _block(loader: Loader, keys: YamlMap, scope: Scope) -> Block:
    loader.check_keywords(keys, keywords.BLOCK, "a block")
    if "block" not in keys:
        loader.fault(keys.place, "`rescue` and `always` belong to a `block`, and there is none")
    for key in ("name", "vars", "environment", "become_user", "delegate_to"):
        loader.check_templates(keys.get(key), keys.place_of(key))
    below = inside(loader, scope, keys)
    _note_notified(loader, keys)
    parts = {part: read_nodes(loader, keys.get(part), below) for part in ("block", "rescue", "always")}
    return Block(
        place=keys.place,
        name=None if keys.get("name") is None else str(keys["name"]),
        tasks=parts["block"],
        rescue=parts["rescue"],
        always=parts["always"],
        tags=below.tags,
    )


def _task(loader: Loader, keys: YamlMap, scope: Scope) -> tuple[Node, ...]:
    found = _action(loader, keys, scope)
    table = keywords.HANDLER if scope.handlers else keywords.TASK
    for key in keys:
        if key in table:
            loader.check_keyword(keys, key, table[key])
    if found is None:
        return ()
    own = inside(loader, scope, keys)
    arguments = {**own.module_defaults.get(found.name, {}), **found.arguments}
    if found.signature is not None:
        _check_arguments(loader, found.signature, arguments, found.places, keys.place)
    for key in ("name", "vars", "environment", "become_user", "delegate_to", "register"):
        loader.check_templates(keys.get(key), keys.place_of(key))
    _note_notified(loader, keys)
    label = None if keys.get("name") is None else str(keys["name"])
    task = Task(
        id=loader.unique(
            f"{scope.prefix}{loader.relative(keys.file)}:{keys.place.line}:{label or found.name}"
        ),
        place=keys.place,
        name=label,
        action=found.name,
        arguments=arguments,
        argument_places=found.places,
        when=own.when,
        loop=_loop(loader, keys),
        register=keys.get("register"),
        until=loader.conditions(keys, "until"),
        retries=keys.get("retries"),
        delay_s=keys.get("delay", 5),
        changed_when=loader.conditions(keys, "changed_when") if "changed_when" in keys else None,
        failed_when=loader.conditions(keys, "failed_when") if "failed_when" in keys else None,
        notify=own.notify,
        listen=texts(keys.get("listen")),
        tags=own.tags,
        become=own.become,
        environment=own.environment,
        vars=own.vars,
        parameters=own.parameters,
        role=own.role,
        module_defaults=own.module_defaults,
        no_log=own.no_log,
        ignore_errors=own.ignore_errors,
        ignore_unreachable=own.ignore_unreachable,
        delegate_to=own.delegate_to,
        run_once=own.run_once,
        check_mode=own.check_mode,
        diff=own.diff,
        async_s=keys.get("async", 0),
        poll_s=keys.get("poll", 15),
        timeout_s=own.timeout_s,
        left_out=found.left_out,
    )
    if found.name in _WITHOUT_LOOPS and task.loop is not None:
        short = found.name.rpartition(".")[2]
        advice = "" if short == "meta" else f"; use {short.replace('import', 'include')}"
        loader.fault(keys.place, f"{short} takes no loop{advice}")
    return _follow(loader, task, scope, own)


def _follow(loader: Loader, task: Task, scope: Scope, own: Scope) -> tuple[Node, ...]:
    """Return what a task stands for: its own, or what it imports. Dynamic includes are checked, too."""
    from rigd.provision.language import roles  # noqa: PLC0415  (a role's tasks are a list of tasks, in which roles are)

    if task.action == BUILTIN + "import_tasks":
        path = _included_file(loader, task, own)
        return read_file(loader, path, own) if path else ()
    if task.action == BUILTIN + "import_role":
        return roles.imported(loader, task, own)
    if task.action not in _INCLUDES:
        return (task,)
    handed_down = replace(
        scope,
        prefix=f"{task.id}/",
        parameters=(*scope.parameters, *_own_vars(scope, own)),
        guarded=scope.guarded or bool(own.when),
    )
    task = replace(task, scope=handed_down)
    apply = task.arguments.get("apply")
    if isinstance(apply, YamlMap):
        loader.check_keywords(apply, keywords.APPLY, "`apply`")
        loader.check_templates(apply)
    if task.action == BUILTIN + "include_role":
        roles.foretell(loader, task, handed_down)
    elif isinstance(file := task.arguments.get("file"), str) and not is_template(file):
        path = _included_file(loader, task, own)
        if path and path.absolute() not in loader.foretold:
            loader.foretold.add(path.absolute())
            read_file(loader, path, handed_down)
    return (task,)


def _own_vars(outer: Scope, own: Scope) -> tuple[Mapping[str, Any], ...]:
    return own.vars[len(outer.vars) :]


def _included_file(loader: Loader, task: Task, scope: Scope) -> Path | None:
    place = task.argument_places.get("file", task.place)
    known = {**scope.play_vars, **{key: value for layer in scope.vars for key, value in layer.items()}}
    name = loader.static(task.arguments.get("file"), place, known)
    if name is None:
        return None
    path = find_tasks(name, scope)
    if path is None:
        beside = [entry.name for entry in scope.file.parent.glob("*.y*ml")]
        loader.fault(place, f"there is no file '{name}' of tasks{nearest(name, beside)}")
    return path


def _action(loader: Loader, keys: YamlMap, scope: Scope) -> _Found | None:
    """Return a task's module with its arguments; None, and a fault is noted, if it names none that is known."""
    key = _module_key(loader, keys, scope)
    if key is None:
        return None
    raw, place = keys[key], keys.place_of(key)
    name: str | None = key
    if key in _BY_VALUE:
        name, raw = _named_by_action(raw)
    if name is None or not _is_module(name):
        loader.fault(place, f"there is no module '{name}'{nearest(str(name), known_names())}")
        return None
    signature = find_signature(name)
    if signature is None:
        reason = f"the module '{name}' is left out: {left_out.module_reason(name)}"
        if not (scope.guarded or scope.when or keys.get("when")):
            loader.fault(place, reason)
            return None
        return _Found(name=name, left_out=reason)
    args = as_mapping(keys.get("args"), keys.file)
    arguments, places = _arguments(loader, signature, raw, place, args)
    return _Found(name=signature.names[0], signature=signature, arguments=arguments, places=places)


def _module_key(loader: Loader, keys: YamlMap, scope: Scope) -> str | None:
    """Return the key that names the module; whatever is neither that nor a keyword is noted."""
    table = keywords.HANDLER if scope.handlers else keywords.TASK
    others = [key for key in keys if key not in table and not str(key).startswith("with_")]
    known = [key for key in _BY_VALUE if key in keys]
    known = known or [key for key in others if isinstance(key, str) and _is_module(key)]
    wrong = [key for key in others if key not in known]
    for key in wrong:
        if known or len(wrong) > 1 or key in left_out.KEYWORDS:
            sentence = unknown_keyword(key, table, "a task", known_names())
        else:
            hint = nearest(str(key).rpartition(".")[2], (*known_names(), *table))
            sentence = f"there is no module or keyword '{key}'{hint}"
        loader.fault(keys.place_of(key), sentence)
    for key in known[1:]:
        loader.fault(keys.place_of(key), f"a task has one module, and here are two: '{known[0]}' and '{key}'")
    if not known and not wrong:
        loader.fault(keys.place, "the task names no module")
    return known[0] if known else None


def _is_module(name: str) -> bool:
    return find_signature(name) is not None or left_out.module_reason(name) is not None


def _named_by_action(raw: Any) -> tuple[str | None, Any]:
    if isinstance(raw, YamlMap):
        rest = YamlMap(raw.file)
        rest.take(raw)
        name = rest.pop("module", None)
        return (name if isinstance(name, str) else None), rest
    if isinstance(raw, str):
        name, _, rest_text = raw.strip().partition(" ")
        return name, rest_text.strip() or None
    return None, None


def _arguments(
    loader: Loader, signature: Signature, raw: Any, place: Place, args: YamlMap
) -> tuple[dict[str, Any], dict[str, Place]]:
    found: dict[str, Any] = {key: args[key] for key in args}
    places = {key: args.place_of(key) for key in args}
    if isinstance(raw, YamlMap):
        found.update(raw)
        places.update({key: raw.place_of(key) for key in raw})
    elif isinstance(raw, str):
        pairs, text = _from_text(signature, raw)
        found.update(pairs)
        places.update(dict.fromkeys(pairs, place))
        if text and signature.free_form:
            found[signature.free_form] = text
            places[signature.free_form] = place
        elif text:
            name = signature.names[0]
            sentence = f"'{text}' is no argument of {name}: its arguments are a mapping, or name=value"
            loader.fault(place, sentence)
    elif isinstance(raw, (bool, int, float)) and signature.free_form:
        found[signature.free_form] = str(raw)
        places[signature.free_form] = place
    elif raw is not None:
        loader.fault(place, f"{signature.names[0]} takes a mapping of arguments, and here is something else")
    return found, places


def _from_text(signature: Signature, text: str) -> tuple[dict[str, str], str]:
    if signature.free_form:
        return free_text(text, frozenset(signature.arguments) - {signature.free_form, "argv"})
    return key_values(text)


def _check_arguments(
    loader: Loader,
    signature: Signature,
    arguments: Mapping[str, Any],
    places: Mapping[str, Place],
    place: Place,
) -> None:
    for key, sentence in faults_in(signature, arguments):
        loader.fault(places.get(key or "", place), sentence)
    expression = _EXPRESSIONS.get(signature.names[0])
    for key, value in arguments.items():
        where = places.get(key, place)
        if key != expression:
            loader.check_templates(value, where)
            continue
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str):
                continue
            check = syntax.condition_fault if key == "that" else syntax.expression_fault
            wrong = check(item)
            if wrong:
                loader.fault(where, f"'{key}': {wrong}")


def _loop(loader: Loader, keys: YamlMap) -> Loop | None:
    styles = [key for key in keys if str(key).startswith("with_")]
    if "loop" in keys:
        styles.append("loop")
    control = as_mapping(keys.get("loop_control"), keys.file)
    if not styles:
        if "loop_control" in keys:
            loader.fault(keys.place_of("loop_control"), "`loop_control` belongs to a loop, and there is none")
        return None
    for key in styles[1:]:
        loader.fault(keys.place_of(key), f"a task has one loop, and here are two: '{styles[0]}' and '{key}'")
    key = styles[0]
    place = keys.place_of(key)
    style = key.removeprefix("with_")
    if key != "loop" and style not in syntax.lookup_names():
        reason = left_out.LOOPS.get(style)
        why = f"is left out: {reason}" if reason else f"is not known{nearest(style, syntax.lookup_names())}"
        loader.fault(place, f"'{key}' {why}")
    if keys[key] is None:
        loader.fault(place, f"'{key}' is empty; write a list")
    elif key == "loop" and not isinstance(keys[key], list) and not is_template(keys[key]):
        loader.fault(place, "'loop' takes a list, or a template of one")
    loader.check_keywords(control, keywords.LOOP_CONTROL, "loop_control")
    loader.check_templates(keys[key], place)
    loader.check_templates(control)
    return Loop(
        style=style,
        items=keys[key],
        variable=str(control.get("loop_var", "item")),
        index_variable=control.get("index_var"),
        label=control.get("label"),
        pause_s=control.get("pause", 0),
        break_when=loader.conditions(control, "break_when") if "break_when" in control else (),
        extended=control.get("extended", False),
        extended_allitems=control.get("extended_allitems", True),
    )


def _note_notified(loader: Loader, keys: YamlMap) -> None:
    value = keys.get("notify")
    if isinstance(value, YamlList):
        loader.notified.extend(
            Expression(value=str(name), place=value.place_of(index)) for index, name in enumerate(value)
        )
    elif value is not None:
        loader.notified.append(Expression(value=str(value), place=keys.place_of("notify")))
