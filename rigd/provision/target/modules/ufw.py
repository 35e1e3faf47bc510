"""The firewall by ufw; never at the price of the ssh session that sets it."""

import re
import time
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import ssh_session
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError
from rigd.provision.target.questions import NOT_THERE, ask

ROLLBACK_S = 120
ROLLBACK_UNIT = "rigd-ufw-rollback"
SETTLE_S = 2.0
USER_RULES = ("/etc/ufw/user.rules", "/etc/ufw/user6.rules")
DEFAULTS = "/etc/default/ufw"
CONFIGURATION = "/etc/ufw/ufw.conf"
VERBS = {"enabled": "enable", "disabled": "disable", "reloaded": "reload", "reset": "reset"}

ARGUMENTS = {
    "state": Argument(choices=tuple(VERBS)),
    "default": Argument(aliases=("policy",), choices=("allow", "deny", "reject")),
    "direction": Argument(choices=("in", "incoming", "out", "outgoing", "routed")),
    "logging": Argument(choices=("on", "off", "low", "medium", "high", "full")),
    "rule": Argument(choices=("allow", "deny", "limit", "reject")),
    "route": Argument(kind=Kind.BOOLEAN, default=False),
    "delete": Argument(kind=Kind.BOOLEAN, default=False),
    "insert": Argument(kind=Kind.INTEGER),
    "interface": Argument(aliases=("if",)),
    "interface_in": Argument(aliases=("if_in",)),
    "interface_out": Argument(aliases=("if_out",)),
    "log": Argument(kind=Kind.BOOLEAN, default=False),
    "from_ip": Argument(default="any", aliases=("from", "src")),
    "from_port": Argument(),
    "to_ip": Argument(default="any", aliases=("dest", "to")),
    "to_port": Argument(aliases=("port",)),
    "proto": Argument(aliases=("protocol",),
                      choices=("any", "tcp", "udp", "ipv6", "esp", "ah", "gre", "igmp", "vrrp")),
    "name": Argument(aliases=("app",)),
    "comment": Argument(),
    "insert_relative_to": Argument(left_out="`insert` counts from the first rule"),
}  # fmt: skip


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return whether the firewall is on, its policies, and what ufw would do with the rule."""
    status = ask(box, ["ufw", "status", "verbose"])
    if status.rc == NOT_THERE:
        if box.check:
            return {"absent": True}
        raise ModuleError("the box has no ufw: install the package `ufw` before")
    if status.rc != 0:
        raise ModuleError(f"ufw does not answer: {(status.stderr or status.stdout).strip()}")
    peer = ssh_session.peer(box.environment())
    state: dict[str, Any] = {
        "absent": False,
        "active": "Status: active" in status.stdout,
        "logging": _setting(CONFIGURATION, "LOGLEVEL"),
        "policies": _policies(),
        "peer": list(peer) if peer else None,
        "covered": bool(peer and ssh_session.covered(_allowing(), *peer)),
        "rule": "",
    }
    if arguments["rule"]:
        state |= _probe_rule(arguments, box)
    return state


def _probe_rule(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return whether the rule differs, and the words that set it right; ufw itself judges, without doing it."""
    words = rule_words(arguments)
    text, rc = _foretold(words, box)
    if "Invalid position" in text and arguments["insert"]:
        # There are fewer rules than that: the end is the place.
        words = rule_words({**arguments, "insert": None})
        text, rc = _foretold(words, box)
    if rc != 0:
        raise ModuleError(f"ufw does not take this rule: {text.strip()[-300:]}")
    if arguments["delete"]:
        # Asked to delete, it says the same whether there is such a rule or not; asked to add, it does not.
        text, _ = _foretold(rule_words({**arguments, "delete": False, "insert": None}), box)
        rules = _tuples(text)
        there = _is_there(text) or (bool(rules) and rules <= _tuples(_rules_text()))
        return {"rule": "differs" if there else "same", "words": words}
    return {"rule": "same" if _is_there(text) else "differs", "words": words}


