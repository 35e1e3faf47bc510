"""Makes each task's scope: variables by precedence over what is known of its host, and how hosts are reached."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import rigd
from rigd.provision.connection.target import VARIABLES
from rigd.provision.language.inventory import LOCAL, implicit
from rigd.provision.language.load import load_vars_file
from rigd.provision.language.model import Inventory, Play, Playbook, Task
from rigd.provision.run.known import Facts, Known, Results
from rigd.provision.run.options import RunOptions
from rigd.provision.run.scope import Scope
from rigd.provision.templating import render
from rigd.provision.templating.syntax import variables_in_expression
from rigd.provision.templating.values import Plain
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

    def of(self, host: "HostPlay", task: Task | None, unknown: frozenset[str]) -> Scope:
        """Return what a task of a host sees; names in `unknown` raise `NotYetKnownError`."""
        return Scope(self._variables(host, task, unknown))

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
            facts=Facts(known, gather),
            results=Results(known.registered, unknown),
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
                layers = replace(layers, facts=Facts(host.state.known, host.gather),
                                 magic=Plain({**self._magic, **self._own_magic(host, frozenset())}))  # fmt: skip
                found.append(load_vars_file(entry, Scope(Variables(layers)).value))
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
            facts=Facts(known, lambda: host.gather_of(name)),
            included=known.included,
            results=Results(known.registered, frozenset()),
            extra=self._options.extra_vars,
            magic=Plain({**self._magic, "inventory_hostname": name,
                         "group_names": [group for group in self._hosts[name].groups if group != "all"]}),
        )  # fmt: skip
        return Variables(layers)


def _listed(pattern: Any) -> str:
    return ",".join(map(str, pattern)) if isinstance(pattern, list) else str(pattern)
