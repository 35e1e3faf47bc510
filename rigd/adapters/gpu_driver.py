"""Which driver the kernel runs and which library new processes would load; a mismatch breaks the next start.

A daemon that loaded the library before an upgrade goes on with the old one and hears nothing of it from NVML, so
the files are compared.
"""

from dataclasses import dataclass
from pathlib import Path

_LIBRARY = "libnvidia-ml.so."


@dataclass(frozen=True, kw_only=True)
class DriverVersions:
    """Version of the loaded kernel module and of the installed library; empty where it cannot be told."""

    module: str = ""
    library: str = ""

    @property
    def mismatch(self) -> bool:
        """Whether a process that starts now would find a driver of another version."""
        return bool(self.module and self.library and self.module != self.library)


def installed_versions(
    *, module: Path = Path("/sys/module/nvidia/version"), maps: Path = Path("/proc/self/maps")
) -> DriverVersions:
    """Return both versions; the library is looked for where this process loaded it from."""
    return DriverVersions(module=_text(module).strip(), library=_library(maps))


def _library(maps: Path) -> str:
    for line in _text(maps).splitlines():
        if _LIBRARY not in line:
            continue
        folder = Path(line.split(None, 5)[-1]).parent
        try:
            name = (folder / f"{_LIBRARY}1").resolve(strict=True).name
        except OSError:
            return ""
        version = name.removeprefix(_LIBRARY)
        return version if "." in version else ""
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
