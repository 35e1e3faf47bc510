"""Power limits of the cards, by UUID, and persistence; now and after each boot."""

import os
import re
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import nvidia_cards, units
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

UNIT = "rigd-power.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
PERSISTENCED = "nvidia-persistenced.service"
OVERRIDE = f"/etc/systemd/system/{PERSISTENCED}.d/rigd.conf"
WANTED_BY = f"/etc/systemd/system/multi-user.target.wants/{PERSISTENCED}"
CLOSE_W = 0.5
SLOW_S = 60.0

ARGUMENTS = {
    "watts": Argument(kind=Kind.FLOAT),
    "limits": Argument(kind=Kind.MAPPING),
    "persistence": Argument(kind=Kind.BOOLEAN, default=True),
    "boot": Argument(kind=Kind.BOOLEAN, default=True),
}


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the cards and the texts of both unit files."""
    started = _persistenced_command(box) if arguments["persistence"] else ""
    return {
        "cards": nvidia_cards.query(box),
        "texts": {path: _read(path) for path in (UNIT_FILE, OVERRIDE)},
        "persistenced": started,
        "wanted": os.path.lexists(WANTED_BY),
        "boots": units.enablement(box, UNIT) == "enabled" if arguments["boot"] else False,
    }


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def _persistenced_command(box: Box) -> str:
    """Return the command of the driver's own unit, "" where there is none."""
    answer = units.systemctl(box, "cat", "--", PERSISTENCED, ok=None)
    commands = re.findall(r"^ExecStart=(.+)$", answer.stdout, re.MULTILINE)
    return str(commands[0]).strip() if commands else ""


def override(command: str) -> str:
    """Return the drop-in that has the driver's daemon keep the cards awake. Pure."""
    kept = re.sub(r"\s+--no-persistence-mode\b", "", command)
    return f"[Unit]\nStopWhenUnneeded=false\n\n[Service]\nExecStart=\nExecStart={kept}\n"


def wanted_limits(arguments: Mapping[str, Any], cards: list[dict[str, Any]]) -> dict[str, float]:
    """Return watts by UUID, within what each card allows. Pure."""
    named = {str(key).lower(): value for key, value in (arguments["limits"] or {}).items()}
    names = {str(card[key]).lower() for card in cards for key in ("uuid", "pci.bus_id")}
    if unknown := [key for key in named if key not in names and key.removeprefix("0000") not in names]:
        known = ", ".join(str(card["uuid"]) for card in cards)
        raise ModuleError(
            f"no card is named {', '.join(unknown)}: `limits` takes UUIDs or PCI addresses ({known})"
        )
    found = {}
    for card in cards:
        keys = (str(card["uuid"]).lower(), str(card["pci.bus_id"]).lower())
        watts = next((named[key] for key in keys if key in named), arguments["watts"])
        if watts is None:
            continue
        least, most = card["power.min_limit"], card["power.max_limit"]
        if least is None or most is None:
            raise ModuleError(f"the card {card['uuid']} ({card['name']}) takes no power limit")
        found[str(card["uuid"])] = min(max(float(watts), least), most)
    return found


def unit_text(limits: Mapping[str, float]) -> str:
    """Return the unit that sets the limits after each boot. Pure."""
    lines = "".join(
        f"ExecStart=/usr/bin/nvidia-smi -i {uuid} -pl {watts:g}\n" for uuid, watts in sorted(limits.items())
    )
    return (
        "[Unit]\nDescription=Power limits of the GPUs, as rigd was told\n"
        f"After={PERSISTENCED}\nWants={PERSISTENCED}\nConditionPathExists=/proc/driver/nvidia/version\n\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\n{lines}\n[Install]\nWantedBy=multi-user.target\n"
    )


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return limits, modes and unit files that differ."""
    limits = wanted_limits(arguments, state["cards"])
    changes = []
    if arguments["persistence"]:
        changes += _persistence(state)
    for card in state["cards"]:
        watts = limits.get(str(card["uuid"]))
        if watts is not None and abs((card["power.limit"] or 0) - watts) > CLOSE_W:
            what = f"power limit of {card['uuid']}: {card['power.limit']:g} W -> {watts:g} W"
            changes.append(
                Change(what=what, subject=str(card["uuid"]), data={"uuid": card["uuid"], "watts": watts})
            )
    if arguments["boot"] and limits:
        text = unit_text(limits)
        if state["texts"][UNIT_FILE] != text:
            changes.append(_file(UNIT_FILE, state["texts"][UNIT_FILE], text))
        if not state["boots"]:
            changes.append(Change(what=f"enable {UNIT}", subject=UNIT, data={"enable": True}))
    return changes


def _persistence(state: Mapping[str, Any]) -> list[Change]:
    changes = []
    if state["persistenced"]:
        text = override(state["persistenced"])
        if state["texts"][OVERRIDE] != text and "--no-persistence-mode" in state["persistenced"]:
            changes.append(_file(OVERRIDE, state["texts"][OVERRIDE], text))
        if not state["wanted"]:
            # The unit is static: `enable` would do nothing.
            changes.append(
                Change(what=f"start {PERSISTENCED} at boot", subject=PERSISTENCED, data={"wants": True})
            )
    asleep = [str(card["uuid"]) for card in state["cards"] if card["persistence_mode"] == "Disabled"]
    if asleep:
        changes.append(Change(what=f"persistence mode of {', '.join(asleep)}", subject="persistence",
                              data={"awake": asleep}))  # fmt: skip
    return changes


def _file(path: str, before: str | None, after: str) -> Change:
    return Change(
        what=f"write {path}",
        subject=path,
        before=before or "",
        after=after,
        data={"file": path, "text": after},
    )


def apply(_arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the unit files, start the daemon anew, set the limits and read them back."""
    files = [change for change in changes if "file" in change.data]
    for change in files:
        os.makedirs(os.path.dirname(change.data["file"]), exist_ok=True)
        box.write(change.data["file"], change.data["text"].encode(), mode=0o644)
    if files:
        units.systemctl(box, "daemon-reload")
    for change in changes:
        data = change.data
        if data.get("wants"):
            units.systemctl(box, "add-wants", "multi-user.target", PERSISTENCED)
        elif data.get("enable"):
            units.systemctl(box, "enable", UNIT)
        elif "awake" in data:
            _wake(state, data["awake"], box)
        elif "watts" in data:
            box.run(["nvidia-smi", "-i", str(data["uuid"]), "-pl", f"{data['watts']:g}"], timeout_s=SLOW_S)


def _wake(state: Mapping[str, Any], uuids: list[str], box: Box) -> None:
    if state["persistenced"]:
        units.systemctl(box, "restart", PERSISTENCED)
        if all(card["persistence_mode"] != "Disabled" for card in nvidia_cards.query(box)):
            return
    for uuid in uuids:
        box.run(["nvidia-smi", "-i", uuid, "-pm", "1"], timeout_s=SLOW_S)


def result(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"uuid": "uuid", "name": "name", "power_limit_w": "power.limit", "power_min_w": "power.min_limit",
            "power_max_w": "power.max_limit", "persistence": "persistence_mode"}  # fmt: skip
    return {"cards": [{name: card[key] for name, key in keys.items()} for card in state["cards"]]}


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    for name, watts in (arguments.get("limits") or {}).items():
        if not isinstance(watts, (int, float)) or isinstance(watts, bool):
            return f"`limits` holds watts by UUID, and '{name}' has {watts!r}"
    return None


MODULE = Module(
    names=("rigd.box.nvidia_power",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=check_arguments,
    summary="power limits by UUID (within what a card allows) and persistence, now and after each boot",
)
