"""Hashes of files, block by block: a model has 15 GB, and this process little memory."""

import hashlib
from typing import IO

from rigd.provision.target.contract import ModuleError

BLOCK_BYTES = 1 << 20


def of_stream(stream: IO[bytes], algorithm: str = "sha256") -> str:
    """Return the hash in hex of what a stream still holds."""
    found = hashlib.new(algorithm)
    while block := stream.read(BLOCK_BYTES):
        found.update(block)
    return found.hexdigest()


def of_file(path: str, algorithm: str = "sha256") -> str:
    """Return the hash in hex of a file's content."""
    try:
        with open(path, "rb") as file:
            return of_stream(file, algorithm)
    except OSError as error:
        raise ModuleError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise ModuleError(f"there is no hash '{algorithm}' here") from error
