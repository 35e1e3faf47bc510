"""What is this log? The classifier: lines in, one diagnosis out. Pure, one pass, constant memory.

    lines -> blocks -> needles (literals; most blocks end here) -> cleaned line -> benign? -> first rule
          -> candidates, one a rule -> at the end: decisive, cause, consequence, hint, client, observed

Wrappers ("Engine core initialization failed") are no candidates: they only say that something died. A new
start of the engine in the same log sets the candidates aside; an engine that becomes ready clears them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

from rigd.supervise.loglines import Line, clean
from rigd.supervise.rules import RULES
from rigd.supervise.rules.context import (
    BOUNDARIES,
    CORE_BOUNDARY,
    FALLBACK_PHASE,
    IS_BENIGN,
    MARKS,
    SETTINGS,
    STAGES,
    WRAPPER,
)
from rigd.supervise.rules.model import (
    RESTART,
    Captured,
    JsonScalar,
    Retry,
    Rule,
    Signature,
    Step,
    Weight,
)
from rigd.supervise.statistics import Statistics

__all__ = ["Diagnosis", "Evidence", "JsonScalar", "Retry", "Step", "diagnose", "document", "hits"]

UNKNOWN = "unknown"
EVIDENCE_LIMIT = 5
TEXT_LIMIT = 500
_BLOCK = 512
_WINDOW = 200
"""Lines kept before the current one, for tracebacks."""
_FRAMES = 80
_SHAPES = 50_000
"""Shapes of lines that are remembered, about 10 MiB."""
_NO_ERROR = frozenset({"DEBUG", "INFO", "WARNING"})
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b:|^(?:FATAL|CRITICAL|panic)\b|\bERROR\b")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A line that shows it. Number 0: not from the log (the runtime's error, the exit code)."""

    line_number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What happened, why, and what to do."""

    kind: str
    """Class of the failure catalogue, or `unknown`."""
    phase: str
    """create, parse, load, nccl, memory, capture, runtime or host."""
    sentence: str
    remedy: str
    steps: tuple[Step, ...]
    retry: Retry
    evidence: tuple[Evidence, ...]
    captured: Mapping[str, str | int | float]
    documented: str


@dataclass(kw_only=True)
class _Candidate:
    rule: Rule
    order: int
    evidence: list[Evidence] = field(default_factory=list)
    captured: dict[str, str | int | float] = field(default_factory=dict)
    count: int = 0
    grave: bool = False
    """Said at least once by something other than a note or a warning."""

    @property
    def weight(self) -> Weight:
        """What it explains: the rule's weight, but a mere warning is only a hint."""
        return self.rule.weight if self.grave else max(self.rule.weight, Weight.HINT)


@dataclass(kw_only=True)
class _Pending:
    """A signature that waits for the lines that belong to it."""

    rule: Rule
    signature: Signature
    line: Line
    parts: list[str]


@dataclass(kw_only=True)
class _Start:
    """What is known of one start of the engine."""

    candidates: dict[int, _Candidate] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    settings: dict[str, int | float] = field(default_factory=dict)
    stage: str = ""
    errors: list[Evidence] = field(default_factory=list)


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
_NEEDLES: tuple[str, ...] = tuple(
    dict.fromkeys(
        (*_SIGNATURES, *_STAGE, *_MARKS, *BOUNDARIES, CORE_BOUNDARY, *Statistics.NEEDLES, *_GENERIC)
    )
)


_VARYING = dict.fromkeys(map(ord, "0123456789abcdef-"))
"""Left out when lines are compared by shape: numbers and identifiers."""
_BARE = tuple((needle, needle.translate(_VARYING)) for needle in _NEEDLES)


