"""`start`, `stop`, `restart`, `warm`, `maintenance`: post a request, then wait for what comes of it."""

import enum
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rigd.cli import options
from rigd.cli.console import print_json, print_text, say
from rigd.cli.progress import Reporter, reporter
from rigd.cli.status import duration
from rigd.client import Client
from rigd.errors import ExitCode, RigdError

Document = dict[str, Any]
POST_TIMEOUT_S = 960.0
"""A restart is answered after the engine's own parser has looked at the configuration."""
POLL_S = 1.0
QUIET_S = 15.0
"""A warm-up that was put off and has not begun by then is not coming."""
SERVING = frozenset({"ready", "degraded"})
COMING = frozenset({"warming", "starting", "backoff", "stopping"})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a request ended."""

    done: bool
    message: str
    hint: str | None = None


Settled = Callable[[Document, float], Outcome | None]
"""Says from a status how a request posted at some time (the daemon's clock) ended, or None while that is open."""


class Switch(enum.StrEnum):
    """Two words for a person."""

    ON = "on"
    OFF = "off"


def started(status: Document, since_s: float) -> Outcome | None:
    """Judge a start or restart."""
    del since_s
    state = status["state"]
    if state in SERVING:
        return Outcome(done=True, message=_serving(status))
    if state == "failed":
        return _failed(status)
    if state == "maintenance" or (state == "stopped" and status.get("desired") != "running"):
        return Outcome(done=False, message=f"the engine is {state}: another request came in between")
    return None


def stopped(status: Document, since_s: float) -> Outcome | None:
    """Judge a stop."""
    del since_s
    if status["state"] == "stopped":
        return Outcome(done=True, message="stopped")
    if status.get("desired") == "running" and status["state"] != "stopping":
        return Outcome(done=False, message="the engine was started again: another request came in between")
    return None


def warmed(status: Document, since_s: float) -> Outcome | None:
    """Judge a warm-up."""
    state = status["state"]
    if state not in SERVING:
        return None if state in COMING else started(status, since_s)
    warm = status.get("warm") or []
    looked_at = bool(warm) and all(entry["at_s"] >= since_s for entry in warm)
    if status.get("live") or not (looked_at or status["now_s"] - since_s > QUIET_S):
        return None
    cold = [entry["prefix"] for entry in warm if not entry["proved"]]
    if cold:
        return Outcome(done=False, message=f"not warm: {', '.join(cold)}", hint="`rigd status` says why")
    hits = ", ".join(f"{entry['prefix']} {entry['hit']:.1%}" for entry in warm)
    return Outcome(done=True, message=f"warm: {hits}")


def resumed(status: Document, since_s: float) -> Outcome | None:
    """Judge the end of maintenance."""
    if status["state"] == "stopped" and status.get("desired") != "running":
        return Outcome(done=True, message="maintenance is off; the engine stays stopped")
    return started(status, since_s)


def paused(status: Document, since_s: float) -> Outcome | None:
    """Judge the beginning of maintenance."""
    del since_s
    if status["state"] == "maintenance":
        return Outcome(done=True, message="maintenance is on: rigd leaves the engine alone")
    return None


def start(
    context: typer.Context,
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    reload: Annotated[bool, typer.Option(help="Read the rig file again first.")] = True,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Start the engine and wait until it serves."""
    asked = Asked(path="/v1/actions/start", body={"reload": reload}, settled=started)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


def stop(
    context: typer.Context,
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Stop the engine and wait until its last process is gone."""
    asked = Asked(path="/v1/actions/stop", body={}, settled=stopped)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


def restart(
    context: typer.Context,
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    reload: Annotated[bool, typer.Option(help="Read the rig file again first.")] = True,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Restart the engine, with the rig file as it is now.

    The engine's own parser is asked first: what it refuses never costs the engine that runs.
    """
    asked = Asked(path="/v1/actions/restart", body={"reload": reload}, settled=started)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


def warm(
    context: typer.Context,
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Warm the shared prefixes again and prove that they are cached."""
    asked = Asked(path="/v1/actions/warm", body={}, settled=warmed)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


def maintenance(
    context: typer.Context,
    switch: Annotated[
        Switch, typer.Argument(help="on: rigd leaves the engine alone; off: it looks after it.")
    ],
    *,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = options.HOUR_S,
    as_json: options.Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Keep hands off the engine, or look after it again."""
    on = switch is Switch.ON
    asked = Asked(path="/v1/maintenance", body={"on": on}, settled=paused if on else resumed)
    return run(
        options.daemon(context, socket, url), asked, no_wait=no_wait, timeout_s=timeout, as_json=as_json
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request, and what counts as its end."""

    path: str
    body: dict[str, object]
    settled: Settled


def run(client: Client, asked: Asked, *, no_wait: bool, timeout_s: float, as_json: bool) -> int:
    """Post a request, wait for its end unless told not to, print a sentence and return the exit code."""
    if no_wait:
        reply = client.post(asked.path, asked.body, timeout_s=POST_TIMEOUT_S)
        _print(Outcome(done=True, message=reply["message"], hint=reply.get("hint")), None, as_json=as_json)
        return int(ExitCode.DONE)
    try:
        with reporter() as shown:
            outcome, status = _post_and_wait(client, asked, shown, timeout_s)
    except KeyboardInterrupt:
        say("only the waiting ends here; the request stands, and `rigd status` shows what comes of it")
        raise
    _print(outcome, status, as_json=as_json)
    return int(ExitCode.DONE if outcome.done else ExitCode.FAILED)


def _post_and_wait(
    client: Client, asked: Asked, shown: Reporter, timeout_s: float
) -> tuple[Outcome, Document]:
    news: queue.SimpleQueue[Document | RigdError] = queue.SimpleQueue()
    threading.Thread(target=_follow, args=(client, shown, news), daemon=True).start()
    since_s: float = client.get("/v1/status")["now_s"]
    reply = client.post(asked.path, asked.body, timeout_s=POST_TIMEOUT_S)
    status = client.get("/v1/status")
    if (outcome := asked.settled(status, since_s)) is not None:
        # Nothing to wait for: the daemon's own words say it best ("already ready"), unless it failed.
        said = (
            Outcome(done=True, message=reply["message"], hint=reply.get("hint")) if outcome.done else outcome
        )
        return said, status
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        try:
            found = news.get(timeout=POLL_S)
        except queue.Empty:
            found = client.get("/v1/status")
        if isinstance(found, RigdError):
            raise found
        if found["now_s"] < status["now_s"]:
            continue  # From before the request was taken up.
        status = found
        if (outcome := asked.settled(status, since_s)) is not None:
            return outcome, status
    late = f"not done after {duration(timeout_s)}: the engine is {status['state']}"
    return Outcome(done=False, message=late, hint="it goes on; `rigd wait ready` waits on"), status


def _follow(client: Client, shown: Reporter, news: "queue.SimpleQueue[Document | RigdError]") -> None:
    """Hand what the daemon tells to the reporter; a status is news, and so is the daemon's going away."""
    try:
        for document in client.documents("/v1/live"):
            shown.item(document)
            if document.get("type") == "status":
                news.put(document["status"])
        news.put(client.gone())
    except RigdError as error:
        news.put(error)


def _print(outcome: Outcome, status: Document | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": outcome.done, "message": outcome.message, "hint": outcome.hint, "status": status})
    elif outcome.done:
        print_text(outcome.message)
    else:
        say(f"rigd: {outcome.message}")
    if outcome.hint and not as_json:
        say(f"  -> {outcome.hint}")


def _serving(status: Document) -> str:
    engine = status.get("engine") or {}
    created_s, ready_s = engine.get("created_s"), status.get("ready_s")
    took = f" after {duration(ready_s - created_s)}" if created_s and ready_s else ""
    why = f" ({status.get('reason')})" if status["state"] == "degraded" else ""
    return f"{status['state']}{took}{why}: {engine.get('model')} at {engine.get('url')}"


def _failed(status: Document) -> Outcome:
    failure = status.get("failure") or {}
    because = failure.get("sentence") or status.get("reason") or "no reason known"
    gave_up = f"; gave up: {status['gave_up']}" if status.get("gave_up") else ""
    return Outcome(done=False, message=f"failed: {because}{gave_up}", hint=failure.get("hint"))
