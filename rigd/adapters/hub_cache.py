"""A model's folder in the Hugging Face cache: whether it is whole, and which files are not what the hub has. Blocks.

    models--ORG--NAME/refs/main -> snapshots/COMMIT/model.safetensors -> blobs/SHA-256

A blob is named after its checksum (SHA-256 for large files, git's SHA-1 for small ones), so a damaged one is found
without the network. Nothing is written here.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rigd.adapters.model_files import CONFIG, INDEX, read_text

MAIN = "main"
CHUNK_BYTES = 8 << 20
MOST_HEADER_BYTES = 100_000_000
"""Longest header that the safetensors format allows."""
POINTER = b"version https://git-lfs"
UNFINISHED = ".incomplete"
_INDICES = (INDEX, "pytorch_model.bin.index.json")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json")
_PART = re.compile(r"^(?P<stem>.+)-(?P<part>\d+)-of-(?P<parts>\d+)(?P<end>\.\w+)$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_GIT_SHA1 = re.compile(r"^[0-9a-f]{40}$")
Progress = Callable[[str, float], None]
"""Told the file that is read, and the share of all that is done."""


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """A file that is proven not to be what the hub has."""

    name: str
    """Within the snapshot."""
    path: Path
    """Where its bytes are."""
    pointer: Path
    """What leads there from the snapshot; `path` itself where the cache has no links."""
    why: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What came of the check of a snapshot."""

    damaged: tuple[Damaged, ...] = ()
    files: int = 0
    """Files whose checksum was compared."""
    complete: bool = False
    """Whether that was all of them."""


def snapshot_of(folder: Path, revision: str = MAIN) -> Path | None:
    """Return the snapshot that a revision names, None where it is not there. Raises `OSError`."""
    reference = folder / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return snapshot if commit and snapshot.is_dir() else None


def lacking(folder: Path, revision: str = MAIN, *, tokenizer: bool = True) -> str | None:
    """Return what a model's folder lacks to be used without the network, None where it is whole.

    `tokenizer`: whether it needs one of its own (a draft model has none). Raises `OSError`.
    """
    snapshot = snapshot_of(folder, revision)
    if snapshot is None:
        return f"there is no snapshot of {revision} in {folder}"
    if (dangling := next((path for path in snapshot.rglob("*") if not path.exists()), None)) is not None:
        return f"{dangling.relative_to(snapshot)} was not fetched"
    # What was begun and is there under its own name was finished by a later try.
    begun = (path.name.partition(".")[0] for path in (folder / "blobs").glob(f"*{UNFINISHED}"))
    if any(not (folder / "blobs" / name).exists() for name in begun):
        return "a file is only partly fetched"
    if not (snapshot / CONFIG).is_file():
        return f"there is no {CONFIG}"
    if tokenizer and not any((snapshot / name).is_file() for name in _TOKENIZERS):
        return "there is no tokenizer"
    return _missing_weights(snapshot)


def _missing_weights(snapshot: Path) -> str | None:
    for index in _INDICES:
        if (snapshot / index).is_file():
            try:
                named = set(json.loads(read_text(snapshot / index))["weight_map"].values())
            except (ValueError, LookupError, TypeError, AttributeError):
                return f"{index} cannot be read"
            missing = sorted(name for name in named if not (snapshot / str(name)).is_file())
            return f"{missing[0]} was not fetched" if missing else None
    names = {path.name for pattern in _WEIGHTS for path in snapshot.glob(pattern)}
    if not names:
        return "there are no weights"
    for part in filter(None, map(_PART.match, sorted(names))):
        digits, parts = len(part["part"]), int(part["parts"])
        for number in range(1, parts + 1):
            name = f"{part['stem']}-{number:0{digits}}-of-{part['parts']}{part['end']}"
            if name not in names:
                return f"{name} was not fetched"
    return None


def check(
    folder: Path, revision: str = MAIN, *, until_s: float, progress: Progress = lambda _name, _share: None
) -> Checked:
    """Return which files of a snapshot are damaged. Raises `OSError`.

    What is cut off is seen at once, by its own header; the rest is read whole, until `until_s` (monotonic).
    """
    snapshot = snapshot_of(folder, revision)
    if snapshot is None:
        return Checked()
    pointers = sorted(path for path in snapshot.rglob("*") if path.is_file())
    broken = {pointer: why for pointer in pointers if (why := _broken_header(pointer)) is not None}
    unread = [pointer for pointer in pointers if pointer not in broken]
    total = sum(pointer.stat().st_size for pointer in unread) or 1
    done, compared, complete = 0, len(broken), True
    for pointer in unread:
        blob = pointer.resolve()
        began = done

        def told(read: int, pointer: Path = pointer, began: int = began) -> None:
            progress(str(pointer.relative_to(snapshot)), (began + read) / total)

        good = _as_named(blob, until_s=until_s, told=told)
        done += blob.stat().st_size
        compared += good is not None
        complete = complete and good is not None
        if good is False:
            broken[pointer] = "its content is not what the hub has"
    damaged = tuple(
        Damaged(name=str(one.relative_to(snapshot)), path=one.resolve(), pointer=one, why=why)
        for one, why in broken.items()
    )
    return Checked(damaged=damaged, files=compared, complete=complete)


def _broken_header(path: Path) -> str | None:
    """Return what a safetensors file's own header says against it."""
    if path.suffix != ".safetensors":
        return None
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(max(8, len(POINTER)))
        if start.startswith(POINTER):
            return "it is git-lfs's pointer, not the file"
        length = int.from_bytes(start[:8], "little")
        if size < 8 or length > MOST_HEADER_BYTES:  # noqa: PLR2004  (the length itself)
            return "it does not begin with a header"
        file.seek(8)
        text = file.read(length)
    if len(text) < length:
        return f"it is cut off within its header, at {size:,} bytes"
    try:
        header = json.loads(text)
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
    except (ValueError, LookupError, TypeError, AttributeError):
        return "its header cannot be read"
    return None if size == whole else f"it has {size:,} bytes, and its header says {whole:,}"


def _as_named(blob: Path, *, until_s: float, told: Callable[[int], None]) -> bool | None:
    """Return whether a blob's content is what its name says; None: its name is none, or there was no time."""
    if _SHA256.match(blob.name):
        digest = hashlib.sha256()
    elif _GIT_SHA1.match(blob.name):
        digest = hashlib.sha1(b"blob %d\0" % blob.stat().st_size, usedforsecurity=False)
    else:
        return None
    read = 0
    with blob.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            if time.monotonic() > until_s:
                return None
            digest.update(chunk)
            read += len(chunk)
            told(read)
    return digest.hexdigest() == blob.name