class _Reader:
    """Reads one log."""

    def __init__(self) -> None:
        self.recent: list[str] = []
        self.first = 1
        """Number of the first line in `recent`."""
        self.shapes: dict[int, tuple[str, ...]] = {}
        """Needles that lines of a shape may contain; logs repeat themselves, so most lines are looked up."""
        self.pending: list[_Pending] = []
        self.start = _Start()
        self.host = _Start()
        self.earlier: _Start | None = None
        self.starts = 0
        self.lines = 0
        self.statistics = Statistics()
        self.tails: dict[int, _Pending] = {}
        self.framed: tuple[Line | None, str] = (None, "")

    # -- lines in

    def read(self, lines: Iterable[str]) -> None:
        source = iter(lines)
        while block := list(islice(source, _BLOCK)):
            kept = self.recent[-_WINDOW:]
            self.first = self.lines + 1 - len(kept)
            self.recent = kept + block
            self._block(block)
        self._flush()

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

    def _boundary(self, line: Line) -> None:
        self._flush()
        if self.start.candidates or "fatal" in self.start.marks or self.start.stage:
            if self.start.candidates or "fatal" in self.start.marks:
                self.earlier = self.start
            self.start = _Start()
            self.tails.clear()
            self.starts += 1
            self.statistics.new_start()
        for match in SETTINGS.finditer(line.text):
            value = match["value"]
            self.start.settings[match["name"]] = float(value) if "." in value else int(value)

    def _stage(self, stage: str) -> None:
        if stage == "ready":
            self._flush()
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
                self.pending.append(_Pending(rule=rule, signature=signature, line=line, parts=[line.text]))
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
            waits = _Pending(rule=rule, signature=signature, line=line, parts=[line.text])
            self.tails[id(signature)] = waits
        else:
            self.hit(rule, line, line.text, captured)
        return True

    def _join(self, line: Line) -> None:
        """Give the line to the signatures that wait for it."""
        still: list[_Pending] = []
        done: set[int] = set()
        for pending in self.pending:
            if line.source == pending.line.source and line.number > pending.line.number:
                pending.parts.append(line.text)
            late = line.number - pending.line.number > _FRAMES
            if len(pending.parts) > pending.signature.follow or late:
                if pending.line.number not in done and self._settle(pending):
                    done.add(pending.line.number)
            else:
                still.append(pending)
        self.pending = [pending for pending in still if pending.line.number not in done]

    def _settle(self, pending: _Pending) -> bool:
        text = " ".join(part.strip() for part in pending.parts)
        match = pending.signature.regex.search(text)
        if match is None:
            return False
        captured = convert(match.groupdict())
        if pending.signature.check is not None and not pending.signature.check(captured):
            return False
        self.hit(pending.rule, pending.line, text, captured)
        return True

    def _flush(self) -> None:
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
            candidate = start.candidates[number] = _Candidate(rule=rule, order=line.number)
        candidate.count += 1
        if line.level not in _NO_ERROR or rule.phase == "host":
            candidate.grave = True
        candidate.order = min(candidate.order, line.number)
        for name, value in captured.items():
            candidate.captured.setdefault(name, value)
        if len(candidate.evidence) < EVIDENCE_LIMIT:
            candidate.evidence.append(Evidence(line_number=line.number, text=text[:TEXT_LIMIT]))

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
            if between == 0 and pending.line.number >= reach:
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


_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")
_PLACE = re.compile(r"\{(\w+)\}")


def _filled(template: str, captured: Captured) -> str:
    """Return the template with its captured values; a `[[...]]` whose value is missing goes."""

    def kept(match: re.Match[str]) -> str:
        return match[1] if all(name in captured for name in _PLACE.findall(match[1])) else ""

    text = _OPTIONAL.sub(kept, template)
    text = _PLACE.sub(lambda match: str(captured.get(match[1], "?")), text)
    return re.sub(r" {2,}", " ", text).strip()


def _ranked(start: _Start, host: _Start, *, dead: bool) -> list[_Candidate]:
    """Return the candidates that nothing overrides, best first."""
    candidates = [*host.candidates.values(), *start.candidates.values()]
    if dead:
        candidates = [c for c in candidates if c.rule.weight < Weight.CLIENT]
    overridden = {
        kind
        for c in candidates
        if c.weight <= Weight.HINT
        for kind in c.rule.overrides
        if c.rule.kind != kind
    }
    left = [c for c in candidates if c.rule.kind not in overridden] or candidates
    return sorted(left, key=lambda c: (c.weight, c.order))


