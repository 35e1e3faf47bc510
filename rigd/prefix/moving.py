"""Parts of a text that are another every day, start or session: the table of patterns, and the search."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rigd.prefix.finding import Level

CUE_CHARACTERS = 48
"""How far before a part a word may stand that says what it is."""
KEPT_TEXTS = 64
"""Texts whose parts are remembered: a sequence of requests brings the same system prompt again and again."""
LONGEST_BEFORE = 200
"""How far before a part its example may be announced, or the address begin that it stands in."""
LONGEST_TEXT = 80
"""Most characters of a part that are shown."""

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\.?,?"
_CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
_ZONE = r"(?:\s?(?:Z|UTC|GMT|[A-Z]{3,4}|[+-]\d\d:?\d\d)\b)?"
_ISO_DAY = r"(?:19|20)\d\d(?:-(?:0\d|1[0-2])-|/(?:0\d|1[0-2])/)(?:[0-2]\d|3[01])"
_DAY_NUMBER = r"\d{1,2}(?:st|nd|rd|th|\.)?"
_WORDED_DAY = (
    rf"(?:{_DAY}\s+)?(?:{_MONTH}\s+{_DAY_NUMBER},?\s+20\d\d"
    rf"|{_DAY_NUMBER}(?:\s+of\s+|[\s-]){_MONTH},?[\s-]20\d\d)"
)
_NUMBERED_DAY = r"(?:0?[1-9]|1[0-2]|[12]\d|3[01])[/.](?:0?[1-9]|1[0-2]|[12]\d|3[01])[/.]20\d\d"
_WEEKDAY = r"(?i:(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_PATH_END = r"[^\s\"'`<>|)\]},;]{0,200}"
_TEMPORARY = r"(?<![\w.])/(?:private/)?(?:tmp|var/tmp|var/folders|run/user|dev/shm)/"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One kind of moving part."""

    kind: str
    pattern: re.Pattern[str]
    why: str
    advice: str
    level: Level = Level.WARNING
    cue: re.Pattern[str] | None = None
    """Words before it that make a note a warning."""


@dataclass(frozen=True, kw_only=True)
class Moving:
    """A moving part at its place in a text."""

    part: Part
    start: int
    end: int
    text: str
    level: Level


def _part(
    kind: str, pattern: str, why: str, advice: str, *, level: Level = Level.WARNING, cue: str | None = None
) -> Part:
    words = re.compile(rf"(?<![a-z0-9])(?:{cue})(?![a-z0-9])", re.IGNORECASE) if cue is not None else None
    return Part(kind=kind, pattern=re.compile(pattern), why=why, advice=advice, level=level, cue=words)


_EXAMPLE = re.compile(
    r"\b(?:e\.g\.|example|for instance|such as|format|look(?:s|ing)? like|like [{\[\"'`])", re.IGNORECASE
)
"""Words before a part that make it an example: it stands there the same every day."""
_LINK = re.compile(r"https?://(?!localhost|127\.)\S+$")
"""An address on the net that a part stands in: somebody pasted it once."""
_NOW = "today|now|date|time|current|currently|datetime|timestamp|generated|updated|started|uptime|it's the|it is the"
_LAST = "move it into the last user message"

