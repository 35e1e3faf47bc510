"""`rigd host`: what root does to the host under the engine. The daemon itself has no root."""

import contextlib
import select
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from rigd.adapters.gpu_settings import NvmlAbsentError, SettingDone
from rigd.cli import options
from rigd.cli.console import print_json, print_line, print_text, say
from rigd.cli.options import Json, examples
from rigd.cli.rig import RigPath
from rigd.cli.status import render_drift
from rigd.client import Client
from rigd.errors import ExitCode, RigdError
from rigd.rig.load import load
from rigd.supervise import drift_root, host_root

app = typer.Typer(
    help="What root does to the host: the cards' settings; resets and reboots where allowed.",
    epilog=examples("sudo rigd host apply-gpu /etc/rigd/rig.yaml"),
)

REQUEST_S = 10.0
POLL_S = 0.5

Check = Annotated[bool, typer.Option("--check", help="Set nothing; exit code 3 when something differs.")]


@app.command("apply-gpu", epilog=examples("sudo rigd host apply-gpu /etc/rigd/rig.yaml"))
def apply_gpu(rig: RigPath, *, check: Check = False, as_json: Json = False) -> None:
    """Set power limits, persistence mode and clocks as `host.gpus` says, and read them back.

    Limits are kept within what each card allows; what is so already is left alone.
    Exit code 0: all is as wished; 1: something could not be set; 3: `--check` found a difference.
    """
    rules = load(rig).rig.host
    done: tuple[SettingDone, ...] = ()
    if rules.gpus:
        try:
            done = host_root.apply_settings(rules, only_look=check)
        except NvmlAbsentError as error:
            hint = "see `nvidia-smi`; is the driver loaded?"
            raise RigdError(f"cannot open NVML: {error}", hint=hint) from error
    if as_json:
        print_json({"ok": all(one.ok for one in done), "settings": [asdict(one) for one in done]})
    elif not done:
        print_text(f"{rig} sets nothing: host.gpus is empty" if not rules.gpus else "no card answers")
    for one in () if as_json else done:
        print_text(host_root.said(one))
    if any(one.denied for one in done):
        say(f"  -> only root may set cards: sudo rigd host apply-gpu {rig}")
    if not all(one.ok for one in done):
        raise typer.Exit(int(ExitCode.NOT_SO if check else ExitCode.FAILED))


@app.command(epilog=examples('echo \'{"act": "apply-settings"}\' | sudo rigd host act /etc/rigd/rig.yaml'))
def act(rig: RigPath) -> None:
    """Carry out one request from stdin, if the rig file allows it, and answer on stdout: for systemd's socket.

    A request is a line of JSON: `act` (apply-settings, lower-power, restore-power, reset-gpu, reboot) and `card`.
    """
    ready, _, _ = select.select([sys.stdin], [], [], REQUEST_S)
    line = sys.stdin.readline(host_root.REQUEST_BYTES) if ready else ""
    answer = host_root.carry_out(host_root.read_request(line), rig)
    say(f"{line.strip()[:200] or 'no request'}: {'done' if answer.ok else 'not done'}: {answer.message}")
    with contextlib.suppress(BrokenPipeError):  # Whoever asked is gone: the journal has the answer.
        print_line(asdict(answer))
    if not answer.ok:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command(epilog=examples('echo \'{"act": "check"}\' | sudo rigd host provision /etc/rigd/rig.yaml'))
def provision(rig: RigPath) -> None:
    """Hold the host against `host.drift.playbook`, or apply the tags that it allows: for systemd's socket.

    A request is a line of JSON on stdin: `act` (check, apply). The answer on stdout is one, too.
    """
    report = drift_root.serve(rig, source=sys.stdin.fileno())
    count = len(report.differences) + report.more
    say(f"{'done' if report.ok else 'not done'}: {report.message or f'{count} differ'}")
    with contextlib.suppress(BrokenPipeError):  # Whoever asked is gone: the journal has the answer.
        print_line(asdict(report))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FAILED))


@app.command(epilog=examples("rigd host drift", "rigd host drift --check"))
def drift(
    context: typer.Context,
    *,
    check: Annotated[bool, typer.Option("--check", help="Look now, and wait for what it comes to.")] = False,
    timeout: options.Timeout = options.HOUR_S,
    as_json: Json = False,
    socket: options.Socket = None,
    url: options.Url = None,
) -> int:
    """Show whether the host is as `host.drift.playbook` says.

    Exits with 0 when it is, 3 when something differs, 1 when nobody could tell.
    """
    client = options.daemon(context, socket, url)
    status = client.get("/v1/status")
    if check:
        client.post("/v1/drift/look", {}, timeout_s=REQUEST_S)
        status = _looked(client, status, timeout_s=timeout)
    found = status.get("drift")
    if as_json:
        print_json({"drift": found})
    elif found is None:
        print_text("the rig file names no playbook: host.drift.playbook")
    else:
        for line in render_drift(status):
            print_text(line)
    if found and (found["problem"] or not found["checked_s"]):
        return int(ExitCode.FAILED)
    return int(ExitCode.NOT_SO if found and found["differences"] else ExitCode.DONE)


def _looked(client: Client, before: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Return the status after a look that began after `before`."""
    until_s, status = time.monotonic() + timeout_s, before
    while time.monotonic() < until_s:
        status = client.get("/v1/status")
        found = status.get("drift") or {}
        if not found.get("running") and (found.get("tried_s") or 0) >= before["now_s"]:
            return status
        time.sleep(POLL_S)
    raise RigdError(f"the look did not end within {timeout_s:.0f} s", hint="rigd status")
