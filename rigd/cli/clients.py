"""`rigd clients`: the files of agent clients, from the channels of a rig; printed, or put into what is there."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from rigd.cli.clients_output import document, keyless, print_files, summary
from rigd.cli.clients_write import Change, changes, write_all
from rigd.cli.console import print_json, say
from rigd.cli.options import Json, examples
from rigd.cli.rig import RigPath, opened
from rigd.clients.pack import CLIENTS as PACKED
from rigd.clients.pack import pack
from rigd.clients.plan import KeyKind, KeyRef, Plan, key_of, make_plan
from rigd.clients.table import CLIENTS
from rigd.clients.versions import KNOWN, doubt, version_in
from rigd.engine.spec import LaunchSpec
from rigd.errors import RigdError, UsageError
from rigd.gateway.target import ask, target_of
from rigd.prefix.hits import Rate
from rigd.rig.load import LoadedRig

VERSION_TIMEOUT_S = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")

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
        plan, notes = _plan(loaded, spec, host=host, key=key, rate=rate, agents=agent, offline=offline)
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
        plan, _ = _plan(loaded, spec, host=None, key=None, rate=None, agents=None, offline=True)
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


# --- what the client is told ---


def _plan(
    loaded: LoadedRig,
    spec: LaunchSpec,
    *,
    host: str | None,
    key: str | None,
    rate: float | None,
    agents: list[str] | None,
    offline: bool,
) -> tuple[Plan, list[str]]:
    known = _rate(loaded, rate, offline=offline)
    plan = make_plan(
        loaded.rig,
        model=spec.served_model_name,
        root_url=spec.base_url if host is None else _address(host, spec.port),
        key=key_of(spec.api_key, loaded.rig.name, on_the_box=host is None) if key is None else _key(key),
        rate=None if known is None else known.tokens_per_s,
        rate_from="" if known is None else known.said_by,
        chosen=_agents(agents or []),
    )
    notes = list(plan.notes)
    if host is not None and spec.host in LOOPBACK and "://" not in host:
        notes.append(
            f"the engine listens on {spec.host} only: engine.host must be an address that {host} leads to"
        )
    return plan, notes


def _rate(loaded: LoadedRig, stated: float | None, *, offline: bool) -> Rate | None:
    """Return how fast prompts are read: as stated, else as the daemon or the engine measured it."""
    if stated is not None:
        return Rate(tokens_per_s=stated, said_by="stated")
    if offline:
        return None
    with contextlib.suppress(RigdError, OSError):
        return asyncio.run(ask(target_of(str(loaded.path)), rate=None)).rate
    return None


def _address(host: str, port: int) -> str:
    """Return scheme, host and port of a box."""
    given = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(given)
        own = parts.port
    except ValueError:
        parts, own = urlsplit(""), None
    plain = parts.scheme in ("http", "https") and parts.hostname and not parts.query and "@" not in given
    if not plain or parts.path.rstrip("/") not in ("", "/v1"):
        raise UsageError(
            f"'{host}' is no host and no address", hint="for example --host box or --host https://box"
        )
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    if own is None and "://" in host:
        return f"{parts.scheme}://{name}"
    return f"{parts.scheme}://{name}:{own or port}"


def _key(given: str) -> KeyRef | None:
    if given == "none":
        return None
    kind, _, where = given.partition(":")
    if kind == "env" and re.fullmatch(r"[A-Za-z_]\w*", where):
        return KeyRef(kind=KeyKind.ENV, where=where)
    if kind == "file" and where and not set(where) & set("'\"\n{}"):
        return KeyRef(kind=KeyKind.FILE, where=where)
    raise UsageError(
        "--key says where the key is, and never the key itself",
        hint="--key env:NAME, --key file:PATH, or --key none",
    )


def _agents(given: list[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for one in given:
        agent, sign, channel = one.partition("=")
        if not sign or not re.fullmatch(r"[\w.-]+", agent):
            raise UsageError(f"--agent {one}: not AGENT=CHANNEL", hint="for example --agent explore=utility")
        found[agent] = channel
    return found


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