def _foretold(words: list[str], box: Box) -> tuple[str, int]:
    answer = box.run(["ufw", "--dry-run", *words], ok=None)
    return answer.stdout + answer.stderr, answer.rc


def _is_there(text: str) -> bool:
    """Return whether every line that ufw says of the rule (v4 and v6) is that it need do nothing."""
    said = [line for line in text.splitlines() if line.startswith(("Skipping", "Rule"))]
    return bool(said) and all(line.startswith("Skipping") for line in said)


def _tuples(text: str) -> set[str]:
    """Return the rules in ufw's own notation, comments left aside."""
    lines = [line for line in text.splitlines() if line.startswith("### tuple ###")]
    return {line.partition(" comment=")[0] for line in lines}


def _policies() -> dict[str, str]:
    names = {"incoming": "INPUT", "outgoing": "OUTPUT", "routed": "FORWARD"}
    words = {"ACCEPT": "allow", "DROP": "deny", "REJECT": "reject"}
    found = {direction: _setting(DEFAULTS, f"DEFAULT_{name}_POLICY") for direction, name in names.items()}
    return {direction: words.get(word, word.lower()) for direction, word in found.items() if word}


def _setting(path: str, name: str) -> str:
    match = re.search(rf'^{name}="?(\w+)', _read(path), re.MULTILINE)
    return match[1] if match else ""


def _allowing() -> list[dict[str, Any]]:
    """Return the incoming rules of ufw that allow, as address and port."""
    rules = []
    # ### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 OpenSSH - in
    for line in _tuples(_rules_text()):
        verb, protocol, port, _, from_port, source, *rest = line.split()[3:]
        plain = verb in ("allow", "limit") and protocol in ("any", "tcp") and from_port == "any"
        if plain and rest[-1:] == ["in"]:
            rules.append({"from": source, "port": port})
    return rules


def _rules_text() -> str:
    return "".join(_read(path) for path in USER_RULES)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _direction(arguments: Mapping[str, Any]) -> str:
    given = str(arguments["direction"] or "incoming")
    return {"in": "incoming", "out": "outgoing"}.get(given, given)


def rule_words(arguments: Mapping[str, Any]) -> list[str]:
    """Return ufw's words for the rule, in the order that its grammar wants. Pure."""
    words = ["route"] if arguments["route"] else []
    words += ["delete"] if arguments["delete"] else []
    words += ["insert", str(arguments["insert"])] if arguments["insert"] and not arguments["delete"] else []
    words += [arguments["rule"]]
    directions = {"in": "in", "incoming": "in", "out": "out", "outgoing": "out"}
    direction = directions.get(arguments["direction"])
    words += [direction] if direction and not arguments["route"] else []
    for key, word in (("interface", "on"), ("interface_in", "in on"), ("interface_out", "out on")):
        if arguments[key]:
            words += [*word.split(), arguments[key]]
    words += ["log"] if arguments["log"] else []
    words += ["from", arguments["from_ip"]]
    words += ["port", arguments["from_port"]] if arguments["from_port"] else []
    words += ["to", arguments["to_ip"]]
    words += ["port", str(arguments["to_port"])] if arguments["to_port"] else []
    words += ["proto", arguments["proto"]] if arguments["proto"] and arguments["proto"] != "any" else []
    words += ["app", arguments["name"]] if arguments["name"] else []
    words += ["comment", arguments["comment"]] if arguments["comment"] and not arguments["delete"] else []
    return words


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the commands to give, the rule that keeps this session first."""
    wanted = arguments["state"]
    if state["absent"]:
        return [Change(what="set the firewall (once ufw is installed)", subject="ufw")]
    changes = []
    if arguments["logging"] and not _logs(state["logging"], arguments["logging"]):
        changes.append(_command(f"logging {arguments['logging']}", "logging", arguments["logging"]))
    if arguments["default"] and state["policies"].get(_direction(arguments)) != arguments["default"]:
        direction = _direction(arguments)
        changes.append(
            _command(
                f"default {arguments['default']} {direction}", "default", arguments["default"], direction
            )
        )
    if arguments["rule"] and state["rule"] == "differs":
        changes.append(_command(" ".join(state["words"]), *state["words"]))
    if wanted in ("enabled", "disabled") and state["active"] is not (wanted == "enabled"):
        changes.append(_command(VERBS[wanted], "--force", VERBS[wanted]))
    if wanted in ("reloaded", "reset"):
        changes.append(_command(VERBS[wanted], "--force", VERBS[wanted], once=True))
    return [*_keep_session(arguments, state, changes), *changes]


def _logs(have: str, wanted: str) -> bool:
    """Compare levels; `on` means low where it was off, and whatever it is otherwise."""
    return have not in ("", "off") if wanted == "on" else have == wanted


def _command(what: str, *words: str, once: bool = False) -> Change:
    return Change(what=f"ufw {what}", subject="ufw", data={"words": list(words)}, once=once)


def _keep_session(
    arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change]
) -> list[Change]:
    """Return the rule that lets this session's other side come in again, where nothing does yet."""
    if not changes or not state["peer"] or state["covered"] or not _may_cut(arguments, state):
        return []
    address, port = state["peer"]
    words = [
        "allow",
        "proto",
        "tcp",
        "from",
        address,
        "to",
        "any",
        "port",
        str(port),
        "comment",
        "rigd: this ssh session",
    ]
    return [
        Change(
            what=f"ufw allow ssh from {address}, who is working here now",
            subject="ufw",
            data={"words": words},
        )
    ]


