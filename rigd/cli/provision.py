"""`rigd provision`: bring a host to the state that a playbook describes, or say what differs; and what ran before."""

import os
import time
from typing import Annotated, Any

import typer

from rigd import paths
from rigd.cli import options
from rigd.cli.console import print_json, print_table, print_text, say, tell
from rigd.cli.provision_options import Accept, Host, Inventory, Lines, Quiet, taken_by
from rigd.errors import ExitCode

app = typer.Typer(
    help="Bring a host to the state that a playbook describes; see what differs; go on with a broken run.",
    no_args_is_help=True,
)


def apply(**given: Any) -> int:
    """Bring hosts to the state that a playbook describes.

    A run that was broken off goes on: handlers that were owed run, a reboot is asked once. Exits with 1 when a task
    failed, 3 when this machine reboots first and the run goes on after the boot, 4 when a host does not answer.
    """
    from rigd.cli.provision_run import run  # noqa: PLC0415  (only on this path)

    return run(given, check=False)


def check(**given: Any) -> int:
    """Say what a run would change, and change nothing.

    Exits with 0 when all is as the playbook says, 3 when something would change, 1 when a task failed, 4 when a host
    does not answer.
    """
    from rigd.cli.provision_run import run  # noqa: PLC0415  (only on this path)

    return run(given, check=True)


app.command(
    epilog=options.examples(
        "rigd provision apply playbooks/site.yml --host me@box",
        "rigd provision apply playbooks/site.yml --inventory hosts.ini --limit rigs --diff",
    )
)(taken_by(apply, check=False))
app.command(
    epilog=options.examples(
        "rigd provision check playbooks/site.yml",
        "rigd provision check playbooks/site.yml --host me@box --diff",
    )
)(taken_by(check, check=True))


@app.command(epilog=options.examples("rigd provision resume"))
def resume(*, quiet: Quiet = False, as_json: Lines = False) -> int:
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
            "damaged_lines": info.past.damaged,
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
    for entry in found:
        if entry["damaged_lines"]:
            say(f"  the journal of run {entry['run']} has {entry['damaged_lines']} lines that cannot be read")
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
    host: Host = None,
    *,
    inventory: Inventory = None,
    accept_new: Accept = False,
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