PARTS: tuple[Part, ...] = (
    _part(
        "placeholder",
        r"\{\{[^{}\n]{0,40}?(?i:date|time|now|cwd|pwd|uuid|random|session|user|host|branch|git)[^{}\n]{0,40}?\}\}"
        r"|\$\{?(?i:(?:[A-Z]+_)*(?:DATE(?:TIME)?|TIME(?:STAMP)?|NOW|CWD|PWD|UUID|RANDOM|SESSION(?:_ID)?|USER(?:NAME)?"
        r"|HOSTNAME|BRANCH))\}?(?!\w)"
        r"|\$\((?:date|pwd|hostname|uuidgen|git|whoami|ls|uname)\b[^)\n]{0,80}\)"
        r"|(?<![\w/{$])\{(?i:(?:current_?|todays?_?)?(?:date_?time|date|time(?:stamp)?)|now|today|cwd)\}(?!\})"
        r"|%(?:DATE|TIME|CD|USERNAME|COMPUTERNAME|RANDOM)%",
        "what replaces it differs between sessions",
        f"leave it out of the shared text, or {_LAST}",
    ),
    _part(
        "timestamp",
        rf"\b{_ISO_DAY}[T ]{_CLOCK}{_ZONE}"
        rf"|\b(?:{_WORDED_DAY}|{_NUMBERED_DAY}|\d{{1,2}}/\d{{1,2}}/\d\d),?\s+(?:at\s+)?{_CLOCK}{_ZONE}"
        rf"|\b{_DAY}\s+{_MONTH}\s+\d{{1,2}}\s+{_CLOCK}(?:\s+[A-Z]{{3,5}})?(?:\s+20\d\d)?"
        rf"|\b{_DAY}\s+\d{{1,2}}\s+{_MONTH}\s+{_CLOCK}(?:\s+[A-Z]{{3,5}})?(?:\s+20\d\d)?"
        r"|\b20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[T_-](?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?Z?\b",
        "it is another one in every request or start",
        f"leave it out, or {_LAST}",
    ),
    _part(
        "date",
        rf"\b{_WORDED_DAY}\b"
        rf"|\b{_DAY}\s+{_MONTH}\s+\d{{1,2}}(?:\s+20\d\d)?\b"
        rf"|\b{_ISO_DAY}\b"
        rf"|\b{_NUMBERED_DAY}\b"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+of\s+{_MONTH}\b|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)\b"
        r"|\b20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\b"
        r"|\b20\d\d\s?年\s?\d{1,2}\s?月\s?\d{1,2}\s?日",
        "it changes at midnight, and the whole prompt behind it is read again",
        f"leave it out, or {_LAST}",
        level=Level.NOTE,
        cue=_NOW,
    ),
    _part(
        "date",
        rf"\b(?i:(?:today|it)(?:'s| is)(?: an?)?|day(?: of the week)?(?: is|:|=))\s*{_WEEKDAY}\b"
        r"|\b(?i:current (?:year|month|week|day)(?: is|:|=))\s*\w+",
        "it changes at midnight, and the whole prompt behind it is read again",
        f"leave it out, or {_LAST}",
    ),
    _part(
        "time",
        rf"\b{_CLOCK}{_ZONE}(?![\w:])",
        "it is another one in every request",
        f"leave it out, or {_LAST}",
        level=Level.NOTE,
        cue=_NOW,
    ),
    _part(
        "uuid",
        r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
        "it is another one in every session",
        "leave it out: no model needs it",
    ),
    _part(
        "id",
        r"\b(?:req|request|msg|message|call|chatcmpl|toolu|ses|sess|session|run|trace|span|thread|conv|task|job)"
        r"[-_](?=[A-Za-z0-9]*\d)[A-Za-z0-9]{6,}\b"
        r"|\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
        r"|\b(?i:nonce|(?:session|request|trace|correlation|conversation|thread|run|span|job|task)[ _-]?id)"
        r"[\"']?\s*[:=]\s*[\"']?(?=[\w+/=-]{0,64}\d)[A-Za-z0-9_+/=-]{6,}",
        "it is another one in every session or request",
        "leave it out, or put it into the last user message",
    ),
    _part(
        "unix time",
        r"(?<![\w.])1[5-9]\d{8}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?(?!\w|\.\d)",
        "it is another one in every request",
        f"leave it out, or {_LAST}",
        level=Level.NOTE,
        cue=f"{_NOW}|at|began|begun|since|epoch|unix|ts|ms|ns|created|expires|last",
    ),
    _part(
        "hex",
        r"\b0x[0-9a-fA-F]{6,16}\b|\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b",
        "hashes and addresses change with every commit or start",
        "leave it out, or put it into the last user message",
        level=Level.NOTE,
        cue="commit|sha|hash|container|rev|revision|session|id|build|head|token|nonce|cch|object at",
    ),
    _part(
        "counter",
        r"\b(?i:request|turn|session|build|attempt|iteration|message|run|ticket)(?<!pull request)(?<!merge request)"
        r"(?i:[ \t]*(?:#|no\.|number|id|count)[ \t]*[:=]?[ \t]*#?\d+|\s+\d+\s+of\s+\d+"
        r"|[ \t]*:[ \t]*#?\d+(?!\w|[ \t]+(?!of\b)[a-z]))\b"
        r"|\b(?i:tokens?|messages?|turns?|requests?|context|budget)"
        r"(?:[ \t]+(?i:left|remaining|used)[ \t]*[:=]?[ \t]*\d[\d,.]*"
        r"|[ \t]*[:=]?[ \t]*\d[\d,.]*(?:[ \t]?[%kKM])?[ \t]+(?i:left|remaining|used)\b)"
        r"|\b(?i:pid[ \t]*[:=]?[ \t]*\d+|load average[ \t]*[:=]?[ \t]*\d[^\n]{0,40})"
        r"|\b(?:localhost|127\.0\.0\.1):(?:[3-6]\d{4})\b",
        "it counts on between requests or starts",
        "leave it out, or put it into the last user message",
    ),
    _part(
        "temporary path",
        rf"{_TEMPORARY}(?={_PATH_END}(?:\d|\btmp[._\w])){_PATH_END}"
        r"|\b[A-Za-z]:\\Users\\[^\s\"']+\\Temp\\[^\s\"']*",
        "temporary folders get another name at every start",
        "leave it out, or name it in the last user message",
    ),
    _part(
        "temporary path",
        rf"{_TEMPORARY}(?=\w){_PATH_END}",
        "temporary folders often get another name at every start",
        "leave it out, or name it in the last user message",
        level=Level.NOTE,
        cue="working directory|cwd|workspace",
    ),
    _part(
        "absolute path",
        rf"(?<![\w.:/])/(?:home|Users|root|mnt|media|workspace|workspaces|srv|opt|data|Volumes)/{_PATH_END}"
        r"|\b[A-Za-z]:\\(?:Users|src|work)[^\s\"']*",
        "it differs between projects, users and boxes: they cannot share what stands behind it",
        "write paths relative to the project, and name its folder after everything that is shared",
        level=Level.NOTE,
        cue="working directory|cwd|workspace|worktree|directory|folder|root",
    ),
    _part(
        "repository state",
        r"(?im:^\W{0,4}(?:git ?status|current branch|recent commits|uncommitted changes)\b[^\n:]{0,20}:[^\n]{0,80})"
        r"|(?m:^\W{0,4}On branch \S{1,80})",
        "it changes with every commit and every edited file",
        "put it into the last user message, or let the model ask git",
    ),
    _part(
        "machine",
        r"(?im:^\W{0,4}(?:host ?name|user ?name|ip(?: address)?|kernel|machine(?: id| name)?)\s*[:=]\s*[^\n]{1,60})",
        "it differs between users and boxes: they cannot share what stands behind it",
        "leave it out, or put it behind everything that is shared",
        level=Level.NOTE,
    ),
)
"""Kinds of moving parts; where two would match, the upper one counts."""


