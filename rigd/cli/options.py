"""Options that many commands share, and the client that they lead to."""

import os
from typing import Annotated

import typer

from rigd import client
from rigd.client import Client

Socket = Annotated[
    str | None,
    typer.Option("--socket", metavar="PATH", help="The daemon's unix socket (or RIGD_SOCKET)."),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="A daemon on the network (or RIGD_URL, with RIGD_TOKEN_FILE)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the outcome.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.0, help="Longest wait for the outcome.")
]
HOUR_S = 3600.0


def daemon(context: typer.Context, socket: str | None, url: str | None) -> Client:
    """Return the client for the daemon that is meant: options of the command, then those before it."""
    if socket is None and url is None:
        before = context.find_root().params
        socket, url = before.get("socket"), before.get("url")
    return client.connect(os.environ, socket=socket, url=url)


def examples(*lines: str) -> str:
    """Return the end of a help text."""
    return "\n\n".join(("Example:" if len(lines) == 1 else "Examples:", *lines))
