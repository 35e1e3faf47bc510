"""What root does to the host when the daemon asks: one request, checked against the rig file, done, answered.

The daemon's decision is not trusted here: the rig file (root's own) must allow the act, and resets and reboots are
counted once more in a record that the daemon cannot write. Blocks; nothing is raised.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.adapters import gpu_settings
from rigd.adapters.gpu import bus_of
from rigd.adapters.gpu_settings import CardSettings, NvmlAbsentError, SettingDone
from rigd.adapters.private_file import read_private, write_private
from rigd.errors import RigdError, explain
from rigd.rig.host import CARD, Host
from rigd.rig.load import load
from rigd.supervise.host_acts import DAY_S, ActKind
from rigd.supervise.host_settings import wanted_of

RECORD = Path("/var/lib/rigd-host/acts.json")
"""Times of root's resets and reboots; the daemon's user cannot write here."""
RECORD_BYTES = 1 << 16
PROGRAM_S = 120.0
REQUEST_BYTES = 4096

RESET = ("nvidia-smi", "--gpu-reset", "-i")
REBOOT = ("systemctl", "--no-block", "reboot")

Run = Callable[[Sequence[str]], "Ran"]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A program's end."""

    code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a request, for the daemon and its journal."""

    ok: bool
    message: str
    hint: str = ""


def run_program(argv: Sequence[str]) -> Ran:
    """Run a program of the host and return how it ended; one that is missing or hangs is an end, too."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROGRAM_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(code=-1, output=f"it did not end within {PROGRAM_S:.0f} s")
    except OSError as error:
        return Ran(code=-1, output=f"{error.strerror}")
    return Ran(code=done.returncode, output=done.stdout.decode(errors="replace").strip()[-500:])


def read_request(text: str) -> Mapping[str, Any] | None:
    """Return a request, or None where it is none."""
    try:
        request = json.loads(text)
    except ValueError:
        return None
    return request if isinstance(request, dict) else None


def carry_out(
    request: Mapping[str, Any] | None,
    rig: Path,
    *,
    record: Path = RECORD,
    run: Run = run_program,
    now_s: float | None = None,
) -> Answer:
    """Do what is asked, if the rig file allows it, and say what came of it."""
    act = "" if request is None else str(request.get("act"))
    card = "" if request is None else str(request.get("card") or "")
    if act not in _DOERS or (card and re.fullmatch(CARD, card) is None):
        return Answer(
            ok=False, message="the request was not understood", hint="see the versions of both sides"
        )
    try:
        rules = load(rig).rig.host
    except RigdError as error:
        return Answer(ok=False, message=explain(error), hint=f"rigd rig validate {rig}")
    return _DOERS[ActKind(act)](_Asked(rules=rules, card=card, rig=rig, record=record, run=run, now_s=now_s))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    rules: Host
    card: str
    rig: Path
    record: Path
    run: Run
    now_s: float | None


def _apply(asked: _Asked) -> Answer:
    return _set(asked, lowered=False)


def _lower(asked: _Asked) -> Answer:
    return _set(asked, lowered=True)


def _restore(asked: _Asked) -> Answer:
    return _set(asked, lowered=False, restore=True)


def _set(asked: _Asked, *, lowered: bool, restore: bool = False) -> Answer:
    try:
        done = apply_settings(asked.rules, card=asked.card, lowered=lowered, restore=restore)
    except NvmlAbsentError as error:
        return Answer(ok=False, message=f"NVML: {error}", hint="see `nvidia-smi`")
    if not done:
        return Answer(ok=False, message="the rig file sets nothing for this card, or it does not answer")
    bad = [one for one in done if not one.ok]
    return Answer(ok=not bad, message="; ".join(said(one) for one in bad or done))


