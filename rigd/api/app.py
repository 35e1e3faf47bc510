"""The application: routes, the check before each, and errors as documents with a sentence and a hint."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rigd import log
from rigd.api.access import Policy, refusal
from rigd.api.backend import Backend
from rigd.api.connections import connection_of
from rigd.api.handlers import Context
from rigd.api.routes import ROUTES, ApiRoute
from rigd.api.streams import StreamSlots
from rigd.errors import RigdError, explain, hint_of

_log = log.get("api")


def make_app(backend: Backend, policy: Policy) -> Starlette:
    """Return the ASGI application over `backend`; `serve` runs it."""
    context = Context(backend=backend, slots=StreamSlots())
    app = Starlette(
        routes=[
            Route(route.path, _guarded(route, context, policy), methods=[route.method]) for route in ROUTES
        ],
        exception_handlers={HTTPException: _not_found, Exception: _unexpected},
    )
    app.state.slots = context.slots
    return app


def _guarded(route: ApiRoute, context: Context, policy: Policy) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        refused = refusal(route.access, connection_of(request).caller, request.headers, policy)
        if refused is not None:
            return _error(refused.status, refused.sentence, refused.hint)
        try:
            return await route.handler(request, context)
        except RigdError as error:
            return _error(getattr(error, "status", 500), explain(error), hint_of(error))

    return endpoint


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _error(status, f"there is no {request.method} {request.url.path}", "the README lists the routes")


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("request failed", path=request.url.path, error=explain(error), exc_info=error)
    return _error(500, "the daemon failed at this request", "its log says more: `journalctl -u rigd`")


def _error(status: int, sentence: str, hint: str | None) -> Response:
    return JSONResponse({"error": sentence, "hint": hint}, status)
