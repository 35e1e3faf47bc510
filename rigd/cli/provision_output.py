"""How a run is shown: to a person in Ansible's words, to a program as one JSON object a line."""

import difflib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TextIO

from rigd.cli.status import printable
from rigd.provision.run import events
from rigd.provision.run.events import Event, Outcome

WIDTH = 79
MAX_OUTPUT_LINES = 40
MAX_DIFF_LINES = 400
PROGRESS_EVERY_S = 0.1

RED, GREEN, YELLOW, CYAN, PURPLE, DIM, PLAIN = (
    "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[35m", "\x1b[2m", "\x1b[0m",
)  # fmt: skip
WORDS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.OK: ("ok", GREEN),
    Outcome.CHANGED: ("changed", YELLOW),
    Outcome.SKIPPED: ("skipping", CYAN),
    Outcome.FAILED: ("failed", RED),
    Outcome.UNREACHABLE: ("unreachable", RED),
}
RECAP_COLOURS = {"ok": GREEN, "changed": YELLOW, "unreachable": RED, "failed": RED, "skipped": CYAN}
QUIET_OUTCOMES = frozenset({Outcome.OK, Outcome.SKIPPED})


class Lines:
    """Prints each event as one JSON object a line."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def __call__(self, event: Event) -> None:
        """Print the event; the last of a run is the recap."""
        document = {"event": _NAMES[type(event)], **asdict(event)}
        self._out.write(json.dumps(document, default=_plain, ensure_ascii=False) + "\n")
        self._out.flush()


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Outcome) else str(value)


_NAMES: Mapping[type, str] = {
    events.PlayStarted: "play",
    events.TaskStarted: "task",
    events.ItemEnded: "item",
    events.TaskEnded: "result",
    events.Progress: "progress",
    events.Noted: "note",
    events.RunEnded: "recap",
}


class Screen:
    """Prints for a person, as Ansible does; `quiet` leaves out what is as it should be."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False, colour: bool | None = None) -> None:
        self._out = out or sys.stdout
        self._quiet = quiet
        self._tty = self._out.isatty()
        self._colour = self._tty if colour is None else colour
        self._header = ""
        self._place = ""
        self._shown_header = ""
        self._play = ""
        self._began_s = time.monotonic()
        self._tasks = 0
        self._drawn_s = 0.0
        self._line_drawn = False
        self._printers: Mapping[type, Callable[[Any], None]] = {
            events.PlayStarted: self._play_started,
            events.TaskStarted: self._task_started,
            events.ItemEnded: self._item,
            events.TaskEnded: self._task_ended,
            events.Progress: self._progress,
            events.Noted: self._noted,
            events.RunEnded: self._recap,
        }

    def __call__(self, event: Event) -> None:
        """Print the event."""
        self._printers[type(event)](event)
        self._out.flush()

    # --- plays and tasks ---

    def _play_started(self, event: events.PlayStarted) -> None:
        self._play = event.name
        self._header = self._shown_header = ""
        if not self._quiet:
            self._line("\n" + _banner(f"PLAY [{event.name}]"))

    def _task_started(self, event: events.TaskStarted) -> None:
        word = "RUNNING HANDLER" if event.handler else "TASK"
        header = _banner(f"{word} [{event.name}]")
        if event.place != self._place:
            # Two tasks of one name are two tasks.
            self._shown_header = ""
        self._header, self._place = header, event.place
        self._tasks += 1
        if not self._quiet:
            self._show_header(self._header)
        self._draw(f"{event.host}: {event.name}")

    def _show_header(self, header: str) -> None:
        if header != self._shown_header:
            self._line("\n" + header)
            self._shown_header = header

    def _item(self, event: events.ItemEnded) -> None:
        if self._quiet and event.outcome in QUIET_OUTCOMES:
            return
        self._result(event.host, event.outcome, event.result, item=event.label, name=event.name)

    def _task_ended(self, event: events.TaskEnded) -> None:
        if self._quiet and event.outcome in QUIET_OUTCOMES:
            return
        if not event.looped:
            self._result(event.host, event.outcome, event.result, name=event.name)
        if event.place and event.outcome in {Outcome.FAILED, Outcome.UNREACHABLE}:
            self._line(self._paint(f"  at {event.place}", DIM))
        if event.ignored:
            self._line(self._paint("...ignoring", CYAN))

    def _result(
        self, host: str, outcome: Outcome, result: Mapping[str, Any], *, name: str, item: str | None = None
    ) -> None:
        if self._quiet and name:
            self._show_header(_banner(f"TASK [{name}]"))
        for difference in result.get("diff") or ():
            self._difference(difference)
        word, colour = WORDS[outcome]
        tail = f" => (item={printable(item)})" if item is not None else ""
        if outcome in {Outcome.FAILED, Outcome.UNREACHABLE}:
            word = f"fatal: [{host}]: {'FAILED' if outcome is Outcome.FAILED else 'UNREACHABLE'}!"
            self._line(self._paint(f"{word}{tail} => {_said(result)}", colour))
            self._output(result, colour)
            return
        self._line(self._paint(f"{word}: [{host}]{tail}{_remark(outcome, result)}", colour))
        for warning in result.get("warnings") or ():
            self._line(self._paint(f"[WARNING]: {printable(warning)}", PURPLE))

    def _output(self, result: Mapping[str, Any], colour: str) -> None:
        """Show what a failed command wrote: the end of it, which says why."""
        for stream in ("stdout", "stderr"):
            lines = str(result.get(stream) or "").splitlines()
            if len(lines) > MAX_OUTPUT_LINES:
                self._line(f"  {stream}: ({len(lines) - MAX_OUTPUT_LINES} lines before)")
            for line in lines[-MAX_OUTPUT_LINES:]:
                self._line(self._paint(f"  {stream}: {printable(line)}", colour))

    def _difference(self, difference: Mapping[str, Any]) -> None:
        """Show one difference as a unified diff, or as a sentence where there is no text to compare."""
        before, after = difference.get("before"), difference.get("after")
        if before is None and after is None:
            if difference.get("prepared"):
                self._line(self._paint(f"  {printable(difference['prepared'])}", CYAN))
            return
        lines = difflib.unified_diff(
            str(before or "").splitlines(),
            str(after or "").splitlines(),
            f"before: {difference.get('before_header', '')}",
            f"after: {difference.get('after_header', '')}",
            lineterm="",
        )
        for number, line in enumerate(lines):
            if number == MAX_DIFF_LINES:
                self._line("  ... (the rest of the difference is left out)")
                break
            self._line(self._paint(printable(line), _DIFF_COLOURS.get(line[:1], PLAIN)))

    # --- the rest ---

    def _progress(self, event: events.Progress) -> None:
        if event.lasting:
            self._line(self._paint(event.text, DIM))
        else:
            self._draw(f"{event.host}: {event.text}")

    def _noted(self, event: events.Noted) -> None:
        host = f"[{event.host}] " if event.host else ""
        self._line(self._paint(f"{host}{event.text}", PURPLE))

    def _recap(self, event: events.RunEnded) -> None:
        self._line("\n" + _banner("PLAY RECAP"))
        for host, counts in event.hosts.items():
            words = " ".join(self._count(word, counts[word]) for word in events.COUNTED)
            bad = counts["failed"] or counts["unreachable"]
            colour = RED if bad else YELLOW if counts["changed"] else GREEN
            self._line(f"{self._paint(host.ljust(26), colour)} : {words}".rstrip())
        changes = sum(counts["changed"] for counts in event.hosts.values())
        done = "would change" if event.check else "changed"
        run = f", run {event.run}" if event.run else ""
        self._line(self._paint(f"{changes} {done}, {event.took_s:.1f} s{run}", DIM))

    def _count(self, word: str, number: int) -> str:
        text = f"{word}={number}".ljust(len(word) + 5)
        return self._paint(text, RECAP_COLOURS[word]) if number and word in RECAP_COLOURS else text

    def _draw(self, text: str) -> None:
        """Show on a terminal what is being done, on a line that the next one replaces."""
        now_s = time.monotonic()
        if not self._tty or now_s - self._drawn_s < PROGRESS_EVERY_S:
            return
        self._drawn_s = now_s
        line = f"{self._tasks} tasks, {now_s - self._began_s:.0f} s  {printable(text)}"[: WIDTH - 1]
        self._out.write(f"\r\x1b[K{self._paint(line, DIM)}")
        self._line_drawn = True

    def _line(self, text: str) -> None:
        if self._line_drawn:
            self._out.write("\r\x1b[K")
            self._line_drawn = False
        encoding = self._out.encoding or "utf-8"
        self._out.write(text.encode(encoding, "replace").decode(encoding) + "\n")

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._colour and colour else text


_DIFF_COLOURS = {"+": GREEN, "-": RED, "@": CYAN}


def _banner(text: str) -> str:
    return f"{printable(text)} ".ljust(WIDTH, "*")


def _said(result: Mapping[str, Any]) -> str:
    text = str(result.get("msg") or result.get("censored") or "it failed, and said nothing")
    return "\n".join(printable(line) for line in text.splitlines())


def _remark(outcome: Outcome, result: Mapping[str, Any]) -> str:
    """Return what a task that did not fail has to say: a debug's text, a change's phrases, why it was skipped."""
    if "shown" in result:
        return f" => {json.dumps(result['shown'], indent=4, default=str, ensure_ascii=False)}"
    if result.get("remark"):
        return f" ({printable(str(result['remark']))})"
    if outcome is Outcome.CHANGED and result.get("changes"):
        return f" ({printable('; '.join(result['changes']))})"
    return ""
