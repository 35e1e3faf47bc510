"""`status --watch`, `wait`, `logs`, `events`, `starts`: look, and change nothing."""

import os
import sys
import time
from typing import Annotated, Any

import typer

from rigd.cli import options
from rigd.cli.console import print_json, print_line, print_table, print_text, say
from rigd.cli.status import clock, colours, duration, headline, printable, render, show
from rigd.client import Client
from rigd.errors import ExitCode, UsageError

CLEAR = "\x1b[H\x1b[J"
WAIT_SLICE_S = 30.0
STATES = (
    "stopped", "starting", "warming", "ready", "degraded", "stopping", "backoff", "failed", "maintenance",
)  # fmt: skip


def status(
    context: typer.Context,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes.")] = False,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Show the engine's state, what it does now, and what is wrong if anything is."""
    client = options.daemon(context, socket, url)
    if watch:
        return _watch(client, as_json=as_json)
    show(client.get("/v1/status"), as_json=as_json)
    return int(ExitCode.DONE)


def wait(
    context: typer.Context,
    states: Annotated[
        str, typer.Argument(metavar="STATE[,STATE]", help=f"One or more of {', '.join(STATES)}.")
    ],
    *,
    timeout: options.Timeout = options.HOUR_S,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Wait until the engine is in a state.

    Exits with 3, and the reason, when time runs out first or the engine has failed for good.
    """
    wanted = [name.strip() for name in states.split(",") if name.strip()]
    if not wanted or (unknown := [name for name in wanted if name not in STATES]):
        raise UsageError(
            f"there is no state '{(unknown or [states])[0]}'", hint=f"states: {', '.join(STATES)}"
        )
    client = options.daemon(context, socket, url)
    before = client.get("/v1/status")
    if "stopped" not in wanted and before["state"] == before["desired"] == "stopped":
        say("rigd: waiting, but the engine is stopped and nobody wants it to run")
        say("  -> `rigd start`")
    found = _wait(client, wanted, timeout)
    reached = found["state"] in wanted
    if as_json:
        print_json({"reached": reached, "status": found})
    elif reached:
        print_text(headline(found))
    else:
        said = "" if found["state"] == "failed" else f" after {duration(timeout)}"
        say(f"rigd: not {' or '.join(wanted)}{said}, but {headline(found)}")
        failure = found.get("failure")
        if failure:
            say(f"  last failure: {printable(failure['sentence'])}")
        if failure and failure.get("hint"):
            say(f"  -> {printable(failure['hint'])}")
    return int(ExitCode.DONE if reached else ExitCode.NOT_SO)


def logs(
    context: typer.Context,
    *,
    start: Annotated[
        int | None, typer.Option("--start", metavar="N", min=1, help="Of start N, not the last.")
    ] = None,
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, max=10_000, help="Lines of the past.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, over restarts.")] = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Show the engine's own output."""
    client = options.daemon(context, socket, url)
    if not follow:
        sys.stdout.write(client.text("/v1/logs", {"start": start, "tail": tail}))
        sys.stdout.flush()
        return int(ExitCode.DONE)
    for line in client.lines("/v1/logs", {"start": start, "tail": tail, "follow": 1}):
        print_text(line)
    raise client.gone()


def events(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, max=1000, help="Entries of the past.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they come.")] = False,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Show what happened and why: every transition, failure and decision."""
    client = options.daemon(context, socket, url)
    if follow:
        for entry in client.documents("/v1/events", {"limit": limit, "follow": 1}):
            if as_json:
                print_line(entry)
            else:
                print_text(_entry(entry))
        raise client.gone()
    document = client.get("/v1/events", {"limit": limit})
    if as_json:
        print_json(document)
    else:
        for entry in document["events"]:
            print_text(_entry(entry))
    return int(ExitCode.DONE)


def starts(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200)] = 20,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """List the last starts: when, how long until ready, how they ended."""
    document = options.daemon(context, socket, url).get("/v1/starts", {"limit": limit})
    if as_json:
        print_json(document)
        return int(ExitCode.DONE)
    rows = [_start(entry) for entry in document["starts"]]
    print_table(("START", "BEGAN", "READY AFTER", "LASTED", "CONFIGURATION", "OUTCOME"), rows)
    return int(ExitCode.DONE)


def _wait(client: Client, wanted: list[str], timeout_s: float) -> dict[str, Any]:
    """Return the status when the state is one of those wanted, or failed, or when time is over."""
    asked = ",".join(dict.fromkeys([*wanted, "failed"]))
    until_s = time.monotonic() + timeout_s
    while True:
        slice_s = max(0.0, min(WAIT_SLICE_S, until_s - time.monotonic()))
        answer = client.get("/v1/wait", {"state": asked, "timeout_s": slice_s}, timeout_s=slice_s + 10.0)
        found: dict[str, Any] = answer["status"]
        if answer["reached"] or time.monotonic() >= until_s:
            return found


def _watch(client: Client, *, as_json: bool) -> int:
    """Show the status whenever it changes: in place on a terminal, a line a change elsewhere."""
    place = sys.stdout.isatty() and not as_json
    before = ""
    for document in client.documents("/v1/live"):
        if document.get("type") != "status":
            continue
        found = document["status"]
        if as_json:
            print_line(found)
        elif place:
            sys.stdout.write(CLEAR + render(found, colour=colours(sys.stdout)) + "\n")
            sys.stdout.flush()
        elif (text := headline(found)) != before:
            before = text
            print_text(f"{time.strftime('%H:%M:%S')} {text}")
    raise client.gone()


def _entry(entry: dict[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at_s"]))
    data = " ".join(f"{key}={printable(value)}" for key, value in (entry.get("data") or {}).items())
    text = f"{at}  {printable(entry['kind'])}: {printable(entry['message'])}"
    return f"{text}  ({data})" if data and os.environ.get("RIGD_DEBUG") else text


def _start(entry: dict[str, Any]) -> list[object]:
    began_s, ready_s, ended_s = entry.get("began_s"), entry.get("ready_s"), entry.get("ended_s")
    return [
        entry.get("number"),
        clock(began_s, time.time()) if began_s else "",
        duration(ready_s - began_s) if began_s and ready_s else "never",
        duration((ended_s or time.time()) - began_s) if began_s else "",
        entry.get("digest"),
        printable(entry.get("outcome") or "running"),
    ]
