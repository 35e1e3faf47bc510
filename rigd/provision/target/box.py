"""The machine that the helper runs on, as a module sees it: commands, files written in one step, blobs, progress."""

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from rigd.provision.target import processes, writing
from rigd.provision.target.contract import CommandResult, ModuleError

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where a user's PATH often does not look, and system programs lie."""
BLOB_CACHE_BYTES = 32 << 20
PROGRESS_PAUSE_S = 0.25
"""A person reads no faster, and a slow link has better things to carry."""
UNTOLD = -1e9


class Blobs:
    """Content that the controller holds, fetched when first asked for; the latest stay in memory."""

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._fetch = fetch
        self._held: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes:
        """Return the content whose sha256 is `digest`."""
        if digest in self._held:
            self._held.move_to_end(digest)
            return self._held[digest]
        content = self._fetch(digest)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ModuleError(
                "the content that came from the controller is not the one asked for; run it again"
            )
        self._held[digest] = content
        while len(self._held) > 1 and sum(map(len, self._held.values())) > BLOB_CACHE_BYTES:
            self._held.popitem(last=False)
        return content


class RealBox:
    """A `contract.Box` for one task."""

    def __init__(
        self,
        *,
        check: bool = False,
        diff: bool = False,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 0,
        groups: processes.Groups | None = None,
        blobs: Blobs | None = None,
        tell: Callable[[str], None] = lambda _text: None,
        knock: Callable[[], bool | None] = lambda: None,
    ) -> None:
        """Serve one task; `timeout_s` is its own limit (0: none), `tell` takes what is being done now.

        `knock` has the controller try a new connection.
        """
        self.check = check
        self.diff = diff
        self.backups: list[str] = []
        self._environment = _environment(environment or {})
        self._timeout_s = timeout_s
        self._until_s = time.monotonic() + timeout_s if timeout_s else None
        self._groups = groups or processes.Groups()
        self._blobs = blobs or Blobs(_no_blobs)
        self._tell = tell
        self._knock = knock
        self._told_s = UNTOLD

    def run(
        self,
        argv: "list[str] | tuple[str, ...]",
        *,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        timeout_s: float = 600.0,
        ok: "tuple[int, ...] | None" = (0,),
    ) -> CommandResult:
        """Run a command to its end; see `contract.Box.run`."""
        done = processes.run(
            argv,
            stdin=stdin,
            environment={**self._environment, **(environment or {})},
            folder=folder,
            timeout_s=min(timeout_s, self._left_s()),
            groups=self._groups,
        )
        if ok is None or done.rc in ok:
            return done
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        tail = ": " + " / ".join(said[-3:]) if said else ""
        raise ModuleError(
            f"`{processes.shown(argv)}` ended with {done.rc}{tail}",
            rc=done.rc, stdout=done.stdout, stderr=done.stderr, cmd=[*argv],
        )  # fmt: skip

    def blob(self, digest: str) -> bytes:
        """Return content that the controller holds."""
        self._left_s()
        return self._blobs.get(digest)

    def write(
        self, path: str, content: bytes, *, mode: int | None = None, backup: bool = False, follow: bool = True
    ) -> None:
        """Write a file in one step; a link is followed to what it names, or with `follow=False` replaced."""
        self._left_s()
        path = os.path.realpath(path) if follow else path
        if backup and (copy := writing.back_up(path)):
            self.backups.append(copy)
        writing.write_file(path, content, mode=mode)

    def progress(self, text: str) -> None:
        """Tell what is being done now; what comes too soon after the last is dropped."""
        now_s = time.monotonic()
        if now_s - self._told_s >= PROGRESS_PAUSE_S:
            self._told_s = now_s
            self._tell(text)

    def reached(self) -> bool | None:
        """Return whether a new connection of the controller's comes through; None where it is on this machine."""
        self._left_s()
        return self._knock()

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the task's commands."""
        return self._environment

    def _left_s(self) -> float:
        """Return the seconds that the task still has; raises where they are over, or the task was called off."""
        if self._groups.stop.is_set():
            raise processes.TaskCancelled
        if self._until_s is None:
            return float("inf")
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise ModuleError(
                f"the task did not end within its timeout of {self._timeout_s:g} s",
                timedout={"period": self._timeout_s},
            )
        return left_s


def _environment(own: Mapping[str, str]) -> "dict[str, str]":
    """Return the login's environment with a language that programs answer alike in, and the task's on top."""
    merged = {**os.environ, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", **own}
    folders = [part for part in merged.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":") if part]
    merged["PATH"] = ":".join([*folders, *(part for part in SYSTEM_FOLDERS if part not in folders)])
    return merged


def _no_blobs(digest: str) -> bytes:
    raise ModuleError(f"nobody holds the content {digest}")
