"""Kernel modules, now and at boot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigd.provision.target import kernel_modules
from rigd.provision.target.contract import Argument, Box, Change, Module


def _files(name: str) -> dict[str, Path]:
    return {"load": kernel_modules.LOAD / f"{name}.conf", "options": kernel_modules.MODPROBE / f"{name}.conf"}


def _wanted(arguments: Mapping[str, Any]) -> dict[str, str]:
    params = arguments["params"]
    return {
        "load": f"{arguments['name']}\n",
        "options": f"options {arguments['name']} {params}\n" if params else "",
    }


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """Return whether the module is there now, and what its files for the boot say."""
    files = _files(arguments["name"])
    texts = {key: path.read_text(encoding="utf-8") if path.is_file() else None for key, path in files.items()}
    return {"loaded": kernel_modules.loaded(arguments["name"]), "texts": texts}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return whether to load or remove it, and the files that differ."""
    name = arguments["name"]
    changes = []
    if (arguments["state"] == "present") is not state["loaded"]:
        verb = "load" if arguments["state"] == "present" else "remove"
        changes.append(Change(what=f"{verb} the kernel module {name}", subject=name, data={"verb": verb}))
    if arguments["persistent"] == "disabled":
        return changes
    for key, text in _wanted(arguments).items():
        wanted = text if arguments["persistent"] == "present" else ""
        have = state["texts"][key]
        if (have or "") != wanted and (wanted or have):
            path = str(_files(name)[key])
            verb = "write" if wanted else "remove"
            changes.append(Change(what=f"{verb} {path}", subject=path, before=have or "", after=wanted,
                                  data={"file": path, "text": wanted}))  # fmt: skip
    return changes


def apply(arguments: Mapping[str, Any], _state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Ask modprobe; write or remove the files."""
    for change in changes:
        if "file" in change.data:
            path = Path(change.data["file"])
            if change.data["text"]:
                path.parent.mkdir(parents=True, exist_ok=True)
                box.write(str(path), change.data["text"].encode())
            else:
                path.unlink(missing_ok=True)
        else:
            words = ["-r"] if change.data["verb"] == "remove" else []
            parameters = arguments["params"].split() if change.data["verb"] == "load" else []
            box.run(["modprobe", *words, arguments["name"], *parameters])


MODULE = Module(
    names=("community.general.modprobe",),
    arguments={
        "name": Argument(required=True),
        "state": Argument(default="present", choices=("present", "absent")),
        "params": Argument(default=""),
        "persistent": Argument(default="disabled", choices=("disabled", "present", "absent")),
    },
    probe=probe,
    difference=difference,
    apply=apply,
    summary="kernel modules, now and (with `persistent`) at boot",
    differs=(
        "`persistent: absent` removes the module's own files and looks into no others",
        "check mode foretells the load of a module that the kernel does not have yet: a package may bring it",
    ),
)
