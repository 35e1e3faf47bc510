"""Which handlers a host owes in a play: notified by name or topic, run in the order of their definition."""

from collections.abc import Callable, Iterable, Sequence

from rigd.provision.language.model import Task


class Owed:
    """What was notified and has not run yet, on one host in one play."""

    def __init__(self, pending: Iterable[str] = ()) -> None:
        self._names: list[str] = list(dict.fromkeys(pending))

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names and topics as they were notified."""
        return tuple(self._names)

    def add(self, names: Iterable[str]) -> tuple[str, ...]:
        """Notify; return those that were not owed already."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._names)
        self._names.extend(new)
        return new

    def paid(self, names: Iterable[str]) -> None:
        """Take from the list what has run."""
        gone = set(names)
        self._names = [name for name in self._names if name not in gone]


def matching(
    handlers: Sequence[Task], notified: str, name_of: Callable[[Task], str | None]
) -> tuple[Task, ...]:
    """Return the handlers that a notified name means: the one of that name, and all that listen to it.

    Of several with one name the last role's counts, and in it the first, as with Ansible.
    """
    named = [
        handler for handler in handlers if notified in _names(handler, name_of(handler) or handler.name or "")
    ]
    listening: dict[str, list[Task]] = {}
    for handler in handlers:
        if notified in handler.listen:
            listening.setdefault(handler.name or handler.id, []).append(handler)
    found = [_counting(same) for same in (named, *listening.values()) if same]
    return tuple(handler for index, handler in enumerate(found) if handler not in found[:index])


def _counting(same: Sequence[Task]) -> Task:
    return next(handler for handler in same if handler.role is same[-1].role)


def _names(handler: Task, name: str) -> tuple[str, ...]:
    return (name, f"{handler.role.name} : {name}") if handler.role else (name,)


def due(
    handlers: Sequence[Task], names: Sequence[str], name_of: Callable[[Task], str | None]
) -> list[tuple[Task, tuple[str, ...]]]:
    """Return the handlers to run, in the order of definition, each with what is paid once it has run.

    A topic is paid when the last handler that listens to it has run.
    """
    meant = {name: matching(handlers, name, name_of) for name in names}
    wanted = [handler for handler in handlers if any(handler in found for found in meant.values())]
    last = {name: max(found, key=wanted.index) for name, found in meant.items() if found}
    return [
        (handler, tuple(name for name, at in last.items() if at is handler))
        for handler in wanted
    ]  # fmt: skip
