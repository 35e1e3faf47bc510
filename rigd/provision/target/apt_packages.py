"""Packages by apt: what is missing, what apt would do, doing it. Behind `apt`, `package` and our own modules.

names -> expand (globs) -> one dpkg-query -> missing -> apt-get -s (what it would install and remove) -> apt-get
"""

import contextlib
import fnmatch
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rigd.provision.target import aptget, dpkg
from rigd.provision.target.contract import Box, Change, ModuleError

POLICY = Path("/usr/sbin/policy-rc.d")
UPGRADES = {"yes": ["upgrade", "--with-new-pkgs"], "safe": ["upgrade", "--with-new-pkgs"],
            "full": ["dist-upgrade"], "dist": ["dist-upgrade"]}  # fmt: skip
RETRY_PAUSE_S = 2.0
MAY_PASS = ("cannot be reached", "cannot be resolved")
"""Faults of reading lists that another try may cure."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One wanted package: a name, perhaps with a version after `=` or `>=`."""

    text: str
    name: str
    relation: str = ""
    version: str = ""

    @property
    def for_apt(self) -> str:
        return f"{self.name}={self.version}" if self.relation == "=" else self.name


def parse(text: str) -> Spec:
    """Return a package as it was named."""
    text = text.strip()
    for relation in (">=", "="):
        if relation in text:
            name, _, version = text.partition(relation)
            if not name or not version or "=" in version:
                raise ModuleError(f"'{text}' is no package: write NAME, NAME=VERSION or NAME>=VERSION")
            return Spec(text=text, name=name.strip(), relation=relation, version=version.strip())
    return Spec(text=text, name=text)


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def expand(specs: Iterable[Spec], known: Iterable[str]) -> list[Spec]:
    """Return the same with patterns replaced by the known names they match; one that matches none is left out."""
    names = sorted(known)
    result: list[Spec] = []
    for spec in specs:
        matches = fnmatch.filter(names, spec.name) if is_pattern(spec.name) else [spec.name]
        result += [replace(spec, name=name) for name in matches]
    return result


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return what is there of the wanted packages, and what apt would do."""
    state: dict[str, Any] = {
        "interrupted": dpkg.interrupted(),
        "lists_s": aptget.lists_time_s(),
        "now_s": time.time(),
    }
    if not any(arguments.get(key) for key in ("name", "upgrade", "autoremove")):
        return state
    words = wanted_words(arguments, box, state)
    state["words"] = words
    if words:
        state["plan"] = aptget.simulate(box, words)
        if arguments.get("autoremove") and not arguments.get("upgrade"):
            # What would go by itself may go; what would go because of the wish is judged alone.
            alone = aptget.simulate(box, [word for word in words if word != "--auto-remove"])
            state["forced"] = [name for name, _ in alone["remove"]]
    return state


def wanted_words(arguments: Mapping[str, Any], box: Box, state: dict[str, Any]) -> list[str]:
    """Return apt-get's words for what is missing, or none; note in `state` what was looked at."""
    flags = flags_of(arguments)
    if upgrade := UPGRADES.get(arguments.get("upgrade") or "no"):
        return [*flags, *upgrade]
    specs = [parse(text) for text in arguments.get("name") or [] if text.strip()]
    if [spec.text for spec in specs] == ["*"] and arguments["state"] == "latest":
        return [*flags, *UPGRADES["yes"]]
    if not specs:
        return [*flags, "autoremove"] if arguments.get("autoremove") else []
    if arguments["state"] == "absent":
        return _absent_words(arguments, specs, box, state, flags)
    return _present_words(arguments, specs, box, state, flags)


def flags_of(arguments: Mapping[str, Any]) -> list[str]:
    recommends = arguments.get("install_recommends")
    return [
        *aptget.KEEP_CONFIGURATION,
        *([] if recommends is None else ["-o", f"APT::Install-Recommends={'yes' if recommends else 'no'}"]),
        *(["-t", arguments["default_release"]] if arguments.get("default_release") else []),
        *(["--auto-remove"] if arguments.get("autoremove") else []),
        *(["--purge"] if arguments.get("purge") else []),
        *(["--no-remove"] if arguments.get("fail_on_autoremove") else []),
        *(["--allow-downgrades"] if arguments.get("allow_downgrade") else []),
        *(["--allow-change-held-packages"] if arguments.get("allow_change_held_packages") else []),
        *(["--allow-unauthenticated"] if arguments.get("allow_unauthenticated") else []),
    ]


