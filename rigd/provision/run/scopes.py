"""What each task sees: variables by precedence over what is known of its host, facts when they are first used."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rigd
from rigd.errors import RigdError, UsageError
from rigd.provision.connection.target import VARIABLES
from rigd.provision.language.inventory import LOCAL, implicit
from rigd.provision.language.load import load_vars_file
from rigd.provision.language.model import Expression, Inventory, Place, Play, Playbook, Task
from rigd.provision.run.options import RunOptions
from rigd.provision.run.prepare import NotYetKnownError, Scope
from rigd.provision.templating import files, render
from rigd.provision.templating.lookups import loop_items
from rigd.provision.templating.syntax import variables_in_expression
from rigd.provision.templating.values import OMIT, Plain
from rigd.provision.templating.variables import (
    EVERYTHING,
    HostVars,
    Layers,
    TemplateError,
    Variables,
    layers_for,
)

if TYPE_CHECKING:
    from rigd.provision.run.play import HostPlay

ANSIBLE_VERSION = "2.19.0"
"""Whose language this is; playbooks compare it."""
_PREFIX = "ansible_"
_INTERFACE = re.compile(r"(lo|eth|en|wl|br|bond|docker|veth|virbr|tailscale|wg|tun)\w*")
"""Facts that are named after what the box has, so that nobody knows their names beforehand."""


@dataclass(kw_only=True)
class Known:
    """What a run has learned of one host."""

    facts: dict[str, Any] = field(default_factory=dict)
    """Without `ansible_`."""
    told: dict[str, Any] = field(default_factory=dict)
    """Facts of modules under the names that they gave them: `services`, `packages`, `getent_passwd`."""
    gathered: bool = False
    registered: dict[str, Any] = field(default_factory=dict)
    """Results, and what `set_fact` set."""
    included: dict[str, Any] = field(default_factory=dict)
    special: dict[str, Any] = field(default_factory=dict)
    """`ansible_failed_task` and `ansible_failed_result`: what failed last and was, or is being, mended."""
    unforetold: set[str] = field(default_factory=set)
    """Registered names whose result check mode could not know."""

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Take facts that a module tells."""
        self.told.update(facts)
        self.facts.update({name.removeprefix(_PREFIX): value for name, value in facts.items()})

    def forget(self) -> None:
        """Forget all facts."""
        self.facts.clear()
        self.told.clear()
        self.gathered = False


class _Facts(Plain):
    """Facts under both spellings; asked of the box when one of them is first wanted."""

    def __init__(self, known: Known, gather: Callable[[], Any] | None) -> None:
        super().__init__()
        self._known = known
        self._gather = gather

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        text = str(name)
        if text in self._known.told:
            return True
        if text == "ansible_facts":
            return True
        if not text.startswith(_PREFIX):
            return False
        own = text.removeprefix(_PREFIX)
        if own not in self._known.facts and _is_fact(own):
            self._have()
        return own in self._known.facts

    def __getitem__(self, name: str) -> Any:
        if name in self._known.told:
            return self._known.told[name]
        if name == "ansible_facts":
            self._have()
            return self._known.facts
        return self._known.facts[name.removeprefix(_PREFIX)]

    def __iter__(self) -> Iterator[str]:
        yield from (_PREFIX + name for name in self._known.facts)
        yield from self._known.told

    def __len__(self) -> int:
        return len(self._known.facts)

    def _have(self) -> None:
        if self._gather is not None and not self._known.gathered:
            self._gather()


@cache
def _is_fact(name: str) -> bool:
    """Return whether a box has a fact of this name, or might."""
    from rigd.provision.target import facts  # noqa: PLC0415  (many files, for plays that use facts)

    return name in facts.known() or _INTERFACE.fullmatch(name) is not None


class _Results(Plain):
    """Registered results; those of tasks that have not run yet are not to be used."""

    def __init__(self, results: Mapping[str, Any], unknown: frozenset[str]) -> None:
        super().__init__()
        self._results = results
        self._unknown = unknown

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._unknown or name in self._results

    def __getitem__(self, name: str) -> Any:
        if name in self._unknown:
            raise NotYetKnownError(name)
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


