"""From what a person asked to a run: playbook, inventory and variables read, passwords at hand, the engine ready."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigd.errors import UsageError
from rigd.provision.connection.link import connect
from rigd.provision.connection.target import Target, target_of
from rigd.provision.language.freeform import key_values
from rigd.provision.language.inventory import hosts_named, load_inventory
from rigd.provision.language.load import load_playbook, load_vars
from rigd.provision.language.model import Host, Inventory, Playbook
from rigd.provision.language.patterns import matching
from rigd.provision.run.boxes import Connect
from rigd.provision.run.engine import Engine
from rigd.provision.run.events import Noted, Tell
from rigd.provision.run.journal import Fault, Runs, digest_of
from rigd.provision.run.options import FORKS, RunOptions
from rigd.provision.run.selection import SPECIAL, Selection, includes, tags_of

HERE = "localhost"
PASSWORD_VARIABLE = "RIGD_BECOME_PASSWORD_FILE"  # noqa: S105  (the name of a variable that names a file)
ROLES_VARIABLE = "ANSIBLE_ROLES_PATH"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One use of `rigd provision apply` or `check`, as it was typed."""

    playbook: Path
    check: bool = False
    hosts: tuple[str, ...] = ()
    inventory: Path | None = None
    extra_vars: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    limit: str | None = None
    start_at: str | None = None
    diff: bool = False
    become: bool = False
    become_user: str | None = None
    become_password: str | None = field(default=None, repr=False)
    accept_new: bool = False
    bootstrap: bool = False
    forks: int = FORKS
    roles_path: tuple[Path, ...] = ()
    fresh: bool = False


def ready(
    request: Request, *, state_dir: Path, tell: Tell, way: Connect = connect, fault: Fault | None = None
) -> Engine:
    """Return the run that was asked for. Raises `UsageError` with everything that is wrong with its files."""
    extra_vars = read_extra_vars(request.extra_vars)
    roles_path = (*request.roles_path, *_roles_from(os.environ))
    playbook = load_playbook(request.playbook, extra_vars=extra_vars, roles_path=roles_path)
    for warning in playbook.warnings:
        tell(Noted(text=f"warning: {warning}"))
    inventory = read_inventory(request)
    selection = Selection(tags=_words(request.tags) or frozenset({"all"}), skip=_words(request.skip_tags))
    _check_tags(selection, playbook, tell)
    options = RunOptions(
        check=request.check,
        diff=request.diff,
        selection=selection,
        start_at=request.start_at,
        extra_vars=extra_vars,
        forks=request.forks,
        become=request.become or request.become_user is not None,
        become_user=request.become_user,
        fresh=request.fresh,
        roles_path=roles_path,
    )
    base = Target(
        name=HERE,
        become_password=request.become_password,
        accept_new=request.accept_new,
        bootstrap=request.bootstrap,
    )
    return Engine(
        playbook,
        inventory,
        options,
        hosts_of=lambda pattern: _hosts(inventory, pattern, request.limit, tell),
        target_of=lambda name, variables: target_of(name, variables, default=base),
        runs=Runs(state_dir, **({"fault": fault} if fault else {})),
        digest=_digest(request, extra_vars),
        tell=tell,
        way=way,
    )


def read_extra_vars(words: Sequence[str]) -> dict[str, Any]:
    """Return variables of the command line: `k=v` (texts), JSON, or `@FILE` of YAML or JSON; later ones win."""
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("@"):
            found |= load_vars(Path(word[1:]).expanduser())
        elif word.lstrip().startswith("{"):
            try:
                found |= json.loads(word)
            except ValueError:
                raise UsageError("--extra-vars: the text that begins with { is no JSON") from None
        else:
            pairs, rest = key_values(word)
            if rest or not pairs:
                raise UsageError("--extra-vars takes KEY=VALUE, JSON, or @FILE")
            found |= pairs
    return found


def _roles_from(environ: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(part).expanduser() for part in environ.get(ROLES_VARIABLE, "").split(":") if part)


def _words(texts: Sequence[str]) -> frozenset[str]:
    return frozenset(part.strip() for text in texts for part in text.split(",") if part.strip())


def _digest(request: Request, extra_vars: Mapping[str, Any]) -> str:
    """Return what this command is known by, so that it finds its own broken run."""
    return digest_of(
        playbook=str(request.playbook.absolute()),
        hosts=sorted(request.hosts),
        inventory=str(request.inventory.absolute()) if request.inventory else None,
        limit=request.limit,
        tags=sorted(_words(request.tags)),
        skip_tags=sorted(_words(request.skip_tags)),
        extra_vars=extra_vars,
    )


def _check_tags(selection: Selection, playbook: Playbook, tell: Tell) -> None:
    """Refuse a tag that nothing carries; where tasks are included during the run, only say so."""
    unknown = selection.unknown(playbook.plays)
    if not unknown:
        return
    text = f"no task carries the tag {' or '.join(repr(tag) for tag in sorted(unknown))}"
    if any(includes(play) for play in playbook.plays):
        tell(Noted(text=f"{text}, unless one that is included during the run does"))
        return
    known = sorted(tags_of(playbook.plays) - SPECIAL)
    raise UsageError(text, hint=f"tags of this playbook: {', '.join(known) or 'none'}")


def read_inventory(request: Request) -> Inventory:
    """Return the hosts that are meant: of a file, of the command line, or this machine."""
    if request.inventory is not None:
        if request.hosts:
            raise UsageError(
                "--host and --inventory do not go together", hint="--limit picks hosts of an inventory"
            )
        return load_inventory(request.inventory, playbook=request.playbook)
    return hosts_named(request.hosts or (HERE,), playbook=request.playbook)


def _hosts(inventory: Inventory, pattern: str, limit: str | None, tell: Tell) -> list[Host]:
    """Return a play's hosts. A group that the inventory lacks is told, and the play left out, as Ansible does."""
    allowed = {host.name for host in matching(inventory, "all", limit=limit)}
    try:
        found = matching(inventory, pattern)
    except UsageError as error:
        tell(Noted(text=f"warning: {error}"))
        return []
    return [host for host in found if limit is None or host.name in allowed]
