"""Folders of incidents on disk: numbered, private, finished in one step, kept by count and by age.

    STATE/incidents/000007.partial/    being collected
    STATE/incidents/000007/            finished

A collection that was killed half way leaves a `.partial`; `recover()` finishes it if it says what happened, else
removes it. All calls block; `OSError` is the caller's to handle.
"""

import contextlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

PARTIAL = ".partial"
SUMMARY = "incident.json"
"""The file without which a folder says nothing."""
DAY_S = 86_400.0


class IncidentFiles:
    """The incidents of one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "incidents"

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the finished incidents, newest first."""
        return tuple(sorted((number for number, partial in self._entries() if not partial), reverse=True))

    def begin(self) -> int:
        """Make the folder of a new incident, and return its number: one more than any there is."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max((number for number, _ in self._entries()), default=0) + 1
        self._partial(number).mkdir(mode=0o700)
        return number

    def write(self, number: int, name: str, content: bytes) -> None:
        """Replace one file of an incident in one step; mode 0600."""
        folder = self._where(number)
        fresh = folder / f".{name}.new"
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            fresh.replace(folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise

    def finish(self, number: int) -> None:
        """Make the incident a finished one."""
        if self._partial(number).exists():
            self._partial(number).rename(self._final(number))

    def drop(self, number: int) -> None:
        """Remove an incident."""
        for folder in (self._partial(number), self._final(number)):
            shutil.rmtree(folder, ignore_errors=True)

    def recover(self) -> tuple[int, ...]:
        """Finish what an earlier daemon left half collected and return those numbers; remove what says nothing."""
        finished = []
        for number in sorted(number for number, partial in self._entries() if partial):
            if (self._partial(number) / SUMMARY).exists() and not self._final(number).exists():
                self.finish(number)
                finished.append(number)
            else:
                shutil.rmtree(self._partial(number), ignore_errors=True)
        for number in finished:
            for name in self._final(number).glob(".*.new"):
                name.unlink(missing_ok=True)
        return tuple(finished)

    def prune(self, *, keep: int, keep_days: float, now_s: float) -> tuple[int, ...]:
        """Remove all but the newest `keep` incidents, and old ones; the newest stays, for its number."""
        gone = []
        for rank, number in enumerate(self.numbers()):
            if rank == 0:
                continue
            if rank >= keep or now_s - self._age_mark_s(number) > keep_days * DAY_S:
                shutil.rmtree(self._final(number), ignore_errors=True)
                gone.append(number)
        return tuple(gone)

    def read(self, number: int, name: str) -> bytes | None:
        """Return one file of an incident, or None where there is none."""
        try:
            return (self._where(number) / name).read_bytes()
        except OSError:
            return None

    def pack(self, number: int, names: Iterable[str], note: str) -> bytes | None:
        """Return the incident as a tar.gz with a note of its contents, or None where there is no such incident."""
        if number not in self.numbers():
            return None
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            files = {"CONTENTS.txt": note.encode("utf-8", "replace")}
            files |= {name: content for name in names if (content := self.read(number, name)) is not None}
            for name, content in files.items():
                entry = tarfile.TarInfo(f"incident-{number}/{name}")
                entry.size, entry.mode = len(content), 0o600
                entry.mtime = int(self._age_mark_s(number))
                archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()

    def _entries(self) -> list[tuple[int, bool]]:
        """Return number and whether it is partial, of every folder that is an incident's."""
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except OSError:
            return []
        return [
            (int(name.removesuffix(PARTIAL)), name.endswith(PARTIAL))
            for name in names
            if name.removesuffix(PARTIAL).isdecimal()
        ]

    def _where(self, number: int) -> Path:
        final = self._final(number)
        return final if final.exists() else self._partial(number)

    def _final(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _partial(self, number: int) -> Path:
        return self.folder / f"{number:06d}{PARTIAL}"

    def _age_mark_s(self, number: int) -> float:
        try:
            return self._final(number).stat().st_mtime
        except OSError:
            return 0.0
