"""The API as a table: method, path, what it asks of the caller, and who answers.

How to add a route: a line here and a function in `handlers`; the command line gets it through `rigd.client`.
"""

from dataclasses import dataclass

from rigd.api import handlers
from rigd.api.access import Access
from rigd.api.handlers import Handler
from rigd.supervise.observations import RequestKind


@dataclass(frozen=True, kw_only=True)
class ApiRoute:
    """One row."""

    method: str
    path: str
    access: Access
    handler: Handler


def _read(path: str, handler: Handler, access: Access = Access.READ) -> ApiRoute:
    return ApiRoute(method="GET", path=path, access=access, handler=handler)


def _change(path: str, handler: Handler) -> ApiRoute:
    return ApiRoute(method="POST", path=path, access=Access.CHANGE, handler=handler)


ROUTES = (
    _read("/v1/health", handlers.health, Access.OPEN),
    _read("/v1/status", handlers.status),
    _read("/v1/wait", handlers.wait),
    _read("/v1/events", handlers.events),
    _read("/v1/live", handlers.live),
    _read("/v1/starts", handlers.starts),
    _read("/v1/logs", handlers.logs),
    _read("/v1/incidents", handlers.incidents),
    _read("/v1/incidents/{number:int}", handlers.incident),
    _read("/v1/incidents/{number:int}/bundle", handlers.incident_bundle),
    _read("/v1/alerts", handlers.alerts),
    _read("/metrics", handlers.metrics),
    _change("/v1/actions/start", handlers.action(RequestKind.START, reload=True)),
    _change("/v1/actions/stop", handlers.action(RequestKind.STOP, reload=False)),
    _change("/v1/actions/restart", handlers.action(RequestKind.RESTART, reload=True)),
    _change("/v1/actions/warm", handlers.action(RequestKind.WARM, reload=False)),
    _change("/v1/maintenance", handlers.maintenance),
    _change("/v1/alerts/test", handlers.test_alerts),
    _change("/v1/drift/look", handlers.look_at_drift),
    _change("/v1/overlay", handlers.set_knob),
    _change("/v1/overlay/clear", handlers.action(RequestKind.OVERLAY_CLEAR, reload=False)),
)
