"""What Ansible has and rigd leaves out on purpose, each with its reason: for errors and for the documents."""

from collections.abc import Mapping

_ONE_BOX = "every host of a play goes on by itself, each task as soon as the one before is done"
_RIGHTS = "rights are gained with sudo"
_OTHER_SYSTEM = (
    "it manages another system than Debian or Ubuntu; such a task needs a `when` that is false here"
)
_SUPERVISED = "the engine's container belongs to the supervisor: describe it in the rig file"
_COMPOSE = (
    "run the compose file with `command: docker compose up -d`, or give the engine to rigd's supervisor"
)

KEYWORDS: Mapping[str, str] = {
    "any_errors_fatal": _ONE_BOX,
    "become_exe": _RIGHTS,
    "become_flags": _RIGHTS,
    "debugger": "a run asks nobody; read the journal with `rigd provision runs`",
    "delegate_facts": "facts belong to the host that was asked",
    "fact_path": "local facts are read from /etc/ansible/facts.d alone",
    "gather_timeout": "the few facts that are read take milliseconds and have a deadline of their own",
    "max_fail_percentage": _ONE_BOX,
    "order": _ONE_BOX,
    "serial": _ONE_BOX,
    "strategy": _ONE_BOX,
    "throttle": "limit how many hosts run at once with --forks",
    "vars_prompt": "a run asks nobody; give the variable with --extra-vars",
}
"""Keywords of plays, blocks and tasks."""

TASK_KEYWORDS: Mapping[str, str] = {
    "connection": "the inventory says how a host is reached; `delegate_to: localhost` runs a task on this machine",
    "port": "the inventory or the ssh configuration says which port a host listens on",
    "remote_user": "the play or the inventory says as whom to log in; use become_user to change the user of a task",
}
"""Keywords that plays have, but blocks and tasks do not."""

MODULES: Mapping[str, str] = {
    "add_host": "the inventory is fixed before a run, so that a broken run can go on",
    "apt_rpm": _OTHER_SYSTEM,
    "apk": _OTHER_SYSTEM,
    "dnf": _OTHER_SYSTEM,
    "dnf5": _OTHER_SYSTEM,
    "docker_compose": _COMPOSE,
    "docker_compose_v2": _COMPOSE,
    "docker_container": _SUPERVISED,
    "docker_image": "the runtime pulls the engine's image by its digest; for others run `docker pull`",
    "docker_image_pull": "the runtime pulls the engine's image by its digest; for others run `docker pull`",
    "docker_network": _SUPERVISED,
    "docker_volume": _SUPERVISED,
    "expect": "it answers prompts by pattern; use the options that keep a program from asking",
    "firewalld": _OTHER_SYSTEM,
    "group_by": "groups are fixed before a run, so that a broken run can go on; use `when`",
    "homebrew": _OTHER_SYSTEM,
    "iptables": "rules that vanish with a reboot; use ufw",
    "pacman": _OTHER_SYSTEM,
    "rhsm_repository": _OTHER_SYSTEM,
    "rpm_key": _OTHER_SYSTEM,
    "seboolean": _OTHER_SYSTEM,
    "sefcontext": _OTHER_SYSTEM,
    "selinux": _OTHER_SYSTEM,
    "subscription_manager": _OTHER_SYSTEM,
    "synchronize": "it needs rsync on both ends; copy takes folders, too",
    "win_command": _OTHER_SYSTEM,
    "win_shell": _OTHER_SYSTEM,
    "yum": _OTHER_SYSTEM,
    "yum_repository": _OTHER_SYSTEM,
    "zypper": _OTHER_SYSTEM,
    "zypper_repository": _OTHER_SYSTEM,
}
"""Modules and actions by their short names."""

LOOPS: Mapping[str, str] = {
    "inventory_hostnames": "loop over groups[...] instead",
    "subelements": "loop over `list | subelements(...)` instead",
}
"""`with_...` that is not a lookup of rigd's."""

IGNORED: Mapping[str, str] = {
    "collections": "modules are known by their short and their full names in any case",
    "gather_subset": "the few facts that exist are all read at once",
}
"""Keywords that are read and change nothing."""


def module_reason(name: str) -> str | None:
    """Return why a module is left out, or None if it is not one of those."""
    return MODULES.get(name.rpartition(".")[2])
