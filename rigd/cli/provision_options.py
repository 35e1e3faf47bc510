"""The options of `rigd provision apply` and `check`, written once; `facts` and `resume` share some of them."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd.cli.provision_quick import DEFAULTS, ONLY_APPLY

Playbook = Annotated[Path, typer.Argument(metavar="PLAYBOOK", help="An Ansible playbook.")]
Host = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="[USER@]BOX[:PORT]",
        help="Host to work on, more than once for several. Default: this machine.",
    ),
]
Inventory = Annotated[
    Path | None, typer.Option("--inventory", "-i", metavar="FILE", help="Ansible inventory, INI or YAML.")
]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--extra-vars",
        "-e",
        metavar="K=V|@FILE",
        help="Variables that outrank all others. Secrets belong in a @FILE.",
    ),
]
Tags = Annotated[list[str] | None, typer.Option("--tags", "-t", help="Only what carries one of these tags.")]
SkipTags = Annotated[
    list[str] | None, typer.Option("--skip-tags", help="Leave out what carries one of these tags.")
]
Limit = Annotated[
    str | None, typer.Option("--limit", "-l", metavar="PATTERN", help="Only these of the hosts.")
]
Start = Annotated[
    str | None, typer.Option("--start-at-task", metavar="NAME", help="Leave out the tasks before this one.")
]
Diff = Annotated[bool, typer.Option("--diff", "-D", help="Show what differs, line by line.")]
Become = Annotated[bool, typer.Option("--become", "-b", help="Run tasks as root unless they say otherwise.")]
BecomeUser = Annotated[str | None, typer.Option("--become-user", help="Run them as this user instead.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--become-password-file",
        metavar="FILE",
        help="File with sudo's password (or RIGD_BECOME_PASSWORD_FILE).",
    ),
]
Ask = Annotated[bool, typer.Option("--ask-become-pass", "-K", help="Ask for sudo's password.")]
Accept = Annotated[
    bool,
    typer.Option(
        "--accept-new",
        help="Trust and store the key of a host that is not known yet; never one that changed.",
    ),
]
Bootstrap = Annotated[
    bool, typer.Option("--bootstrap/--no-bootstrap", help="Install Python on a host that has none.")
]
Forks = Annotated[int, typer.Option("--forks", "-f", min=1, max=100, help="Hosts at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only what changes or fails.")]
Roles = Annotated[
    list[Path] | None,
    typer.Option("--roles-path", metavar="FOLDER", help="Further folder to look for roles in."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start anew instead of going on with a run that was broken off.")
]
Lines = Annotated[bool, typer.Option("--json", help="Print one JSON object a line; the last is the recap.")]

OPTIONS: Mapping[str, Any] = {
    "host": Host,
    "inventory": Inventory,
    "extra_vars": Extra,
    "tags": Tags,
    "skip_tags": SkipTags,
    "limit": Limit,
    "start_at_task": Start,
    "diff": Diff,
    "become": Become,
    "become_user": BecomeUser,
    "become_password_file": PasswordFile,
    "ask_become_pass": Ask,
    "accept_new": Accept,
    "bootstrap": Bootstrap,
    "forks": Forks,
    "roles_path": Roles,
    "fresh": Fresh,
    "quiet": Quiet,
    "as_json": Lines,
}
"""Variable -> option, in the order of `--help`; defaults are those of the quick way in."""


def taken_by(function: Callable[..., int], *, check: bool) -> Callable[..., int]:
    """Return a command, which takes its options as `**given`, with a signature that typer can read."""
    named = {name: option for name, option in OPTIONS.items() if not check or name not in ONLY_APPLY}
    parameters = [
        inspect.Parameter("playbook", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Playbook),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option, default=DEFAULTS[name])
            for name, option in named.items()
        ),
    ]
    command: Any = function
    command.__signature__ = inspect.Signature(parameters)
    return function