class TaskScope:
    """A `Scope` over a task's variables."""

    def __init__(self, variables: Variables, *, secret: bool = False) -> None:
        self.variables = variables
        self._secret = secret

    def value(self, raw: Any) -> Any:
        """Return a raw value with all templates in it filled in; None for one that comes to `omit`."""
        if raw is None or isinstance(raw, (bool, int, float)):
            return raw
        found = render.render(raw, self.variables, secret=self._secret)
        return None if found is OMIT else found

    def compute(self, expression: str) -> Any:
        """Return the value of an expression."""
        return render.expression(expression, self.variables, secret=self._secret)

    def holds(self, expression: Expression) -> bool:
        """Return whether a condition holds."""
        return render.holds(expression.value, self.variables, place=expression.place, secret=self._secret)

    def arguments(self, raw: Mapping[str, Any], places: Mapping[str, Place]) -> dict[str, Any]:
        """Return a task's arguments filled in; those that come to `omit` are gone."""
        found = {
            name: render.render(value, self.variables, place=places.get(name), secret=self._secret)
            for name, value in raw.items()
        }
        return {name: value for name, value in found.items() if value is not OMIT}

    def get(self, name: str, *, default: Any) -> Any:
        """Return a variable, or the default where there is none."""
        return self.value("{{ " + name + " }}") if name in self.variables else default

    def plus(self, variables: Mapping[str, Any]) -> "TaskScope":
        """Return the scope with these on top, such as a loop's item."""
        local = Plain({**self.variables.layers.local, **variables})
        return TaskScope(self.variables.fork(local=local), secret=self._secret)

    def hushed(self) -> "TaskScope":
        """Return the scope of a `no_log` task: its errors show no value."""
        return TaskScope(self.variables, secret=True)


