"""What each route does: read the question, ask the backend, return the answer. No decisions here."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

import rigd
from rigd.api.backend import Backend
from rigd.api.connections import connection_of
from rigd.api.logs import TAIL_LIMIT, last_lines
from rigd.api.streams import Stream, StreamSlots, event_lines, live_lines, log_bytes
from rigd.errors import RigdError
from rigd.supervise.decision import Reply
from rigd.supervise.observations import RequestKind
from rigd.supervise.state import State

NDJSON = "application/x-ndjson"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
BODY_LIMIT = 2**20
BODY_TIMEOUT_S = 10.0
WAIT_LIMIT_S = 60.0
"""Longest wait of one request; a client that wants to wait longer asks again."""
ACT_LIMIT_S = 900.0
"""A restart answers after the engine's own parser has looked at the configuration."""
EVENTS_LIMIT = 1000
STARTS_LIMIT = 200
INCIDENTS_LIMIT = 1000
GZIP = "application/gzip"


class BadRequestError(RigdError):
    """The request cannot be understood."""

    status = 400


class NotThereError(RigdError):
    """The thing asked for does not exist."""

    status = 404


class BusyError(RigdError):
    """The daemon has too much to do at the moment."""

    status = 503


class RefusedByLoopError(RigdError):
    """The loop said no."""

    status = 409


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every handler works with."""

    backend: Backend
    slots: StreamSlots


Handler = Callable[[Request, Context], Awaitable[Response]]


async def health(request: Request, context: Context) -> Response:
    """Tell whether the daemon's loop runs; says nothing of the engine."""
    del request
    healthy = context.backend.healthy
    return JSONResponse({"healthy": healthy, "version": rigd.__version__}, 200 if healthy else 503)


async def status(request: Request, context: Context) -> Response:
    """Show everything known of the engine."""
    del request
    return JSONResponse(context.backend.status())


async def wait(request: Request, context: Context) -> Response:
    """Answer as soon as the state is one of those asked for, or when the time is over."""
    names = request.query_params.get("state", "").split(",")
    try:
        states = frozenset(State(name.strip()) for name in names)
    except ValueError as error:
        known = ", ".join(State)
        raise BadRequestError(f"there is no state '{','.join(names)}'", hint=f"states: {known}") from error
    timeout_s = min(_number(request, "timeout_s", WAIT_LIMIT_S, low=0.0, high=1e9), WAIT_LIMIT_S)
    reached = await context.backend.wait(states, timeout_s)
    return JSONResponse({"reached": reached, "status": context.backend.status()})


async def events(request: Request, context: Context) -> Response:
    """List journal entries, oldest first; with `follow=1` a stream that goes on."""
    after = _optional(request, "after")
    limit = int(_number(request, "limit", 50, low=0, high=EVENTS_LIMIT))
    if _flag(request, "follow"):
        return _stream(
            request, context, event_lines(context.backend, context.slots, after=after, limit=limit)
        )
    return JSONResponse({"events": await context.backend.events(after, limit) if limit else []})


async def live(request: Request, context: Context) -> Response:
    """Stream the status whenever it changes, and of what happens in between."""
    return _stream(request, context, live_lines(context.backend, context.slots))


async def starts(request: Request, context: Context) -> Response:
    """List the last starts and their outcome, newest first."""
    limit = int(_number(request, "limit", 20, low=1, high=STARTS_LIMIT))
    return JSONResponse({"starts": await context.backend.starts(limit)})


async def logs(request: Request, context: Context) -> Response:
    """Show the engine's own output; with `follow=1` it goes on, over restarts unless `start` is given."""
    start = _optional(request, "start")
    tail = int(_number(request, "tail", 200, low=0, high=TAIL_LIMIT))
    path = context.backend.log_path(start)
    if path is None or not path.exists():
        of = "of any start" if start is None else f"of start {start}"
        raise NotThereError(f"there is no log {of}", hint="`rigd starts` lists those that are kept")
    past, cursor = await asyncio.to_thread(last_lines, path, tail)
    if not _flag(request, "follow"):
        return PlainTextResponse(past)
    content = log_bytes(context.backend, context.slots, start=start, past=past, cursor=cursor)
    return _stream(request, context, content, media_type="text/plain")


async def incidents(request: Request, context: Context) -> Response:
    """List what was kept of the last failures, newest first."""
    limit = int(_number(request, "limit", 20, low=1, high=INCIDENTS_LIMIT))
    return JSONResponse({"incidents": await context.backend.incidents.newest(limit)})


async def incident(request: Request, context: Context) -> Response:
    """Show one incident: what happened, what rigd saw and did, the end of the log."""
    number = int(request.path_params["number"])
    document = await context.backend.incidents.show(number)
    if document is None:
        raise _no_incident(number)
    return JSONResponse(document)


