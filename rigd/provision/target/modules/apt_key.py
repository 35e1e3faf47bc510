"""Keys that apt trusts for every source; for the sake of older playbooks."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import apt_sources, download, openpgp
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

ARGUMENTS = {
    "url": Argument(),
    "data": Argument(),
    "file": Argument(kind=Kind.PATH),
    "id": Argument(),
    "keyring": Argument(kind=Kind.PATH),
    "state": Argument(default="present", choices=("present", "absent")),
    "validate_certs": Argument(kind=Kind.BOOLEAN, default=True),
    "keyserver": Argument(left_out="key servers are unreliable: give the vendor's `url`"),
}
WARNING = (
    "apt_key makes a key good for every source; write the source as `deb822_repository` with `signed_by`,"
    " which makes it good for that source alone"
)


def _trusted() -> str:
    return str(apt_sources.APT / "trusted.gpg.d")


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the fingerprints in each trusted keyring, and the key that is wanted."""
    state: dict[str, Any] = {"known": _known(), "content": None, "prints": []}
    if arguments["keyring"]:
        state["known"] |= _prints_of(arguments["keyring"])
    content = _content(arguments, box)
    if content is not None:
        try:
            state["prints"] = openpgp.fingerprints(content)
            state["content"] = openpgp.alone(content).decode("latin-1")
        except ValueError as error:
            raise ModuleError(f"this is no signing key: {error}") from error
    return state


def _content(arguments: Mapping[str, Any], box: Box) -> bytes | None:
    if arguments["data"]:
        return str(arguments["data"]).encode()
    if arguments["file"]:
        try:
            with open(arguments["file"], "rb") as file:
                return file.read()
        except OSError as error:
            raise ModuleError(f"cannot read the key {arguments['file']}: {error.strerror}") from error
    if arguments["url"] and arguments["state"] == "present":
        return download.fetch(arguments["url"], box)
    return None


def _known() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    folder = _trusted()
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith((".asc", ".gpg")):
            found |= _prints_of(os.path.join(folder, name))
    return found


def _prints_of(path: str) -> dict[str, list[str]]:
    try:
        with open(path, "rb") as file:
            return {path: openpgp.fingerprints(file.read())}
    except (OSError, ValueError):
        return {}


def _gone(state: Mapping[str, Any], names: list[str]) -> list[Change]:
    """Return the keyrings to remove, and those that hold other keys, too, to write without these."""
    changes = []
    for path in sorted({path for name in names for path in _has(state, name)}):
        gone = [
            known for known in state["known"][path] if any(known.endswith(_short(name)) for name in names)
        ]
        if len(gone) == len(state["known"][path]):
            changes.append(Change(what=f"remove {path}", subject=path, data={"remove": path}))
        else:
            what = f"take the key {', '.join(gone)} out of {path}"
            changes.append(Change(what=what, subject=path, data={"write": path, "without": gone}))
    return changes


def _short(name: str) -> str:
    return name.upper().removeprefix("0X").replace(" ", "")


def _has(state: Mapping[str, Any], wanted: str) -> list[str]:
    short = _short(wanted)
    return [path for path, prints in state["known"].items() if any(known.endswith(short) for known in prints)]


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the keyring to write, or those to remove."""
    if arguments["state"] == "absent":
        names = [arguments["id"]] if arguments["id"] else state["prints"]
        return _gone(state, [name for name in names if name])
    wanted = state["prints"]
    if arguments["id"] and not any(name.endswith(_short(arguments["id"])) for name in wanted):
        raise ModuleError(f"the key is {', '.join(wanted)}, and `id` asks for {arguments['id']}")
    if all(_has(state, name) for name in wanted):
        return []
    end = "asc" if openpgp.armored(state["content"].encode("latin-1")) else "gpg"
    path = (
        arguments["keyring"]
        or f"{_trusted()}/rigd-{hashlib.sha256(wanted[0].encode()).hexdigest()[:8]}.{end}"
    )
    return [Change(what=f"trust the key {', '.join(wanted)}", subject=path, data={"write": path})]


def apply(_arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write or remove keyrings."""
    for change in changes:
        if "remove" in change.data:
            apt_sources.remove(change.data["remove"])
        elif "without" in change.data:
            with open(change.data["write"], "rb") as file:
                content = openpgp.without(file.read(), change.data["without"])
            box.write(change.data["write"], content)
        else:
            os.makedirs(os.path.dirname(change.data["write"]), exist_ok=True)
            content = _keyring(change.data["write"], state["content"].encode("latin-1"))
            box.write(change.data["write"], content, mode=0o644)


def _keyring(path: str, content: bytes) -> bytes:
    """Return the keyring with the key; apt ignores armour in any file but `*.asc`."""
    if path.endswith(".asc"):
        return content
    try:
        with open(path, "rb") as file:
            return openpgp.binary(file.read()) + openpgp.binary(content)
    except FileNotFoundError:
        return openpgp.binary(content)


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("state", "present") == "present" and not any(
        arguments.get(key) for key in ("url", "data", "file")
    ):
        return "give the key by `url`, `data` or `file`"
    return None


MODULE = Module(
    names=("ansible.builtin.apt_key",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: {"fp": (state["prints"] or [""])[0], "warnings": [WARNING]},
    exclusive=(("url", "data", "file"),),
    check_arguments=check_arguments,
    summary="keys that apt trusts for every source (outdated; deb822_repository is better)",
    differs=("it writes a keyring of its own to /etc/apt/trusted.gpg.d, and needs neither apt-key nor gpg",),
)
