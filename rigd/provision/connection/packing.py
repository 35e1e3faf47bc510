"""The helper as it travels: the package `rigd.provision.target`, and nothing else."""

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

from rigd.provision import target

_MAIN = """import sys

from rigd.provision.target.__main__ import main

sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def digest() -> str:
    """Return what tells one version of the helper from another: 16 hex digits over all its files."""
    seen = hashlib.sha256()
    for name, content in _files().items():
        seen.update(f"{name}\0{len(content)}\0".encode())
        seen.update(content)
    return seen.hexdigest()[:16]


@cache
def archive() -> bytes:
    """Return the zip file that is sent to a box without it; the same files make the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in _files().items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


@cache
def unpacker() -> str:
    """Return the text of the program that takes the archive on the box."""
    return _files()["rigd/provision/target/unpack.py"].decode()


@cache
def _files() -> dict[str, bytes]:
    root = Path(target.__file__).parent
    sources = {
        f"rigd/provision/target/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*.py"))
    }
    return {
        "__main__.py": _MAIN.encode(),
        "rigd/__init__.py": b"",
        "rigd/provision/__init__.py": b"",
        **sources,
    }
