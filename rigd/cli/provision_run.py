"""Carries out `rigd provision apply`, `check` and `resume`: passwords, signals, output, this machine's reboot."""

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from rigd import paths
from rigd.cli.console import say
from rigd.cli.provision_output import Lines, Screen
from rigd.errors import ExitCode, RigdError, UsageError
from rigd.provision.connection.target import HostUnreachableError, Target, target_of
from rigd.provision.run import resume as resuming
from rigd.provision.run.engine import Engine
from rigd.provision.run.events import Noted, Tell
from rigd.provision.run.start import PASSWORD_VARIABLE, Request, ready

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STAYS_UP = "RIGD_STAYS_UP"
"""Variable of whoever runs a playbook with nobody watching: this machine is then not rebooted."""
ASKING = ("-K", "--ask-become-pass")
LOOSE = stat.S_IRWXG | stat.S_IRWXO


def run(given: Mapping[str, Any], *, check: bool) -> int:
    """Run a playbook as the options say, and return the exit code."""
    tell: Tell = Lines() if given["as_json"] else Screen(quiet=given["quiet"])
    request = Request(
        playbook=given["playbook"],
        check=check,
        hosts=tuple(given["host"] or ()),
        inventory=given["inventory"],
        extra_vars=tuple(given["extra_vars"] or ()),
        tags=tuple(given["tags"] or ()),
        skip_tags=tuple(given["skip_tags"] or ()),
        limit=given["limit"],
        start_at=given["start_at_task"],
        diff=given["diff"],
        become=given["become"],
        become_user=given["become_user"],
        become_password=_password(given["become_password_file"], ask=given["ask_become_pass"]),
        accept_new=given["accept_new"],
        bootstrap=given.get("bootstrap", False),
        forks=given["forks"],
        roles_path=tuple(given["roles_path"] or ()),
        fresh=given.get("fresh", False),
    )
    return _carry_out(request, tell, sys.argv[1:])


def resume(*, quiet: bool, as_json: bool) -> int:
    """Go on with the run that rebooted this machine."""
    state_dir = paths.provision_dir(os.environ)
    marker = resuming.next_boot(state_dir)
    if marker is None:
        say("rigd: there is nothing to go on with")
        return int(ExitCode.DONE)
    os.environ.update(marker.environment)
    os.chdir(marker.folder)
    from rigd.cli import app  # noqa: PLC0415  (it leads here)

    extra = [*(["--quiet"] if quiet else []), *(["--json"] if as_json else [])]
    arguments = [*marker.arguments, *(word for word in extra if word not in marker.arguments)]
    sys.argv[1:] = list(marker.arguments)
    return app.run(arguments)


def gather(
    *, hosts: list[str], inventory: Path | None, accept_new: bool, names: list[str]
) -> tuple[dict[str, dict[str, Any]], list[HostUnreachableError]]:
    """Return host -> facts, and what is to be said of hosts that do not answer."""
    from rigd.provision.connection.link import connect  # noqa: PLC0415  (only on this path)
    from rigd.provision.run.start import read_inventory  # noqa: PLC0415

    request = Request(playbook=Path(), hosts=tuple(hosts), inventory=inventory)
    base = Target(name="localhost", accept_new=accept_new)
    found: dict[str, dict[str, Any]] = {}
    silent: list[HostUnreachableError] = []
    wanted = frozenset(name.removeprefix("ansible_") for name in names)
    for host in read_inventory(request).hosts:
        way = connect(target_of(host.name, host.vars, default=base), blobs=lambda _digest: None)
        try:
            facts = way.helper().facts(wanted or None)
        except HostUnreachableError as error:
            silent.append(error)
            continue
        finally:
            way.close()
        found[host.name] = {key: value for key, value in facts.items() if not wanted or key in wanted}
    return found, silent


def _carry_out(request: Request, tell: Tell, arguments: list[str]) -> int:
    state_dir = paths.provision_dir(os.environ)
    engine = ready(request, state_dir=state_dir, tell=tell)
    with _listening(engine):
        ended = engine.run()
    if ended.reboot is not None and os.environ.get(STAYS_UP):
        tell(Noted(text="this machine wants a reboot before the run goes on, and stays up: nobody watches"))
    elif ended.reboot is not None:
        _reboot_here(state_dir, arguments, ended.reboot, tell)
    elif not request.check:
        _forget(state_dir, arguments)
    return ended.exit_code


def _reboot_here(state_dir: Path, arguments: list[str], ask: Any, tell: Tell) -> None:
    """Have the run gone on with after the boot, then ask for the reboot."""
    before = resuming.read(state_dir)
    # After the boot nobody types a password, and root, who runs it then, needs none.
    arguments = [word for word in arguments if word not in ASKING]
    resuming.write(state_dir, arguments, boots=before.boots if before else 0)
    if resuming.install_unit(state_dir):
        tell(Noted(text="rebooting this machine; the run goes on by itself: journalctl -fu rigd-resume"))
    else:
        tell(
            Noted(
                text="rebooting this machine, which has no systemd: then go on with `rigd provision resume`"
            )
        )
    ask()


def _forget(state_dir: Path, arguments: list[str]) -> None:
    marker = resuming.read(state_dir)
    if marker is not None and list(marker.arguments) == [word for word in arguments if word not in ASKING]:
        resuming.clear(state_dir)


@contextlib.contextmanager
def _listening(engine: Engine) -> Iterator[None]:
    """End the run in good order at the first signal, at once at the second."""

    def first(_number: int, _frame: FrameType | None) -> None:
        engine.stop.ask()
        for number in SIGNALS:
            signal.signal(number, second)
        with contextlib.suppress(OSError):
            say("rigd: stopping after the tasks that run now; again (^C) to end them at once")

    def second(_number: int, _frame: FrameType | None) -> None:
        engine.abort()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, first) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _password(file: Path | None, *, ask: bool) -> str | None:
    """Return sudo's password: typed, or the first line of a private file. Never from the command line itself."""
    if ask:
        import getpass  # noqa: PLC0415  (only on this path)

        if not sys.stdin.isatty():
            raise UsageError("--ask-become-pass needs a terminal", hint="give --become-password-file FILE")
        return getpass.getpass("sudo's password: ")
    given = file or (Path(os.environ[PASSWORD_VARIABLE]) if os.environ.get(PASSWORD_VARIABLE) else None)
    if given is None:
        return None
    try:
        if given.stat().st_mode & LOOSE:
            raise UsageError(f"others can read '{given}'", hint=f"chmod 600 {given}")
        return given.read_text(encoding="utf-8").split("\n", 1)[0]
    except OSError as error:
        raise RigdError(f"cannot read '{given}'") from error
