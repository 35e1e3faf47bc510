"""What a run has learned of a host, and how tasks see it: facts when first used, results once there are some."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rigd.provision.templating.values import Plain

_PREFIX = "ansible_"
_INTERFACE = re.compile(r"(lo|eth|en|wl|br|bond|docker|veth|virbr|tailscale|wg|tun)\w*")
"""Facts that are named after what the box has, so that nobody knows their names beforehand."""


class NotYetKnownError(BaseException):
    """A value depends on a task that has not run yet. No error, so that no template's handling takes it for one."""


@dataclass(kw_only=True)
class Known:
    """What a run has learned of one host."""

    facts: dict[str, Any] = field(default_factory=dict)
    """Without `ansible_`."""
    told: dict[str, Any] = field(default_factory=dict)
    """Facts of modules under the names that they gave them: `services`, `packages`, `getent_passwd`."""
    gathered: bool = False
    registered: dict[str, Any] = field(default_factory=dict)
    """Results, and what `set_fact` set."""
    included: dict[str, Any] = field(default_factory=dict)
    special: dict[str, Any] = field(default_factory=dict)
    """`ansible_failed_task` and `ansible_failed_result`: what failed last and was, or is being, mended."""
    unforetold: set[str] = field(default_factory=set)
    """Registered names whose result check mode could not know."""

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Take facts that a module tells."""
        self.told.update(facts)
        self.facts.update({name.removeprefix(_PREFIX): value for name, value in facts.items()})

    def forget(self) -> None:
        """Forget all facts."""
        self.facts.clear()
        self.told.clear()
        self.gathered = False


class Facts(Plain):
    """Facts under both spellings; asked of the box when one of them is first wanted."""

    def __init__(self, known: Known, gather: Callable[[], Any] | None) -> None:
        super().__init__()
        self._known = known
        self._gather = gather

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        text = str(name)
        if text in self._known.told:
            return True
        if text == "ansible_facts":
            return True
        if not text.startswith(_PREFIX):
            return False
        own = text.removeprefix(_PREFIX)
        if own not in self._known.facts and _is_fact(own):
            self._have()
        return own in self._known.facts

    def __getitem__(self, name: str) -> Any:
        if name in self._known.told:
            return self._known.told[name]
        if name == "ansible_facts":
            self._have()
            return self._known.facts
        return self._known.facts[name.removeprefix(_PREFIX)]

    def __iter__(self) -> Iterator[str]:
        yield from (_PREFIX + name for name in self._known.facts)
        yield from self._known.told

    def __len__(self) -> int:
        return len(self._known.facts)

    def _have(self) -> None:
        if self._gather is not None and not self._known.gathered:
            self._gather()


@cache
def _is_fact(name: str) -> bool:
    """Return whether a box has a fact of this name, or might."""
    from rigd.provision.target import facts  # noqa: PLC0415  (many files, for plays that use facts)

    return name in facts.known() or _INTERFACE.fullmatch(name) is not None


class Results(Plain):
    """Registered results; those of tasks that have not run yet are not to be used."""

    def __init__(self, results: Mapping[str, Any], unknown: frozenset[str]) -> None:
        super().__init__()
        self._results = results
        self._unknown = unknown

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._unknown or name in self._results

    def __getitem__(self, name: str) -> Any:
        if name in self._unknown:
            raise NotYetKnownError(name)
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)
