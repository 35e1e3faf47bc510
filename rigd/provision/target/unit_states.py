"""What `systemd`, `systemd_service` and `service` share: enabled, masked, started, restarted."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target import ssh_session, units
from rigd.provision.target.contract import Argument, Box, Change, Kind, ModuleError

ARGUMENTS = {
    "name": Argument(aliases=("service", "unit")),
    "state": Argument(choices=("started", "stopped", "restarted", "reloaded")),
    "enabled": Argument(kind=Kind.BOOLEAN),
    "masked": Argument(kind=Kind.BOOLEAN),
    "force": Argument(kind=Kind.BOOLEAN, default=False),
    "daemon_reload": Argument(kind=Kind.BOOLEAN, default=False, aliases=("daemon-reload",)),
    "daemon_reexec": Argument(kind=Kind.BOOLEAN, default=False, aliases=("daemon-reexec",)),
    "scope": Argument(default="system", choices=("system", "user", "global")),
    "no_block": Argument(kind=Kind.BOOLEAN, default=False),
}

ONE_OF = (("state", "enabled", "masked", "daemon_reload", "daemon_reexec"),)

DIFFERS = (
    (
        "`daemon_reload` reloads only if a unit file changed since systemd read it, because a reload can take"
        " the cards"
        " away from running containers"
    ),
    (
        "a unit without [Install] (static) is `ok` for `enabled: true` and `enabled: false` alike: there is nothing"
        " to do"
    ),
    "a unit that is not there yet is foretold in check mode, not a fault",
    "a service that dies at once is a fault, with the end of its log",
    "over ssh, the last unit that lets ssh in is neither stopped, disabled nor masked",
)

WAYS_IN = frozenset({"ssh.service", "sshd.service", "ssh.socket"})
ENABLED = {
    "enabled": True,
    "alias": True,
    "generated": True,
    "static": None,
    "disabled": False,
    "enabled-runtime": False,
    "linked": False,
    "linked-runtime": False,
    "indirect": False,
    "not-found": False,
}
"""systemd's word -> enabled, not, or None: cannot be either."""


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the unit's properties, its enablement, and whether systemd's view is stale."""
    unit, scope = arguments.get("name"), arguments.get("scope") or "system"
    state: dict[str, Any] = {"check": box.check, "properties": None, "reload": False}
    if unit:
        if any(sign in unit for sign in "*?["):
            raise ModuleError(f"'{unit}' is a pattern: name one unit a task, or use a loop")
        properties = units.show(box, unit, scope if scope != "global" else "system")
        state["properties"] = properties
        state["present"] = properties.get("LoadState") not in ("not-found", None)
        state["last_way_in"] = _last_way_in(arguments, properties, box)
        if arguments.get("enabled") is not None or arguments.get("masked") is not None:
            state["enablement"] = _enablement(box, unit, properties, scope)
    if arguments.get("daemon_reload"):
        state["reload"] = units.needs_reload(box, state["properties"])
    asked = arguments.get("state") or arguments.get("enabled") is not None
    if unit and asked and not (state["present"] or state["reload"] or box.check):
        # Stopping and disabling what is not there is a fault, too: a misspelt name must not pass.
        raise units.missing(box, unit, scope)
    return state


def _last_way_in(arguments: Mapping[str, Any], properties: Mapping[str, str], box: Box) -> bool:
    """Return whether the wish would end what this very run came in by, with nothing else to come in by again."""
    names = {properties.get("Id", ""), *properties.get("Names", "").split()}
    ends = arguments.get("state") == "stopped" or arguments.get("masked") or arguments.get("enabled") is False
    if not ends or not names & WAYS_IN or not units.running(dict(properties)):
        return False
    if ssh_session.present(box.environment()) is None:
        return False
    others = units.systemctl(box, "is-active", "--", *sorted(WAYS_IN - names), ok=None).stdout.split()
    return "active" not in others


def _enablement(box: Box, unit: str, properties: Mapping[str, str], scope: str) -> str:
    word = units.enablement(box, unit, scope)
    # An alias is as enabled as what it stands for.
    return (
        units.enablement(box, properties["Id"], scope) if word == "alias" and properties.get("Id") else word
    )


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the systemctl verbs that are due, in systemd's order."""
    unit = arguments.get("name") or ""
    changes: list[Change] = []
    if state["reload"]:
        changes.append(_verb("daemon-reload", "", "read changed unit files", counts=False))
    if arguments.get("daemon_reexec"):
        changes.append(_verb("daemon-reexec", "", "start systemd itself anew", counts=False, once=True))
    if not unit:
        return changes
    if state.get("last_way_in"):
        raise ModuleError(
            f"this run came in by '{unit}', and without it nobody comes in by ssh again: do it at the console, or"
            " over another way in"
        )
    return [*changes, *_masking(arguments, state, unit), *_enabling(arguments, state, unit),
            *_moving(arguments, state, unit)]  # fmt: skip


