"""One fold in progress: problems opened and closed, notes added, each note with the time it may be told. Pure."""

from dataclasses import dataclass, replace

from rigd.rig.schema import AlertKind, Alerts
from rigd.supervise.alert_state import AlertState, Level, Note, Pace, Problem
from rigd.supervise.alert_texts import account, duration

NOTES_LIMIT = 30
"""Notes that may wait; of more only the number is told."""
PROBLEMS_LIMIT = 50
"""Problems that may be open at once; the kernel can report as many cards and faults as it likes."""
LEVELS = {
    AlertKind.FAILED: Level.FAILURE,
    AlertKind.HOST: Level.FAILURE,
    AlertKind.DEGRADED: Level.WARNING,
    AlertKind.STORE: Level.WARNING,
    AlertKind.RECOVERED: Level.SUCCESS,
}
URGENT = frozenset({AlertKind.FAILED, AlertKind.HOST})
"""Kinds whose news pass in quiet hours."""
NEXT = {
    AlertKind.DEGRADED: "rigd status",
    AlertKind.HOST: "rigd status",
    AlertKind.STORE: "rigd status",
}
"""What to type next where the trouble itself does not say."""


@dataclass(kw_only=True)
class Folding:
    """One fold in progress: the state as far as it is, and what it goes by."""

    state: AlertState
    rules: Alerts
    now_s: float

    def problem(self, subject: str) -> Problem | None:
        return next((item for item in self.state.problems if item.subject == subject), None)

    def keep(self, problem: Problem) -> None:
        others = tuple(item for item in self.state.problems if item.subject != problem.subject)
        self.state = replace(self.state, problems=(*others, problem)[-PROBLEMS_LIMIT:])

    def drop(self, problem: Problem) -> None:
        others = tuple(item for item in self.state.problems if item.subject != problem.subject)
        self.state = replace(self.state, problems=others)

    def announce(
        self,
        problem: Problem,
        title: str,
        *,
        at_once: bool = False,
        after: str = "",
        urgent: bool | None = None,
    ) -> None:
        """Tell of a problem, and remind of it from now on; `urgent` None: as its kind is."""
        remind_s = None if self.rules.repeat_s is None else self.now_s + self.rules.repeat_s
        self.keep(replace(problem, due_s=None, reminders=0, remind_s=remind_s))
        self.note(
            problem.subject,
            problem.kind,
            title,
            account(problem, after=after or NEXT.get(problem.kind, "")),
            urgent=problem.kind in URGENT if urgent is None else urgent,
            at_once=at_once,
        )

    def note(
        self,
        subject: str,
        kind: AlertKind,
        title: str,
        lines: tuple[str, ...],
        *,
        urgent: bool = False,
        at_once: bool = False,
        paced: bool = True,
        level: Level | None = None,
    ) -> None:
        """Add a note, unless people do not want its kind; one that waits already only counts."""
        if kind not in self.rules.kinds:
            return
        for place, other in enumerate(self.state.notes):
            if (other.subject, other.title, other.urgent) == (subject, title, urgent):
                again = replace(other, times=other.times + 1, last_s=self.now_s, lines=lines)
                notes = (*self.state.notes[:place], again, *self.state.notes[place + 1 :])
                self.state = replace(self.state, notes=notes)
                return
        due_s = self.now_s if urgent or at_once else self.now_s + self.rules.group_s
        pace = self.pace(subject)
        if pace is not None and paced and not at_once:
            due_s = max(due_s, pace.next_s)
        if not paced:  # The end of something that itself still waits is told together with it.
            due_s = max([due_s, *(note.due_s for note in self.state.notes if note.subject == subject)])
        made = Note(
            subject=subject,
            kind=kind,
            level=level or LEVELS[kind],
            at_s=self.now_s,
            due_s=due_s,
            title=title,
            lines=lines,
            urgent=urgent,
            paced=paced,
        )
        if len(self.state.notes) >= NOTES_LIMIT * (2 if urgent else 1):
            self.state = replace(self.state, lost_notes=self.state.lost_notes + 1)
            return
        self.state = replace(self.state, notes=(*self.state.notes, made))

    def over(self, problem: Problem, title: str, *, level: Level = Level.SUCCESS) -> None:
        """Forget a problem; tell that it is over where it was told."""
        self.drop(problem)
        reminder = reminder_of(problem)
        self.state = replace(
            self.state, notes=tuple(note for note in self.state.notes if note.subject != reminder)
        )
        if not problem.told or problem.kind not in self.rules.kinds:
            return
        lasted = duration(self.now_s - problem.since_s)
        lines = (f"it was: {problem.sentence}", f"it lasted {lasted}")
        self.note(problem.subject, AlertKind.RECOVERED, title, lines, paced=False, level=level)

    def pace(self, subject: str) -> Pace | None:
        return next((item for item in self.state.paces if item.subject == subject), None)


def reminder_of(problem: Problem) -> str:
    """Return the subject of reminders of a problem."""
    return f"{problem.subject}:reminder"
