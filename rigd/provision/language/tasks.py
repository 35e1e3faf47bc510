"""Lists of tasks: blocks, tasks and handlers, each with everything that is handed down to it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigd.provision.language import keywords, left_out
from rigd.provision.language.actions import BUILTIN
from rigd.provision.language.calls import called, check_call
from rigd.provision.language.faults import nearest
from rigd.provision.language.keywords import is_template
from rigd.provision.language.loader import MOST_DEPTH, Loader, as_mapping, texts
from rigd.provision.language.model import Block, Expression, Loop, Node, Place, Scope, Task
from rigd.provision.language.scope import in_file, inside, known_before
from rigd.provision.language.search import candidates, find_tasks
from rigd.provision.language.source import YamlList, YamlMap
from rigd.provision.templating import syntax
from rigd.provision.templating.files import file_fault

_INCLUDES = frozenset(BUILTIN + name for name in ("include_tasks", "include_role"))
_WITHOUT_LOOPS = frozenset(BUILTIN + name for name in ("import_tasks", "import_role", "meta"))


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
    found = called(loader, keys, scope)
    table = keywords.HANDLER if scope.handlers else keywords.TASK
    for key in keys:
        if key in table:
            loader.check_keyword(keys, key, table[key])
    if found is None:
        return ()
    own = inside(loader, scope, keys)
    if "local_action" in keys:
        own = replace(own, delegate_to="localhost")
    arguments = {**own.module_defaults.get(found.name, {}), **found.arguments}
    if found.signature is not None:
        check_call(loader, found.signature, arguments, found.places, keys.place)
    if found.name == BUILTIN + "template":
        _foretell_template(loader, keys.place, arguments, own)
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
    if task.loop is not None and task.loop.variable in scope.loops:
        sentence = f"the loop's '{task.loop.variable}' hides that of the include around it"
        loader.warn(keys.place, f"{sentence}; name one of them otherwise (loop_control: loop_var)")
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
        loops=scope.loops | ({task.loop.variable} if task.loop else set()),
    )
    arguments = dict(task.arguments)
    apply = arguments.pop("apply", None)
    if isinstance(apply, YamlMap):
        loader.check_keywords(apply, keywords.APPLY, "`apply`")
        loader.check_templates(apply)
        handed_down = inside(loader, handed_down, apply)
    elif apply is not None:
        loader.fault(task.argument_places["apply"], "`apply` takes a mapping of keywords")
    task = replace(task, scope=handed_down, arguments=arguments)
    if task.action == BUILTIN + "include_role":
        roles.foretell(loader, task, handed_down)
    elif isinstance(file := task.arguments.get("file"), str) and not is_template(file):
        path = _included_file(loader, task, own)
        if path and path.absolute() not in loader.foretold:
            loader.foretold.add(path.absolute())
            read_file(loader, path, handed_down)
    return (task,)


def _foretell_template(loader: Loader, place: Place, arguments: Mapping[str, Any], scope: Scope) -> None:
    """Note what is wrong with the file of a `template`; that it is missing, unless a condition may excuse it."""
    name = arguments.get("src")
    if not isinstance(name, str) or is_template(name):
        return
    places = candidates(name, "templates", folder=scope.folder, file=scope.file, role=scope.role)
    path = next(filter(Path.is_file, places), None)
    if path is None:
        if not (scope.guarded or scope.when):
            loader.fault(place, f"there is no template '{name}'")
        return
    options = {key: value for key, value in arguments.items() if not is_template(value)}
    found = file_fault(path, options)
    if found:
        loader.fault(Place(file=path, line=found[0], column=1), found[1])


def _own_vars(outer: Scope, own: Scope) -> tuple[Mapping[str, Any], ...]:
    return own.vars[len(outer.vars) :]


def _included_file(loader: Loader, task: Task, scope: Scope) -> Path | None:
    place = task.argument_places.get("file", task.place)
    name = loader.static(task.arguments.get("file"), place, known_before(scope))
    if name is None:
        return None
    path = find_tasks(name, scope)
    if path is None:
        beside = [entry.name for entry in scope.file.parent.glob("*.y*ml")]
        loader.fault(place, f"there is no file '{name}' of tasks{nearest(name, beside)}")
    return path


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
        known = [f"with_{name}" for name in syntax.lookup_names()]
        why = f"is left out: {reason}" if reason else f"is not known{nearest(key, known)}"
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
    elif isinstance(value, str):
        loader.notified.append(Expression(value=str(value), place=keys.place_of("notify")))
