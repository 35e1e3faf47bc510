"""One pass over a log in constant memory: which rules are hit, where, and what was captured.

    lines -> blocks -> shapes (known ones are looked up) -> needles -> cleaned line -> benign? -> first rule
          -> candidates, one a rule

Wrappers ("Engine core initialization failed") are no candidates: they only say that something died. A new
start of the engine in the same log sets the candidates aside; an engine that becomes ready clears them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from rigd.supervise.logfindings import EVIDENCE_LIMIT, Candidate, Cut, Evidence, Pending, Start
from rigd.supervise.loglines import Line, clean
from rigd.supervise.rules import RULES
from rigd.supervise.rules.context import (
    BOUNDARIES,
    CORE_BOUNDARY,
    IS_BENIGN,
    MARKS,
    SETTINGS,
    STAGES,
    WRAPPER,
)
from rigd.supervise.rules.model import Captured, Rule, Signature
from rigd.supervise.statistics import Statistics

TEXT_LIMIT = 500
_BLOCK = 512
_WINDOW = 200
"""Lines kept before the current one, for tracebacks."""
_FRAMES = 80
_CUT_TRIES = 200
"""Unknown errors of one start that are tried together with the lines after them; the cause is among the first."""
_AFTERWORDS = 2
"""Lines that may still follow a last word, for example another rank's."""
_SHAPES = 50_000
"""Shapes of lines that are remembered, about 10 MiB."""
_NO_ERROR = frozenset({"DEBUG", "INFO", "WARNING"})
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b:|^(?:FATAL|CRITICAL|panic)\b|\bERROR\b")


_SIGNATURES: dict[str, list[tuple[int, int, Rule, Signature]]] = {}
for _index, _rule in enumerate(RULES):
    for _place, _signature in enumerate(_rule.signatures):
        _SIGNATURES.setdefault(_signature.needle, []).append((_index, _place, _rule, _signature))
_STAGE = dict(STAGES)
_MARKS: dict[str, tuple[str, ...]] = {}
for _text, _mark in MARKS:
    _MARKS[_text] = (*_MARKS.get(_text, ()), _mark)
_RULE_NUMBER = {id(rule): index for index, rule in enumerate(RULES)}
_GENERIC = ("error:", "exception:", " error ", "exception", "critical")
NEEDLES: tuple[str, ...] = tuple(
    dict.fromkeys(
        (*_SIGNATURES, *_STAGE, *_MARKS, *BOUNDARIES, CORE_BOUNDARY, *Statistics.NEEDLES, *_GENERIC)
    )
)


_VARYING = dict.fromkeys(map(ord, "0123456789abcdef-"))
"""Left out when lines are compared by shape: numbers and identifiers."""
_BARE = tuple((needle, needle.translate(_VARYING)) for needle in NEEDLES)


