"""Entries of the system's databases (passwd, group, hosts, ...) as facts."""

from collections.abc import Mapping
from typing import Any

from rigd.provision.target.contract import Argument, Box, Kind, Module, ModuleError

NOT_FOUND = 2
COLON = ("passwd", "shadow", "group", "gshadow")


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the entries, each split into its fields."""
    database, key = arguments["database"], arguments["key"]
    service = ["-s", arguments["service"]] if arguments["service"] else []
    answer = box.run(["getent", *service, database, *([key] if key else [])], ok=None)
    if answer.rc == NOT_FOUND:
        if key and not arguments["fail_key"]:
            return {key: None}
        raise ModuleError(
            f"there is no '{key}' in {database}" if key else f"{database} is empty", rc=answer.rc
        )
    if answer.rc != 0:
        raise ModuleError(
            f"cannot read the database '{database}': {answer.stderr.strip() or answer.rc}", rc=answer.rc
        )
    split = arguments["split"] or (":" if database in COLON else None)
    entries: dict[str, Any] = {}
    for line in answer.stdout.splitlines():
        first, *rest = line.split(split)
        # A name with several lines (hosts) keeps all of them.
        if first in entries:
            known = entries[first]
            entries[first] = [*known, rest] if known and isinstance(known[0], list) else [known, rest]
        else:
            entries[first] = rest
    return entries


MODULE = Module(
    names=("ansible.builtin.getent",),
    arguments={
        "database": Argument(required=True),
        "key": Argument(),
        "split": Argument(),
        "service": Argument(),
        "fail_key": Argument(kind=Kind.BOOLEAN, default=True),
    },
    probe=probe,
    result=lambda arguments, state: {"ansible_facts": {f"getent_{arguments['database']}": state}},
    summary="entries of passwd, group, hosts, ... as facts",
)
