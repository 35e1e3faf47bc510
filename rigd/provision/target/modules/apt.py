"""Packages of Debian and Ubuntu."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import apt_packages, apt_wishes, aptget, download, dpkg
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

_fetched: dict[str, str] = {}
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""The folder where fetched packages lie, once there is one; it goes with the helper."""

ARGUMENTS = {
    "name": Argument(kind=Kind.LIST, elements=Kind.TEXT, aliases=("pkg", "package")),
    "state": Argument(default="present", choices=("present", "absent", "latest", "fixed", "build-dep")),
    "update_cache": Argument(kind=Kind.BOOLEAN, aliases=("update-cache",)),
    "cache_valid_time": Argument(kind=Kind.INTEGER, default=0),
    "update_cache_retries": Argument(kind=Kind.INTEGER, default=5),
    "update_cache_retry_max_delay": Argument(kind=Kind.INTEGER, default=12),
    "deb": Argument(kind=Kind.PATH),
    "upgrade": Argument(default="no", choices=("no", "yes", "safe", "full", "dist")),
    "purge": Argument(kind=Kind.BOOLEAN, default=False),
    "autoremove": Argument(kind=Kind.BOOLEAN, default=False),
    "autoclean": Argument(kind=Kind.BOOLEAN, default=False),
    "clean": Argument(kind=Kind.BOOLEAN, default=False),
    "default_release": Argument(aliases=("default-release",)),
    "install_recommends": Argument(kind=Kind.BOOLEAN, aliases=("install-recommends",)),
    "force": Argument(kind=Kind.BOOLEAN, default=False),
    "fail_on_autoremove": Argument(kind=Kind.BOOLEAN, default=False),
    "only_upgrade": Argument(kind=Kind.BOOLEAN, default=False),
    "policy_rc_d": Argument(kind=Kind.INTEGER),
    "lock_timeout": Argument(kind=Kind.INTEGER, default=aptget.LOCK_WAIT_S),
    "allow_unauthenticated": Argument(kind=Kind.BOOLEAN, default=False, aliases=("allow-unauthenticated",)),
    "allow_downgrade": Argument(
        kind=Kind.BOOLEAN, default=False, aliases=("allow-downgrade", "allow_downgrades", "allow-downgrades")
    ),
    "allow_change_held_packages": Argument(kind=Kind.BOOLEAN, default=False),
    "force_apt_get": Argument(kind=Kind.BOOLEAN, default=False),
    "auto_install_module_deps": Argument(kind=Kind.BOOLEAN, default=True),
    "dpkg_options": Argument(left_out="changed configuration files are always kept (confdef, confold)"),
}


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the packages' state; of a .deb what is in it and whether that is installed."""
    state = apt_packages.probe(_settled(arguments), box)
    if arguments["deb"]:
        state |= _probe_deb(arguments, box)
    if arguments["clean"] or arguments["autoclean"]:
        state["cached"] = sorted(name for name in _archives() if name.endswith(".deb"))
    return state


def _settled(arguments: Mapping[str, Any]) -> dict[str, Any]:
    upgrade = None if arguments["upgrade"] == "no" else arguments["upgrade"]
    return {**arguments, "upgrade": upgrade}


def _archives() -> list[str]:
    try:
        return os.listdir("/var/cache/apt/archives")
    except OSError:
        return []


def _probe_deb(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    path = _fetch(arguments["deb"], box) if "://" in arguments["deb"] else arguments["deb"]
    answer = box.run(
        ["dpkg-deb", "-W", "--showformat=${Package}\t${Version}\t${Architecture}", path], ok=None
    )
    if answer.rc != 0:
        raise ModuleError(f"'{path}' is no Debian package: {answer.stderr.strip() or 'not readable'}")
    name, version, _ = answer.stdout.split("\t")
    known = dpkg.packages(box, [name])
    if dpkg.installed(known, name):
        have = str(known[name]["version"])
        if have == version or (not arguments["allow_downgrade"] and dpkg.newer(box, have, version)):
            return {}
    words = [*apt_wishes.flags_of(arguments), "install", os.path.abspath(path)]
    return {"words": words, "named": [name], "plan": aptget.simulate(box, words)}


def _fetch(url: str, box: Box) -> str:
    """Return where the package lies on the box; it is fetched once in the helper's life."""
    if url in _fetched and os.path.exists(_fetched[url]):
        return _fetched[url]
    if not _folders:
        _folders.append(tempfile.TemporaryDirectory(prefix="rigd-deb-"))
    path = os.path.join(_folders[0].name, hashlib.sha256(url.encode()).hexdigest()[:12] + ".deb")
    download.save(url, path, box)
    _fetched[url] = path
    return path


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return what would be installed, removed, upgraded or cleaned away."""
    changes = apt_packages.difference(_settled(arguments), state)
    if state.get("cached") and (arguments["clean"] or not arguments["name"]):
        word = "clean" if arguments["clean"] else "autoclean"
        changes.append(Change(what=f"{word}: {len(state['cached'])} cached packages", subject="apt", once=True,
                              counts=arguments["clean"]))  # fmt: skip
    return changes


def apply(
    arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box
) -> Mapping[str, Any] | None:
    """Let apt-get do it."""
    facts = apt_packages.apply(_settled(arguments), state, changes, box)
    for word in ("clean", "autoclean"):
        if arguments[word] and any(change.what.startswith(f"{word}:") for change in changes):
            facts["stdout"] = facts.get("stdout", "") + aptget.run(box, [word]).stdout
    return facts


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("deb") and arguments.get("state") != "present":
        return "`deb` installs: it goes with `state: present` alone"
    return None


MODULE = Module(
    names=("ansible.builtin.apt",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    exclusive=(("deb", "name", "upgrade"),),
    check_arguments=check_arguments,
    summary="Debian packages: present, absent, latest, upgrades, .deb files",
    differs=(
        (
            "a plan that removes packages the task does not name is refused; `force: true` lifts that, and does"
            " nothing"
            " else: signatures are always checked unless `allow_unauthenticated` says otherwise"
        ),
        (
            "`update_cache` reads the lists only if something is to be installed or reading them is the whole"
            " task, and"
            " is by itself no change: a converged run needs no network"
        ),
        "no python3-apt is needed or installed on the box",
        "a `deb` that is older than what is installed is no fault: it stays unless `allow_downgrade` says otherwise",
        "with `state: absent` a pattern that fits no package is ok, since there is nothing to remove",
        "tries of reading the lists follow each other after two seconds, below any `update_cache_retry_max_delay`",
        "an interrupted dpkg is finished first; the lock is waited for, ten minutes unless told otherwise",
        "needrestart is told to list, not to restart services",
    ),
)