def _verb(verb: str, unit: str, what: str, *, counts: bool = True, once: bool = False) -> Change:
    return Change(
        what=what, subject=unit or "systemd", data={"verb": verb, "unit": unit}, counts=counts, once=once
    )


def _masking(arguments: Mapping[str, Any], state: Mapping[str, Any], unit: str) -> list[Change]:
    wanted = arguments.get("masked")
    if wanted is None or wanted is (state.get("enablement") in ("masked", "masked-runtime")):
        return []
    return [_verb("mask" if wanted else "unmask", unit, f"{'mask' if wanted else 'unmask'} {unit}")]


def _enabling(arguments: Mapping[str, Any], state: Mapping[str, Any], unit: str) -> list[Change]:
    wanted, word = arguments.get("enabled"), state.get("enablement", "not-found")
    if wanted is None:
        return []
    if word in ("masked", "masked-runtime"):
        if wanted and arguments.get("masked") is not False:
            raise ModuleError(f"'{unit}' is masked, so it cannot be enabled. Say `masked: false` with it")
        enabled: bool | None = False
    else:
        enabled = ENABLED.get(word)
    if enabled is None or enabled is wanted:
        return []
    verb = "enable" if wanted else "disable"
    # What only brings others along (indirect) never says "enabled" of itself.
    return [_verb(verb, unit, f"{verb} {unit}", once=word == "indirect")]


def _moving(arguments: Mapping[str, Any], state: Mapping[str, Any], unit: str) -> list[Change]:
    wanted = arguments.get("state")
    if wanted is None:
        return []
    properties = state["properties"] or {}
    runs = units.running(properties)
    masked = properties.get("LoadState") == "masked" and arguments.get("masked") is not False
    if wanted == "stopped":
        leaving = properties.get("ActiveState") == "deactivating"
        return [_verb("stop", unit, f"stop {unit}")] if runs or leaving else []
    if masked and not (wanted == "started" and runs):
        raise ModuleError(f"'{unit}' is masked, so it cannot be started. Say `masked: false` with it")
    if wanted == "started":
        if runs:
            return []
        # A one-shot that does not remain is never seen running.
        passing = properties.get("Type") == "oneshot" and properties.get("RemainAfterExit") != "yes"
        return [_verb("start", unit, f"start {unit}", once=passing)]
    verb = wanted.removesuffix("ed") if runs else "start"
    return [_verb(verb, unit, f"{verb} {unit}", once=True)]


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Run the verbs; a service that does not stay up is a fault with the end of its log."""
    scope = arguments.get("scope") or "system"
    for change in changes:
        verb, unit = change.data["verb"], change.data["unit"]
        words = [
            *(["--no-block"] if arguments.get("no_block") and unit else []),
            *(["--force"] if arguments.get("force") and unit else []),
            verb,
            *(["--", unit] if unit else []),
        ]
        if verb in ("start", "restart", "reload", "stop"):
            box.progress(change.what)
        answer = units.systemctl(box, *words, scope=scope, ok=None)
        if answer.rc != 0:
            raise _failed(box, verb, unit, scope, answer)
        if verb in ("start", "restart") and not arguments.get("no_block"):
            _stays_up(box, unit, scope)


def _failed(box: Box, verb: str, unit: str, scope: str, answer: Any) -> ModuleError:
    text = (answer.stderr or answer.stdout).strip()
    if unit and ("not found" in text or "not be found" in text or "does not exist" in text):
        return units.missing(box, unit, scope)
    log = units.last_words(box, unit, scope) if verb in ("start", "restart", "reload") else ""
    tail = f"\nThe end of its log:\n{log}" if log else ""
    return ModuleError(
        f"cannot {verb} '{unit or 'systemd'}': {text}{tail}", rc=answer.rc, stderr=answer.stderr
    )


def _stays_up(box: Box, unit: str, scope: str) -> None:
    properties = units.show(box, unit, scope)
    if properties.get("ActiveState") == "failed":
        log = units.last_words(box, unit, scope)
        raise ModuleError(
            f"'{unit}' was started and failed at once ({properties.get('Result', 'unknown')}). The end of its"
            f" log:\n{log}"
        )


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, state, enablement and properties as Ansible does."""
    facts: dict[str, Any] = {"name": arguments.get("name"), "status": state["properties"] or {}}
    if arguments.get("enabled") is not None:
        facts["enabled"] = arguments["enabled"]
        if ENABLED.get(state.get("enablement", ""), False) is None:
            facts["msg"] = (
                f"'{arguments['name']}' is {state['enablement']}: others start it, it cannot be enabled"
            )
    if arguments.get("state"):
        facts["state"] = "stopped" if arguments["state"] == "stopped" else "started"
    return facts


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    for key in ("state", "enabled", "masked"):
        if arguments.get(key) is not None and not arguments.get("name"):
            return f"`{key}` needs `name`"
    return None
