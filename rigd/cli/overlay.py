"""`rigd set`, `rigd overlay show|clear`: what is changed on top of the rig file."""

import time
from typing import Annotated, Any

import typer

from rigd.cli import options
from rigd.cli.act import SERVING, Asked, Outcome, run, started
from rigd.cli.console import print_json, print_table, print_text
from rigd.errors import ExitCode

RESTING = frozenset({"stopped", "failed", "backoff"})
"""States in which a changed knob waits for the next start."""

app = typer.Typer(no_args_is_help=True, help="What rigd changed on top of the rig file, and why.")


def set_knob(
    context: typer.Context,
    knob: Annotated[str, typer.Argument(metavar="KNOB", help="vLLM's setting by name, e.g. max_num_seqs.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value; `default` leaves it to vLLM.")],
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Change one setting on top of the rig file, and restart the engine into it.

    The engine's own parser is asked first. The change holds until `rigd overlay clear`, or until the rig file's
    engine section changes.
    """
    asked = Asked(path="/v1/overlay", body={"knob": knob, "value": value}, settled=_settled)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


@app.command(epilog=options.examples("rigd overlay show", "rigd overlay show --json"))
def show(
    context: typer.Context,
    *,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """List the changes, oldest first, each with the failure that led to it."""
    steps = options.daemon(context, socket, url).get("/v1/status")["overlay"]
    if as_json:
        print_json({"overlay": steps})
    elif not steps:
        print_text("nothing is changed: the rig file is in effect as it is")
    else:
        print_table(("changed", "when", "because of", "start"), [_row(step) for step in steps])
    return int(ExitCode.DONE)


@app.command(epilog=options.examples("rigd overlay clear"))
def clear(
    context: typer.Context,
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Drop every change, and restart the engine with the rig file as it is."""
    asked = Asked(path="/v1/overlay/clear", body={}, settled=_settled)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


def _settled(status: dict[str, Any], since_s: float) -> Outcome | None:
    """Judge a changed overlay: in effect once the engine serves again, or waiting where nothing is running."""
    if status["state"] in RESTING and status["since_s"] < since_s:
        return Outcome(done=True, message=f"the engine is {status['state']}; in effect at the next start")
    if status["state"] in SERVING and status["since_s"] < since_s and not status["overlay"]:
        return Outcome(done=True, message="the rig file is in effect as it is")
    return started(status, since_s)


def _row(step: dict[str, Any]) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step["at_s"]))
    return (step["text"], when, f"{step['kind']}: {step['sentence']}", str(step["start"] or ""))