async def incident_bundle(request: Request, context: Context) -> Response:
    """Hand out one incident as a tar.gz."""
    number = int(request.path_params["number"])
    content = await context.backend.incidents.bundle(number)
    if content is None:
        raise _no_incident(number)
    name = f'attachment; filename="incident-{number}.tar.gz"'
    return Response(content, media_type=GZIP, headers={"Content-Disposition": name})


def _no_incident(number: int) -> NotThereError:
    return NotThereError(f"there is no incident {number}", hint="`rigd incidents` lists those that are kept")


async def alerts(request: Request, context: Context) -> Response:
    """Show who is told of trouble, what is open, and what waits to be told."""
    del request
    return JSONResponse(context.backend.alerts())


async def test_alerts(request: Request, context: Context) -> Response:
    """Send a test message to everybody who is told of trouble."""
    del request
    return JSONResponse(await context.backend.test_alerts())


async def look_at_drift(request: Request, context: Context) -> Response:
    """Hold the host against its playbook now; what it comes to, the status says."""
    del request
    reason = context.backend.look_at_drift()
    if reason is not None:
        raise RefusedByLoopError(reason)
    return JSONResponse({"ok": True, "message": "looking", "hint": None})


async def metrics(request: Request, context: Context) -> Response:
    """Show the daemon's own metrics."""
    del request
    return PlainTextResponse(context.backend.metrics(), media_type=METRICS)


def action(kind: RequestKind, *, reload: bool) -> Handler:
    """Return a handler that posts `kind` to the loop; `reload` is what holds when the body does not say."""

    async def act(request: Request, context: Context) -> Response:
        body = await _body(request)
        return await _act(context, kind, reload=_boolean(body, "reload", default=reload))

    act.__doc__ = f"Ask the loop to {kind.value} the engine."
    return act


async def maintenance(request: Request, context: Context) -> Response:
    """Hands off the engine, or on again."""
    wanted = _boolean(await _body(request), "on", default=None)
    kind = RequestKind.MAINTENANCE_ON if wanted else RequestKind.MAINTENANCE_OFF
    return await _act(context, kind, reload=False)


async def set_knob(request: Request, context: Context) -> Response:
    """Change one setting on top of the rig file."""
    body = await _body(request)
    knob, value = body.get("knob"), body.get("value")
    if not isinstance(knob, str) or not isinstance(value, str):
        raise BadRequestError(
            "'knob' and 'value' must be texts", hint='send {"knob": "max_num_seqs", "value": "5"}'
        )
    async with asyncio.timeout(ACT_LIMIT_S):
        reply = await context.backend.set_knob(knob, value)
    return _replied(reply)


async def _act(context: Context, kind: RequestKind, *, reload: bool) -> Response:
    try:
        async with asyncio.timeout(ACT_LIMIT_S):
            reply = await context.backend.act(kind, reload=reload)
    except TimeoutError as error:
        raise BusyError(f"'{kind.value}' was not answered in time", hint="`rigd status` says why") from error
    return _replied(reply)


def _replied(reply: Reply) -> Response:
    if not reply.ok:
        raise RefusedByLoopError(reply.message, hint=reply.hint)
    return JSONResponse({"ok": True, "message": reply.message, "hint": reply.hint})


def _stream(request: Request, context: Context, content: Any, *, media_type: str = NDJSON) -> Response:
    if not context.slots.room():
        raise BusyError("too many streams are open", hint="close a `--follow` or `--watch` somewhere")
    return Stream(content, slots=context.slots, connection=connection_of(request), media_type=media_type)


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; an empty body is an empty object."""
    content = b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                content += part
                if len(content) > BODY_LIMIT:
                    raise BadRequestError(f"the body is larger than {BODY_LIMIT} bytes")
    except TimeoutError as error:
        raise BadRequestError("the body did not come in time") from error
    except ClientDisconnect as error:
        raise BadRequestError("the caller left") from error
    try:
        document = json.loads(content) if content.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the body is not JSON") from error
    if not isinstance(document, dict):
        raise BadRequestError("the body is not a JSON object")
    return document


def _boolean(body: dict[str, Any], key: str, *, default: bool | None) -> bool:
    value = body.get(key, default)
    if not isinstance(value, bool):
        raise BadRequestError(f"'{key}' must be true or false", hint=f'send {{"{key}": true}}')
    return value


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "") in ("1", "true")


def _optional(request: Request, name: str) -> int | None:
    if name not in request.query_params:
        return None
    return int(_number(request, name, 0, low=0, high=2**53))


def _number(request: Request, name: str, default: float, *, low: float, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise BadRequestError(f"'{name}' must be a number, not '{text}'") from error
    if not low <= value <= high:
        raise BadRequestError(f"'{name}' must be between {low:g} and {high:g}, not {text}")
    return value