def apply_settings(
    rules: Host, *, card: str = "", lowered: bool = False, restore: bool = False, only_look: bool = False
) -> tuple[SettingDone, ...]:
    """Set the cards (or one card) as the rig file says. Raises `NvmlAbsentError`.

    `lowered`: with the limit of a card that is too hot. `restore`: with the card's own default where the rig file
    says nothing of its limit.
    """
    wanted, found = [], gpu_settings.find_cards()
    for one in found:
        if card and card not in {one.uuid, one.bus}:
            continue
        settings = wanted_of(rules, uuid=one.uuid, bus=one.bus, lowered=lowered)
        if restore:
            settings = settings or CardSettings(card=one.bus)
            settings = CardSettings(card=one.bus, power_limit_w=settings.power_limit_w, default_power=True)
        if settings is not None:
            wanted.append(settings)
    named = [one.card for one in rules.gpus if one.card is not None and not card]
    missing = [
        SettingDone(card=name, setting="card", wanted="there", ok=False, detail="no such card answers")
        for name in named
        if not any(wanted_of(_only(rules, name), uuid=one.uuid, bus=one.bus) for one in found)
    ]
    return (*gpu_settings.apply(wanted, only_look=only_look), *missing)


def _only(rules: Host, card: str) -> Host:
    return Host(gpus=tuple(one for one in rules.gpus if one.card == card))


def said(done: SettingDone) -> str:
    """Return what came of a setting as a person reads it."""
    word = "" if done.ok else "not "
    how = "set" if done.changed or not done.ok else "so already"
    return f"{done.card}: {done.setting} {done.wanted} {word}{how} ({done.detail})"


def _reset(asked: _Asked) -> Answer:
    if not asked.rules.allow_gpu_reset:
        return Answer(ok=False, message=f"{asked.rig} does not allow it", hint="host.allow_gpu_reset: true")
    if not asked.card:
        return Answer(ok=False, message="no card was named")
    full = _count(asked)
    if full is not None:
        return full
    argv = (*RESET, asked.card if asked.card.startswith("GPU-") else f"{bus_of(asked.card)}.0")
    ran = asked.run(argv)
    if ran.code != 0:
        hint = "end what uses the card, or reboot the host"
        return Answer(ok=False, message=f"`{' '.join(argv)}` failed: {ran.output}", hint=hint)
    return Answer(ok=True, message=f"the card at {asked.card} was reset")


def _reboot(asked: _Asked) -> Answer:
    if not asked.rules.allow_reboot:
        return Answer(ok=False, message=f"{asked.rig} does not allow it", hint="host.allow_reboot: true")
    full = _count(asked)
    if full is not None:
        return full
    ran = asked.run(REBOOT)
    if ran.code != 0:
        return Answer(ok=False, message=f"`{' '.join(REBOOT)}` failed: {ran.output}", hint="reboot the host")
    return Answer(ok=True, message="the host is going down for a reboot")


def _count(asked: _Asked) -> Answer | None:
    """Count one more act, durably, before it is done; return the refusal where the day is full."""
    now_s = time.time() if asked.now_s is None else asked.now_s
    times = [at_s for at_s in _times(asked.record) if abs(now_s - at_s) < DAY_S]
    most = asked.rules.most_per_day
    if len(times) >= most:
        return Answer(
            ok=False,
            message=f"{len(times)} resets and reboots in 24 hours, and host.most_per_day is {most}",
            hint=f"look at the hardware; then remove {asked.record}, or raise host.most_per_day",
        )
    try:
        asked.record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(asked.record, json.dumps([*times, now_s]))
    except OSError as error:
        return Answer(ok=False, message=f"cannot count it in {asked.record}: {error.strerror}")
    return None


def _times(record: Path) -> list[float]:
    try:
        found = json.loads(read_private(record, limit=RECORD_BYTES) or "[]")
        return [float(at_s) for at_s in found]
    except (ValueError, TypeError):
        return []


_DOERS: Mapping[ActKind, Callable[[_Asked], Answer]] = {
    ActKind.APPLY: _apply,
    ActKind.LOWER: _lower,
    ActKind.RESTORE: _restore,
    ActKind.RESET: _reset,
    ActKind.REBOOT: _reboot,
}
"""What root does; the engine is the daemon's to stop."""
