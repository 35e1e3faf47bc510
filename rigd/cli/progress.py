"""Show what an engine does while somebody waits: a live line on a terminal, a line a change elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from rigd.cli.status import duration, printable

Item = dict[str, Any]
DETAIL_INTERVAL_S = 5.0


class Reporter(Protocol):
    """Takes the daemon's live items: `{"type": "event" | "live" | "status", "status": ...}`."""

    def item(self, item: Item) -> None:
        """Show one."""
        ...


class PlainReporter:
    """One line on stderr for each event and each new phase, and for news within a phase every few seconds."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._detail = ""
        self._printed_s = 0.0

    def item(self, item: Item) -> None:
        """Print an event, or what goes on when that is new."""
        if item.get("type") == "event":
            self._print(event_text(item["event"]))
            return
        live = live_of(item)
        phase = None if live is None else str(live["phase"])
        detail = "" if live is None else printable(live.get("detail") or "")
        waited = time.monotonic() - self._printed_s >= DETAIL_INTERVAL_S
        if phase is not None and (phase != self._phase or (detail != self._detail and waited)):
            self._print(f"{time.strftime('%H:%M:%S')} {': '.join(part for part in (phase, detail) if part)}")
            self._detail = detail
        self._phase = phase

    def _print(self, text: str) -> None:
        self._printed_s = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class LiveReporter:
    """Events as lines, and below them one line that shows the phase, its share and the time left."""

    def __init__(self, spinner: Any, console: Any) -> None:
        self._spinner = spinner
        self._console = console
        self._state = ""

    def item(self, item: Item) -> None:
        """Print an event above the line, and renew the line."""
        if item.get("type") == "event":
            self._console.print(event_text(item["event"]), markup=False, highlight=False)
        if "status" in item:
            self._state = str(item["status"].get("state"))
            going_on = live_text(item)
            self._spinner.update(_escaped(" ".join(part for part in (self._state, going_on) if part)))


@contextlib.contextmanager
def reporter(*, fancy: bool | None = None) -> Iterator[Reporter]:
    """Yield the reporter that fits stderr."""
    if not (sys.stderr.isatty() if fancy is None else fancy):
        yield PlainReporter()
        return
    from rich.console import Console  # noqa: PLC0415  (only on a terminal)

    console = Console(stderr=True)
    with console.status("") as spinner:
        yield LiveReporter(spinner, console)


def live_of(item: Item) -> Item | None:
    """Return what is going on according to an item, or None when nothing is."""
    live: Item | None = (item.get("status") or {}).get("live")
    return live if live and live.get("phase") else None


def live_text(item: Item) -> str:
    """Return what is going on as one line."""
    live = live_of(item)
    if live is None:
        return ""
    parts = [printable(live["phase"])]
    if live.get("fraction") is not None:
        parts.append(f"{live['fraction']:.0%}")
    if live.get("elapsed_s") is not None:
        parts.append(f"for {duration(live['elapsed_s'])}")
    if live.get("eta_s") is not None:
        parts.append(f"about {duration(live['eta_s'])} left" if live["eta_s"] > 0 else "longer than usual")
    if live.get("detail"):
        parts.append(printable(live["detail"]))
    return ", ".join(parts)


def event_text(event: Item) -> str:
    """Return a journal entry as one line."""
    at = time.strftime("%H:%M:%S", time.localtime(event.get("at_s") or time.time()))
    return f"{at} {printable(event.get('message'))}"


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