def _from_exit(
    reader: _Reader, *, exit_code: int | None, oom_killed: bool, exited_member: str | None
) -> None:
    """Add what the way it ended says by itself."""
    line = Line(number=0, source="", text="")
    rules = {rule.kind: rule for rule in RULES if rule.weight is not Weight.HINT}
    last = replace(line, number=reader.lines + 1)
    captured: dict[str, str | int | float] = {} if exit_code is None else {"exit_code": exit_code}
    if exited_member:
        captured["member"] = exited_member
    if oom_killed:
        text = f"the container was killed at its memory limit, exit code {exit_code}"
        reader.hit(rules["host_oom_kill"], line, text, captured)
    elif exit_code in {135, -7}:
        reader.hit(rules["sigbus_shm"], last, f"exit code {exit_code}: SIGBUS", captured)
    elif exit_code in {132, 134, 136, 139, -4, -6, -8, -11}:
        reader.hit(rules["worker_died"], last, f"exit code {exit_code}: a crash in native code", captured)
    elif exit_code == 2:  # noqa: PLR2004  (argparse's exit code)
        reader.hit(rules["bad_cli"], last, "exit code 2: the argument parser refused", captured)
    elif exited_member:
        reader.hit(rules["worker_died"], last, f"process {exited_member} ended first", captured)


def _read(
    lines: Iterable[str],
    *,
    exit_code: int | None = None,
    oom_killed: bool = False,
    runtime_error: str = "",
    exited_member: str | None = None,
) -> _Reader:
    reader = _Reader()
    for text in runtime_error.splitlines():
        lowered = text.lower()
        reader.examine(clean(text, 0), [needle for needle in _NEEDLES if needle in lowered])
    reader._flush()  # noqa: SLF001  (same module)
    reader.read(lines)
    reader.finish_tails()
    reader.statistics.finish()
    for kind, observed in reader.statistics.findings():
        rule = next(rule for rule in RULES if rule.kind == kind)
        reader.hit(
            rule, Line(number=observed.line_number, source="", text=""), observed.text, observed.captured
        )
    _from_exit(reader, exit_code=exit_code, oom_killed=oom_killed, exited_member=exited_member)
    return reader


def hits(lines: Iterable[str], *, exit_code: int | None = None) -> tuple[Rule, ...]:
    """Return the rules that the lines hit and that no weightier one explains; for tests of the rules."""
    reader = _read(lines, exit_code=exit_code)
    ranked = _ranked(reader.start, reader.host, dead="fatal" in reader.start.marks)
    return tuple(c.rule for c in ranked if c.weight == ranked[0].weight)


def diagnose(
    lines: Iterable[str],
    *,
    exit_code: int | None = None,
    oom_killed: bool = False,
    runtime_error: str = "",
    exited_member: str | None = None,
) -> Diagnosis:
    """Return what the log of one engine (or of its host, or of Docker) shows.

    `runtime_error` is the runtime's own text, `exited_member` the process of the engine that ended first.
    """
    reader = _read(
        lines,
        exit_code=exit_code,
        oom_killed=oom_killed,
        runtime_error=runtime_error,
        exited_member=exited_member,
    )
    start = reader.start
    dead = "fatal" in start.marks or exit_code is not None or oom_killed or exited_member is not None
    ranked = _ranked(start, reader.host, dead=dead)
    if not ranked and not dead and reader.earlier is not None and start.stage != "ready":
        start = reader.earlier
        ranked = _ranked(start, reader.host, dead=True)
    if not ranked:
        return _unknown(reader, start, dead=dead, exit_code=exit_code, runtime_error=runtime_error)
    return _diagnosis(ranked[0], start, reader.starts)