def _absent_words(
    arguments: Mapping[str, Any], specs: list[Spec], box: Box, state: dict[str, Any], flags: list[str]
) -> list[str]:
    # dpkg-query itself takes patterns, and only what is there can go.
    known = dpkg.packages(box, [spec.name for spec in specs])
    specs = expand(specs, [name for name in known if ":" not in name])
    gone = [
        spec.name
        for spec in specs
        if (dpkg.installed(known, spec.name) and _satisfied(spec, known, box))
        or known.get(spec.name, {}).get("half_way")
        or (arguments.get("purge") and known.get(spec.name, {}).get("configured_once"))
    ]
    state["held"] = [name for name in gone if known[name]["held"]]
    state["named"] = [spec.name for spec in specs]
    return [*flags, "remove", *gone] if gone else []


def _present_words(
    arguments: Mapping[str, Any], specs: list[Spec], box: Box, state: dict[str, Any], flags: list[str]
) -> list[str]:
    names = (
        box.run(["apt-cache", "pkgnames"]).stdout.split() if any(is_pattern(s.name) for s in specs) else []
    )
    state["unmatched"] = [spec.text for spec in specs if not expand([spec], names)]
    specs = expand(specs, names)
    known = dpkg.packages(box, [spec.name for spec in specs])
    state["automatic"] = dpkg.automatic(known, [spec.name for spec in specs])
    missing = [spec for spec in specs if not _satisfied(spec, known, box)]
    if missing and any(not spec.relation and spec.name not in known for spec in missing):
        virtual = dpkg.provided(box)
        missing = [
            spec for spec in missing if spec.relation or spec.name in known or spec.name not in virtual
        ]
    if arguments["state"] == "latest":
        missing = specs
    if arguments.get("only_upgrade"):
        missing = [spec for spec in missing if dpkg.installed(known, spec.name)]
    state["held"] = [spec.name for spec in missing if known.get(spec.name, {}).get("held")]
    state["named"] = [spec.name for spec in specs]
    if arguments["state"] == "fixed":
        return [*flags, "install", "--fix-broken", *(spec.for_apt for spec in missing)]
    if arguments["state"] == "build-dep":
        return [*flags, "build-dep", *(spec.for_apt for spec in specs)]
    return [*flags, "install", *(spec.for_apt for spec in missing)] if missing else []


def _satisfied(spec: Spec, known: Mapping[str, Mapping[str, Any]], box: Box) -> bool:
    if not dpkg.installed(known, spec.name):
        return False
    version = str(known[spec.name]["version"])
    if spec.relation == "=":
        return fnmatch.fnmatchcase(version, spec.version)
    if spec.relation == ">=":
        return dpkg.newer(box, version, spec.version, relation="ge")
    return True


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return what would be done; refuse what takes packages that nobody named."""
    changes = _packages_difference(arguments, state)
    if state.get("automatic"):
        what = f"note that {', '.join(state['automatic'])} is wanted for itself, not for what brought it"
        changes.append(Change(what=what, subject="apt-mark", counts=False))
    return changes


def _packages_difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    # Where apt would do nothing there is nothing to read lists for, unless reading them is the task.
    plan = state.get("plan")
    changes: list[Change] = []
    stale = lists_are_stale(arguments, state)
    if state.get("unmatched") and not stale:
        raise ModuleError(_no_match(state))
    if state.get("unmatched"):
        what = f"read the package lists, and install what fits {', '.join(state['unmatched'])}"
        changes.append(Change(what=what, subject="apt"))
    elif stale and (plan is not None or not arguments.get("name")):
        changes.append(Change(what="read the package lists", subject="apt", counts=False, once=True))
    if state["interrupted"] and plan is not None:
        changes.append(
            Change(what="finish what an interrupted dpkg left (dpkg --configure -a)", subject="dpkg")
        )
    if plan is None:
        return changes
    if plan["error"]:
        if stale or state["interrupted"]:  # ... and then the answer may be another.
            words = " ".join(state["words"][state["words"].index(_verb(state["words"])) :])
            return [*changes, Change(what=f"{words} (apt cannot foretell more before that)", subject="apt")]
        if "held" in plan["error"]:
            refuse_held(arguments, state, state.get("held", ()))
        raise ModuleError(plan["error"])
    refuse(arguments, state, plan)
    return [*changes, *planned_changes(plan)]


def _no_match(state: Mapping[str, Any]) -> str:
    return (
        f"no source of the box has a package that fits {', '.join(state['unmatched'])}. Check the pattern and the"
        " sources, or read the lists anew (`update_cache: true`)"
    )


def planned_changes(plan: Mapping[str, Any]) -> list[Change]:
    """Return apt's plan as changes, one a package."""
    return [
        *(Change(what=f"remove {name} {version}".rstrip(), subject=name, before=f"{name} {version}\n", after="")
          for name, version in plan["remove"]),
        *(Change(what=f"upgrade {name} {old} -> {new}" if old else f"install {name} {new}", subject=name,
                 before=f"{name} {old}\n" if old else "", after=f"{name} {new}\n")
          for name, old, new in plan["install"]),
        *(Change(what=f"finish setting up {name}", subject=name) for name in plan["configure"]),
    ]  # fmt: skip


