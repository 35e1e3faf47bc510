"""structlog, set up once: a console on a terminal, JSON lines elsewhere. Logs go to stderr."""

import logging
import sys
from typing import TextIO

import structlog


def configure(*, json: bool | None = None, level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line to `stream` (stderr), as JSON unless it is a terminal or `json` says otherwise."""
    out = stream if stream is not None else sys.stderr
    as_json = json if json is not None else not out.isatty()
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        processors.append(structlog.dev.ConsoleRenderer(colors=out.isatty()))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger with `part=name` bound."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(part=name)
    return logger
