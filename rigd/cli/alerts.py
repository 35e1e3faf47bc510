"""`rigd alerts`: who is told when something is wrong, and does it arrive."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd.cli import options
from rigd.cli.console import print_json, print_table, print_text, say
from rigd.cli.status import clock, duration, printable
from rigd.errors import ExitCode

app = typer.Typer(help="Who is told when something is wrong, and does it arrive.", no_args_is_help=True)

TEST_TIMEOUT_S = 120.0
"""A receiver that hangs is given up by the daemon before that."""
NOBODY = "nobody is told: add `alerts:` with `urls:` to the rig file"

RigOption = Annotated[
    Path | None,
    typer.Option("--rig", metavar="RIG", help="Send from here, as this rig file says; needs no daemon."),
]


@app.command(epilog=options.examples("rigd alerts show"))
def show(
    context: typer.Context,
    *,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Show who is told, what is open, and what waits to be told. URLs are masked."""
    document = options.daemon(context, socket, url).get("/v1/alerts")
    if as_json:
        print_json(document)
        return int(ExitCode.DONE)
    if not document["receivers"]:
        print_text(NOBODY)
        return int(ExitCode.DONE)
    now_s = document["now_s"]
    print_table(
        ("RECEIVER", "LAST TOLD", "WAITING", "STATE"),
        [_receiver(item, now_s) for item in document["receivers"]],
    )
    for problem in document["problems"]:
        told = "told" if problem["told"] else "not told yet"
        print_text(
            f"open ({told}): {printable(problem['sentence'])}, since {clock(problem['since_s'], now_s)}"
        )
    for note in document["notes"]:
        print_text(f"waits until {clock(max(note['due_s'], now_s), now_s)}: {printable(note['title'])}")
    if document["quiet_until_s"]:
        print_text(f"quiet hours until {clock(document['quiet_until_s'], now_s)}")
    if document["storage_problem"]:
        say(f"rigd: {document['storage_problem']}")
    return int(ExitCode.DONE)


@app.command("test", epilog=options.examples("rigd alerts test", "rigd alerts test --rig rig.yaml"))
def try_out(
    context: typer.Context,
    *,
    rig: RigOption = None,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Send a test message to everybody now, and say what came of each.

    Exits with 1 when one did not take it.
    """
    if rig is not None:
        document = _from_here(rig)
    else:
        document = options.daemon(context, socket, url).post("/v1/alerts/test", timeout_s=TEST_TIMEOUT_S)
    results = document["results"]
    if as_json:
        print_json(document)
    elif not results:
        say(f"rigd: {NOBODY}")
    for result in () if as_json else results:
        shown = (
            result["name"]
            if result["url"] in (None, result["name"])
            else f"{result['name']} ({result['url']})"
        )
        print_text(f"{shown}: {'taken' if result['ok'] else 'refused: ' + printable(result['detail'])}")
    return int(ExitCode.DONE if results and all(result["ok"] for result in results) else ExitCode.FAILED)


def _from_here(rig: Path) -> dict[str, Any]:
    import asyncio  # noqa: PLC0415  (only on this path)
    import socket  # noqa: PLC0415

    from rigd.rig.load import load  # noqa: PLC0415
    from rigd.supervise import alert_receivers  # noqa: PLC0415

    loaded = load(rig).rig
    message = alert_receivers.trial_message(
        loaded.name, socket.gethostname(), now_s=time.time(), zone=loaded.alerts.timezone
    )
    named = alert_receivers.named_urls(loaded.alerts)
    return {"results": asyncio.run(alert_receivers.try_out(message, named, folder=rig.resolve().parent))}


def _receiver(item: dict[str, Any], now_s: float) -> tuple[str, ...]:
    told = clock(item["sent_s"], now_s) if item["sent_s"] else "never"
    state = "fine"
    if item["refusals"]:
        again = duration(max(0.0, item["again_s"] - now_s))
        state = f"refused {item['refusals']} times, again in {again}: {printable(item['detail'])}"
    return item["name"], told, str(item["waiting"]), state
