"""What is this log? The classifier: lines in, one diagnosis out. Pure.

    log, exit code, runtime's error -> LogReader (rules and numbers) -> candidates -> the weightiest, earliest one
                                                                    -> sentence, remedy, steps with their values

Weights: decisive (hardware, kernel), cause, consequence, hint, client, observed. A client's mistake never explains
a death. What no rule explains is `unknown` and keeps its evidence.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rigd.supervise.logfindings import EVIDENCE_LIMIT, Candidate, Evidence, Start
from rigd.supervise.loglines import Line, clean
from rigd.supervise.logreader import NEEDLES, TEXT_LIMIT, LogReader
from rigd.supervise.rules import RULES
from rigd.supervise.rules.context import FALLBACK_PHASE, IS_BENIGN
from rigd.supervise.rules.model import RESTART, Captured, JsonScalar, Retry, Rule, Step, Weight

__all__ = ["Diagnosis", "Evidence", "JsonScalar", "Retry", "Step", "diagnose", "document", "hits"]

UNKNOWN = "unknown"
ERROR_LIMIT = 200
"""Characters of an unknown error that its sentence quotes."""


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


_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")
_PLACE = re.compile(r"\{(\w+)\}")


def _filled(template: str, captured: Captured) -> str:
    """Return the template with its captured values; a `[[...]]` whose value is missing goes."""

    def kept(match: re.Match[str]) -> str:
        return match[1] if all(name in captured for name in _PLACE.findall(match[1])) else ""

    text = _OPTIONAL.sub(kept, template)
    text = _PLACE.sub(lambda match: str(captured.get(match[1], "?")), text)
    return re.sub(r" {2,}", " ", text).strip()


def _ranked(start: Start, host: Start, *, dead: bool) -> list[Candidate]:
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
    reader: LogReader, *, exit_code: int | None, oom_killed: bool, exited_member: str | None
) -> None:
    """Add what the way it ended says by itself."""
    line = Line(number=0, source="", text="")
    rules = {rule.kind: rule for rule in RULES if rule.weight is not Weight.HINT}
    last = Line(number=reader.lines + 1, source="", text="")
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
) -> LogReader:
    reader = LogReader()
    for text in runtime_error.splitlines():
        lowered = text.lower()
        reader.examine(clean(text, 0), [needle for needle in NEEDLES if needle in lowered])
    reader.flush()
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


def _diagnosis(best: Candidate, start: Start, starts: int) -> Diagnosis:
    rule = best.rule
    captured = dict(best.captured)
    if (
        rule.kind == "port_in_use"
        and not {"port", "distributed_port"} & captured.keys()
        and "port" in start.settings
    ):
        captured["port"] = start.settings["port"]
    if rule.kind == "worker_died" and start.errors:
        captured.setdefault("error", _first_error(start))
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


def _first_error(start: Start) -> str:
    return start.errors[0].text[:ERROR_LIMIT].rstrip(".")


_EXITS = {
    0: "The engine ended with exit code 0 without a known cause in the log; vLLM does so when its engine core dies.",
    125: "The container could not be created or started; the log does not say why, Docker's own error does.",
    137: "The engine was killed (SIGKILL), and neither Docker nor these lines say that memory ran out.",
    143: "The engine was told to stop (SIGTERM).",
    130: "The engine was interrupted (SIGINT).",
}


def _unknown(
    reader: LogReader, start: Start, *, dead: bool, exit_code: int | None, runtime_error: str
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
    captured: dict[str, str | int | float] = {} if exit_code is None else {"exit_code": exit_code}
    if dead and start.errors:
        captured["error"] = error = _first_error(start)
        sentence = f"{sentence} The first error is: {error}."
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
        captured=MappingProxyType(captured),
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
