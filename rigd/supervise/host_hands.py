"""Who carries out an act on the host: root's one-shot behind its socket, or this process where it is root itself."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rigd.adapters import host_socket
from rigd.adapters.blocking import run_blocking
from rigd.supervise.host_acts import Act, ActKind
from rigd.supervise.host_root import Answer, carry_out

DEADLINE_S = 150.0
"""Longest wait for an act; a reset takes seconds."""

COMMANDS = {
    ActKind.APPLY: "sudo rigd host apply-gpu {rig}",
    ActKind.RESTORE: "sudo rigd host apply-gpu {rig}",
    ActKind.LOWER: "sudo nvidia-smi -i {bus} -pl {watts:g}",
    ActKind.RESET: "sudo nvidia-smi --gpu-reset -i {bus}",
    ActKind.REBOOT: "sudo systemctl reboot",
}
"""What a person types where rigd has nobody to ask."""
ENABLE = "`systemctl enable --now rigd-host-act.socket` lets rigd do it itself"


class HostHands:
    """Carries out acts; never raises."""

    def __init__(
        self,
        *,
        rig: Callable[[], Path],
        record: Path,
        lowered_w: Callable[[], float],
        path: Path = host_socket.SOCKET,
    ) -> None:
        self._rig = rig
        self._record = record
        self._lowered_w = lowered_w
        self._path = path

    @property
    def here(self) -> bool:
        """Whether there is anybody who can."""
        return os.geteuid() == 0 or host_socket.reachable(self._path)

    async def carry_out(self, act: Act) -> Answer:
        """Return what came of an act."""
        request = {"act": str(act.kind), "card": act.bus}
        try:
            if os.geteuid() == 0:
                work = partial(carry_out, request, self._rig(), record=self._record)
                return await run_blocking(work, deadline_s=DEADLINE_S)
            answer = await host_socket.ask(request, path=self._path, deadline_s=DEADLINE_S)
        except host_socket.AnswerBrokenOffError as error:
            # A host that goes down takes its one-shot along: the next boot says whether it did.
            down = act.kind is ActKind.REBOOT
            return Answer(ok=down, message=str(error), hint="" if down else "journalctl -t rigd-host-act")
        except host_socket.HostUnreachableError as error:
            return Answer(ok=False, message=f"nobody does it for rigd: {error}", hint=self._typed(act))
        except TimeoutError:
            return Answer(
                ok=False, message=f"it did not end within {DEADLINE_S:.0f} s", hint=self._typed(act)
            )
        return Answer(
            ok=answer.get("ok") is True,
            message=str(answer.get("message", ""))[:1000],
            hint=str(answer.get("hint", ""))[:300],
        )

    def _typed(self, act: Act) -> str:
        command = COMMANDS[act.kind].format(rig=self._rig(), bus=act.bus, watts=self._lowered_w())
        return f"`{command}`; {ENABLE}"
