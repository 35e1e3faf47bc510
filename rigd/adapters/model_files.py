"""A model's files on this box: its config.json, the size of its weights. Nothing is fetched."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MOST_BYTES = 8 * 2**20
"""Neither file is larger; an index of a huge model has 5 MiB."""


def find_config(model: str, *, caches: Sequence[Path]) -> Path | None:
    """Return the config.json of a folder, or of a Hugging Face id in one of the caches; None where there is none."""
    here = Path(model)
    if here.is_file():
        return here
    if (here / CONFIG).is_file():
        return here / CONFIG
    if here.is_absolute() or model.count("/") != 1:
        return None
    return next((path for cache in caches for path in _snapshots(cache, model)), None)


def _snapshots(cache: Path, model: str) -> Iterator[Path]:
    """Yield the config.json of each snapshot, the one that `main` names first, then the newest."""
    for hub in (cache / "hub", cache):
        folder = hub / f"models--{model.replace('/', '--')}"
        try:
            main = (folder / "refs/main").read_text().strip()
        except OSError:
            main = ""
        try:
            found = sorted(
                folder.glob(f"snapshots/*/{CONFIG}"), key=lambda path: path.stat().st_mtime, reverse=True
            )
        except OSError:
            continue
        yield from sorted(found, key=lambda path: path.parent.name != main)


def read_text(path: Path) -> str:
    """Return a file as text. Raises `OSError`, or `ValueError` when it is too large or no text."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES // 2**20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error


def weights_bytes(folder: Path) -> int | None:
    """Return the bytes of all weights in a model's folder: as its index says, else as its files are large."""
    try:
        total = json.loads(read_text(folder / INDEX))["metadata"]["total_size"]
        if isinstance(total, int) and total > 0:
            return total
    except (OSError, ValueError, LookupError, TypeError):
        pass
    try:
        return sum(path.stat().st_size for path in folder.glob("*.safetensors")) or None
    except OSError:
        return None
