"""What in one prompt file or one request body will not stay the same."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rigd.prefix.finding import Finding, Level
from rigd.prefix.moving import Moving, moving_parts
from rigd.prefix.pieces import Piece, about_tokens, pieces
from rigd.prefix.sources import Prompt, Recorded

MOST_FINDINGS = 50
"""Findings of one kind that are told of one source; more of them say nothing new."""
BEHIND_TOKENS = 200
"""Static tokens behind a moving part from which on its place is a finding of its own."""
LISTING_LINES = 5
"""Lines of paths in a row that make a listing."""
LONGEST_PATH = 300
"""Characters of a line that may be a path."""

_PATH_LINE = re.compile(r"^\s*(?:[-*]\s+)?((?:[\w.@+-]+/)*[\w@+-]+(?:\.[\w.+-]+|/))\s*$")

Tell = Callable[..., Finding]


def lint_prompt(prompt: Prompt) -> tuple[Finding, ...]:
    """Return what a prompt file has that will move."""
    text = prompt.text

    def tell(at: int, **fields: Any) -> Finding:
        return Finding(source=prompt.name, line=_line(text, at), **fields)

    total = len(text)
    found = [*_moving(text, tell, lambda end: total - end), *_seams(text, tell), *_listings(text, tell)]
    return _limited(sorted(found, key=lambda one: one.line))


def lint_body(recorded: Recorded, *, tools_first: bool = False) -> tuple[Finding, ...]:
    """Return what the shared part of a request body (system prompt and tools) has that will move."""
    found: list[Finding] = list(_whole(recorded))
    static = [piece for piece in pieces(recorded.body, tools_first=tools_first) if piece.static]
    behind = sum(len(piece.text) for piece in static)
    for piece in static:
        behind -= len(piece.text)
        found += _piece(recorded.name, piece, behind)
    return _limited(found)


def lint_order(files: Sequence[Prompt]) -> tuple[Finding, ...]:
    """Return the prompt files that have moving parts and stand before ones that have none."""
    found = []
    for index, prompt in enumerate(files):
        first = next((one for one in moving_parts(prompt.text) if one.level is Level.WARNING), None)
        rest = sum(len(other.text) for other in files[index + 1 :])
        if first is None or about_tokens(rest) < BEHIND_TOKENS:
            continue
        found.append(
            Finding(
                level=Level.WARNING,
                kind="dynamic before static",
                source=prompt.name,
                line=_line(prompt.text, first.start),
                text=first.text,
                why=f"{len(files) - index - 1} files stand behind this one, and none of them can hit when it moves",
                advice="name this file last, where the files are put together in this order",
                tokens_behind=about_tokens(rest),
            )
        )
    return tuple(found)


def _piece(source: str, piece: Piece, behind: int) -> Iterator[Finding]:
    text = piece.text

    def tell(at: int, **fields: Any) -> Finding:
        return Finding(source=source, path=piece.path, line=_line(text, at), **fields)

    yield from _moving(text, tell, lambda end: len(text) - end + behind)
    if piece.role != "tools":
        yield from _seams(text, tell, whole=False)
        yield from _listings(text, tell)


def _moving(text: str, tell: Tell, behind: Callable[[int], int]) -> Iterator[Finding]:
    parts = moving_parts(text)
    for one in parts:
        yield tell(
            one.start,
            level=one.level,
            kind=one.part.kind,
            text=_shown(text, one),
            why=one.part.why,
            advice=one.part.advice,
            tokens_behind=about_tokens(behind(one.end)),
        )
    first = next((one for one in parts if one.level is Level.WARNING), None)
    if first is not None and (tokens := about_tokens(behind(first.end))) >= BEHIND_TOKENS:
        yield tell(
            first.start,
            level=Level.WARNING,
            kind="dynamic before static",
            text=_shown(text, first),
            why=f"static text stands behind this {first.part.kind}, and none of it can hit when it moves",
            advice="put what never changes first, and this last",
            tokens_behind=tokens,
        )


def _seams(text: str, tell: Tell, *, whole: bool = True) -> Iterator[Finding]:
    why = "the tokenizer joins it with whatever follows, so the last tokens of the shared part change with it"
    if text.startswith("\ufeff"):
        yield tell(
            0,
            level=Level.WARNING,
            kind="byte order mark",
            text="U+FEFF",
            why="editors add and remove it unseen, and it is the very first token",
            advice="save the file as UTF-8 without a byte order mark",
        )
    if "\r\n" in text and "\n" in text.replace("\r\n", ""):
        yield tell(
            text.index("\r\n"),
            level=Level.WARNING,
            kind="line endings",
            text="CRLF and LF",
            why="a checkout on another system changes them, and with them nearly every token",
            advice="use LF throughout, and say so in .gitattributes",
        )
    stripped = text.rstrip()
    rest = text[len(stripped) :]
    if stripped and rest and (rest != "\n" or not whole):
        yield tell(
            len(stripped),
            level=Level.NOTE,
            kind="white space at the seam",
            text=repr(rest[:20])[1:-1],
            why=why,
            advice="end the text with a letter" if not whole else "end the file with one line break",
        )
    if whole and stripped and not rest:
        yield tell(
            len(stripped) - 1,
            level=Level.NOTE,
            kind="white space at the seam",
            text="no line break at the end",
            why=why,
            advice="end the file with one line break",
        )
    if text[:1] in (" ", "\t", "\n", "\r"):
        yield tell(
            0,
            level=Level.NOTE,
            kind="white space at the seam",
            text=repr(text[: len(text) - len(text.lstrip())][:20])[1:-1],
            why="templates strip it or not, by version: the first tokens then differ",
            advice="begin with a letter",
        )
    if ends := [number for number, line in enumerate(stripped.split("\n")) if line[-1:] in (" ", "\t")]:
        count = len(ends)
        yield tell(
            _start_of(stripped, ends[0]),
            level=Level.NOTE,
            kind="trailing white space",
            text=f"on {count} line{'s' if count > 1 else ''}",
            why="editors remove it unseen, and every token behind it then differs once",
            advice="remove it",
        )


def _listings(text: str, tell: Tell) -> Iterator[Finding]:
    """Find listings of files in no order: they come from a folder as the disk has it."""
    at, run_at = 0, 0
    run: list[str] = []
    for line in [*text.split("\n"), ""]:
        match = _PATH_LINE.match(line) if len(line) < LONGEST_PATH else None
        if match:
            run_at = run_at if run else at
            run.append(match[1])
        else:
            if len(run) >= LISTING_LINES and not _sorted(run):
                yield tell(
                    run_at,
                    level=Level.WARNING,
                    kind="listing in no order",
                    text=", ".join(run[:3]) + ", ...",
                    why="the same files come in another order from another disk or after a change",
                    advice="sort it, or leave it out: the model can list files itself",
                )
            run = []
        at += len(line) + 1


def _sorted(names: list[str]) -> bool:
    return any(names == sorted(names, key=key) for key in (str, str.lower, _folders_first))


def _folders_first(name: str) -> tuple[bool, str]:
    return (not name.endswith("/"), name.lower())


def _whole(recorded: Recorded) -> Iterator[Finding]:
    """Yield what concerns the body as a whole."""
    body, name = recorded.body, recorded.name
    if salt := body.get("cache_salt"):
        yield Finding(
            level=Level.WARNING,
            kind="cache salt",
            source=name,
            line=1,
            path="cache_salt",
            text=str(salt)[:8] + "...",
            why="requests with different salts share no block at all",
            advice="leave `cache_salt` out where the clients trust one another",
            tokens_behind=sum(about_tokens(len(piece.text)) for piece in pieces(body)),
        )
    yield from _late_system(recorded)
    names = [piece.text for piece in pieces(body) if piece.role == "tools"]
    for index, text in enumerate(names):
        if text in names[:index]:
            yield Finding(
                level=Level.NOTE,
                kind="tool twice",
                source=name,
                line=1,
                path=f"tools[{index}]",
                text=text[:60],
                why="which of the two comes first, and whether both do, depends on the client's start",
                advice="let the client send each tool once",
            )


def _late_system(recorded: Recorded) -> Iterator[Finding]:
    messages = recorded.body.get("messages")
    if not isinstance(messages, list):
        return
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    for index, role in enumerate(roles):
        if role in ("system", "developer") and any(
            before not in ("system", "developer") for before in roles[:index]
        ):
            yield Finding(
                level=Level.NOTE,
                kind="dynamic before static",
                source=recorded.name,
                line=1,
                path=f"messages[{index}]",
                text=f"a {role} message behind the conversation",
                why="it moves further back with every turn; some templates lift it to the front and so change "
                "everything",
                advice="send system messages first, and once",
            )
            return


def _shown(text: str, one: Moving) -> str:
    """Return a moving part with a few words before it."""
    line = text.rfind("\n", 0, one.start) + 1
    before = text[max(line, one.start - 24) : one.start]
    return (before.lstrip() + one.text).strip()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _start_of(text: str, number: int) -> int:
    """Return where line `number` (from 0) begins."""
    return sum(len(line) + 1 for line in text.split("\n")[:number])


def _limited(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings, at most so many of a kind."""
    counts: dict[str, int] = {}
    kept = []
    for one in found:
        counts[one.kind] = counts.get(one.kind, 0) + 1
        if counts[one.kind] <= MOST_FINDINGS:
            kept.append(one)
    return tuple(kept)
