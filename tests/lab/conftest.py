"""Fixtures of the lab tests beside those of `tests/conftest.py`."""

import socket
from collections.abc import Iterator

import install
import pytest
from box import Box, booted


@pytest.fixture(scope="module")
def nspawn_box(need_parts) -> Iterator[Box]:
    """Boot a Debian with systemd and sshd of its own; give its ssh target, `run()` and `put()`."""
    need_parts("box")
    lab = install.default_folder()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with booted(lab / "box", lab / "box_key", port) as box:
        yield box