def _may_cut(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    denies = (
        arguments["default"] in ("deny", "reject") and _direction(arguments) == "incoming" and state["active"]
    )
    rule = arguments["rule"] in ("deny", "reject", "limit") or (
        arguments["rule"] == "allow" and arguments["delete"]
    )
    return arguments["state"] in ("enabled", "reset") or denies or (rule and state["active"])


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Give the commands; where they may cut this session, a timer puts the firewall off unless it survives."""
    guarded = bool(state["peer"]) and _may_cut(arguments, state)
    if guarded:
        _set_timer(box)
    try:
        for change in changes:
            box.run(["ufw", *change.data["words"]], timeout_s=60)
        if guarded:
            _survives(state["peer"][0], box)
    except ModuleError:
        if guarded:
            box.run(["ufw", "--force", "disable"], ok=None, timeout_s=60)
        raise
    finally:
        if guarded:
            ask(box, ["systemctl", "stop", f"{ROLLBACK_UNIT}.timer"])


def _set_timer(box: Box) -> None:
    """If all goes wrong, helper included, the firewall is off again two minutes later."""
    ask(box, ["systemctl", "reset-failed", f"{ROLLBACK_UNIT}.service"])
    ask(
        box,
        [
            "systemd-run",
            "--quiet",
            f"--on-active={ROLLBACK_S}",
            f"--unit={ROLLBACK_UNIT}",
            "ufw",
            "--force",
            "disable",
        ],
    )


def _survives(address: str, box: Box) -> None:
    box.progress("looking whether this session still carries")
    time.sleep(SETTLE_S)
    until_s = time.monotonic() + ROLLBACK_S / 4
    while not ssh_session.carries(box, address):
        if time.monotonic() > until_s:
            raise ModuleError(f"the firewall cut the session from {address}, so it was put off again")
        time.sleep(SETTLE_S / 2)


def result(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    return {} if state["absent"] else {"active": state["active"], "policies": state["policies"]}


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("interface") and not arguments.get("direction"):
        return "`interface` needs `direction`"
    return None


MODULE = Module(
    names=("community.general.ufw",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    one_of=(("state", "default", "rule", "logging"),),
    exclusive=(("name", "proto"), ("interface", "interface_in"), ("interface", "interface_out")),
    check_arguments=check_arguments,
    summary="the firewall by ufw",
    differs=(
        "before the firewall is switched on or tightened over ssh, the address that works here now is allowed",
        "a timer puts the firewall off after two minutes if the session does not survive the change",
    ),
)
