"""Files and folders on the command line, read as prompts and request bodies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rigd.errors import UsageError
from rigd.prefix.sources import JSON_ENDINGS, Prompt, Recorded, parse

MOST_FILES = 2000
MOST_BYTES = 32 << 20
"""Largest file; prompts are far below it."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What the files hold, in order."""

    prompts: tuple[Prompt, ...]
    requests: tuple[Recorded, ...]


def read_sources(paths: Sequence[Path]) -> Sources:
    """Return what the files hold; of a folder its JSON files, by name. Raises `UsageError` with the place."""
    prompts: list[Prompt] = []
    requests: list[Recorded] = []
    for path in _files(paths):
        try:
            found = parse(str(path), _content(path))
        except ValueError as error:
            raise UsageError(f"cannot lint '{path}'") from error
        for one in found:
            if isinstance(one, Prompt):
                prompts.append(one)
            else:
                requests.append(one)
    return Sources(prompts=tuple(prompts), requests=tuple(requests))


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(
            entry for entry in path.iterdir() if entry.suffix.lower() in JSON_ENDINGS and entry.is_file()
        )
        if not inside:
            raise UsageError(
                f"cannot lint the folder '{path}': there is no request body (.json, .jsonl) in it",
                hint="name prompt files one by one",
            )
        files += inside
    if len(files) > MOST_FILES:
        raise UsageError(f"cannot lint {len(files):,} files at once", hint=f"name at most {MOST_FILES:,}")
    return files


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"cannot lint '{path}': it does not exist") from None
    except OSError as error:
        raise UsageError(f"cannot lint '{path}'") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"cannot lint '{path}': it is larger than {MOST_BYTES >> 20} MiB")
    return content
