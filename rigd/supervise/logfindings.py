"""What one pass over a log collects: candidates with their evidence, messages still open, one start's facts."""

import re
from dataclasses import dataclass, field

from rigd.supervise.loglines import Line
from rigd.supervise.rules.context import IS_BENIGN
from rigd.supervise.rules.model import Rule, Signature, Weight

EVIDENCE_LIMIT = 5
_REST = 2
"""Lines that are joined to an error that may have been cut."""
_NO_REST = re.compile(r"^Traceback \(most recent|^\s*File \"|^(?:\w+\.)*\w*(?:Error|Exception): |^INFO:")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A line that shows it. Number 0: not from the log (the runtime's error, the exit code)."""

    line_number: int
    text: str


@dataclass(kw_only=True)
class Candidate:
    rule: Rule
    order: int
    evidence: list[Evidence] = field(default_factory=list)
    captured: dict[str, str | int | float] = field(default_factory=dict)
    count: int = 0
    grave: bool = False
    """Said at least once by something other than a note or a warning."""

    def show(self, evidence: Evidence) -> None:
        """Keep the evidence, once a line, with the longest text of it, and not more than fits."""
        for index, shown in enumerate(self.evidence):
            if shown.line_number == evidence.line_number:
                self.evidence[index] = max(shown, evidence, key=lambda item: len(item.text))
                return
        if len(self.evidence) < EVIDENCE_LIMIT:
            self.evidence.append(evidence)

    @property
    def weight(self) -> Weight:
        """What it explains: the rule's weight, but a mere warning is only a hint."""
        return self.rule.weight if self.grave else max(self.rule.weight, Weight.HINT)


@dataclass(kw_only=True)
class Pending:
    """A signature that waits for the lines that belong to it."""

    rule: Rule
    signature: Signature
    line: Line
    parts: list[str]

    def take(self, line: Line) -> None:
        """Add a line of the same process."""
        self.parts.append(line.text)

    @property
    def complete(self) -> bool:
        """Whether it has all the lines that it waits for."""
        return len(self.parts) > self.signature.follow


@dataclass(kw_only=True)
class Cut:
    """An error that no rule knows, and that may go on in the next lines: terminals and journals cut anywhere."""

    line: Line
    parts: list[str]
    complete: bool = False

    def take(self, line: Line) -> None:
        """Add a line of the same process; the rest of a message is neither a new record nor a frame."""
        fresh = line.level not in {"", self.line.level}
        if fresh or _NO_REST.search(line.text) or IS_BENIGN.search(line.text):
            self.complete = True
        else:
            self.parts.append(line.text)
            self.complete = len(self.parts) > _REST


@dataclass(kw_only=True)
class Start:
    """What is known of one start of the engine."""

    candidates: dict[int, Candidate] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    settings: dict[str, int | float] = field(default_factory=dict)
    stage: str = ""
    errors: list[Evidence] = field(default_factory=list)
    cut: int = 0
    """Errors that were tried together with the lines after them."""
