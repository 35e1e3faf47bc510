"""Whether a host is who it says: known keys only, new ones on request, changed ones never."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import paramiko

from rigd.provision.connection.target import HostUnreachableError

DEFAULT_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")
SSH_PORT = 22


class UnknownKeyPolicy(paramiko.MissingHostKeyPolicy):
    """Refuses a host that is not in the files; or stores its key in the first of them, where that is asked for."""

    def __init__(self, *, name: str, store: Path, accept_new: bool) -> None:
        """Judge for the host that the person calls `name`."""
        self._name = name
        self._store = store
        self._accept_new = accept_new

    def missing_host_key(self, _client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Store the key of a new host, or raise with what to compare it with."""
        if not self._accept_new:
            raise HostUnreachableError(
                f"host '{self._name}' is not known: nobody has said yet that its key {fingerprint(key)} "
                f"({key.get_name()}) is right",
                hint="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host, then run the "
                "same command once with --accept-new",
            )
        self._store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._store.open("a", encoding="ascii") as file:
            file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")


def known_files(configured: Sequence[str]) -> list[Path]:
    """Return the known-hosts files: those of the ssh configuration, else the usual ones."""
    named = [Path(name).expanduser() for name in configured if name.lower() != "none"]
    return named or [Path(name).expanduser() for name in DEFAULT_FILES]


def load_known(client: paramiko.SSHClient, files: Sequence[Path]) -> None:
    """Let a client know the keys of the files that exist."""
    for file in files:
        if file.is_file():
            client.load_system_host_keys(str(file))


def changed(
    name: str, known_as: str, error: paramiko.BadHostKeyException, files: Sequence[Path]
) -> HostUnreachableError:
    """Return what to tell of a host whose key is not the one that the files have under `known_as`."""
    file = next((file for file in files if file.is_file()), files[0])
    return HostUnreachableError(
        f"host '{name}' shows the key {fingerprint(error.key)}, but {fingerprint(error.expected_key)} is known of "
        "it: it was installed anew, or somebody stands in between",
        hint=f"if it was installed anew: ssh-keygen -f {file} -R '{known_as}', then once with --accept-new",
    )


def known_as(host: str, port: int) -> str:
    """Return what a host is called in the files."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def fingerprint(key: paramiko.PKey) -> str:
    """Return a key's fingerprint as OpenSSH shows it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
