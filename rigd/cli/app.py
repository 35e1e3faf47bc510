"""All commands as a table. Those of other parts are imported when they are named, and only then.

How to add a command: a function in the file of its noun, and a line in `COMMANDS` with an example.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer

import rigd
from rigd.cli import act, options, read
from rigd.cli.console import print_json, print_text
from rigd.errors import ExitCode

WRONG_USAGE = cast(
    "type[typer.BadParameter]",
    next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)
"""typer brings a click of its own, or uses the installed one, by version; its errors descend from this."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of this package's own."""

    name: str
    function: Callable[..., Any]
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A command, or a group of them, that another module brings."""

    name: str
    module: str
    attribute: str
    about: str
    examples: tuple[str, ...] = ()


def version(as_json: options.Json = False) -> int:
    """Print rigd's version."""
    if as_json:
        print_json({"version": rigd.__version__, "python": sys.version.split()[0]})
    else:
        print_text(f"rigd {rigd.__version__}")
    return int(ExitCode.DONE)


COMMANDS = (
    Command(name="status", function=read.status, examples=("rigd status", "rigd status --watch")),
    Command(name="wait", function=read.wait, examples=("rigd wait ready --timeout 900",)),
    Command(
        name="logs", function=read.logs, examples=("rigd logs --follow", "rigd logs --start 12 --tail 50")
    ),
    Command(name="events", function=read.events, examples=("rigd events --follow",)),
    Command(name="starts", function=read.starts, examples=("rigd starts --limit 5",)),
    Command(name="start", function=act.start, examples=("rigd start",)),
    Command(name="stop", function=act.stop, examples=("rigd stop",)),
    Command(name="restart", function=act.restart, examples=("rigd restart", "rigd restart --no-reload")),
    Command(name="warm", function=act.warm, examples=("rigd warm",)),
    Command(name="maintenance", function=act.maintenance, examples=("rigd maintenance on",)),
    Command(name="version", function=version, examples=("rigd version --json",)),
)

MOUNTS = (
    Mount(
        name="demo",
        module="rigd.cli.tour",
        attribute="demo",
        about="The tour on a machine without a GPU: start, warm, break, recover.",
        examples=("rigd demo",),
    ),
    Mount(
        name="up",
        module="rigd.cli.run",
        attribute="up",
        about="Supervise a rig in the foreground, and show what happens.",
        examples=("rigd up rig.yaml", "rigd up rig.yaml --until ready"),
    ),
    Mount(
        name="daemon",
        module="rigd.cli.run",
        attribute="daemon_command",
        about="Supervise a rig as a service, for systemd.",
        examples=("rigd daemon /etc/rigd/rig.yaml",),
    ),
    Mount(name="rig", module="rigd.cli.rig", attribute="app", about="The rig file: validate, schema, show."),
    Mount(
        name="engine",
        module="rigd.cli.engine",
        attribute="app",
        about="What would be launched: command, compose, check.",
    ),
    Mount(
        name="classify",
        module="rigd.cli.classify",
        attribute="classify",
        about="What is this log: class, evidence, remedy.",
        examples=("rigd classify engine.log", "docker logs vllm 2>&1 | rigd classify --json"),
    ),
    Mount(
        name="set",
        module="rigd.cli.overlay",
        attribute="set_knob",
        about="Change one setting on top of the rig file, and restart into it.",
        examples=("rigd set max_num_seqs 5", "rigd set enforce_eager true"),
    ),
    Mount(name="overlay", module="rigd.cli.overlay", attribute="app", about="What rigd changed, and why."),
    Mount(
        name="incidents",
        module="rigd.cli.incidents",
        attribute="incidents",
        about="What went wrong: each failure's story, and a bundle of it for a bug report.",
        examples=("rigd incidents", "rigd incidents 7", "rigd incidents 7 --bundle incident-7.tar.gz"),
    ),
    Mount(
        name="alerts",
        module="rigd.cli.alerts",
        attribute="app",
        about="Who is told when something is wrong: show, test.",
    ),
    Mount(
        name="doctor",
        module="rigd.cli.doctor",
        attribute="doctor",
        about="Is this host fit for its rig? Each finding with what mends it.",
        examples=("rigd doctor", "rigd doctor rig.yaml --all", "rigd doctor rig.yaml --host me@box"),
    ),
    Mount(
        name="budget",
        module="rigd.cli.budget",
        attribute="budget",
        about="What the KV pool holds, and whether the channels fit into it.",
        examples=(
            "rigd budget rig.yaml",
            "rigd budget rig.yaml --fit --hit 0.9",
            "rigd budget rig.yaml --log engine.log",
        ),
    ),
    Mount(
        name="host",
        module="rigd.cli.host",
        attribute="app",
        about="What root does to the host: the cards' settings; resets and reboots where allowed.",
    ),
    Mount(
        name="provision",
        module="rigd.cli.provision",
        attribute="app",
        about="Bring a host to the state that a playbook describes: apply, check, runs, modules.",
    ),
    Mount(
        name="facts",
        module="rigd.cli.provision",
        attribute="facts",
        about="What a host is, under Ansible's names of facts.",
        examples=("rigd facts", "rigd facts --host me@box --json"),
    ),
    Mount(
        name="prefix",
        module="rigd.cli.prefix",
        attribute="app",
        about="Prompts: what in them moves, and what a client's requests share: lint, capture, forget.",
    ),
    Mount(
        name="clients",
        module="rigd.cli.clients",
        attribute="app",
        about="Files of agent clients: opencode, kilo, pi, claude-code, codex, openai-env; prompts for agents.",
    ),
    Mount(name="sim", module="rigd.cli.sim", attribute="app", about="The engine double by itself."),
)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    command = typer.main.get_command(make_app(_named(arguments)))
    try:
        code = command.main(list(arguments), prog_name="rigd", standalone_mode=False)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        return int(ExitCode.FAILED)
    except WRONG_USAGE as error:
        error.show()
        return int(ExitCode.USAGE)
    return code if isinstance(code, int) else int(ExitCode.DONE)


def make_app(named: str | None) -> typer.Typer:
    """Return the command line. Of other parts' commands only the one `named` is more than a line of help."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Keep a home GPU box serving: launch vLLM, prove that it serves, warm it, and bring it back.",
        epilog=options.examples("rigd demo", "rigd up configs/example.yaml", "rigd status"),
    )
    app.callback()(_before)
    for mount in MOUNTS:
        _mount(app, mount, load=mount.name == named)
    for command in COMMANDS:
        app.command(command.name, epilog=options.examples(*command.examples))(command.function)
    return app


def _before(socket: options.Socket = None, url: options.Url = None) -> None:
    """Take the options that may stand before the command; `options.daemon` looks them up."""
    del socket, url


def _mount(app: typer.Typer, mount: Mount, *, load: bool) -> None:
    if not load:
        app.command(mount.name, help=mount.about)(_placeholder)
        return
    found = getattr(importlib.import_module(mount.module), mount.attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=mount.name, help=mount.about)
    else:
        app.command(mount.name, epilog=options.examples(*mount.examples))(found)


def _placeholder(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Stand in for a command of another part in the list of commands."""
    del words


def _named(arguments: Sequence[str]) -> str | None:
    """Return the command among the words: the first that is no option and no option's value."""
    rest = iter(arguments)
    for word in rest:
        if word in ("--socket", "--url"):
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None