class Scopes:
    """Makes scopes for all hosts of a run."""

    def __init__(self, playbook: Playbook, inventory: Inventory, options: RunOptions) -> None:
        self._folder = playbook.path.parent
        self._inventory = inventory
        self._hosts = {host.name: host for host in inventory.hosts}
        self._options = options
        self._known: dict[str, Known] = {}
        self._play_hosts: tuple[str, ...] = ()
        self._present: dict[str, HostPlay] = {}
        self._vars_files: dict[str, list[Mapping[str, Any]]] = {}
        self._magic = self._common_magic()

    def known(self, host: str) -> Known:
        """Return what is known of a host."""
        return self._known.setdefault(host, Known())

    def pattern(self, play: Play) -> str:
        """Return a play's pattern of hosts with its templates filled in."""
        variables = Variables(Layers(play=play.vars, extra=self._options.extra_vars, magic=self._magic))
        return _listed(render.render(play.hosts, variables, place=play.place))

    def play_name(self, play: Play) -> str:
        """Return a play's name as a person sees it."""
        if play.name is None or "{{" not in play.name:
            return play.name or self.pattern(play)
        try:
            variables = Variables(Layers(play=play.vars, extra=self._options.extra_vars, magic=self._magic))
            return str(render.render(play.name, variables))
        except TemplateError:
            return play.name

    def enter(self, play: Play, hosts: Sequence["HostPlay"]) -> None:
        """Begin a play: its files of variables are read anew for each host."""
        del play
        self._play_hosts = tuple(host.name for host in hosts)
        self._present = {host.name: host for host in hosts}
        self._vars_files.clear()

    def of(self, host: "HostPlay", task: Task | None, unknown: frozenset[str]) -> TaskScope:
        """Return what a task of a host sees; names in `unknown` raise `NotYetKnownError`."""
        return TaskScope(self._variables(host, task, unknown))

    def items(self, task: Task, scope: Scope) -> list[Any]:
        """Return the items of a task's loop."""
        loop = task.loop
        if loop is None or not isinstance(scope, TaskScope):
            return []
        values = scope.value(loop.items)
        try:
            return list(loop_items(loop.style, values, scope.variables))
        except RigdError:
            raise
        except Exception as error:
            raise UsageError(f"cannot make out the loop: {error}") from error

    def first_used(self, host: "HostPlay", task: Task, names: set[str]) -> str | None:
        """Return the first of these names that a task's values and conditions read."""
        if not names:
            return None
        variables = self._variables(host, task, frozenset())
        conditions = (*task.when, *task.until, *(task.changed_when or ()), *(task.failed_when or ()))
        used = variables.names_needed(
            [
                dict(task.arguments),
                task.loop.items if task.loop else None,
                list(task.vars),
                list(task.environment),
            ]
        )
        for condition in conditions:
            if isinstance(condition.value, str):
                own = variables_in_expression(condition.value)
                used |= own | variables.names_needed([variables.raw(name) for name in own])
        if used & EVERYTHING:
            return min(names)
        return min(used & names, default=None)

    def template(self, path: Path, options: Mapping[str, Any], scope: Scope) -> str:
        """Return what a file of templates gives."""
        if not isinstance(scope, TaskScope):
            raise TypeError("a template needs a task's scope")
        seen = path.stat()
        text = _text(path, seen.st_mtime_ns, seen.st_size)
        own = scope.plus(
            {"template_path": str(path), "template_host": "", "template_destpath": options.get("dest")}
        )
        return files.render_file(
            text,
            own.variables,
            name=str(path),
            folders=(path.parent, Path(own.variables["playbook_dir"])),
            options=options,
        )

    def connection(self, host: "HostPlay", name: str) -> dict[str, Any]:
        """Return what says how a host is reached: keywords of the play, then variables, templates filled in."""
        own = name == host.name
        play = host.play
        words = {
            "ansible_connection": play.connection,
            "ansible_user": play.remote_user,
            "ansible_port": play.port,
        }
        found = {key: word for key, word in words.items() if own and word is not None}
        if not own and name not in self._hosts:
            return dict(implicit(name).vars) if name in LOCAL else {}
        variables = (
            self._variables(host, None, frozenset(), facts=False) if own else self._of_other(host, name)
        )
        names = [key for key in sorted(VARIABLES) if key in variables]
        return found | {key: render.render(variables[key], variables, secret=True) for key in names}

    # --- variables ---

    def _variables(
        self, host: "HostPlay", task: Task | None, unknown: frozenset[str], *, facts: bool = True
    ) -> Variables:
        known = host.state.known
        play = host.play_with_roles
        layers = layers_for(
            play=play, task=task, host=host.state.host, extra=self._options.extra_vars,
            included=known.included, vars_files=self._files_of(host),
        )  # fmt: skip
        gather = host.gather if facts and play.gather_facts is not False else None
        layers = replace(
            layers,
            facts=_Facts(known, gather),
            results=_Results(known.registered, unknown),
            magic=Plain({**self._magic, **self._own_magic(host, unknown), **layers.magic, **known.special}),
        )
        return Variables(layers, None if task is None else lambda name, kind: host.find(task, name, kind))

    def _files_of(self, host: "HostPlay") -> list[Mapping[str, Any]]:
        found = self._vars_files.get(host.name)
        if found is None:
            self._vars_files[host.name] = found = []
            for entry in host.play.vars_files:
                # Each may use what the ones before it say.
                layers = layers_for(
                    play=host.play, task=None, host=host.state.host, extra=self._options.extra_vars,
                    vars_files=list(found), included=host.state.known.included,
                )  # fmt: skip
                layers = replace(layers, facts=_Facts(host.state.known, host.gather),
                                 magic=Plain({**self._magic, **self._own_magic(host, frozenset())}))  # fmt: skip
                found.append(load_vars_file(entry, TaskScope(Variables(layers)).value))
        return found

    def _common_magic(self) -> Plain:
        options = self._options
        return Plain(
            playbook_dir=str(self._folder),
            ansible_check_mode=options.check,
            ansible_diff_mode=options.diff,
            ansible_verbosity=0,
            ansible_forks=options.forks,
            ansible_run_tags=sorted(options.selection.tags),
            ansible_skip_tags=sorted(options.selection.skip),
            ansible_version={
                "full": ANSIBLE_VERSION,
                "major": 2,
                "minor": 19,
                "revision": 0,
                "string": ANSIBLE_VERSION,
            },
            ansible_managed="Ansible managed",
            ansible_config_file=None,
            rigd_version=rigd.__version__,
            groups={name: list(members) for name, members in self._inventory.groups.items()},
        )

    def _own_magic(self, host: "HostPlay", unknown: frozenset[str]) -> dict[str, Any]:
        own = host.state.host
        there = [name for name, other in self._present.items() if not other.state.out]
        roles = list(dict.fromkeys(role.name for role in host.public_roles))
        return {
            "playbook_dir": str(host.play.folder),
            "inventory_hostname": own.name,
            "inventory_hostname_short": own.name.partition(".")[0],
            "group_names": [group for group in own.groups if group != "all"],
            "ansible_play_hosts_all": list(self._play_hosts),
            "ansible_play_hosts": there,
            "ansible_play_batch": there,
            "play_hosts": there,
            "ansible_play_name": host.play.name or host.play.hosts,
            "ansible_role_names": roles,
            "role_names": roles,
            "ansible_play_role_names": roles,
            "hostvars": HostVars(
                self._hosts or {own.name: own}, lambda name: self._of_other(host, name, unknown)
            ),
        }

    def _of_other(self, host: "HostPlay", name: str, unknown: frozenset[str] = frozenset()) -> Variables:
        if name == host.name:
            return self._variables(host, None, unknown)
        other = self._present.get(name)
        known = self.known(name)
        layers = Layers(
            inventory=self._hosts[name].vars,
            play=host.play.vars if other else {},
            facts=_Facts(known, lambda: host.gather_of(name)),
            included=known.included,
            results=_Results(known.registered, frozenset()),
            extra=self._options.extra_vars,
            magic=Plain({**self._magic, "inventory_hostname": name,
                         "group_names": [group for group in self._hosts[name].groups if group != "all"]}),
        )  # fmt: skip
        return Variables(layers)


def _listed(pattern: Any) -> str:
    return ",".join(map(str, pattern)) if isinstance(pattern, list) else str(pattern)


@lru_cache(maxsize=256)
def _text(path: Path, _changed_ns: int, _size: int) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"the template '{path}' is not UTF-8 text") from None
