"""`rigd clients`: the files of agent clients, from the channels of a rig; printed, or put into what is there."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd.cli.clients_output import document, keyless, print_files, summary
from rigd.cli.clients_plan import plan_for
from rigd.cli.clients_write import Change, changes, write_all
from rigd.cli.console import print_json, say
from rigd.cli.options import Json, examples
from rigd.cli.rig import RigPath, opened
from rigd.clients.pack import CLIENTS as PACKED
from rigd.clients.pack import pack
from rigd.clients.plan import Plan
from rigd.clients.table import CLIENTS
from rigd.clients.versions import KNOWN, doubt, version_in
from rigd.errors import UsageError

VERSION_TIMEOUT_S = 10.0

app = typer.Typer(
    help="Files of agent clients: a provider for each channel, with its limits and timeouts; prompts for agents.",
    epilog=examples(
        "rigd clients opencode rig.yaml", "rigd clients opencode rig.yaml --write ~/.config/opencode"
    ),
    no_args_is_help=True,
)

Write = Annotated[
    Path | None,
    typer.Option(
        "--write", metavar="DIR", help="Put it into the file in this folder; the diff is shown first."
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="NAME|URL", help="The box as the client reaches it, such as its tailnet name."
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="env:NAME|file:PATH|none", help="Where the client finds the key."),
]
RateOption = Annotated[
    float | None,
    typer.Option("--rate", metavar="TOKENS_PER_S", min=1, help="How fast the engine reads prompts."),
]
AgentOption = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="AGENT=CHANNEL", help="Give an agent another channel; may be repeated."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before writing.")]
KeepUnknown = Annotated[
    bool, typer.Option("--keep-unknown", help="Go on where the file has keys that the client does not read.")
]
Version = Annotated[
    str | None,
    typer.Option(
        "--client-version", metavar="VERSION", help="Write for this version, whatever is installed."
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Ask no daemon and no engine for the rate.")]


def _command(client: str) -> Callable[..., None]:
    """Return the command of one client."""

    def command(
        rig: RigPath,
        *,
        write: Write = None,
        host: Host = None,
        key: Key = None,
        rate: RateOption = None,
        agent: AgentOption = None,
        yes: Yes = False,
        keep_unknown: KeepUnknown = False,
        client_version: Version = None,
        offline: Offline = False,
        as_json: Json = False,
    ) -> None:
        loaded, spec, _ = opened(rig)
        plan, notes = plan_for(loaded, spec, host=host, key=key, rate=rate, agents=agent, offline=offline)
        version, uncertain = _version(client, client_version)
        if uncertain is not None:
            if write is not None and client_version is None:
                raise UsageError(
                    f"cannot write for a version that is not known: {uncertain}",
                    hint=f"--client-version {KNOWN[client].tried} writes for that one; without --write it is printed",
                )
            notes.append(uncertain)
        files = CLIENTS[client].files(plan)
        if write is None:
            if as_json:
                print_json(document(client, plan, version, notes, changes(client, plan, files, None)))
                return
            summary(client, plan, notes)
            print_files(client, files)
            return
        found = changes(client, plan, files, write.expanduser(), keep_unknown=keep_unknown)
        if not as_json:
            summary(client, plan, notes)
        done = write_all(found, yes=yes, quiet=as_json)
        _done(client, plan, version, notes, done, as_json=as_json)

    command.__doc__ = f"""Print the file of {client} for this rig, or put it into the one in a folder.

    What is not the rig's stays as it is: comments, order, keys of your own, models that you chose for agents. The old
    file is kept beside the new one. The key is a reference, never text."""
    return command


for _name in CLIENTS:
    app.command(
        _name,
        epilog=examples(
            f"rigd clients {_name} rig.yaml --host box",
            f"rigd clients {_name} rig.yaml --write {CLIENTS[_name].where}",
        ),
    )(_command(_name))


@app.command(
    epilog=examples(
        "rigd clients agents . --for opencode", "rigd clients agents ~/project --for claude-code --yes"
    )
)
def agents(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project, or the client's own folder.")],
    *,
    client: Annotated[
        str, typer.Option("--for", metavar="CLIENT", help=f"Whose form: {', '.join(PACKED)}.")
    ] = "opencode",
    rig: Annotated[
        Path | None, typer.Option("--rig", metavar="RIG", help="Bind each agent to its channel of this rig.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write prompt files for a coordinator and its subagents: parallel calls, contract first, static before dynamic.

    They are the same to the byte on every machine and every day, so that all agents share their beginning.
    """
    if client not in PACKED:
        raise UsageError(
            f"there is no agent pack for '{client}'", hint=f"there is one for {', '.join(PACKED)}"
        )
    plan = None
    if rig is not None:
        loaded, spec, _ = opened(rig)
        plan, _ = plan_for(loaded, spec, host=None, key=None, rate=None, agents=None, offline=True)
    done = write_all(changes(client, None, pack(client, plan), folder.expanduser()), yes=yes, quiet=as_json)
    if as_json:
        print_json({"client": client, "files": [change.document() for change in done]})


def _done(
    client: str, plan: Plan, version: str | None, notes: list[str], done: list[Change], *, as_json: bool
) -> None:
    """Tell how it ended, and how to see that the client took it."""
    if as_json:
        print_json(document(client, plan, version, notes, done))
        return
    if any(change.changed for change in done):
        say(f"next: {CLIENTS[client].then.format(first=plan.main.provider)}")
        if missing := keyless(plan, os.environ):
            say(f"rigd: {missing}")


# --- which version it is ---


def _version(client: str, stated: str | None) -> tuple[str | None, str | None]:
    """Return the client's version, if anybody says it, and why a file for it may be wrong."""
    version = stated or _installed(KNOWN[client].program)
    return version, None if version is None else doubt(client, version)


def _installed(program: str) -> str | None:
    """Return the version that a program on this box says it is."""
    path = shutil.which(program) if program else None
    if path is None:
        return None
    environ: dict[str, Any] = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
            env=environ,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_in(done.stdout) if done.returncode == 0 else None
