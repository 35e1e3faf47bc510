"""The box in the tailnet: logged in once, its settings kept."""

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError
from rigd.provision.target.questions import NOT_THERE, ask

UP_TIMEOUT_S = 120.0
SETTLED = ("Running", "Starting")

SETTINGS = {
    "hostname": ("Hostname", "--hostname"),
    "accept_routes": ("RouteAll", "--accept-routes"),
    "accept_dns": ("CorpDNS", "--accept-dns"),
    "ssh": ("RunSSH", "--ssh"),
    "shields_up": ("ShieldsUp", "--shields-up"),
    "operator": ("OperatorUser", "--operator"),
    "advertise_routes": ("AdvertiseRoutes", "--advertise-routes"),
}
"""Argument -> name in tailscaled's preferences, and flag of `tailscale up` and `tailscale set` alike."""

ARGUMENTS = {
    "auth_key_file": Argument(kind=Kind.PATH),
    "login_server": Argument(),
    "advertise_tags": Argument(kind=Kind.LIST, elements=Kind.TEXT),
    "hostname": Argument(),
    "accept_routes": Argument(kind=Kind.BOOLEAN),
    "accept_dns": Argument(kind=Kind.BOOLEAN),
    "ssh": Argument(kind=Kind.BOOLEAN),
    "shields_up": Argument(kind=Kind.BOOLEAN),
    "operator": Argument(),
    "advertise_routes": Argument(kind=Kind.LIST, elements=Kind.TEXT),
}


def probe(_arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the state of the daemon and its preferences."""
    answer = ask(box, ["tailscale", "status", "--json"])
    if answer.rc == NOT_THERE:
        if box.check:
            return {"state": "not installed", "prefs": {}, "self": {}}
        raise ModuleError("the box has no tailscale: install its package from Tailscale's repository before")
    try:
        status = json.loads(answer.stdout)
    except ValueError as error:
        text = (answer.stderr or answer.stdout).strip()
        raise ModuleError(f"tailscaled does not answer ({text}): `systemctl status tailscaled`") from error
    prefs = ask(box, ["tailscale", "debug", "prefs"])
    try:
        known = json.loads(prefs.stdout)
    except ValueError:
        known = {}
    own = status.get("Self") or {}
    return {"state": status.get("BackendState", ""), "prefs": known, "self": {
        "ips": own.get("TailscaleIPs") or [], "dns_name": (own.get("DNSName") or "").rstrip("."),
        "tags": own.get("Tags") or [], "key_expiry": own.get("KeyExpiry") or ""}}  # fmt: skip


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the login, if one is needed, and settings that differ."""
    words = [word for name, (_, flag) in SETTINGS.items() if arguments[name] is not None
             for word in [f"{flag}={_text(arguments[name])}"]]  # fmt: skip
    if state["state"] == "NeedsMachineAuth":
        raise ModuleError(
            "the tailnet's admin has to approve this box: https://login.tailscale.com/admin/machines"
        )
    if state["state"] in ("NeedsLogin", "NoState", "not installed"):
        return [Change(what="log in to the tailnet", subject="tailscale", data={"up": words})]
    changes = []
    if state["state"] not in SETTLED:
        # Bare `up` starts it with the preferences it has; with flags it would want all of them.
        changes.append(
            Change(what=f"start tailscale ({state['state']})", subject="tailscale", data={"up": None})
        )
    wrong = [name for name in SETTINGS if arguments[name] is not None and not _same(arguments, state, name)]
    for name in wrong:
        key, flag = SETTINGS[name]
        have = _text(state["prefs"].get(key))
        changes.append(Change(what=f"{name}: {have or 'unset'} -> {_text(arguments[name])}", subject="tailscale",
                              data={"set": f"{flag}={_text(arguments[name])}"}))  # fmt: skip
    return changes


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")


def _same(arguments: Mapping[str, Any], state: Mapping[str, Any], name: str) -> bool:
    have, wanted = state["prefs"].get(SETTINGS[name][0]), arguments[name]
    if isinstance(wanted, list):
        return sorted(have or []) == sorted(wanted)
    return bool((have or type(wanted)()) == wanted)


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Log in with the key's file, so that no argument and no message holds the key; or set what differs."""
    for change in changes:
        if "set" in change.data:
            continue
        words = change.data["up"]
        if words is None:
            box.run(["tailscale", "up", "--timeout=60s"], timeout_s=UP_TIMEOUT_S)
            continue
        box.progress("logging in to the tailnet")
        answer = box.run(
            ["tailscale", "up", *_login_words(arguments), *words], ok=None, timeout_s=UP_TIMEOUT_S
        )
        if answer.rc != 0:
            raise ModuleError(
                f"tailscale could not log in: {answer.stderr.strip()[-400:]}. A key is used up after one login"
                f" unless it is"
                " reusable, and a tag needs `advertise_tags`; make one at"
                " https://login.tailscale.com/admin/settings/keys"
            )
    if settings := [change.data["set"] for change in changes if "set" in change.data]:
        box.run(["tailscale", "set", *settings], timeout_s=UP_TIMEOUT_S)


def _login_words(arguments: Mapping[str, Any]) -> list[str]:
    path = arguments["auth_key_file"]
    if not path:
        raise ModuleError(
            "the box has to log in to the tailnet: give `auth_key_file`, or run `tailscale up` on the box once"
            " and open"
            " the address that it shows"
        )
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ModuleError(f"cannot read the key file {path}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ModuleError(f"others can read the key in {path}: `chmod 600 {path}`")
    words = [f"--auth-key=file:{path}", "--timeout=60s"]
    words += [f"--login-server={arguments['login_server']}"] if arguments["login_server"] else []
    words += (
        [f"--advertise-tags={','.join(arguments['advertise_tags'])}"] if arguments["advertise_tags"] else []
    )
    return words


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the box stands in the tailnet; a warning where its tags are others, which takes a new login."""
    facts: dict[str, Any] = {"backend_state": state["state"], **state["self"]}
    wanted = arguments["advertise_tags"]
    if wanted and state["state"] in SETTLED and sorted(wanted) != sorted(state["self"].get("tags", [])):
        facts["warnings"] = [
            (
                f"the box has the tags {state['self'].get('tags') or 'none'}, not {wanted}; they change with a"
                f" new login alone:"
                f" `tailscale up --force-reauth --advertise-tags={','.join(wanted)}`"
            )
        ]
    return facts


MODULE = Module(
    names=("rigd.box.tailscale",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    summary="the box in the tailnet: logs in only when it must, sets the rest; the key comes from a file",
)
