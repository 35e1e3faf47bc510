"""Who holds the host against its playbook: root's one-shot behind its socket, or a child of this process.

Without the socket a child is right where the daemon is root itself, or where a person started it and the playbook's
own `become` finds a way. The service has no way to become root, so there it is the socket or nobody.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from rigd.adapters import host_socket
from rigd.rig.drift import Drift
from rigd.supervise import drift_run
from rigd.supervise.drift import DriftAct
from rigd.supervise.drift_report import REPORT, Report

ENABLE = "systemctl enable --now rigd-provision.socket"
ANSWER_BYTES = 1 << 20
SHUT_S = 1.0
"""A connection that is shut so soon was not taken."""
AGAIN_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses between tries where it was not: the run before has answered, and its unit is about to go."""
MARGIN_S = 300.0
"""What an answer may take beyond the deadline of the run itself."""


class DriftHands:
    """Runs playbooks; never raises but to cancel."""

    def __init__(
        self,
        *,
        rules: Callable[[], Drift],
        rig: Callable[[], Path],
        path: Path,
        state_dir: Path,
        service: bool,
    ) -> None:
        """`service`: systemd started this process, which cannot become root."""
        self._rules = rules
        self._rig = rig
        self._path = path
        self._state_dir = state_dir
        self._service = service

    async def carry_out(self, act: DriftAct, stop: asyncio.Event) -> Report:
        """Return what came of an act; `stop` ends it after the task in hand."""
        rules = self._rules()
        if host_socket.reachable(self._path) or (self._service and os.geteuid() != 0):
            return await self._ask(act, stop, deadline_s=rules.deadline_s + MARGIN_S)
        asked = drift_run.asked_by(rules, self._rig())
        if asked is None:
            return Report(ok=False, message="the rig file names no playbook", hint="host.drift.playbook")
        # A journal of its own: what a person began and broke off is not gone on with unattended.
        environ = {**os.environ, "RIGD_STATE_DIR": str(self._state_dir / "provision")}
        return await drift_run.carry_out(act, asked, stop, environ=environ)

    async def _ask(self, act: DriftAct, stop: asyncio.Event, *, deadline_s: float) -> Report:
        for wait_s in AGAIN_S:
            began_s = time.monotonic()
            report = await self._ask_once(act, stop, deadline_s=deadline_s)
            if not report.busy or stop.is_set() or time.monotonic() - began_s > SHUT_S:
                return report
            await asyncio.sleep(wait_s)
        return report

    async def _ask_once(self, act: DriftAct, stop: asyncio.Event, *, deadline_s: float) -> Report:
        try:
            answer = await host_socket.ask(
                {"act": str(act)}, path=self._path, deadline_s=deadline_s, stop=stop, limit=ANSWER_BYTES
            )
            return REPORT.validate_python(answer)
        except host_socket.AnswerBrokenOffError as error:
            # Connections beyond the first are shut at once: an earlier run is not over, or its unit not yet gone.
            hint = "journalctl -t rigd-provision"
            return Report(ok=False, busy=True, message=str(error), hint=hint)
        except host_socket.HostUnreachableError as error:
            return Report(ok=False, message=f"nobody does it for rigd: {error}", hint=ENABLE)
        except ValueError as error:
            message = f"{self._path} answered what is no report: {str(error)[:200]}"
            return Report(ok=False, message=message, hint="see the versions of both sides")