def _diagnosis(best: _Candidate, start: _Start, starts: int) -> Diagnosis:
    rule = best.rule
    captured = dict(best.captured)
    if (
        rule.kind == "port_in_use"
        and not {"port", "distributed_port"} & captured.keys()
        and "port" in start.settings
    ):
        captured["port"] = start.settings["port"]
    known = {**start.settings, **captured}
    steps = [step for turn in rule.turns if (step := turn.step(known)) is not None]
    if starts:
        captured["starts_before"] = starts
    return Diagnosis(
        kind=rule.kind,
        phase=rule.phase,
        sentence=_filled(rule.sentence, captured),
        remedy=rule.remedy,
        steps=tuple(steps),
        retry=rule.retry,
        evidence=tuple(sorted(best.evidence, key=lambda item: item.line_number)),
        captured=MappingProxyType(captured),
        documented=rule.documented,
    )


_EXITS = {
    0: "The engine ended with exit code 0 without a known cause in the log; vLLM does so when its engine core dies.",
    125: "The container could not be created or started; the log does not say why, Docker's own error does.",
    137: "The engine was killed (SIGKILL), and neither Docker nor these lines say that memory ran out.",
    143: "The engine was told to stop (SIGTERM).",
    130: "The engine was interrupted (SIGINT).",
}


def _unknown(
    reader: _Reader, start: _Start, *, dead: bool, exit_code: int | None, runtime_error: str
) -> Diagnosis:
    evidence = list(start.errors)
    if dead and not evidence:
        tail = [line for line in reader.before(reader.lines + 1) if not IS_BENIGN.search(line.text)]
        evidence = [
            Evidence(line_number=line.number, text=line.text[:TEXT_LIMIT]) for line in reversed(tail[:3])
        ]
    if runtime_error:
        evidence.insert(0, Evidence(line_number=0, text=runtime_error[:TEXT_LIMIT]))
        sentence = "The runtime could not run the engine, in words that rigd does not know."
    elif exit_code in _EXITS:
        sentence = _EXITS[exit_code]
    elif dead:
        sentence = "The engine died, and the log shows no cause that rigd knows."
        if exit_code is not None:
            sentence = (
                f"The engine ended with exit code {exit_code}, and the log shows no cause that rigd knows."
            )
    elif reader.lines == 0:
        sentence = "The log is empty."
    else:
        sentence = "No known failure is in these lines."
    phase = "create" if runtime_error and not reader.lines else FALLBACK_PHASE[start.stage]
    return Diagnosis(
        kind=UNKNOWN,
        phase=phase,
        sentence=sentence,
        remedy="Start again a limited number of times; keep the log, and look at the evidence and the kernel log."
        if dead or runtime_error
        else "Nothing to do for what these lines show.",
        steps=tuple(step for step in (RESTART.step({}),) if step is not None) if dead else (),
        retry=Retry.YES,
        evidence=tuple(evidence[:EVIDENCE_LIMIT]),
        captured=MappingProxyType({} if exit_code is None else {"exit_code": exit_code}),
        documented="",
    )


def document(diagnosis: Diagnosis) -> dict[str, object]:
    """Return the diagnosis as a JSON document, as `rigd classify --json` prints it."""
    return {
        "class": diagnosis.kind,
        "phase": diagnosis.phase,
        "sentence": diagnosis.sentence,
        "remedy": diagnosis.remedy,
        "steps": [{"knob": s.knob, "change": str(s.change), "value": s.value} for s in diagnosis.steps],
        "retry_helps": _RETRY_HELPS[diagnosis.retry],
        "evidence": [{"line_number": e.line_number, "text": e.text} for e in diagnosis.evidence],
        "captured": dict(diagnosis.captured),
        "documented": diagnosis.documented,
    }


_RETRY_HELPS: Mapping[Retry, bool | str] = MappingProxyType(
    {Retry.YES: True, Retry.NEVER: False, Retry.CONDITIONAL: "conditional"}
)
