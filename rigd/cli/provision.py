"""`rigd provision`: bring a host to the state that a playbook describes, or say what differs; and what ran before."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd import paths
from rigd.cli import options
from rigd.cli.console import print_json, print_table, print_text, say, tell
from rigd.errors import ExitCode

app = typer.Typer(
    help="Bring a host to the state that a playbook describes; see what differs; go on with a broken run.",
    no_args_is_help=True,
)

PlaybookArgument = Annotated[Path, typer.Argument(metavar="PLAYBOOK", help="An Ansible playbook.")]
HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="[USER@]BOX[:PORT]",
        help="Host to work on, more than once for several. Default: this machine.",
    ),
]
InventoryOption = Annotated[
    Path | None, typer.Option("--inventory", "-i", metavar="FILE", help="Ansible inventory, INI or YAML.")
]
ExtraOption = Annotated[
    list[str] | None,
    typer.Option(
        "--extra-vars",
        "-e",
        metavar="K=V|@FILE",
        help="Variables that outrank all others. Secrets belong in a @FILE.",
    ),
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tags", "-t", help="Only what carries one of these tags.")
]
SkipTagsOption = Annotated[
    list[str] | None, typer.Option("--skip-tags", help="Leave out what carries one of these tags.")
]
LimitOption = Annotated[
    str | None, typer.Option("--limit", "-l", metavar="PATTERN", help="Only these of the hosts.")
]
StartOption = Annotated[
    str | None, typer.Option("--start-at-task", metavar="NAME", help="Leave out the tasks before this one.")
]
DiffOption = Annotated[bool, typer.Option("--diff", "-D", help="Show what differs, line by line.")]
BecomeOption = Annotated[
    bool, typer.Option("--become", "-b", help="Run tasks as root unless they say otherwise.")
]
BecomeUserOption = Annotated[str | None, typer.Option("--become-user", help="Run them as this user instead.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--become-password-file",
        metavar="FILE",
        help="File with sudo's password (or RIGD_BECOME_PASSWORD_FILE).",
    ),
]
AskOption = Annotated[bool, typer.Option("--ask-become-pass", "-K", help="Ask for sudo's password.")]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-new",
        help="Trust and store the key of a host that is not known yet; never one that changed.",
    ),
]
BootstrapOption = Annotated[
    bool, typer.Option("--bootstrap/--no-bootstrap", help="Install Python on a host that has none.")
]
ForksOption = Annotated[int, typer.Option("--forks", "-f", min=1, max=100, help="Hosts at once.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show only what changes or fails.")]
RolesOption = Annotated[
    list[Path] | None,
    typer.Option("--roles-path", metavar="FOLDER", help="Further folder to look for roles in."),
]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Start anew instead of going on with a run that was broken off.")
]
LinesOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object a line; the last is the recap.")
]


@app.command(
    epilog=options.examples(
        "rigd provision apply playbooks/site.yml --host me@box",
        "rigd provision apply playbooks/site.yml --inventory hosts.ini --limit rigs --diff",
    )
)
def apply(
    playbook: PlaybookArgument,
    *,
    host: HostOption = None,
    inventory: InventoryOption = None,
    extra_vars: ExtraOption = None,
    tags: TagsOption = None,
    skip_tags: SkipTagsOption = None,
    limit: LimitOption = None,
    start_at_task: StartOption = None,
    diff: DiffOption = False,
    become: BecomeOption = False,
    become_user: BecomeUserOption = None,
    become_password_file: PasswordFileOption = None,
    ask_become_pass: AskOption = False,
    accept_new: AcceptOption = False,
    bootstrap: BootstrapOption = True,
    forks: ForksOption = 10,
    roles_path: RolesOption = None,
    fresh: FreshOption = False,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> int:
    """Bring hosts to the state that a playbook describes.

    A run that was broken off goes on: handlers that were owed run, a reboot is asked once. Exits with 1 when a task
    failed, 3 when this machine reboots first and the run goes on after the boot, 4 when a host does not answer.
    """
    return _run(locals(), check=False)


@app.command(
    epilog=options.examples(
        "rigd provision check playbooks/site.yml",
        "rigd provision check playbooks/site.yml --host me@box --diff",
    )
)
def check(
    playbook: PlaybookArgument,
    *,
    host: HostOption = None,
    inventory: InventoryOption = None,
    extra_vars: ExtraOption = None,
    tags: TagsOption = None,
    skip_tags: SkipTagsOption = None,
    limit: LimitOption = None,
    start_at_task: StartOption = None,
    diff: DiffOption = False,
    become: BecomeOption = False,
    become_user: BecomeUserOption = None,
    become_password_file: PasswordFileOption = None,
    ask_become_pass: AskOption = False,
    accept_new: AcceptOption = False,
    forks: ForksOption = 10,
    roles_path: RolesOption = None,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> int:
    """Say what a run would change, and change nothing.

    Exits with 0 when all is as the playbook says, 3 when something would change, 1 when a task failed, 4 when a host
    does not answer.
    """
    return _run(locals(), check=True)


@app.command(epilog=options.examples("rigd provision resume"))
def resume(*, quiet: QuietOption = False, as_json: LinesOption = False) -> int:
    """Go on with a run that rebooted this machine; `rigd-resume.service` calls it after the boot."""
    from rigd.cli.provision_run import resume as go_on  # noqa: PLC0415  (only on this path)

    return go_on(quiet=quiet, as_json=as_json)


@app.command(epilog=options.examples("rigd provision runs", "rigd provision runs --limit 5 --json"))
def runs(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100)] = 20,
    as_json: options.Json = False,
) -> int:
    """List the last runs from this machine: when, what, how they ended, and what is still owed."""
    found = [
        {
            "run": info.id,
            "began_s": info.at_s,
            "ended_s": info.ended_s,
            "playbook": info.playbook,
            "hosts": list(info.hosts),
            "state": info.state,
            "changed": info.changed,
            "pending_handlers": {host: list(names) for host, names in info.pending.items()},
        }
        for info, _ in zip(_journals().all(), range(limit), strict=False)
    ]
    if as_json:
        print_json({"runs": found})
        return int(ExitCode.DONE)
    rows = [
        (
            entry["run"],
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["began_s"])),
            entry["state"],
            entry["changed"],
            sum(len(names) for names in entry["pending_handlers"].values()),
            ",".join(entry["hosts"]),
            entry["playbook"],
        )
        for entry in found
    ]
    print_table(("RUN", "BEGAN", "STATE", "CHANGED", "OWED", "HOSTS", "PLAYBOOK"), rows)
    return int(ExitCode.DONE)


@app.command(epilog=options.examples("rigd provision handlers"))
def handlers(*, as_json: options.Json = False) -> int:
    """List the handlers that broken runs still owe; the same command as before runs them."""
    seen: set[str] = set()
    owed = []
    for info in _journals().all():
        # An older run of the same command is past: what it left stands in the newer one's journal.
        if info.digest in seen:
            continue
        seen.add(info.digest)
        if info.state == "done":
            continue
        owed += [
            {"run": info.id, "host": host, "handler": name, "playbook": info.playbook}
            for host, names in info.pending.items()
            for name in names
        ]
    if as_json:
        print_json({"handlers": owed})
    elif owed:
        print_table(
            ("HANDLER", "HOST", "RUN", "PLAYBOOK"),
            [(entry["handler"], entry["host"], entry["run"], entry["playbook"]) for entry in owed],
        )
        say("  -> run the same command again; `--fresh` forgets them")
    else:
        print_text("no handler is owed")
    return int(ExitCode.DONE)


@app.command(epilog=options.examples("rigd provision modules", "rigd provision modules copy"))
def modules(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One module or action.")] = None,
    *,
    as_json: options.Json = False,
) -> int:
    """List the modules, or tell one's arguments and how it differs from Ansible's."""
    from rigd.provision.run import manual  # noqa: PLC0415  (only on this path)

    if name is not None:
        page = manual.page(name)
        print_json(page) if as_json else print_text(manual.as_text(page))
    elif as_json:
        print_json({"modules": manual.summaries()})
    else:
        print_table(("MODULE", "DOES"), [(entry["name"], entry["summary"]) for entry in manual.summaries()])
    return int(ExitCode.DONE)


@app.command("left-out", epilog=options.examples("rigd provision left-out"))
def left_out(*, as_json: options.Json = False) -> int:
    """List what rigd does differently from Ansible, and what it leaves out, each on purpose and with its reason."""
    from rigd.provision.run import manual  # noqa: PLC0415  (only on this path)

    found = manual.left_out()
    if as_json:
        print_json({"left_out": found})
    else:
        print_table(
            ("WHAT", "NAME", "WHY"), [(entry["what"], entry["name"], entry["reason"]) for entry in found]
        )
    return int(ExitCode.DONE)


def facts(
    host: HostOption = None,
    *,
    inventory: InventoryOption = None,
    accept_new: AcceptOption = False,
    name: Annotated[
        list[str] | None, typer.Option("--fact", help="Only this fact, more than once for several.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Show what a host is, under Ansible's names of facts."""
    from rigd.cli.provision_run import gather  # noqa: PLC0415  (only on this path)

    found, silent = gather(hosts=host or [], inventory=inventory, accept_new=accept_new, names=name or [])
    alone = len(found) + len(silent) == 1
    if found and alone and not as_json:
        for key, value in sorted(next(iter(found.values())).items()):
            print_text(f"{key}: {value}")
    elif found:
        print_json(next(iter(found.values())) if alone else found)
    for error in silent:
        tell(error)
    return int(ExitCode.UNREACHABLE if silent else ExitCode.DONE)


def _journals() -> Any:
    from rigd.provision.run.journal import Runs  # noqa: PLC0415  (only on this path)

    return Runs(paths.provision_dir(os.environ))


def _run(given: Mapping[str, Any], *, check: bool) -> int:
    from rigd.cli.provision_run import run  # noqa: PLC0415  (only on this path)

    return run(given, check=check)
