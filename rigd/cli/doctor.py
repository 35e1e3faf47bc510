"""`rigd doctor`: is a host fit for its rig? Looks, judges, tells; changes nothing."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rigd import paths
from rigd.cli import options
from rigd.cli.console import print_json, print_text
from rigd.cli.status import BOLD, DIM, GREEN, RED, YELLOW, colours, printable
from rigd.doctor import checks
from rigd.doctor.finding import Finding, Severity
from rigd.doctor.wish import SERVICE_USER, Wish, home_of_engine, questions
from rigd.engine.launch import launch_spec
from rigd.errors import ExitCode, RigdError
from rigd.rig.load import load as load_rig

RIG = Path("/etc/rigd/rig.yaml")
LOOK_S = 300.0
COLOURS = {Severity.ERROR: RED, Severity.WARNING: YELLOW, Severity.INFO: DIM, Severity.OK: GREEN}
LABEL_WIDTH = 14

RigArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[RIG]", help=f"The rig file; {RIG} where it is there.", envvar="RIGD_RIG"),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="[USER@]BOX[:PORT]", help="Look at that host; the rig file lies here."),
]
AcceptOption = Annotated[
    bool, typer.Option("--accept-new", help="Trust and store the key of a host that is not known yet.")
]
RootOption = Annotated[bool, typer.Option("--become", "-b", help="Look as root (sudo without a password).")]
LoadOption = Annotated[
    bool,
    typer.Option(
        "--load", help="Copy to the cards for some seconds, while no engine runs, to see their links at work."
    ),
]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Show what is well, too.")]


def doctor(
    rig: RigArgument = None,
    *,
    host: HostOption = None,
    accept_new: AcceptOption = False,
    become: RootOption = False,
    load: LoadOption = False,
    everything: AllOption = False,
    as_json: options.Json = False,
) -> int:
    """Look whether a host is fit for its rig: driver, cards, containers, disks, network, updates. Changes nothing.

    Each finding comes with its evidence and with the playbook or command that mends it. As root it sees most.
    Exits with 0 when nothing is in the way, 3 when a finding is an error, 4 when the host does not answer.
    """
    facts, wish = _look(rig, host=host, accept_new=accept_new, become=become, load=load)
    found = checks.findings(facts, wish)
    if as_json:
        print_json(checks.document(found, facts))
    else:
        _show(found, wish, everything=everything, host=str(facts["system"].get("hostname", host or "")))
    errors = any(one.severity is Severity.ERROR for one in found)
    return int(ExitCode.NOT_SO if errors else ExitCode.DONE)


def _look(
    rig: Path | None, *, host: str | None, accept_new: bool, become: bool, load: bool
) -> tuple[dict[str, Any], Wish | None]:
    if rig is None and RIG.exists():
        rig = RIG
    if host is None:
        from rigd.provision.target import doctor_facts  # noqa: PLC0415  (as the other way)
        from rigd.provision.target.box import RealBox  # noqa: PLC0415

        home = home_of_engine(rig, own=os.path.expanduser("~")) if rig else ""  # noqa: PTH111  (see Plan)
        state = Path(f"/var/lib/{SERVICE_USER}") if rig == RIG else paths.state_dir(os.environ)
        wish = _wish(rig, home=home, state_dir=str(state))
        return doctor_facts.gather(RealBox(), {**questions(wish), "load": load}), wish
    return _look_at(host, rig, accept_new=accept_new, become=become, load=load)


def _look_at(
    host: str, rig: Path | None, *, accept_new: bool, become: bool, load: bool
) -> tuple[dict[str, Any], Wish | None]:
    """Look at another host, by the helper that provisioning uses: one connection, nothing installed."""
    from rigd.provision.connection.link import connect  # noqa: PLC0415  (the ssh stack)
    from rigd.provision.connection.target import Target, target_of  # noqa: PLC0415
    from rigd.provision.run.start import Request, read_inventory  # noqa: PLC0415

    (known,) = read_inventory(Request(playbook=Path(), hosts=(host,))).hosts
    way = connect(
        target_of(known.name, known.vars, default=Target(name="localhost", accept_new=accept_new)),
        blobs=lambda _digest: None,
    )
    try:
        helper = way.helper("root" if become else None)
        own = str(helper.facts(frozenset({"user_dir"})).get("user_dir", "/root"))
        there = RIG if rig is None else rig
        wish = _wish(rig, home=home_of_engine(there, own=own), state_dir=f"/var/lib/{SERVICE_USER}")
        asked = {**questions(wish), "load": load}
        facts: dict[str, Any] = helper.one("doctor", questions=asked, deadline_s=LOOK_S)["facts"]
    finally:
        way.close()
    return facts, wish


def _wish(path: Path | None, *, home: str, state_dir: str) -> Wish | None:
    if path is None:
        return None
    try:
        found = load_rig(path).rig
        spec = launch_spec(found, rig_folder=path.resolve().parent, home=Path(home))
    except RigdError as error:
        error.hint = error.hint or f"rigd rig validate {path}"
        raise
    return Wish(rig=found, spec=spec, home=home, state_dir=state_dir)


def _show(found: Sequence[Finding], wish: Wish | None, *, everything: bool, host: str) -> None:
    import sys  # noqa: PLC0415  (only to ask whether it is a terminal)

    colour = colours(sys.stdout)

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour else text

    well = sum(one.severity is Severity.OK for one in found)
    for one in found:
        if one.severity is Severity.OK and not everything:
            continue
        word = paint(str(one.severity).ljust(8), COLOURS[one.severity])
        print_text(f"{word} {printable(one.check).ljust(LABEL_WIDTH)} {printable(one.sentence)}")
        if one.mend:
            print_text(f"{' ' * (LABEL_WIDTH + 9)} -> {printable(one.mend)}")
    counts = {
        word: sum(one.severity is severity for one in found)
        for word, severity in (("errors", Severity.ERROR), ("warnings", Severity.WARNING))
    }
    against = "any rig (name a rig file for more)" if wish is None else f"rig {wish.rig.name}"
    verdict = "not fit" if counts["errors"] else "fit"
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    rest = "" if everything else f", {well} checks well (`--all` shows them)"
    print_text(f"{paint(f'{host}: {verdict}', BOLD)} for {against}: {said}{rest}")
