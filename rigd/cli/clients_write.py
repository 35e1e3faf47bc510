"""What a client's files become, the diff of it, and writing them when a person says so."""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from rigd.adapters.edited_file import Found, read_whole, replace_text
from rigd.cli.console import print_text, say
from rigd.clients import jsonc
from rigd.clients.keys import stale, unread
from rigd.clients.merge import FileFaultError, merge
from rigd.clients.plan import Plan
from rigd.clients.settings import ClientFile, Form
from rigd.clients.table import CLIENTS
from rigd.errors import RigdError, UsageError

MOST_UNREAD = 10
_SECRET = re.compile(
    r"""(?i)(["']?[\w-]*(?:api_?key|token|secret|password|authorization)["']?\s*[:=]\s*)(["'])(?![{$!])[^"']+\2"""
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One file, as it is and as it should be."""

    found: Found
    text: str
    notes: tuple[str, ...] = ()
    backup: Path | None = None
    written: bool = False

    @property
    def changed(self) -> bool:
        return self.found.text != self.text

    def diff(self) -> list[str]:
        """Return a unified diff, with keys that stand in the file masked."""
        old = masked(self.found.text or "").splitlines()
        name = str(self.found.path)
        lines = difflib.unified_diff(old, masked(self.text).splitlines(), name, f"{name} (new)", lineterm="")
        return list(lines)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "path": str(self.found.path),
            "changed": self.changed,
            "written": self.written,
            "backup": None if self.backup is None else str(self.backup),
            "diff": self.diff(),
            "notes": list(self.notes),
        }


def masked(text: str) -> str:
    """Return a text without the keys that somebody wrote into it."""
    return _SECRET.sub(r"\1\2…\2", text)


def changes(
    client: str,
    plan: Plan | None,
    files: Iterable[ClientFile],
    folder: Path | None,
    *,
    keep_unknown: bool = False,
) -> list[Change]:
    """Return what each file becomes; without a folder, as if there were none. Raises `UsageError`.

    All files are read and checked before any is written.
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot write to '{folder}': it is no folder")
    return [_change(client, plan, file, folder, keep_unknown=keep_unknown) for file in files]


def _change(
    client: str, plan: Plan | None, file: ClientFile, folder: Path | None, *, keep_unknown: bool
) -> Change:
    found = Found(path=Path(file.names[0]), text=None) if folder is None else _found(folder, file.names)
    try:
        notes = _doubts(client, plan, found, file, keep_unknown=keep_unknown)
        merged = merge(found.text, file)
    except (FileFaultError, jsonc.JsoncError) as error:
        raise UsageError(
            f"cannot change '{found.path}': {error}", hint="mend it, or move it away; nothing was written"
        ) from None
    return Change(found=found, text=merged.text, notes=(*notes, *merged.kept))


def _found(folder: Path, names: Sequence[str]) -> Found:
    """Return the file that is there, else the first name."""
    path = next((folder / name for name in names if (folder / name).exists()), folder / names[0])
    try:
        return read_whole(path)
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"cannot change '{path}': {error}", hint="nothing was written") from None


def _doubts(
    client: str, plan: Plan | None, found: Found, file: ClientFile, *, keep_unknown: bool
) -> tuple[str, ...]:
    """Return what a person should know of the file that is there. Raises `UsageError` for unknown keys."""
    if plan is None or found.text is None or file.form is not Form.JSONC or jsonc.is_empty(found.text):
        return ()
    ignored = unread(found.text, client)
    if ignored and not keep_unknown:
        told = "\n".join(f"{found.path}: {one}" for one in ignored[:MOST_UNREAD])
        raise UsageError(
            told, hint="mend it, or --keep-unknown leaves these as they are; nothing was written"
        )
    known = [endpoint.provider for endpoint in plan.endpoints]
    providers = CLIENTS[client].providers
    present = jsonc.parse(found.text).value
    left = stale(present, providers, plan.rig, known, plan.model) if providers else ()
    return (*(str(one) for one in ignored[:MOST_UNREAD]), *left)


def write_all(found: list[Change], *, yes: bool, quiet: bool) -> list[Change]:
    """Show what changes, ask, and write. Raises `UsageError` without a terminal and without `--yes`."""
    for change in found:
        if not quiet:
            _show(change)
    if not any(change.changed for change in found):
        return found
    if not yes:
        if quiet or not sys.stdin.isatty():
            raise UsageError("nothing was written: nobody can be asked here", hint="--yes writes it")
        if not typer.confirm("Write this?", err=True):
            raise typer.Exit(1)
    return [_write(change, quiet=quiet) if change.changed else change for change in found]


def _show(change: Change) -> None:
    for note in change.notes:
        say(f"rigd: {change.found.path}: {note}")
    if not change.changed:
        say(f"{change.found.path}: nothing to change")
    for line in change.diff():
        print_text(line)


def _write(change: Change, *, quiet: bool) -> Change:
    try:
        backup = replace_text(change.found, change.text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RigdError(
            f"cannot write '{change.found.path}': {reason}", hint="run the command again"
        ) from error
    if not quiet:
        kept = f" (the old one: {backup.name})" if backup is not None else ""
        say(f"wrote {change.found.path}{kept}")
    return replace(change, backup=backup, written=True)