class LogReader:
    """Reads one log."""

    def __init__(self) -> None:
        self.recent: list[str] = []
        self.first = 1
        """Number of the first line in `recent`."""
        self.shapes: dict[int, tuple[str, ...]] = {}
        """Needles that lines of a shape may contain; logs repeat themselves, so most lines are looked up."""
        self.pending: list[Pending | Cut] = []
        self.start = Start()
        self.host = Start()
        self.earlier: Start | None = None
        self.starts = 0
        self.lines = 0
        self.statistics = Statistics()
        self.tails: dict[int, Pending] = {}
        self.framed: tuple[Line | None, str] = (None, "")

    # -- lines in

    def read(self, lines: Iterable[str]) -> None:
        source = iter(lines)
        while block := list(islice(source, _BLOCK)):
            kept = self.recent[-_WINDOW:]
            self.first = self.lines + 1 - len(kept)
            self.recent = kept + block
            self._block(block)
        self.flush()

    def _block(self, block: list[str]) -> None:
        shapes = [raw.lower().translate(_VARYING) for raw in block]
        needles = [self.shapes.get(hash(shape)) for shape in shapes]
        fresh = [index for index, known in enumerate(needles) if known is None]
        text = "\n".join([shapes[index] for index in fresh])
        possible = [(needle, bare) for needle, bare in _BARE if bare in text]
        for index in fresh:
            found = tuple([needle for needle, bare in possible if bare in shapes[index]])
            needles[index] = found
            if len(self.shapes) < _SHAPES:
                self.shapes[hash(shapes[index])] = found
        start = self.lines
        for index, present in enumerate(needles):
            if present:
                self._catch_up(block, start, index)
                self._line(block[index], start + index + 1, present)
        self._catch_up(block, start, len(block))
        self.lines = start + len(block)

    def _catch_up(self, block: list[str], start: int, index: int) -> None:
        """Hand the lines since the last one to the signatures that wait for them."""
        while self.pending and self.lines < start + index:
            self.lines += 1
            self._line(block[self.lines - start - 1], self.lines, ())
        self.lines = start + index + (index < len(block))

    def _line(self, raw: str, number: int, active: tuple[str, ...]) -> None:
        lowered = raw.lower()
        found = [needle for needle in active if needle in lowered]
        if not found and not self.pending:
            return
        pieces = raw.split("\r") if "\r" in raw.rstrip("\r\n") else (raw,)
        for piece in pieces:
            line = clean(piece, number)
            if self.pending:
                self._join(line)
            here = found if len(pieces) == 1 else [n for n in found if n in piece.lower()]
            if not here or not line.text:
                continue
            if self.statistics.see(line, here):
                self.start.marks.update(mark for needle in here for mark in _MARKS.get(needle, ()))
            elif not IS_BENIGN.search(line.text):
                self.examine(line, here)

    def examine(self, line: Line, found: list[str]) -> None:
        """Look at one cleaned line that contains the needles `found`."""
        if any(needle in BOUNDARIES for needle in found) or (
            self.start.stage == "ready" and CORE_BOUNDARY in found
        ):
            self._boundary(line)
        for needle in found:
            if stage := _STAGE.get(needle):
                self._stage(stage)
            self.start.marks.update(_MARKS.get(needle, ()))
        if not self._match(line, found) and _ERROR.search(line.text):
            self._remember_error(line)
            if self.start.cut < _CUT_TRIES and not WRAPPER.search(line.text):
                self.start.cut += 1
                self.pending.append(Cut(line=line, parts=[line.text]))

    def _boundary(self, line: Line) -> None:
        self.flush()
        if self.start.candidates or "fatal" in self.start.marks or self.start.stage:
            if self.start.candidates or "fatal" in self.start.marks:
                self.earlier = self.start
            self.start = Start()
            self.tails.clear()
            self.starts += 1
            self.statistics.new_start()
        for match in SETTINGS.finditer(line.text):
            value = match["value"]
            self.start.settings[match["name"]] = float(value) if "." in value else int(value)

    def _stage(self, stage: str) -> None:
        if stage == "ready":
            self.flush()
            # It came up: nothing that was printed before was fatal.
            self.start.candidates.clear()
            self.start.errors.clear()
            self.tails.clear()
        if self.start.stage != "ready":
            self.start.stage = stage

    def _remember_error(self, line: Line) -> None:
        if WRAPPER.search(line.text):
            return
        errors = self.start.errors
        if len(errors) < EVIDENCE_LIMIT:
            errors.append(Evidence(line_number=line.number, text=line.text[:TEXT_LIMIT]))

    # -- rules

    def _match(self, line: Line, found: list[str]) -> bool:
        tries = sorted(
            (entry for needle in found for entry in _SIGNATURES.get(needle, ())), key=lambda entry: entry[:2]
        )
        waiting = False
        for _, _, rule, signature in tries:
            if not self._counts_now(rule, signature):
                continue
            if signature.follow:
                self.pending.append(Pending(rule=rule, signature=signature, line=line, parts=[line.text]))
                waiting = True
            elif self._try(rule, signature, line):
                return True
        return waiting

    def _counts_now(self, rule: Rule, signature: Signature) -> bool:
        """Return whether the signature counts at this stage of the start."""
        stage = self.start.stage
        if rule.starting_only and stage == "ready":
            return False
        return (not signature.during or stage in signature.during) and signature.marks <= self.start.marks

    def _try(self, rule: Rule, signature: Signature, line: Line) -> bool:
        """Try one signature on one line."""
        match = signature.regex.search(line.text)
        if match is None or (signature.frames and not signature.frames_regex.search(self._frames(line))):
            return False
        captured = convert(match.groupdict())
        if signature.check is not None and not signature.check(captured):
            return False
        if signature.tail:
            waits = Pending(rule=rule, signature=signature, line=line, parts=[line.text])
            self.tails[id(signature)] = waits
        else:
            self.hit(rule, line, line.text, captured)
        return True

    def _join(self, line: Line) -> None:
        """Give the line to the signatures that wait for it."""
        still: list[Pending | Cut] = []
        done: set[int] = set()
        for pending in self.pending:
            if line.source == pending.line.source and line.number > pending.line.number:
                pending.take(line)
            late = line.number - pending.line.number > _FRAMES
            if pending.complete or late:
                if pending.line.number not in done and self._settle(pending):
                    done.add(pending.line.number)
            else:
                still.append(pending)
        self.pending = [pending for pending in still if pending.line.number not in done]

    def _settle(self, pending: Pending | Cut) -> bool:
        text = " ".join(part.strip() for part in pending.parts)
        if isinstance(pending, Cut):
            return self._settle_cut(replace(pending.line, text=text))
        match = pending.signature.regex.search(text)
        if match is None:
            return False
        captured = convert(match.groupdict())
        if pending.signature.check is not None and not pending.signature.check(captured):
            return False
        self.hit(pending.rule, pending.line, text, captured)
        return True

    def _settle_cut(self, line: Line) -> bool:
        """Try all rules on an error and the lines after it, as one line."""
        lowered = line.text.lower()
        tries = sorted(
            (entry for needle in _SIGNATURES if needle in lowered for entry in _SIGNATURES[needle]),
            key=lambda entry: entry[:2],
        )
        return any(
            self._counts_now(rule, signature) and not signature.tail and self._try(rule, signature, line)
            for _, _, rule, signature in tries
        )

    def flush(self) -> None:
        done: set[int] = set()
        for pending in self.pending:
            if pending.line.number not in done and self._settle(pending):
                done.add(pending.line.number)
        self.pending = []

    def hit(self, rule: Rule, line: Line, text: str, captured: Captured) -> None:
        """Count a hit of the rule."""
        start = self.host if rule.phase == "host" else self.start
        number = _RULE_NUMBER[id(rule)]
        candidate = start.candidates.get(number)
        if candidate is None:
            candidate = start.candidates[number] = Candidate(rule=rule, order=line.number)
        candidate.count += 1
        if line.level not in _NO_ERROR or rule.phase == "host":
            candidate.grave = True
        candidate.order = min(candidate.order, line.number)
        for name, value in captured.items():
            candidate.captured.setdefault(name, value)
        candidate.show(Evidence(line_number=line.number, text=text[:TEXT_LIMIT]))

    def _frames(self, line: Line) -> str:
        """Return what the same process printed just before, back to the start of its traceback."""
        if self.framed[0] is line:
            return self.framed[1]
        texts: list[str] = []
        for before in self.before(line.number):
            if before.source != line.source:
                continue
            texts.append(before.text)
            if before.text.startswith("Traceback (most recent") or len(texts) >= _FRAMES:
                break
        self.framed = (line, "\n".join(reversed(texts)))
        return self.framed[1]

    def before(self, number: int) -> Iterator[Line]:
        """Give the lines before the numbered one, the nearest first."""
        end = number - self.first
        for index in range(end - 1, max(-1, end - 1 - _WINDOW), -1):
            yield clean(self.recent[index], self.first + index)

    # -- at the end

    def finish_tails(self) -> None:
        """Let the rules hit that need the log to end with their line."""
        if not self.tails:
            return
        rest = [line for line in self.before(self.lines + 1) if line.text and not IS_BENIGN.search(line.text)]
        reach = rest[-1].number if rest else self.lines
        for pending in self.tails.values():
            between = sum(
                line.number > pending.line.number and not pending.signature.regex.search(line.text)
                for line in rest
            )
            if between <= _AFTERWORDS and pending.line.number >= reach:
                match = pending.signature.regex.search(pending.line.text)
                self.hit(
                    pending.rule, pending.line, pending.line.text, convert(match.groupdict() if match else {})
                )


