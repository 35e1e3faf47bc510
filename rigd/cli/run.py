"""`up` and `daemon`: supervise a rig in this process."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd import log
from rigd.cli import options
from rigd.cli.console import print_json, print_line, say
from rigd.cli.progress import reporter
from rigd.cli.status import duration, headline
from rigd.errors import ExitCode, UsageError

Rig = Annotated[Path, typer.Argument(metavar="RIG", help="The rig file.", envvar="RIGD_RIG")]
SocketOption = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Where to listen (or RIGD_SOCKET).")
]


class Remembered:
    """Hands items on and keeps the last status, for what is said at the end."""

    def __init__(self, shown: Any, *, goal: str | None, as_lines: bool) -> None:
        self.status: dict[str, Any] = {}
        self.reached: dict[str, Any] | None = None
        """The status when the goal was reached first."""
        self._goal = goal
        self._shown = shown
        self._as_lines = as_lines

    def item(self, item: dict[str, Any]) -> None:
        """Take one item of the daemon."""
        self.status = item.get("status") or self.status
        if self.reached is None and self._goal is not None and self.status.get("state") == self._goal:
            self.reached = self.status
        if self._as_lines:
            print_line(item)
        else:
            self._shown.item(item)


def up(
    context: typer.Context,
    rig: Rig,
    *,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="STATE", help="End when this state is reached, e.g. ready."),
    ] = None,
    stop_on_exit: Annotated[
        bool, typer.Option("--stop-on-exit", help="End the engine as well when this command ends.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="The daemon's log as well.")] = False,
    as_json: options.Json = False,
    socket: SocketOption = None,
) -> int:
    """Supervise a rig in the foreground, and show what happens.

    The engine outlives this command: Ctrl-C ends the supervision, and the engine goes on serving until
    somebody stops it. The next `rigd up` takes it over as it is. With --stop-on-exit the engine is ended too.

    --until ends the command as soon as the engine is in that state, and leaves the engine running: for
    scripts and for a first try. For good, use `systemctl enable --now rigd`.
    """
    from rigd import daemon  # noqa: PLC0415  (costs 300 ms, which only these two commands need)
    from rigd.cli import service  # noqa: PLC0415  (the same)
    from rigd.supervise.state import State  # noqa: PLC0415

    goal = _state(until, State) if until is not None else None
    settings = service.settings_of(_given(context, socket))
    log.configure(json=settings.log_json, level=settings.log_level if verbose else "error")
    began_s = time.monotonic()
    with reporter() as shown:
        seen = Remembered(shown, goal=until, as_lines=as_json and goal is None)
        code = daemon.run(
            rig, settings=settings, foreground=True, on_event=seen.item, until=goal, stop_on_exit=stop_on_exit
        )
    if as_json and goal is not None:
        took_s = round(time.monotonic() - began_s, 1)
        reached = code is ExitCode.DONE and seen.reached is not None
        print_json({"reached": reached, "took_s": took_s, "status": seen.reached or seen.status})
    elif not as_json:
        _farewell(seen.status, code, rig, duration(time.monotonic() - began_s), stop_on_exit=stop_on_exit)
    return int(code)


def daemon_command(context: typer.Context, rig: Rig, socket: SocketOption = None) -> int:
    """Supervise a rig as a service: logs on stderr, and systemd told when it is ready."""
    from rigd.cli import service  # noqa: PLC0415  (costs 300 ms, which only these two commands need)

    return service.run(rig, _given(context, socket))


def _farewell(status: dict[str, Any], code: ExitCode, rig: Path, took: str, *, stop_on_exit: bool) -> None:
    """Say what is left running and how to end it."""
    if status:
        say(f"{headline(status)}, after {took}")
    failure = status.get("failure")
    if code is not ExitCode.DONE and failure:
        say(f"rigd: {failure['sentence']}")
        if failure.get("hint"):
            say(f"  -> {failure['hint']}")
    engine = status.get("engine")
    if engine and not stop_on_exit:
        say(f"the engine goes on without rigd: pid {engine['pid']}, {engine['url']}")
        say(f"  -> `rigd up {rig}` takes it over; `rigd up {rig} --stop-on-exit` and Ctrl-C end it")


def _given(context: typer.Context, socket: Path | None) -> Path | None:
    """Return the socket that was named after the command, or before it."""
    given = socket or context.find_root().params.get("socket")
    return None if given is None else Path(given)


def _state(name: str, states: Any) -> Any:
    try:
        return states(name)
    except ValueError as error:
        raise UsageError(f"there is no state '{name}'", hint=f"states: {', '.join(states)}") from error
