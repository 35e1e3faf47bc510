"""The box's time zone."""

import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import writing
from rigd.provision.target.contract import Argument, Box, Change, Module, ModuleError

ZONES = "/usr/share/zoneinfo"
LINK = "/etc/localtime"
NAME = "/etc/timezone"


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the zone that the clock is shown in, and the one that Debian's file names."""
    wanted = arguments["name"]
    if not os.path.isfile(os.path.join(ZONES, wanted)) and not box.check:
        if not os.path.isdir(ZONES):
            raise ModuleError("the box has no time zones: install the package tzdata before")
        raise ModuleError(
            f"there is no time zone '{wanted}': `timedatectl list-timezones` shows those there are"
        )
    target = os.path.realpath(LINK) if os.path.lexists(LINK) else ""
    return {"link": os.path.relpath(target, ZONES) if target.startswith(ZONES) else target, "name": _named()}


def _named() -> str | None:
    try:
        with open(NAME, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return which of the two differs; Debian's file counts only where there is one."""
    wanted = arguments["name"]
    changes = []
    # Zones have several names for the same file (Etc/UTC, UTC): the file decides.
    if os.path.realpath(os.path.join(ZONES, wanted)) != os.path.realpath(
        os.path.join(ZONES, state["link"] or "-")
    ):
        changes.append(Change(what=f"time zone: {state['link'] or 'none'} -> {wanted}", subject=LINK,
                              before=f"{state['link']}\n", after=f"{wanted}\n", data={"key": "link"}))  # fmt: skip
    if state["name"] is not None and state["name"] != wanted:
        changes.append(Change(what=f"name of the time zone: {state['name']} -> {wanted}", subject=NAME,
                              before=f"{state['name']}\n", after=f"{wanted}\n", data={"key": "name"}))  # fmt: skip
    return changes


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Point /etc/localtime at the zone, in one step; name it in Debian's file."""
    for change in changes:
        if change.data["key"] == "name":
            box.write(NAME, f"{arguments['name']}\n".encode())
            continue
        # Relative, as systemd's own program makes it: it holds in a mounted root, too.
        writing.put_link(LINK, f"..{ZONES}/{arguments['name']}")


MODULE = Module(
    names=("community.general.timezone",),
    arguments={
        "name": Argument(required=True),
        "hwclock": Argument(
            aliases=("rtc",), left_out="the clock of the mainboard runs in UTC, as Linux sets it"
        ),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    summary="the box's time zone",
    differs=(
        "Debian's /etc/timezone is kept in step where there is one, so that no program reads an old name",
    ),
)
