"""What messages to people say. Pure; the last paragraph of each names the box, the time and the message."""

from collections.abc import Sequence

from rigd.rig.schema import Alerts
from rigd.supervise.alert_state import AlertState, Level, Message, Note, Problem
from rigd.supervise.quiet import clock

BODY_LIMIT = 3500
"""Longest body in characters; chat services refuse more than about 4,000."""
TITLE_LIMIT = 120
LINE_LIMIT = 220
EVIDENCE_LINES = 4
CHANGES_SHOWN = 8
MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86400
_ORDER = (Level.FAILURE, Level.WARNING, Level.INFO, Level.SUCCESS)


def duration(seconds: float) -> str:
    """Return a time span as people say it."""
    if seconds < 2 * MINUTE_S:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} days"


def cause_of(problem: Problem) -> str:
    """Return the class of a problem for a title, in brackets."""
    return f" ({problem.cause})" if problem.cause else ""


def account(problem: Problem, *, after: str = "") -> tuple[str, ...]:
    """Return what is known of a problem: the sentence, the class, the evidence, what to type next."""
    lines = [problem.sentence]
    if problem.cause:
        of = f", start {problem.start}" if problem.start else ""
        more = f", {problem.times} failures so far" if problem.times > 1 else ""
        lines.append(f"class: {problem.cause}{of}{more}")
    lines += [f"  {line}" for line in problem.evidence[-EVIDENCE_LINES:]]
    lines += problem.changes[-CHANGES_SHOWN:]
    if problem.hint:
        lines.append(f"what helps: {problem.hint}")
    if after:
        lines.append(f"next: {after}")
    return tuple(lines)


def written(
    notes: Sequence[Note], state: AlertState, rules: Alerts, *, rig: str, box: str, now_s: float
) -> Message:
    """Return the one message that these notes become."""
    worst = min(notes, key=lambda note: _ORDER.index(note.level))
    others = len(notes) - 1
    title = f"{rig}: {worst.title}" + (f", and {others} more" if others else "")
    number = state.messages + 1
    id_ = f"{number}-{now_s:.0f}"
    foot = f"box {box}, {clock(now_s, rules.timezone)}, alert {id_}"
    alone = len(notes) == 1
    blocks = ["\n".join(_block(note, rules, alone=alone)) for note in notes]
    if state.lost_notes:
        blocks.append(f"and {state.lost_notes} more: `rigd events`")
    body = _within(blocks, BODY_LIMIT - len(foot) - 2)
    return Message(
        id=id_, at_s=now_s, level=worst.level, title=_short(title, TITLE_LIMIT), body=f"{body}\n\n{foot}"
    )


def _block(note: Note, rules: Alerts, *, alone: bool) -> list[str]:
    lines = [_short(line, LINE_LIMIT) for line in note.lines]
    repeated = f" ({note.times} times, last {clock(note.last_s, rules.timezone)})" if note.times > 1 else ""
    if alone and not repeated:
        return lines or [note.title]
    return [f"{clock(note.at_s, rules.timezone)} {note.title}{repeated}", *lines]


def _within(blocks: list[str], limit: int) -> str:
    """Return the blocks as one text; those that do not fit are counted."""
    kept: list[str] = []
    for number, block in enumerate(blocks):
        left = len(blocks) - number
        if sum(len(text) + 2 for text in kept) + len(block) > limit - 40:
            if kept:
                return "\n\n".join([*kept, f"and {left} more: `rigd events`"])
            kept.append(_short(block, limit - 40))
            continue
        kept.append(block)
    return "\n\n".join(kept)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
