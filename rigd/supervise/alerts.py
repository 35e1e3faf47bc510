"""`fold`: from journal entries, the present state and the time to messages for people.

Pure: no I/O, no randomness, no logging; `now_s` and the end of quiet hours come in.

    entry or trouble -> problem opened, changed or over -> note -> (grouped, paced, quiet) -> message

One crash that passes is one note, told when the engine is back; giving up is told at once; what was told is
also told to be over. What stays wrong is reminded of at growing intervals. `Pace` keeps flapping quiet.

How to add a kind of entry: a function that takes the fold and the happening, and a line in `_KINDS`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from rigd.rig.schema import AlertKind, Alerts
from rigd.supervise.alert_state import (
    ENGINE,
    WARMTH,
    AlertState,
    Happening,
    Level,
    Message,
    Note,
    Pace,
    Problem,
    Seen,
)
from rigd.supervise.alert_texts import account, cause_of, duration, written
from rigd.supervise.state import State

NOTES_LIMIT = 30
"""Notes that may wait; of more only the number is told."""
PROBLEMS_LIMIT = 50
"""Problems that may be open at once; the kernel can report as many cards and faults as it likes."""
CHANGES_LIMIT = 20
CHANGED = "changed"
"""Subject of settings that rigd changed."""
CRASH = "crash"
"""Subject of crashes that passed."""
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


@dataclass(kw_only=True)
class _Fold:
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

    def announce(self, problem: Problem, title: str, *, at_once: bool = False, after: str = "") -> None:
        """Tell of a problem, and remind of it from now on."""
        remind_s = None if self.rules.repeat_s is None else self.now_s + self.rules.repeat_s
        self.keep(replace(problem, due_s=None, reminders=0, remind_s=remind_s))
        self.note(
            problem.subject,
            problem.kind,
            title,
            account(problem, after=after or NEXT.get(problem.kind, "")),
            urgent=problem.kind in URGENT,
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
        reminder = _reminder(problem)
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


def fold(
    state: AlertState,
    happenings: Iterable[Happening],
    seen: Seen,
    rules: Alerts,
    *,
    rig: str,
    box: str,
    now_s: float,
    quiet: bool = False,
) -> tuple[AlertState, tuple[Message, ...]]:
    """Return the next state, and the messages to send now."""
    folding = _Fold(state=state, rules=rules, now_s=now_s)
    for happening in happenings:
        act = _KINDS.get(happening.kind) or _STATES.get(happening.get("to"))
        if act is not None:
            act(folding, happening)
    _troubles(folding, seen)
    _settled(folding, seen)
    _as_time_passes(folding)
    return _released(folding, rig=rig, box=box, quiet=quiet)


# Entries.


def _failed(folding: _Fold, happening: Happening) -> None:
    """Note that the engine is down; that is told when it is back, given up, or down for long."""
    before = folding.problem(ENGINE)
    new = happening.kind == "failure" or happening.get("from") == State.STARTING
    if before is None:
        due_s = happening.at_s + folding.rules.down_s
        before = Problem(
            subject=ENGINE, kind=AlertKind.FAILED, since_s=happening.at_s, sentence="", due_s=due_s
        )
    else:
        before = replace(before, times=before.times + new, final=False)
    folding.keep(_with_failure(before, happening))


def _gave_up(folding: _Fold, happening: Happening) -> None:
    before = folding.problem(ENGINE) or Problem(
        subject=ENGINE, kind=AlertKind.FAILED, since_s=happening.at_s, sentence="", due_s=happening.at_s
    )
    problem = replace(_with_failure(before, happening), final=True)
    problem = replace(problem, sentence=happening.message)
    after = f"rigd logs --start {problem.start}; then rigd start" if problem.start else "rigd start"
    folding.announce(problem, f"gave up{cause_of(problem)}", at_once=True, after=after)


def _starting(folding: _Fold, happening: Happening) -> None:
    del happening
    problem = folding.problem(ENGINE)
    if problem is not None and problem.final:
        folding.keep(replace(problem, final=False))


def _serving(folding: _Fold, happening: Happening) -> None:
    _engine_back(folding)
    problem = folding.problem(WARMTH)
    if problem is not None:
        folding.over(problem, "good again")
    del happening


def _engine_back(folding: _Fold) -> None:
    problem = folding.problem(ENGINE)
    if problem is None:
        return
    if problem.changes:
        _back_otherwise(folding, problem)
        return
    if problem.told:
        folding.over(problem, "serving again")
        return
    folding.drop(problem)
    down = duration(folding.now_s - problem.since_s)
    times = f" after {problem.times} failures" if problem.times > 1 else ""
    told = replace(problem, hint="")
    lines = (*account(told), f"back after {down}{times}; nothing to do")
    folding.note(CRASH, AlertKind.RECOVERED, f"failed, and is back{cause_of(problem)}", lines)


def _back_otherwise(folding: _Fold, problem: Problem) -> None:
    """Tell that the engine serves again, but with settings that rigd changed."""
    folding.drop(problem)
    down = duration(folding.now_s - problem.since_s)
    told = replace(problem, hint="")
    lines = (*account(told, after="rigd overlay show"), f"back after {down}")
    folding.note(CHANGED, AlertKind.DEGRADED, "serving again, with changed settings", lines, paced=False)


def _changed(folding: _Fold, happening: Happening) -> None:
    """Remember what was changed to get over a failure; it is told when that is over."""
    if happening.get("to") == State.BACKOFF:
        _failed(folding, happening)
    problem = folding.problem(ENGINE)
    if problem is not None and happening.get("to") == State.BACKOFF:
        changes = (*problem.changes, happening.message)[-CHANGES_LIMIT:]
        folding.keep(replace(problem, changes=changes))


def _degraded(folding: _Fold, happening: Happening) -> None:
    _engine_back(folding)
    before = folding.problem(WARMTH)
    if before is not None:
        folding.keep(replace(before, sentence=happening.message))
        return
    problem = Problem(
        subject=WARMTH, kind=AlertKind.DEGRADED, since_s=happening.at_s, sentence=happening.message
    )
    folding.announce(problem, "degraded: it serves, but not as wished")


def _left(folding: _Fold, happening: Happening) -> None:
    """Remind of nothing: a person stopped the engine, or took it in hand."""
    for subject in (ENGINE, WARMTH):
        problem = folding.problem(subject)
        if problem is not None:
            folding.over(problem, f"no more reminders: {happening.message}", level=Level.INFO)


def _refused(folding: _Fold, happening: Happening) -> None:
    goes_on = "the engine goes on with the configuration that it has"
    lines = (happening.message, goes_on, "next: rigd engine check RIG")
    folding.note("configuration", AlertKind.DEGRADED, "the new configuration was refused", lines)


def _internal(folding: _Fold, happening: Happening) -> None:
    lines = (happening.message, "next: rigd events; please report it")
    folding.note("rigd", AlertKind.FAILED, "rigd itself has a fault", lines, level=Level.WARNING)


def _store(folding: _Fold, happening: Happening) -> None:
    lines = (happening.message, "next: rigd status")
    folding.note("store", AlertKind.STORE, "rigd's store had trouble", lines)


def _host(folding: _Fold, happening: Happening) -> None:
    if happening.get("severity") == "info":
        return
    subject = _host_subject(happening)
    before = folding.problem(subject)
    if before is not None:
        folding.keep(replace(before, sentence=happening.message))
        return
    problem = Problem(
        subject=subject,
        kind=AlertKind.HOST,
        since_s=happening.at_s,
        sentence=happening.message,
        cause=happening.get("class"),
        evidence=(happening.get("evidence"),) if happening.get("evidence") else (),
        hint=happening.get("hint"),
    )
    folding.announce(problem, f"host trouble{cause_of(problem)}")


def _host_cleared(folding: _Fold, happening: Happening) -> None:
    problem = folding.problem(_host_subject(happening))
    if problem is not None:
        folding.over(problem, f"host trouble is over{cause_of(problem)}")


def _host_subject(happening: Happening) -> str:
    card = happening.get("bus") or happening.get("gpu")
    return f"host:{happening.get('class')}:{card}:{happening.get('subject')}"


_KINDS: dict[str, Callable[[_Fold, Happening], None]] = {
    "failure": _failed,
    "backoff": _failed,
    "overlay": _changed,
    "gave-up": _gave_up,
    "check-refused": _refused,
    "internal-error": _internal,
    "store": _store,
    "store-recovered": _store,
    "host-finding": _host,
    "host-cleared": _host_cleared,
}
_STATES: dict[str, Callable[[_Fold, Happening], None]] = {
    State.STARTING: _starting,
    State.READY: _serving,
    State.DEGRADED: _degraded,
    State.FAILED: _gave_up,
    State.STOPPED: _left,
    State.MAINTENANCE: _left,
}
"""What an entry of another kind means by the state that it leads to."""


def _with_failure(problem: Problem, happening: Happening) -> Problem:
    failure = happening.failure
    if failure is None:
        cause = happening.get("failure") or problem.cause
        return replace(problem, sentence=happening.message, cause=cause)
    return replace(
        problem,
        sentence=failure.sentence,
        cause=failure.kind,
        evidence=failure.evidence,
        hint=failure.hint or "",
        start=failure.start,
    )


# The present, and time.


def _troubles(folding: _Fold, seen: Seen) -> None:
    """Open and close the problems that are looked at rather than told: the store, the runtime."""
    there = {f"{kind}:now": (kind, sentence) for kind, sentence in seen.troubles}
    for subject, (kind, sentence) in there.items():
        before = folding.problem(subject)
        if before is None:
            # It counts once it has lasted: a Docker that restarts is no trouble.
            due_s = folding.now_s + folding.rules.group_s
            before = Problem(
                subject=subject, kind=kind, since_s=folding.now_s, sentence=sentence, due_s=due_s
            )
        folding.keep(replace(before, sentence=sentence))
    for problem in folding.state.problems:
        if problem.subject.endswith(":now") and problem.subject not in there:
            folding.over(problem, f"{problem.kind} trouble is over")


def _settled(folding: _Fold, seen: Seen) -> None:
    """Put right what entries that never came (another daemon's, a lost store) have left wrong."""
    engine, warmth = folding.problem(ENGINE), folding.problem(WARMTH)
    happening = Happening(at_s=folding.now_s, kind="settled", message=seen.reason, failure=seen.failure)
    stale = {
        State.READY: engine is not None or warmth is not None,
        State.DEGRADED: engine is not None or warmth is None,
        State.FAILED: engine is None or not engine.final,
        State.STOPPED: engine is not None or warmth is not None,
        State.MAINTENANCE: engine is not None or warmth is not None,
    }
    if seen.state is not None and stale.get(seen.state, False):
        _STATES[seen.state](folding, happening)


def _as_time_passes(folding: _Fold) -> None:
    for problem in folding.state.problems:
        if problem.due_s is not None and folding.now_s >= problem.due_s:
            folding.announce(problem, _lasting(folding, problem), at_once=problem.subject == ENGINE)
        elif problem.told and problem.remind_s is not None and folding.now_s >= problem.remind_s:
            _remind(folding, problem)


def _lasting(folding: _Fold, problem: Problem) -> str:
    if problem.subject != ENGINE:
        return f"{problem.kind} trouble{cause_of(problem)}"
    return f"down for {duration(folding.now_s - problem.since_s)}, still trying{cause_of(problem)}"


def _remind(folding: _Fold, problem: Problem) -> None:
    rules = folding.rules
    count = problem.reminders + 1
    # The exponent is bounded so that a long trouble cannot overflow.
    gap_s = min(rules.repeat_max_s, (rules.repeat_s or 0.0) * rules.repeat_factor ** min(count, 64))
    remind_s = None if rules.repeat_s is None else folding.now_s + gap_s
    folding.keep(replace(problem, reminders=count, remind_s=remind_s))
    words = {ENGINE: "given up" if problem.final else "not serving", WARMTH: "degraded"}
    title = f"still {words.get(problem.subject, f'{problem.kind} trouble')}{cause_of(problem)}"
    lasts = f"for {duration(folding.now_s - problem.since_s)} now"
    after = "rigd start" if problem.final else "rigd status"
    lines = (lasts, *account(problem, after=after))
    folding.note(
        _reminder(problem),
        problem.kind,
        title,
        lines,
        at_once=True,
        paced=False,
        level=LEVELS[problem.kind],
    )


def _reminder(problem: Problem) -> str:
    """Return the subject of reminders of a problem."""
    return f"{problem.subject}:reminder"


# Messages.


def _released(folding: _Fold, *, rig: str, box: str, quiet: bool) -> tuple[AlertState, tuple[Message, ...]]:
    """Take the notes that are due, and with them all others that may go, as one message."""
    state, now_s = folding.state, folding.now_s
    may = [note for note in state.notes if note.urgent or not quiet]
    if not any(note.due_s <= now_s for note in may):
        return state, ()
    going = [note for note in may if note.due_s <= now_s] if quiet else may
    message = written(going, state, folding.rules, rig=rig, box=box, now_s=now_s)
    paces = state.paces
    for subject in dict.fromkeys(note.subject for note in going if note.paced):
        paces = _paced(paces, subject, folding.rules, now_s=now_s)
    rest = tuple(note for note in state.notes if note not in going)
    after = replace(
        state, notes=rest, lost_notes=0, paces=paces[-PROBLEMS_LIMIT:], messages=state.messages + 1
    )
    return after, (message,)


def _paced(paces: tuple[Pace, ...], subject: str, rules: Alerts, *, now_s: float) -> tuple[Pace, ...]:
    """Return the paces after a subject was told of: the next time is further away, until it has been calm."""
    if rules.repeat_s is None:
        return ()
    before = next((pace for pace in paces if pace.subject == subject), None)
    others = tuple(pace for pace in paces if pace.subject != subject)
    gap_s = rules.repeat_s
    if before is not None and now_s <= before.next_s + before.gap_s:
        gap_s = min(rules.repeat_max_s, before.gap_s * rules.repeat_factor)
    return (*others, Pace(subject=subject, next_s=now_s + gap_s, gap_s=gap_s))