@functools.lru_cache(maxsize=KEPT_TEXTS)
def moving_parts(text: str) -> tuple[Moving, ...]:
    """Return the moving parts of a text, in order, none inside another."""
    found: list[Moving] = []
    for part in PARTS:
        found += [one for one in _of_kind(part, text) if not _covered(one, found)]
    return tuple(sorted(found, key=lambda one: one.start))


def moving_at(text: str, start: int, end: int) -> Moving | None:
    """Return the moving part that touches text[start:end], if there is one."""
    near = slice(max(0, start - 200), end + 200)
    for one in moving_parts(text[near]):
        if one.start + near.start < end and one.end + near.start > start:
            return one
    return None


def _of_kind(part: Part, text: str) -> Iterator[Moving]:
    for match in part.pattern.finditer(text):
        yield Moving(
            part=part,
            start=match.start(),
            end=match.end(),
            text=match[0][:LONGEST_TEXT],
            level=_level(part, text, match.start()),
        )


def _level(part: Part, text: str, start: int) -> Level:
    first = max(0, start - LONGEST_BEFORE)
    before = text[max(first, text.rfind("\n", first, start) + 1) : start]
    if _EXAMPLE.search(before) or _LINK.search(before):
        return Level.NOTE
    return Level.WARNING if part.cue is not None and part.cue.search(before[-CUE_CHARACTERS:]) else part.level


def _covered(one: Moving, found: list[Moving]) -> bool:
    return any(one.start < other.end and other.start < one.end for other in found)
