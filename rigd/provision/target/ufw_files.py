"""What ufw has written down of its own settings, on or off."""

import re

from rigd.provision.target import ufw_rules
from rigd.provision.target.ufw_rules import Rules

USER_RULES = ("/etc/ufw/user.rules", "/etc/ufw/user6.rules")
DEFAULTS = "/etc/default/ufw"
CONFIGURATION = "/etc/ufw/ufw.conf"
ALL = (*USER_RULES, DEFAULTS, CONFIGURATION)

_CHAINS = {"incoming": "INPUT", "outgoing": "OUTPUT", "routed": "FORWARD"}
_POLICIES = {"ACCEPT": "allow", "DROP": "deny", "REJECT": "reject"}


def rules() -> Rules:
    """Return the rules of both versions of the protocol."""
    return ufw_rules.rules_in("".join(_read(path) for path in USER_RULES))


def policies() -> dict[str, str]:
    """Return what becomes of packets that no rule fits, by direction."""
    found = {way: _setting(DEFAULTS, f"DEFAULT_{chain}_POLICY") for way, chain in _CHAINS.items()}
    return {way: _POLICIES.get(word, word.lower()) for way, word in found.items() if word}


def log_level() -> str:
    """Return the level of the log; "" where none is set."""
    return _setting(CONFIGURATION, "LOGLEVEL")


def _setting(path: str, name: str) -> str:
    match = re.search(rf'^{name}="?(\w+)', _read(path), re.MULTILINE)
    return match[1] if match else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
