"""Packages by apt: what is missing, what apt would do, doing it. Behind `apt`, `package` and our own modules.

apt_wishes (words for apt-get) -> apt-get -s (what it would install and remove) -> refuse, or apt-get
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigd.provision.target import apt_wishes, aptget, dpkg
from rigd.provision.target.contract import Box, Change, ModuleError

POLICY = Path("/usr/sbin/policy-rc.d")
RETRY_PAUSE_S = 2.0
MAY_PASS = ("cannot be reached", "cannot be resolved")
"""Faults of reading lists that another try may cure."""


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return what is there of the wanted packages, and what apt would do."""
    state: dict[str, Any] = {
        "interrupted": dpkg.interrupted(),
        "lists_s": aptget.lists_time_s(),
        "now_s": time.time(),
    }
    if not any(arguments.get(key) for key in ("name", "upgrade", "autoremove")):
        return state
    words = apt_wishes.wanted_words(arguments, box, state)
    state["words"] = words
    if words:
        state["plan"] = aptget.simulate(box, words)
        if arguments.get("autoremove") and not arguments.get("upgrade"):
            # What would go by itself may go; what would go because of the wish is judged alone.
            alone = aptget.simulate(box, [word for word in words if word != "--auto-remove"])
            state["forced"] = [name for name, _ in alone["remove"]]
    return state


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
