"""Read a rig file. Everything that is wrong with it is told at once, each with line, column and key.

bytes -> document (values and places) -> expand (${NAME} in paths) -> schema -> validate -> LoadedRig
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from rigd.errors import UsageError
from rigd.rig.complaints import complaints
from rigd.rig.document import Document, DocumentError, Fault, KeyPath, Place, read_document
from rigd.rig.expand import expand
from rigd.rig.findings import Finding, Severity, key_path, key_text
from rigd.rig.schema import Prefix, Rig
from rigd.rig.validate import validate

MOST_BYTES = 1024 * 1024
"""Largest rig file; real ones are a few KiB."""


class RigFileError(UsageError):
    """A rig file that cannot be used; its text has one line for each mistake, `faults` the same as values."""

    def __init__(self, path: Path, faults: tuple[Fault, ...], *, hint: str | None = None) -> None:
        """Say every fault with its place in the file."""
        ordered = tuple(sorted(faults, key=lambda fault: (fault.place.line, fault.place.column)))
        super().__init__(
            "\n".join(f"{located(path, fault.place)}: {fault.text}" for fault in ordered), hint=hint
        )
        self.faults = ordered


@dataclass(frozen=True, kw_only=True)
class LoadedRig:
    """A rig, and the file that it came from."""

    rig: Rig
    path: Path
    engine_digest: str
    """Twelve hex digits of the file's engine section after expansion: a change means another engine is wanted."""
    warnings: tuple[Finding, ...]
    document: Document

    @property
    def folder(self) -> Path:
        """Folder of the file: relative paths in it begin here."""
        return self.path.parent

    def place(self, key: str) -> str:
        """Return `FILE:LINE:COL` of a key, or of the nearest key above it."""
        return located(self.path, self.document.place(key_path(key)))

    def refusal(self, findings: tuple[Finding, ...]) -> RigFileError:
        """Return the error that tells of findings made elsewhere, with their places in this file."""
        return RigFileError(self.path, tuple(_as_fault(finding, self.document) for finding in findings))


def located(path: Path, place: Place) -> str:
    """Return `FILE:LINE:COL`, which editors jump to."""
    return f"{path}:{place.line}:{place.column}"


def load(path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> LoadedRig:
    """Return the rig of a file. Raises `RigFileError` that names every mistake.

    Paths of prefixes come out absolute; `${NAME}` in paths is taken from `environ` (the process's own if left out).
    """
    names = os.environ if environ is None else environ
    text = _read(path)
    try:
        document = read_document(text)
    except DocumentError as error:
        raise RigFileError(
            path, error.faults
        ) from None  # it says the same, and the parser's text adds only noise
    faults: list[Fault] = []
    value = expand(
        document.value, names, lambda key, sentence: faults.append(_fault(document, key, sentence))
    )
    rig, wrong = _checked(value, document)
    unset = {fault.key for fault in faults}
    faults += [fault for fault in wrong if fault.key not in unset]
    findings = validate(rig) if rig is not None else ()
    faults += [_as_fault(finding, document) for finding in findings if finding.severity is Severity.ERROR]
    if rig is None or faults:
        raise RigFileError(path, tuple(faults), hint="`rigd rig schema` describes every key")
    base = home if home is not None else Path(names.get("HOME") or "/")
    return LoadedRig(
        rig=rig.model_copy(
            update={"prefixes": tuple(_absolute(prefix, path, base) for prefix in rig.prefixes)}
        ),
        path=path,
        engine_digest=_digest(rig),
        warnings=tuple(finding for finding in findings if finding.severity is Severity.WARNING),
        document=document,
    )


def _read(path: Path) -> str:
    """Return the text of a file that is small enough and UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"cannot read the rig file '{path}': it does not exist") from None
    except IsADirectoryError as error:
        hint = "name a file, for example " + str(path / "rig.yaml")
        raise UsageError(f"cannot read the rig file '{path}': it is a folder", hint=hint) from error
    except OSError as error:
        raise UsageError(f"cannot read the rig file '{path}': {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"cannot read the rig file '{path}': it is larger than {MOST_BYTES // 1024} KiB",
            hint="is this a rig file? Prompts and request bodies go into files of their own",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Place(line=before.count(b"\n") + 1, column=error.start - (before.rfind(b"\n") + 1) + 1)
        fault = Fault(place=place, key="", sentence=f"byte 0x{content[error.start]:02x} is not UTF-8 text")
        raise RigFileError(path, (fault,), hint="save the file as UTF-8") from None


def _checked(value: JsonValue, document: Document) -> tuple[Rig | None, list[Fault]]:
    """Return the rig, or what keeps the value from being one."""
    if not isinstance(value, dict):
        place = document.place(())
        return None, [Fault(place=place, key="", sentence="a rig file is a mapping with `name` and `engine`")]
    try:
        # JSON mode is strict about types (no text for numbers) and still lets a YAML list be a tuple.
        return Rig.model_validate_json(json.dumps(value), strict=True), []
    except ValidationError as error:
        return None, [_fault(document, key, sentence) for key, sentence in complaints(error, value)]


def _fault(document: Document, key: KeyPath, sentence: str) -> Fault:
    return Fault(place=document.place(key), key=key_text(key), sentence=sentence)


def _as_fault(finding: Finding, document: Document) -> Fault:
    sentence = finding.sentence if finding.hint is None else f"{finding.sentence}; {finding.hint}"
    return Fault(place=document.place(key_path(finding.key)), key=finding.key, sentence=sentence)


def _digest(rig: Rig) -> str:
    text = json.dumps(rig.engine.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _absolute(prefix: Prefix, path: Path, home: Path) -> Prefix:
    """Return a prefix whose files are absolute: from the rig file's folder, or from home for `~`."""

    def absolute(name: str) -> str:
        begin = home / name[2:] if name.startswith("~/") else path.absolute().parent / name
        return os.path.normpath(begin)

    return prefix.model_copy(
        update={
            "request": None if prefix.request is None else absolute(prefix.request),
            "tools": None if prefix.tools is None else absolute(prefix.tools),
            "files": tuple(map(absolute, prefix.files)),
        }
    )