def convert(groups: Mapping[str, str | None]) -> dict[str, str | int | float]:
    """Return the captured groups with numbers as numbers and sizes in the unit that ends the name."""
    return {
        name: _value(name, text.strip()) for name, text in groups.items() if text is not None and text.strip()
    }


_INTEGER = re.compile(r"^-?\d{1,3}(?:,\d{3})+$|^-?\d+$")
_DECIMAL = re.compile(r"^-?\d+\.\d+$")
_SIZE = re.compile(r"^(?P<number>-?[\d.,]+) ?(?P<unit>[KMGT]?)(?P<binary>i?)(?:B|bytes)$", re.IGNORECASE)
_TEXTS = frozenset(
    {"pci", "address", "nccl_version", "needed_cuda", "client_version", "module_version", "device"}
)
_EXPONENT = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def _value(name: str, text: str) -> str | int | float:
    text = text.removeprefix("Value error, ").partition(" [type=")[0]
    if name in _TEXTS:
        return text.rstrip(".,:;")
    if size := _SIZE.match(text):
        exponent = _EXPONENT[size["unit"].upper()] - (3 if name.endswith("_gib") else 2)
        amount = float(size["number"].replace(",", "")) * 1024.0**exponent
        return round(amount, 2)
    if _INTEGER.match(text):
        return int(text.replace(",", ""))
    if _DECIMAL.match(text):
        return float(text)
    return text[:TEXT_LIMIT].rstrip(" .,;")
