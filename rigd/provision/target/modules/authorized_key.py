"""Keys that may log in as a user."""

import os
import re
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import accounts, download
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

TYPES = ("ssh-ed25519", "ssh-rsa", "ssh-dss", "ecdsa-sha2-", "sk-ssh-ed25519@", "sk-ecdsa-sha2-", "ssh-ed448")

WORD = re.compile(r'(?:[^\s"]|"(?:\\.|[^"\\])*")+')
"""A word of a line: options may hold blanks between quotes."""

ARGUMENTS = {
    "user": Argument(required=True),
    "key": Argument(required=True),
    "state": Argument(default="present", choices=("present", "absent")),
    "path": Argument(kind=Kind.PATH),
    "manage_dir": Argument(kind=Kind.BOOLEAN, default=True),
    "exclusive": Argument(kind=Kind.BOOLEAN, default=False),
    "key_options": Argument(),
    "comment": Argument(),
    "validate_certs": Argument(kind=Kind.BOOLEAN, default=True),
    "follow": Argument(kind=Kind.BOOLEAN, default=False),
}

Key = tuple[str, str, str, str]
"""Options, type, key, comment."""


def parse(line: str) -> Key | None:
    """Return the parts of a line of authorized_keys, or None for a comment or what is no key."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    words = WORD.findall(line)
    at = next((index for index, word in enumerate(words[:2]) if word.startswith(TYPES)), None)
    if at is None or len(words) < at + 2:
        return None
    return " ".join(words[:at]), words[at], words[at + 1], " ".join(words[at + 2 :])


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the file's lines and the keys that are wanted."""
    try:
        home, uid, gid = accounts.home_of(arguments["user"])
    except (KeyError, ValueError) as error:
        if box.check:
            home, uid, gid = f"/home/{arguments['user']}", -1, -1
        else:
            raise ModuleError(
                f"there is no user '{arguments['user']}': add it by a `user` task before"
            ) from error
    path = arguments["path"] or os.path.join(home, ".ssh", "authorized_keys")
    text = arguments["key"]
    if text.startswith(("http://", "https://")):
        text = download.text(text, box)
    wanted = [key for key in map(parse, text.splitlines()) if key]
    if not wanted:
        raise ModuleError("`key` holds no ssh public key: it begins with a type such as ssh-ed25519")
    return {
        "path": path,
        "uid": uid,
        "gid": gid,
        "lines": _lines(path),
        "wanted": [list(key) for key in wanted],
    }


def _lines(path: str) -> list[str] | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return None


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the file's new text where it differs."""
    lines = list(state["lines"] or [])
    wanted = [_settled(arguments, tuple(key)) for key in state["wanted"]]
    new = _without(lines, wanted) if arguments["state"] == "absent" else _with(lines, wanted)
    if arguments["exclusive"] and arguments["state"] == "present":
        blobs = {key[2] for key in wanted}
        new = [line for line in new if not (found := parse(line)) or found[2] in blobs]
    if new == lines:
        return []
    before, after = ("".join(f"{line}\n" for line in text) for text in (lines, new))
    verb = "remove" if arguments["state"] == "absent" else "let in"
    names = ", ".join(key[3] or f"{key[1]} ...{key[2][-8:]}" for key in wanted)
    return [
        Change(
            what=f"{verb} {names}", subject=state["path"], before=before, after=after, data={"text": after}
        )
    ]


def _settled(arguments: Mapping[str, Any], key: tuple[str, ...]) -> Key:
    options, kind, blob, comment = key
    return (
        options if arguments["key_options"] is None else arguments["key_options"],
        kind,
        blob,
        comment if arguments["comment"] is None else arguments["comment"],
    )


def _without(lines: list[str], wanted: list[Key]) -> list[str]:
    blobs = {key[2] for key in wanted}
    return [line for line in lines if not (found := parse(line)) or found[2] not in blobs]


def _with(lines: list[str], wanted: list[Key]) -> list[str]:
    new = list(lines)
    for key in wanted:
        same = [line for line in new if (found := parse(line)) and found[2] == key[2]]
        if [parse(line) for line in same] == [key]:
            continue
        # One that differs in options or comment goes, and the wanted one stands at the end, as Ansible has it.
        new = [line for line in new if line not in same]
        new.append(" ".join(part for part in key if part))
    return new


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Write the file as its user's own, with the modes that sshd asks for."""
    path, uid, gid = state["path"], state["uid"], state["gid"]
    folder = os.path.dirname(path)
    if arguments["manage_dir"]:
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
        os.chown(folder, uid, gid)
        os.chmod(folder, 0o700)
    box.write(path, changes[0].data["text"].encode(errors="surrogateescape"), mode=0o600)
    os.chown(path, uid, gid)


MODULE = Module(
    names=("ansible.posix.authorized_key",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: {"keyfile": state["path"]},
    summary="keys that may log in as a user",
    differs=("a user who is not there yet is foretold in check mode, not a fault",),
)
