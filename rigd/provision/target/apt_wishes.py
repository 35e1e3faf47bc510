"""What a task wants of packages, in apt-get's words.

names -> expand (patterns) -> one dpkg-query -> what is missing, or there and unwanted -> words
"""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rigd.provision.target import aptget, dpkg
from rigd.provision.target.contract import Box, ModuleError

UPGRADES = {"yes": ["upgrade", "--with-new-pkgs"], "safe": ["upgrade", "--with-new-pkgs"],
            "full": ["dist-upgrade"], "dist": ["dist-upgrade"]}  # fmt: skip


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