def _verb(words: Sequence[str]) -> str:
    verbs = ("install", "remove", "autoremove", "build-dep", "upgrade", "dist-upgrade")
    return next(word for word in words if word in verbs)


def refuse(arguments: Mapping[str, Any], state: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Stop a plan that takes packages nobody named, or changes held ones."""
    removed = [name for name, _ in plan["remove"]]
    forced = state.get("forced", removed)
    if _verb(state["words"]) == "autoremove":
        forced = []
    named = set(state.get("named", ())) if arguments.get("state") == "absent" else set()
    taken = [
        name for name in removed if name in forced and name not in named and name.split(":")[0] not in named
    ]
    if taken and not arguments.get("force"):
        raise ModuleError(
            f"this would also remove {', '.join(taken)}, which the task does not name. If that is meant, name"
            f" them in a"
            " task with `state: absent` before this one, or say `force: true`; `apt-get -s` shows the whole plan"
        )
    refuse_held(arguments, state, {name for name, *_ in plan["install"]} | set(removed))


def refuse_held(arguments: Mapping[str, Any], state: Mapping[str, Any], touched: Iterable[str]) -> None:
    """Stop what would change held packages, by their names."""
    held = sorted(set(state.get("held", ())) & set(touched))
    if held and not arguments.get("allow_change_held_packages"):
        raise ModuleError(
            f"{', '.join(held)} is held, and this would change it. Release it with"
            f" `apt-mark unhold {' '.join(held)}`, or say `allow_change_held_packages: true`"
        )


def lists_are_stale(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Return whether the task wants the lists read anew, by their age."""
    valid_s = arguments.get("cache_valid_time") or 0
    if not arguments.get("update_cache") and not valid_s:
        return False
    return bool(state["now_s"] - state["lists_s"] > valid_s)


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], _changes: list[Change], box: Box
) -> dict[str, Any]:
    """Do it: finish an interrupted dpkg, read the lists, look again, install or remove."""
    wait_s = int(arguments.get("lock_timeout") or aptget.LOCK_WAIT_S)
    aptget.configure_interrupted(box)
    updated = lists_are_stale(arguments, state)
    if updated:
        update(box, wait_s=wait_s, tries=int(arguments.get("update_cache_retries") or 5))
    now = probe(arguments, box) if updated else state
    if now.get("unmatched"):
        raise ModuleError(_no_match(now))
    facts: dict[str, Any] = {"cache_updated": updated, "cache_update_time": int(aptget.lists_time_s())}
    if words := now.get("words"):
        if updated and now["plan"]["error"]:
            raise ModuleError(now["plan"]["error"])
        if updated:
            refuse(arguments, now, now["plan"])
        with policy(arguments.get("policy_rc_d")):
            answer = aptget.run(box, words, lock_wait_s=wait_s)
        facts |= {"stdout": answer.stdout, "stderr": answer.stderr}
    if now.get("automatic"):
        box.run(["apt-mark", "manual", *now["automatic"]])
    return facts


def update(box: Box, *, wait_s: int = aptget.LOCK_WAIT_S, tries: int = 3) -> None:
    """Read the package lists; an unreachable source is a fault, not a warning as apt has it."""
    for left in range(tries - 1, -1, -1):
        box.progress("reading the package lists")
        try:
            aptget.run(
                box, ["-o", "APT::Update::Error-Mode=any", "update"], lock_wait_s=wait_s, timeout_s=900
            )
        except ModuleError as error:
            if not left or not any(word in str(error) for word in MAY_PASS):
                raise
            time.sleep(RETRY_PAUSE_S)
        else:
            return


@contextlib.contextmanager
def policy(code: int | None) -> Iterator[None]:
    """Have packages ask /usr/sbin/policy-rc.d before they start services, and answer with this code."""
    if code is None:
        yield
        return
    before = POLICY.read_bytes() if POLICY.exists() else None
    mode = POLICY.stat().st_mode & 0o777 if before is not None else 0o755
    POLICY.write_text(f"#!/bin/sh\nexit {int(code)}\n", encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        if before is None:
            POLICY.unlink(missing_ok=True)
        else:
            POLICY.write_bytes(before)
            POLICY.chmod(mode)
