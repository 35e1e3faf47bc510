"""A host, reached: helpers by user, and back again after a reboot. Local and ssh look the same from outside."""

from collections.abc import Callable
from typing import Any, Protocol

from rigd.provision.connection.client import BlobSource, Helper
from rigd.provision.connection.target import Target

Tell = Callable[[str], None]
"""Takes what is being done now, for a person."""


class Link(Protocol):
    """The way to one host. Of one thread: hosts in parallel have a link and a thread each."""

    target: Target

    def helper(self, user: str | None = None) -> Helper:
        """Return the helper that runs as `user` (None: whoever we log in as), started when first asked for."""

    def reset(self) -> None:
        """Drop the connection and every helper; the next request opens them anew."""

    def wait_until_back(self, *, old_boot_id: str | None, deadline_s: float) -> dict[str, Any]:
        """Wait until a helper answers (from another boot than `old_boot_id`, if given); return its hello."""

    def close(self) -> None:
        """End all helpers, and what they still run."""


def connect(target: Target, *, blobs: BlobSource, tell: Tell = lambda _text: None) -> Link:
    """Return the link to a host; nothing is sent before the first `helper()`."""
    if target.local:
        from rigd.provision.connection.local import LocalLink  # noqa: PLC0415  (each way brings its own imports)

        return LocalLink(target, blobs=blobs, tell=tell)
    from rigd.provision.connection.ssh import SshLink  # noqa: PLC0415  (Fabric takes a tenth of a second)

    return SshLink(target, blobs=blobs, tell=tell)
