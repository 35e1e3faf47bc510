"""What never leaves this box in an incident: secrets, by value, by shape and by name; prompts and answers. Pure.

    text -> known secrets, in every spelling -> shapes and names (`RULES`) -> prompts and answers, line by line

Leaving out too much costs a little evidence; leaving out too little cannot be taken back. Every pattern takes time in
proportion to the text, whatever the text is.

How to add a rule: a row in `RULES`, and a sample in the tests.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from rigd.supervise.loglines import clean

MASK = "***"
SHORTEST_SECRET = 4
"""Shorter ones are left: replacing them would garble ordinary text, and they protect nothing."""
LONGEST_LINE = 16_384
"""Characters of a line that are kept."""
PART_CHARACTERS = 32_768
"""Characters that are looked through at a time."""

_VALUE = r"""(?:\[[^\]\n]*\]?|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[^\s,;'"\[\]{}()&]+)"""
_UNSET = r"(?!None\b|null\b|True\b|False\b|true\b|false\b|\*\*\*|\"\"|'')"
_NAMED = (
    r"(?:api[_-]?keys?|access[_-]?key|private[_-]?key|secret[_-]?key|client[_-]?secret|secret|passw(?:or)?d"
    r"|passphrase|(?:hf|hub|auth|access|refresh|bot|bearer|session|github|gitlab|slack|security|rigd|api)[_-]?token"
    r"|(?<![A-Za-z_-])token|(?-i:TOKEN|PASSWORD|SECRET|API_KEY))"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One kind of secret: what it is called when it was left out, and what it looks like."""

    name: str
    pattern: re.Pattern[str]
    replacement: str = MASK


RULES = (
    Rule(
        name="authorization headers",
        pattern=re.compile(
            r"(?i)((?:proxy-)?authorization['\"]?\s{0,8}[:=,]\s{0,8}(?:b(?=['\"]))?['\"]?)"
            r"(?:(?:bearer|basic|token|digest|apikey)\s{1,8})?[^\s'\",;)\]}]+"
        ),
        replacement=rf"\1{MASK}",
    ),
    Rule(
        name="bearer tokens",
        pattern=re.compile(r"(?i)\b(bearer\s{1,8})(?!\*\*\*)[^\s'\",;)\]}]{4,}"),
        replacement=rf"\1{MASK}",
    ),
    Rule(
        name="cookies",
        pattern=re.compile(r"(?i)\b((?:set-)?cookie['\"]?\s{0,8}[:=]\s{0,8}['\"]?)[^\n'\"]+"),
        replacement=rf"\1{MASK}",
    ),
    Rule(
        name="credentials in URLs",
        pattern=re.compile(r"://(?!\*\*\*@)[^\s/?#'\"]+@"),
        replacement=f"://{MASK}@",
    ),
    Rule(
        name="secrets in URLs",
        pattern=re.compile(
            r"(?i)([?&][\w.-]{0,64}?(?:token|key|secret|passw(?:or)?d|auth|sig|signature|credential)=)[^&\s'\"#]+"
        ),
        replacement=rf"\1{MASK}",
    ),
    Rule(
        name="secrets on command lines",
        pattern=re.compile(
            rf"(?i)(--[a-z0-9-]{{0,40}}(?:api-key|token|secret|password)(?:['\"],?)?\s{{1,8}}){_UNSET}{_VALUE}"
        ),
        replacement=rf"\1{MASK}",
    ),
    Rule(
        name="named secrets",
        pattern=re.compile(rf"(?i)({_NAMED}['\"]?\s{{0,8}}[=:]\s{{0,8}}){_UNSET}{_VALUE}"),
        replacement=rf"\1{MASK}",
    ),
    Rule(
        name="well-known tokens",
        pattern=re.compile(
            r"\b(?:hf_[A-Za-z0-9]{20,256}|sk-[\w-]{16,256}|gh[pousr]_\w{16,256}|github_pat_\w{16,256}"
            r"|glpat-[\w-]{16,256}|xox[abeprs]-[\w-]{8,256}|nvapi-[\w-]{16,256}|tskey-[\w-]{8,256}"
            r"|AKIA[0-9A-Z]{16}|(?<!-)eyJ[\w-]{8,2048}\.[\w-]{4,2048}\.[\w-]{0,2048}|\d{8,10}:AA[\w-]{30,40})"
        ),
    ),
)
"""Secrets by shape and by name, in this order."""

PROMPTS = "prompts and answers"
KNOWN = "secrets of this rig"
KEYS = "private keys"
CUT = " [the rest of the line was left out]"

_CONTENT = re.compile(
    r"""(?:
      \bReceived\ request\ .{0,200}?\bprompt:\ ?
    | \bGenerated\ response\ .{0,200}?\boutput:\ ?
    | \b(?:prompt(?:_token_ids|_embeds)?|output_token_ids|token_ids|input_value|delta_text)['"]?\s?[:=]\s?(?=[^\s\d])
    | \b(?:request|response)[ _]body['"]?\s?[:=]\s?
    | ['"](?:messages|content|reasoning(?:_content)?|input|inputs|instruction|tools|tool_calls|arguments|text|system
        |suffix|query|documents|prompt|output)\\?['"]\s?:\s?(?=\S)
    | \b(?:ChatCompletionRequest|CompletionRequest|ResponsesRequest|ChatMessage|DeltaMessage)\(
    )""",
    re.VERBOSE,
)
"""Where what a client said, or was told, begins in a line. All that follows on the line is left out."""
_TOKEN_IDS = re.compile(r"\[\d{1,7}(?:,\s?\d{1,7}){15,}(?:[\]]|,?\s?\.\.\.)?")
_HEADS = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):\s")
_OPENING, _CLOSING, _QUOTES = ("[", "{", "("), ("]", "}", ")"), ("'", '"')
_WHOLE = ("Received request", "Generated response", "request", "response")
"""Markers whose contents may stand there unquoted, over many lines."""
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]*|[\w-]+: .*")

SECRET_NAME = re.compile(
    r"(?i)api[_-]?key|access[_-]?key|private[_-]?key|secret|passw(?:or)?d|passphrase|(?:^|[_-])token$"
    r"|(?:^|[_-])auth(?:orization)?$|cookie"
)
"""Names of settings, variables and flags whose values are secrets."""
_NAME = re.compile(r"[\w.-]{1,64}")


@dataclass(kw_only=True)
class Redaction:
    """Takes secrets and contents out of texts, and counts what it took. `secrets` are this rig's own values."""

    secrets: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    _known: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        """Prepare the spellings of the known secrets; longest first, so that none leaves a rest."""
        words = sorted(spellings(self.secrets), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    def text(self, text: str) -> str:
        """Return a text of many lines without secrets, prompts and answers."""
        kept: list[str] = []
        skipping: Callable[[str], bool] | None = None
        for part in _parts(text):
            masked = self._without_secrets(part)
            if skipping is None and _plain(masked):
                kept.append(_TOKEN_IDS.sub(_token_ids, masked))
                continue
            for line in masked.split("\n"):
                if skipping is not None and skipping(line):
                    skipping = None if _KEY_ENDS.search(line) else skipping
                    continue
                skipping = None
                if (key := _KEY_BEGINS.search(line)) is not None:
                    self.counts[KEYS] += 1
                    kept.append(f"{line[: key.start()]}{MASK}")
                    skipping = _within_key if _KEY_ENDS.search(line) is None else None
                    continue
                shown, goes_on = self._without_content(line[:LONGEST_LINE])
                kept.append(shown + CUT if len(line) > LONGEST_LINE else shown)
                skipping = _within_content if goes_on else None
        return "\n".join(kept)

    def value(self, value: Any, *, name: str = "") -> Any:
        """Return a JSON value without secrets and contents: by the names of its members, and in every string."""
        if isinstance(value, str):
            if SECRET_NAME.search(name) and value:
                self.counts["named secrets"] += 1
                return MASK
            return self.text(value)
        if isinstance(value, dict):
            return {
                self._without_secrets(str(key)): self.value(one, name=str(key)) for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return self._items(value, name)
        return value

    def _items(self, values: list[Any] | tuple[Any, ...], name: str) -> list[Any]:
        """Return a list; a string after a secret's name is its value: `[HF_TOKEN, ...]`, `[--api-key, ...]`."""
        before = name
        found = []
        for one in values:
            found.append(self.value(one, name=before if isinstance(one, str) else ""))
            before = one.removeprefix("--") if isinstance(one, str) and _NAME.fullmatch(one) else ""
            if SECRET_NAME.search(name):
                before = name
        return found

    def _without_secrets(self, text: str) -> str:
        if self._known is not None:
            text, count = self._known.subn(MASK, text)
            self.counts[KNOWN] += count
        for rule in RULES:
            text, count = rule.pattern.subn(rule.replacement, text)
            self.counts[rule.name] += count
        return text

    def _without_content(self, line: str) -> tuple[str, bool]:
        """Return the line without contents, and whether they go on in the next line."""
        line = _TOKEN_IDS.sub(_token_ids, line)
        begin = _CONTENT.search(line)
        if begin is None:
            return line, False
        self.counts[PROMPTS] += 1
        rest = line[begin.end() :]
        return f"{line[: begin.end()]}[left out: {len(rest)} characters]", _goes_on(begin[0], rest)


def spellings(secrets: Iterable[str]) -> frozenset[str]:
    """Return the secrets as they may be spelled: in JSON, in Python, in a URL, in base64."""
    found: set[str] = set()
    for secret in secrets:
        if len(secret) < SHORTEST_SECRET:
            continue
        found |= {
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
            repr(secret)[1:-1],
        }
        found |= {quote(secret, safe=safe, errors="replace") for safe in ("", "/")}
        found.add(repr(secret)[1:-1].replace("\\'", "'").replace("'", "\\'"))
        found.add(base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode().rstrip("="))
    return frozenset(found)


def _token_ids(match: re.Match[str]) -> str:
    named = match.string[max(0, match.start() - 40) : match.start()]
    return match[0] if "size" in named else "[numbers left out]"


def _parts(text: str) -> Iterator[str]:
    """Yield the text in parts of whole lines: a pattern over megabytes would hold up every other thread."""
    begin = 0
    while len(text) - begin > PART_CHARACTERS:
        end = text.find("\n", begin + PART_CHARACTERS)
        if end < 0:
            break
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]


def _plain(text: str) -> bool:
    """Return whether nothing in a text needs a look line by line: most of a log does not."""
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        return False
    return _CONTENT.search(text) is None and _KEY_BEGINS.search(text) is None


def _within_content(line: str) -> bool:
    """Whether a line goes on with what was left out: only the head of a log line ends that."""
    return not clean(line, 0).level and _HEADS.match(line) is None


def _within_key(line: str) -> bool:
    """Whether a line is inside of a private key; its last line is."""
    return _KEY_LINE.fullmatch(line.strip()) is not None or _KEY_ENDS.search(line) is not None


def _goes_on(marker: str, rest: str) -> bool:
    """Return whether what was left out does not end with its line: its quote or bracket is not closed."""
    first = rest[:1]
    if first in _QUOTES:
        return re.search(rf"(?<!\\)(?:\\\\)*{first}", rest[1:]) is None
    if first in _OPENING:
        opened = sum(rest.count(letter) for letter in _OPENING)
        return opened > sum(rest.count(letter) for letter in _CLOSING)
    return marker.startswith(_WHOLE)
