"""The firewall by ufw; never at the price of the ssh session that sets it."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from rigd.provision.target import ssh_session, ufw_files, ufw_guard, ufw_rules
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError
from rigd.provision.target.questions import NOT_THERE, ask
from rigd.provision.target.ssh_session import Session

VERBS = {"enabled": "enable", "disabled": "disable", "reloaded": "reload", "reset": "reset"}
DIRECTIONS = {"in": "incoming", "out": "outgoing", None: "incoming"}

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
    """Return what is set, what ufw would do with the rule, and what becomes of this session.

    Raises ModuleError where the wish names the rule that would cut it.
    """
    status = ask(box, ["ufw", "status", "verbose"])
    if status.rc == NOT_THERE:
        if box.check:
            return {"absent": True}
        raise ModuleError("the box has no ufw: install the package `ufw` before")
    if status.rc != 0:
        raise ModuleError(f"ufw does not answer: {(status.stderr or status.stdout).strip()}")
    state: dict[str, Any] = {
        "absent": False,
        "active": "Status: active" in status.stdout,
        "logging": ufw_files.log_level(),
        "policies": ufw_files.policies(),
        "rules": ufw_files.rules(),
        "words": None,
        "session": None,
        "pending": False,
        "undone": ufw_guard.undone(),
    }
    state["after"] = state["rules"]
    if arguments["rule"]:
        state |= _foretold(arguments, state, box)
    if session := ssh_session.present(box.environment()):
        session = replace(session, interface=ssh_session.interface(box, session))
        state["session"] = asdict(session)
        state["pending"] = ufw_guard.pending()
        state["keep"] = _needs_a_rule(arguments, state, session)
    return state


def _foretold(arguments: Mapping[str, Any], state: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the rules after the wish, and the words for it, None where nothing differs; ufw itself foretells."""
    words = rule_words(arguments)
    answer = box.run(["ufw", "--dry-run", *words], ok=None)
    if "Invalid position" in answer.stdout + answer.stderr and arguments["insert"]:
        # There are fewer rules than that: the end is the place.
        words = rule_words({**arguments, "insert": None})
        answer = box.run(["ufw", "--dry-run", *words], ok=None)
    if answer.rc != 0:
        raise ModuleError(f"ufw does not take this rule: {(answer.stdout + answer.stderr).strip()[-300:]}")
    after = {**state["rules"], **ufw_rules.rules_in(answer.stdout)}
    return {"after": after, "words": None if after == state["rules"] else words}


def _needs_a_rule(arguments: Mapping[str, Any], state: Mapping[str, Any], session: Session) -> bool:
    """Return whether the session would be cut for want of a rule; refuse a wish that cuts it by a rule of its own."""
    if not _filters_after(arguments, state):
        return False
    policy = state["policies"].get("incoming", "")
    now = ufw_rules.verdict(state["rules"], policy, session)
    if state["active"] and not now.lets_in:
        # It came in all the same, by a rule that ufw does not show; only trying tells what becomes of it.
        return False
    if arguments["default"] and _direction(arguments) == "incoming":
        policy = arguments["default"]
    then = ufw_rules.verdict(state["after"], policy, session)
    if then.lets_in:
        return False
    if then.rule:
        raise ModuleError(_refusal(session, f"by `{then.rule}`"))
    if now.rule:
        raise ModuleError(_refusal(session, f"for `{now.rule}` alone lets it in"))
    return True


def _refusal(session: Session, why: str) -> str:
    return (
        f"refused: this would cut the ssh session from {session.address} that works here now, {why}; "
        f"let it in before: ufw insert 1 allow from {session.address} to any port {session.port} proto tcp"
    )


def _filters_after(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    wanted = arguments["state"]
    return wanted == "enabled" or (state["active"] and wanted not in ("disabled", "reset"))


def _direction(arguments: Mapping[str, Any]) -> str:
    return DIRECTIONS.get(arguments["direction"], str(arguments["direction"]))


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
    if state["pending"]:
        changes.append(
            Change(what="see whether ssh comes in after a change that was broken off", subject="ufw")
        )
    if state["session"] and state["keep"]:
        changes.append(_keep(state["session"]))
    if arguments["logging"] and not _logs(state["logging"], arguments["logging"]):
        changes.append(_command(f"logging {arguments['logging']}", "logging", arguments["logging"]))
    direction = _direction(arguments)
    if arguments["default"] and state["policies"].get(direction) != arguments["default"]:
        changes.append(_command(f"default {arguments['default']} {direction}",
                                "default", arguments["default"], direction))  # fmt: skip
    if state["words"]:
        changes.append(_command(" ".join(state["words"]), *state["words"]))
    if wanted in ("enabled", "disabled") and state["active"] is not (wanted == "enabled"):
        changes.append(_command(VERBS[wanted], "--force", VERBS[wanted]))
    if wanted in ("reloaded", "reset"):
        changes.append(_command(VERBS[wanted], "--force", VERBS[wanted], once=True))
    return changes


def _keep(session: Mapping[str, Any]) -> Change:
    words = f"allow proto tcp from {session['address']} to any port {session['port']} comment".split()
    return Change(
        what=f"ufw allow ssh from {session['address']}, who is working here now",
        subject="ufw",
        data={"words": [*words, "rigd: this ssh session"]},
    )


def _logs(have: str, wanted: str) -> bool:
    """Compare levels; `on` means low where it was off, and whatever it is otherwise."""
    return have not in ("", "off") if wanted == "on" else have == wanted


def _command(what: str, *words: str, once: bool = False) -> Change:
    return Change(what=f"ufw {what}", subject="ufw", data={"words": list(words)}, once=once)


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box
) -> dict[str, Any]:
    """Give the commands; where they may cut this session, under guard of a timer."""
    guarded = state["session"] if state["pending"] or _may_cut(arguments, state) else None
    if guarded and not state["pending"]:
        ufw_guard.set_timer(box, active=state["active"])
    try:
        for change in changes:
            if change.data:
                box.run(["ufw", *change.data["words"]], timeout_s=ufw_guard.COMMAND_TIMEOUT_S)
    except ModuleError:
        if guarded:
            ufw_guard.put_back(box)
        raise
    if guarded:
        ufw_guard.confirm(box, Session(**guarded))
    # What was told of an earlier change is gone from the box with this one.
    return _warnings(state)


def _may_cut(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Return whether what changes may cut; more is allowed, or written down, without that."""
    tightens = (
        arguments["state"] in ("enabled", "reloaded")
        or arguments["default"] in ("deny", "reject")
        or (arguments["rule"] and (arguments["delete"] or arguments["rule"] != "allow"))
    )
    return bool(tightens) and _filters_after(arguments, state)


def result(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    if state["absent"]:
        return {}
    return {"active": state["active"], "policies": state["policies"], **_warnings(state)}


def _warnings(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"warnings": [state["undone"]]} if state["undone"] else {}


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
        "a rule that would cut the ssh session at work here, or the loss of the one that lets it in, is refused",
        "before the firewall is switched on or tightened over ssh, the address that works here now is allowed",
        "after a change that may cut, another connection is tried from outside; without one all is put back",
        "a timer puts it back after two minutes where nobody is left to try, or to put it back",
        "`insert` beyond the last rule puts it at the end, which ufw refuses",
        "what is written down is compared, with the firewall on or off; Ansible sees what `ufw status` tells",
    ),
)
