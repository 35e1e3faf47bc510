"""What each kind of journal entry means for the problems that people are told of. Pure.

How to add a kind: a function that takes the fold and the happening, and a line in `KINDS`.
"""

from collections.abc import Callable
from dataclasses import replace

from rigd.rig.schema import AlertKind
from rigd.supervise.alert_folding import Folding
from rigd.supervise.alert_state import CHANGED, ENGINE, TREND, WARMTH, Happening, Level, Problem
from rigd.supervise.alert_texts import account, cause_of, duration
from rigd.supervise.state import State

CHANGES_LIMIT = 20
QUIET_ACTS = frozenset({"apply-settings"})
LASTING_ACTS = frozenset({"reboot"})
"""Acts whose end this daemon may not live to tell of."""
DRIFT = "drift"
"""Subject of the problem that the host differs from its playbook."""
DRIFT_TROUBLE = "drift-trouble"
"""Subject of the problem that nobody can tell whether it does."""
CRASH = "crash"
"""Subject of crashes that passed."""


def _failed(folding: Folding, happening: Happening) -> None:
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


def _gave_up(folding: Folding, happening: Happening) -> None:
    before = folding.problem(ENGINE) or Problem(
        subject=ENGINE, kind=AlertKind.FAILED, since_s=happening.at_s, sentence="", due_s=happening.at_s
    )
    problem = replace(_with_failure(before, happening), final=True)
    problem = replace(problem, sentence=happening.message)
    after = f"rigd logs --start {problem.start}; then rigd start" if problem.start else "rigd start"
    folding.announce(problem, f"gave up{cause_of(problem)}", at_once=True, after=after)


def _starting(folding: Folding, happening: Happening) -> None:
    del happening
    problem = folding.problem(ENGINE)
    if problem is not None and problem.final:
        folding.keep(replace(problem, final=False))


def _serving(folding: Folding, happening: Happening) -> None:
    _engine_back(folding)
    problem = folding.problem(WARMTH)
    if problem is not None:
        folding.over(problem, "good again")
    del happening


def _engine_back(folding: Folding) -> None:
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


def _back_otherwise(folding: Folding, problem: Problem) -> None:
    """Tell that the engine serves again, but with settings that rigd changed."""
    folding.drop(problem)
    down = duration(folding.now_s - problem.since_s)
    told = replace(problem, hint="")
    lines = (*account(told, after="rigd overlay show"), f"back after {down}")
    folding.note(CHANGED, AlertKind.DEGRADED, "serving again, with changed settings", lines, paced=False)
    # Kept so that its end is told too; it works, so nobody is reminded of it.
    folding.keep(replace(problem, subject=CHANGED, kind=AlertKind.DEGRADED, due_s=None, remind_s=None))


def _changed(folding: Folding, happening: Happening) -> None:
    """Remember what was changed to get over a failure; it is told when that is over."""
    if happening.get("to") == State.BACKOFF:
        _failed(folding, happening)
    problem = folding.problem(ENGINE)
    if problem is not None and happening.get("to") == State.BACKOFF:
        changes = (*problem.changes, happening.message)[-CHANGES_LIMIT:]
        folding.keep(replace(problem, changes=changes))


def _degraded(folding: Folding, happening: Happening) -> None:
    _engine_back(folding)
    before = folding.problem(WARMTH)
    if before is not None:
        folding.keep(replace(before, sentence=happening.message))
        return
    problem = Problem(
        subject=WARMTH, kind=AlertKind.DEGRADED, since_s=happening.at_s, sentence=happening.message
    )
    folding.announce(problem, "degraded: it serves, but not as wished")


def _trend(folding: Folding, happening: Happening) -> None:
    """Tell what the numbers show, once; the engine serves, and what it runs into is another matter."""
    subject = _trend_subject(happening)
    if folding.problem(subject) is not None:
        return
    problem = Problem(
        subject=subject,
        kind=AlertKind.DEGRADED,
        since_s=happening.at_s,
        sentence=happening.message,
        cause=happening.get("class"),
        hint=happening.get("hint"),
    )
    folding.announce(problem, f"the numbers show trouble{cause_of(problem)}")


def _trend_over(folding: Folding, happening: Happening) -> None:
    problem = folding.problem(_trend_subject(happening))
    if problem is not None:
        folding.over(problem, f"over{cause_of(problem)}")


def _trend_subject(happening: Happening) -> str:
    return f"{TREND}{happening.get('class')}"


