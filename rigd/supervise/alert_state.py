"""What the alerts remember between two looks: open problems, waiting notes, paces. Frozen values."""

import enum
from dataclasses import dataclass

from rigd.rig.schema import AlertKind
from rigd.supervise.state import Failure, State

ENGINE = "engine"
"""Subject of the problem that the engine does not serve."""
WARMTH = "degraded"
"""Subject of the problem that the engine serves, but not as wished."""
TREND = "trend:"
"""How the subjects of problems that only the numbers show begin."""
CHANGED = "changed"
"""Subject of the problem that the engine runs with settings that rigd changed."""


class Level(enum.StrEnum):
    """How loud a message is; the words are Apprise's own."""

    FAILURE = "failure"
    WARNING = "warning"
    SUCCESS = "success"
    INFO = "info"


@dataclass(frozen=True, kw_only=True)
class Happening:
    """A journal entry, and the failure that was in hand when it was written."""

    at_s: float
    kind: str
    message: str
    data: tuple[tuple[str, str | int | float | bool | None], ...] = ()
    failure: Failure | None = None

    def get(self, name: str) -> str:
        """Return a value of the entry as text; an empty one where it has none."""
        value = dict(self.data).get(name)
        return "" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is so at this moment, beside what happened."""

    state: State | None = None
    """The engine's state where it has lasted a while, else None."""
    reason: str = ""
    failure: Failure | None = None
    changed: bool = False
    """Whether the engine runs, or will run, with settings that rigd changed."""
    trends: frozenset[str] = frozenset()
    """Classes of what the numbers show is wrong with the engine."""
    troubles: tuple[tuple[AlertKind, str], ...] = ()
    """What is wrong right now with the store (`store`) or the runtime (`host`), as a sentence each."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that is wrong and not over yet."""

    subject: str
    kind: AlertKind
    since_s: float
    sentence: str
    cause: str = ""
    """Class of the failure, in the catalogue's vocabulary."""
    evidence: tuple[str, ...] = ()
    hint: str = ""
    start: int = 0
    times: int = 1
    due_s: float | None = None
    """When it is told if it is still there; None: it has been told."""
    reminders: int = 0
    remind_s: float | None = None
    changes: tuple[str, ...] = ()
    """What rigd changed of the settings to get over it."""
    final: bool = False
    """rigd gave up: nothing moves until a person acts."""

    @property
    def told(self) -> bool:
        """Whether people were told of it (or will be with the next message)."""
        return self.due_s is None


@dataclass(frozen=True, kw_only=True)
class Note:
    """A paragraph of a message to come."""

    subject: str
    kind: AlertKind
    level: Level
    at_s: float
    due_s: float
    title: str
    lines: tuple[str, ...] = ()
    urgent: bool = False
    """Passes in quiet hours."""
    paced: bool = True
    """Counts for how soon the subject is told of again."""
    times: int = 1
    last_s: float = 0.0
    """When it happened last, where it happened more than once."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When a subject may be told of again at the earliest, so that flapping becomes few messages."""

    subject: str
    next_s: float
    gap_s: float


@dataclass(frozen=True, kw_only=True)
class AlertState:
    """Everything that `fold` carries from one look to the next."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()
    lost_notes: int = 0
    """Notes that a full list had no room for, since the last message."""
    paces: tuple[Pace, ...] = ()
    messages: int = 0
    """Number of the last message."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message to people, ready to send."""

    id: str
    """Never the same twice: whoever gets a message again can tell."""
    at_s: float
    level: Level
    title: str
    body: str
