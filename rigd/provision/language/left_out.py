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

_ENGINE_IMAGE = "the runtime pulls the engine's image by its digest; for others run `docker pull`"
_OTHER_SYSTEM_MODULES = (
    "apk apt_rpm copr dnf dnf5 dnf_config_manager dnf_repository firewalld flatpak homebrew homebrew_cask layman",
    "macports opkg pacman portage pkgng redhat_subscription rhsm_repository rpm_key seboolean sefcontext selinux",
    "seport subscription_manager swdepot urpmi win_command win_copy win_feature win_file win_package win_reboot",
    "win_service win_shell win_template yum yum_repository yum_versionlock zypper zypper_repository",
)
MODULES: Mapping[str, str] = {
    **dict.fromkeys(" ".join(_OTHER_SYSTEM_MODULES).split(), _OTHER_SYSTEM),
    "dpkg_selections": "hold and release packages with rigd.box.apt_hold, or `command: apt-mark hold ...`",
    "add_host": "the inventory is fixed before a run, so that a broken run can go on",
    "alternatives": "run update-alternatives with `command` and `creates`",
    "archive": "run tar with `command` and `creates`",
    "async_status": "a task with `async` is waited for; use `until` to ask for something again",
    "debconf": "run debconf-set-selections with `command`; packages are installed without questions",
    "docker_compose": _COMPOSE,
    "docker_compose_v2": _COMPOSE,
    "docker_container": _SUPERVISED,
    "docker_image": _ENGINE_IMAGE,
    "docker_image_pull": _ENGINE_IMAGE,
    "docker_network": _SUPERVISED,
    "docker_prune": "what takes room on a box is told by `rigd doctor`",
    "docker_volume": _SUPERVISED,
    "expect": "it answers prompts by pattern; use the options that keep a program from asking",
    "fetch": "read a small file with slurp; copy large ones with scp",
    "filesystem": "no task makes a file system: what is on the disk would be gone",
    "git": "run git with `command` and `creates`",
    "group_by": "groups are fixed before a run, so that a broken run can go on; use `when`",
    "include": "Ansible has removed it, too: write include_tasks or import_tasks",
    "ini_file": "use lineinfile, or a template of the whole file",
    "iptables": "rules that vanish with a reboot; use ufw",
    "locale_gen": "run locale-gen with `command` and `creates`",
    "lvol": "no task touches volumes: what is on the disk would be gone",
    "npm": "run npm with `command` and `creates`",
    "pam_limits": "use a file in /etc/security/limits.d, or LimitMEMLOCK= of the unit",
    "parted": "no task touches partitions: what is on the disk would be gone",
    "pip": "run `python3 -m venv` and its pip with `command` and `creates`",
    "snap": "packages come from apt: Docker as a snap has a confinement of its own",
    "synchronize": "it needs rsync on both ends; copy takes folders, too",
    "validate_argument_spec": "use assert",
}
"""Modules and actions by their short names."""

LOOPS: Mapping[str, str] = {
    "inventory_hostnames": "loop over groups[...] instead",
}
"""`with_...` that is not a lookup of rigd's."""

IGNORED: Mapping[str, str] = {
    "collections": "modules are known by their short and their full names in any case",
    "argument_specs": "a role's parameters are not compared with its meta/argument_specs.yml; use assert",
    "gather_subset": "the few facts that exist are all read at once",
}
"""What is read and changes nothing."""


def module_reason(name: str) -> str | None:
    """Return why a module is left out, or None if it is not one of those."""
    return MODULES.get(name.rpartition(".")[2])
