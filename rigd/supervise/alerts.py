"""`fold`: from journal entries, the present state and the time to messages for people.

Pure: no I/O, no randomness, no logging; `now_s` and whether it is quiet come in.

    entry or trouble -> problem opened, changed or over -> note -> (grouped, paced, quiet) -> message

One crash that passes is one note, told when the engine is back; giving up is told at once; what was told is
also told to be over. What stays wrong is reminded of at growing intervals. `Pace` keeps flapping quiet.
"""

from collections.abc import Iterable
from dataclasses import replace

from rigd.rig.schema import Alerts
from rigd.supervise.alert_entries import KINDS, STATES
from rigd.supervise.alert_folding import LEVELS, PROBLEMS_LIMIT, Folding, reminder_of
from rigd.supervise.alert_state import (
    CHANGED,
    ENGINE,
    TREND,
    WARMTH,
    AlertState,
    Happening,
    Message,
    Pace,
    Problem,
    Seen,
)
from rigd.supervise.alert_texts import account, cause_of, duration, written
from rigd.supervise.state import State


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
    folding = Folding(state=state, rules=rules, now_s=now_s)
    for happening in happenings:
        act = KINDS.get(happening.kind) or STATES.get(happening.get("to"))
        if act is not None:
            act(folding, happening)
    _troubles(folding, seen)
    _settled(folding, seen)
    _as_time_passes(folding)
    return _released(folding, rig=rig, box=box, quiet=quiet)


# The present, and time.


def _troubles(folding: Folding, seen: Seen) -> None:
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


def _settled(folding: Folding, seen: Seen) -> None:
    """Put right what entries that never came (another daemon's, a lost store) have left wrong."""
    engine, warmth = folding.problem(ENGINE), folding.problem(WARMTH)
    changed = folding.problem(CHANGED)
    if seen.state is State.READY and changed is not None and not seen.changed:
        folding.over(changed, "the settings are as wished again")
    trends = [problem for problem in folding.state.problems if problem.subject.startswith(TREND)]
    for problem in trends:
        if seen.state is not None and problem.subject.removeprefix(TREND) not in seen.trends:
            folding.over(problem, f"over{cause_of(problem)}")
    happening = Happening(at_s=folding.now_s, kind="settled", message=seen.reason, failure=seen.failure)
    stale = {
        State.READY: engine is not None or warmth is not None,
        State.DEGRADED: engine is not None or (warmth is None and not trends),
        State.FAILED: engine is None or not engine.final,
        State.STOPPED: engine is not None or warmth is not None,
        State.MAINTENANCE: engine is not None or warmth is not None,
    }
    if seen.state is not None and stale.get(seen.state, False):
        STATES[seen.state](folding, happening)


def _as_time_passes(folding: Folding) -> None:
    for problem in folding.state.problems:
        if problem.due_s is not None and folding.now_s >= problem.due_s:
            folding.announce(problem, _lasting(folding, problem), at_once=problem.subject == ENGINE)
        elif problem.told and problem.remind_s is not None and folding.now_s >= problem.remind_s:
            _remind(folding, problem)


def _lasting(folding: Folding, problem: Problem) -> str:
    if problem.subject != ENGINE:
        return f"{problem.kind} trouble{cause_of(problem)}"
    return f"down for {duration(folding.now_s - problem.since_s)}, still trying{cause_of(problem)}"


def _remind(folding: Folding, problem: Problem) -> None:
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
        reminder_of(problem),
        problem.kind,
        title,
        lines,
        at_once=True,
        paced=False,
        level=LEVELS[problem.kind],
    )


# Messages.


def _released(folding: Folding, *, rig: str, box: str, quiet: bool) -> tuple[AlertState, tuple[Message, ...]]:
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
