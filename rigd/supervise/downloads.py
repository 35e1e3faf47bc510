"""What an engine has downloaded from Hugging Face, on this host: is it whole, and what of it is damaged.

Effects behind `pending`: they look, and move aside. They make no choice.
"""

import functools
import glob
import os
import time
from collections.abc import Callable
from pathlib import Path

from rigd.adapters import hub_cache
from rigd.adapters.aside import MARK, move_aside
from rigd.adapters.blocking import run_blocking
from rigd.adapters.hub_cache import MAIN, Checked, Damaged
from rigd.engine.spec import LaunchSpec
from rigd.rig.schema import Engine
from rigd.supervise.caches import NoPlace, Place, is_folder, place_of_download
from rigd.supervise.observations import MovedAside

CHECK_S = 600.0
"""Longest time spent on comparing checksums, in seconds: 60 GB at the 100 MB/s of a hard disk."""
LOOK_S = 10.0
SLACK_S = 20.0
SHOW_EVERY_S = 0.5
NAMED = 3
"""Damaged files that are named; more are counted."""
_MIB = 1 << 20
Show = Callable[[str, float], None]
"""Shows a file's name and a share; called from another thread."""


async def missing(engine: Engine, spec: LaunchSpec) -> str | None:
    """Return what the downloads of an engine lack for a start without the network; None: nothing.

    Raises `OSError` and `TimeoutError` where the disk cannot be asked.
    """
    speculative = engine.arguments.speculative
    draft = None if speculative is None else speculative.model
    for model in (spec.model, *filter(None, (draft, _text(engine, "tokenizer")))):
        if is_folder(model):
            continue
        place = place_of_download(model, spec, inherited=os.environ)
        if isinstance(place, NoPlace):
            return place.why
        main = model == spec.model
        folder, revision = Path(place.folder, place.pattern), _revision(engine) if main else MAIN
        ask = functools.partial(hub_cache.lacking, folder, revision, tokenizer=main)
        lacks = await run_blocking(ask, deadline_s=LOOK_S)
        if lacks is not None:
            return f"{model}: {lacks}"
    return None


async def move_damaged(place: Place, stamp: int, engine: Engine, *, show: Show) -> MovedAside | None:
    """Move the damaged files of a download aside, and say which; None where none is proven to be the culprit.

    Where every file is what the hub has, nothing is moved: fetching it again would bring the same.
    Raises `OSError` and `TimeoutError` where the disk cannot be asked.
    """
    folder = Path(place.folder, place.pattern)
    if folder.with_name(f"{folder.name}{MARK}{stamp}").exists():
        return None  # An earlier daemon has moved it whole.
    until_s = time.monotonic() + CHECK_S
    shown_s = 0.0

    def told(name: str, share: float) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= SHOW_EVERY_S:
            shown_s = time.monotonic()
            show(name, share)

    checked = await run_blocking(
        lambda: hub_cache.check(folder, _revision(engine), until_s=until_s, progress=told),
        deadline_s=CHECK_S + SLACK_S,
    )
    done = await run_blocking(lambda: _moved_before(folder, stamp), deadline_s=LOOK_S)
    if not checked.damaged and not done:
        return _all_good(folder, checked) if checked.complete and checked.files else None
    return await run_blocking(lambda: _move(folder, checked.damaged, stamp, before=done), deadline_s=LOOK_S)


def _all_good(folder: Path, checked: Checked) -> MovedAside:
    said = (
        f"all {checked.files} files of {folder} are what Hugging Face has, and fetching them again would bring "
        "the same: try another revision or checkpoint"
    )
    return MovedAside(moved=False, detail=said, finding=f"{said[0].upper()}{said[1:]}.")


def _moved_before(folder: Path, stamp: int) -> list[Path]:
    """Return what an earlier daemon has moved for the same failure."""
    return sorted(folder.rglob(f"*{MARK}{stamp}")) if folder.is_dir() else []


def _move(folder: Path, damaged: tuple[Damaged, ...], stamp: int, *, before: list[Path]) -> MovedAside:
    named = "; ".join(f"{one.name} ({one.why})" for one in damaged[:NAMED])
    more = f" and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
    moved, size_bytes = list(before), 0
    for one in damaged:
        try:
            aside = move_aside(one.path.parent, glob.escape(one.path.name), stamp)
            if one.pointer.is_symlink():
                one.pointer.unlink()  # It leads nowhere now; the next download makes it anew.
        except OSError as error:
            said = f"damaged: {named}{more}; cannot move {one.path}: {error.strerror or error}"
            finding = f"It is {named}{more}. rigd may not move it: `sudo rm {one.path}`, then `rigd start`."
            return MovedAside(moved=False, detail=said, finding=finding)
        moved += aside.paths
        size_bytes += aside.size_bytes
    if not damaged:
        return MovedAside(moved=True, detail=f"moved aside before to {moved[0]}")
    where = moved[-1] if len(damaged) == 1 else folder
    said = (
        f"damaged: {named}{more}; moved aside to {where} ({size_bytes / _MIB:,.1f} MiB), the rest stays; "
        "delete it when all is well"
    )
    return MovedAside(moved=True, detail=said)


def _revision(engine: Engine) -> str:
    return _text(engine, "revision") or MAIN


def _text(engine: Engine, flag: str) -> str | None:
    """Return a flag of vLLM's that the rig file passes as it is, however its dashes are written."""
    value = next(
        (one for name, one in engine.arguments.extra.items() if name.replace("-", "_") == flag), None
    )
    return value if isinstance(value, str) and value else None