def _left(folding: Folding, happening: Happening) -> None:
    """Remind of nothing: a person stopped the engine, or took it in hand."""
    for subject in (ENGINE, WARMTH):
        problem = folding.problem(subject)
        if problem is not None:
            folding.over(problem, f"no more reminders: {happening.message}", level=Level.INFO)


def _refused(folding: Folding, happening: Happening) -> None:
    goes_on = "the engine goes on with the configuration that it has"
    lines = (happening.message, goes_on, "next: rigd engine check RIG")
    folding.note("configuration", AlertKind.DEGRADED, "the new configuration was refused", lines)


def _internal(folding: Folding, happening: Happening) -> None:
    lines = (happening.message, "next: rigd events; please report it")
    folding.note("rigd", AlertKind.FAILED, "rigd itself has a fault", lines, level=Level.WARNING)


def _store(folding: Folding, happening: Happening) -> None:
    lines = (happening.message, "next: rigd status")
    folding.note("store", AlertKind.STORE, "rigd's store had trouble", lines)


def _host(folding: Folding, happening: Happening) -> None:
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


def _host_cleared(folding: Folding, happening: Happening) -> None:
    problem = folding.problem(_host_subject(happening))
    if problem is not None:
        folding.over(problem, f"host trouble is over{cause_of(problem)}")


def _host_act(folding: Folding, happening: Happening) -> None:
    """Tell of what rigd did to the host; settings that were set again are no news."""
    state, act = happening.get("state"), str(happening.get("act"))
    if act in QUIET_ACTS and state != "failed":
        return
    begins = act in LASTING_ACTS and state == "intended"
    if state == "intended" and not begins:
        return  # It is told with what came of it, a moment later.
    titles = {
        "intended": "acts on the host",
        "failed": "could not act on the host",
        "refused": "does not act",
    }
    title = titles.get(str(state), "acted on the host")
    folding.note(f"host-act:{act}", AlertKind.HOST, title, (happening.message,), urgent=state != "done")


def _drift(folding: Folding, happening: Happening) -> None:
    """Tell that the host differs from its playbook: once, and again only when more does."""
    before = folding.problem(DRIFT)
    if before is not None:
        folding.drop(before)
    problem = Problem(
        subject=DRIFT,
        kind=AlertKind.HOST,
        since_s=happening.at_s if before is None else before.since_s,
        sentence=happening.message,
        hint=happening.get("hint"),
    )
    folding.announce(problem, "the host has drifted", urgent=False)


def _drift_trouble(folding: Folding, happening: Happening) -> None:
    problem = Problem(
        subject=DRIFT_TROUBLE,
        kind=AlertKind.HOST,
        since_s=happening.at_s,
        sentence=happening.message,
        hint=happening.get("hint"),
    )
    folding.announce(problem, "the host cannot be held against its playbook", urgent=False)


def _drift_over(folding: Folding, happening: Happening) -> None:
    subject = DRIFT if happening.kind == "drift-over" else DRIFT_TROUBLE
    problem = folding.problem(subject)
    if problem is not None:
        folding.over(problem, happening.message)


def _drift_apply(folding: Folding, happening: Happening) -> None:
    """Tell what rigd applied by itself; that it begins is no news."""
    state = happening.get("state")
    if state != "intended":
        titles = {
            "done": "applied its playbook",
            "stopped": "stopped applying its playbook",
            "interrupted": "was interrupted applying its playbook",
        }
        title = titles.get(state, "could not apply its playbook")
        folding.note("drift-apply", AlertKind.HOST, title, (happening.message,))


def _host_subject(happening: Happening) -> str:
    card = happening.get("bus") or happening.get("gpu")
    return f"host:{happening.get('class')}:{card}:{happening.get('subject')}"


KINDS: dict[str, Callable[[Folding, Happening], None]] = {
    "failure": _failed,
    "backoff": _failed,
    "waiting": _failed,
    "aside": _failed,
    "overlay": _changed,
    "fallback": _changed,
    "gave-up": _gave_up,
    "check-refused": _refused,
    "internal-error": _internal,
    "store": _store,
    "store-recovered": _store,
    "trend": _trend,
    "trend-over": _trend_over,
    "trend-lasts": _serving,  # Degraded by what was told already; whatever else was wrong is over.
    "host-finding": _host,
    "host-cleared": _host_cleared,
    "host-act": _host_act,
    "drift": _drift,
    "drift-over": _drift_over,
    "drift-trouble": _drift_trouble,
    "drift-trouble-over": _drift_over,
    "drift-apply": _drift_apply,
}
STATES: dict[str, Callable[[Folding, Happening], None]] = {
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
