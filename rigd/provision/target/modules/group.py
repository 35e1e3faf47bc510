"""Groups of the system."""

import grp
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import guarded
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

RANGE = "the range of /etc/login.defs holds; say `gid`"

ARGUMENTS = {
    "name": Argument(required=True),
    "state": Argument(default="present", choices=("present", "absent")),
    "gid": Argument(kind=Kind.INTEGER),
    "system": Argument(kind=Kind.BOOLEAN, default=False),
    "non_unique": Argument(kind=Kind.BOOLEAN, default=False),
    "force": Argument(kind=Kind.BOOLEAN, default=False),
    "local": Argument(left_out="groups are the box's own, there is no directory service to go around"),
    "gid_min": Argument(left_out=RANGE),
    "gid_max": Argument(left_out=RANGE),
}


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return the group's id, None where there is no such group."""
    try:
        return {"gid": grp.getgrnam(arguments["name"]).gr_gid}
    except KeyError:
        return {"gid": None}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return whether to add, change or remove it."""
    name, gid, wanted = arguments["name"], state["gid"], arguments["gid"]
    if arguments["state"] == "absent":
        if gid is not None and name in guarded.RIGHTS:
            raise ModuleError(f"by the group '{name}' users become root: rigd never removes it")
        return [] if gid is None else [_change("groupdel", name, f"remove the group {name} ({gid})")]
    if gid is None:
        return [
            _change(
                "groupadd", name, f"add the group {name}" + (f" ({wanted})" if wanted is not None else "")
            )
        ]
    if wanted is not None and wanted != gid:
        return [_change("groupmod", name, f"group id of {name}: {gid} -> {wanted}")]
    return []


def _change(program: str, name: str, what: str) -> Change:
    return Change(what=what, subject=f"group {name}", data={"program": program})


def apply(
    arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box
) -> Mapping[str, Any] | None:
    """Run groupadd, groupmod or groupdel."""
    program = changes[0].data["program"]
    words = [program]
    if program == "groupdel":
        words += ["-f"] if arguments["force"] else []
    else:
        words += ["-g", str(arguments["gid"])] if arguments["gid"] is not None else []
        words += ["-o"] if arguments["non_unique"] else []
        words += ["-r"] if arguments["system"] and program == "groupadd" else []
    box.run([*words, "--", arguments["name"]])
    return None


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    facts = {"name": arguments["name"], "state": arguments["state"], "system": arguments["system"]}
    return facts if state["gid"] is None else {**facts, "gid": state["gid"]}


MODULE = Module(
    names=("ansible.builtin.group",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    summary="groups of the system",
    differs=("a group by which users become root (sudo) is never removed",),
)
