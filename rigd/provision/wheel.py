"""rigd as a wheel, made from the files that run: what a playbook installs on a box is what ran the playbook.

files of the package (and configs, units, playbooks beside it in a clone)
    -> digest -> wheel in the state folder, made once
"""

import base64
import hashlib
import importlib.metadata
import os
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import rigd
from rigd import paths

BESIDE = {"configs": "configs", "systemd": "units", "playbooks": "playbooks"}
"""Folders of a clone, and where they stand in the installed package."""
LEFT_OUT = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})
MOST_KEPT = 3
"""Wheels that stay; older ones go."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16


@cache
def own_wheel() -> Path:
    """Return the path of the wheel in the state folder; the same files make the same name and the same bytes."""
    about = _about()
    files = {name: path.read_bytes() for name, path in sorted(_files())}
    version = f"{rigd.__version__}+{_digest(files, about)}"
    folder = paths.state_dir(os.environ) / "wheels"
    path = folder / f"rigd-{version}-py3-none-any.whl"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, files, about, version)
        _forget_old(folder)
    return path


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the name in the wheel and the file; a clone and an installed package give the same names."""
    package = Path(rigd.__file__).parent
    yield from _below(package, "rigd")
    for folder, name in BESIDE.items():
        if not (package / name).is_dir() and (package.parent / folder).is_dir():
            yield from _below(package.parent / folder, f"rigd/{name}")


def _below(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir()):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir() and entry.name not in LEFT_OUT:
            yield from _below(entry, name)
        elif entry.is_file() and entry.suffix != ".pyc":
            yield name, entry


def _about() -> dict[str, Any]:
    """Return what the package needs and the programs that it brings."""
    project = Path(rigd.__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        return {"python": table["requires-python"], "needs": sorted(table["dependencies"]),
                "programs": dict(sorted(table["scripts"].items()))}  # fmt: skip
    known = importlib.metadata.distribution("rigd")
    needs = [need for need in known.requires or () if "extra ==" not in need]
    programs = {entry.name: entry.value for entry in known.entry_points if entry.group == "console_scripts"}
    return {"python": known.metadata["Requires-Python"], "needs": sorted(needs),
            "programs": dict(sorted(programs.items()))}  # fmt: skip


def _digest(files: Mapping[str, bytes], about: Mapping[str, Any]) -> str:
    seen = hashlib.sha256(repr(about).encode())
    for name, content in files.items():
        seen.update(f"{name}\0{len(content)}\0".encode())
        seen.update(content)
    return f"h{seen.hexdigest()[:12]}"


def _write(path: Path, files: Mapping[str, bytes], about: Mapping[str, Any], version: str) -> None:
    information = f"rigd-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in about["needs"])
    programs = "".join(f"{name} = {value}\n" for name, value in about["programs"].items())
    metadata = (
        f"Metadata-Version: 2.1\nName: rigd\nVersion: {version}\nRequires-Python: {about['python']}\n{needs}"
    )
    whole = {
        **files,
        f"{information}/METADATA": metadata.encode(),
        f"{information}/WHEEL": b"Wheel-Version: 1.0\nGenerator: rigd\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/entry_points.txt": f"[console_scripts]\n{programs}".encode(),
    }
    record = "".join(f"{name},sha256={_hash(content)},{len(content)}\n" for name, content in whole.items())
    whole[f"{information}/RECORD"] = f"{record}{information}/RECORD,,\n".encode()
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in whole.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = _MODE
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    unfinished.replace(path)


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _forget_old(folder: Path) -> None:
    wheels = sorted(folder.glob("rigd-*.whl"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in wheels[MOST_KEPT:]:
        old.unlink(missing_ok=True)
