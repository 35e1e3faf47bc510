"""A run that reboots this machine is written down, and `rigd-resume.service` goes on with it after the boot.

    reboot on this machine -> marker (command, boots so far) -> reboot -> boot -> `rigd provision resume` -> the same
    command, which the journal makes the same run -> done: marker gone

A box that would boot for ever stops after three boots, and says so.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import rigd
from rigd.errors import RigdError, UsageError

MARKER = "resume.json"
MOST_BOOTS = 3
UNIT = "rigd-resume.service"
UNIT_FOLDER = Path("/etc/systemd/system")
DEFAULT_MARKER = "/var/lib/rigd-provision/resume.json"
DEFAULT_PROGRAM = "/opt/rigd/bin/rigd"


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What is to be done after the boot."""

    arguments: tuple[str, ...]
    """Of `rigd`, the same as before it."""
    folder: str
    boot_id: str
    """Before the reboot."""
    boots: int = 0
    """How often the machine has booted into it."""
    environment: dict[str, str] = field(default_factory=dict)


_KEPT_ENVIRONMENT = ("RIGD_STATE_DIR", "HOME", "PATH", "LANG", "ANSIBLE_ROLES_PATH")


def boot_id() -> str:
    """Return what the kernel calls this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read(state_dir: Path) -> Marker | None:
    """Return what is to be gone on with, None if nothing is."""
    path = state_dir / MARKER
    if os.geteuid() == 0 and path.exists() and (state_dir.stat().st_uid or state_dir.stat().st_mode & 0o022):
        raise UsageError(
            f"root goes on with nothing from '{state_dir}': others may write there",
            hint=f"chown root: {state_dir} && chmod go-w {state_dir}, or leave RIGD_STATE_DIR out",
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Marker(**{**found, "arguments": tuple(found["arguments"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"cannot read '{path}'", hint=f"remove it, and run the command again: rm {path}"
        ) from error


def write(state_dir: Path, arguments: Sequence[str], *, boots: int = 0) -> Marker:
    """Write down the command to go on with; it survives a power cut."""
    marker = Marker(
        arguments=tuple(arguments),
        folder=str(Path.cwd()),
        boot_id=boot_id(),
        boots=boots,
        environment={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
    )
    _put(state_dir, marker)
    return marker


def _put(state_dir: Path, marker: Marker) -> None:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = state_dir / MARKER
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(marker), file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(state_dir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def clear(state_dir: Path) -> None:
    """Forget the run: it has ended."""
    (state_dir / MARKER).unlink(missing_ok=True)


def next_boot(state_dir: Path) -> Marker | None:
    """Return what to go on with in this boot, and count the boot; None if nothing is.

    Raises `RigdError` when the machine has booted into it too often.
    """
    marker = read(state_dir)
    if marker is None:
        return None
    if marker.boot_id == boot_id():
        # The reboot has not come yet, or somebody goes on by hand: the same boot counts once.
        return marker
    if marker.boots >= MOST_BOOTS:
        clear(state_dir)
        raise RigdError(
            f"the run has rebooted this machine {MOST_BOOTS} times and is not done: it is given up",
            hint="look why: rigd provision runs; then type the same command again",
        )
    marker = replace(marker, boots=marker.boots + 1, boot_id=boot_id())
    _put(state_dir, marker)
    return marker


def install_unit(state_dir: Path, *, folder: Path = UNIT_FOLDER) -> bool:
    """Have systemd go on with the run after the boot; return False where there is no systemd. Raises `RigdError`."""
    if not Path("/run/systemd/system").is_dir():
        return False
    text = unit_text(state_dir)
    path = folder / UNIT
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RigdError(
            f"cannot have systemd go on with the run after the boot: '{path}'",
            hint="a run that reboots its own machine needs root: put sudo before the command",
        ) from error
    for argv in (["systemctl", "daemon-reload"], ["systemctl", "enable", UNIT]):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RigdError(
                f"cannot have systemd go on with the run after the boot: {done.stderr.strip()}",
                hint="reboot by hand, then: rigd provision resume",
            )
    return True


def unit_text(state_dir: Path) -> str:
    """Return the unit for this program and state folder."""
    package = Path(rigd.__file__).parent
    found = [folder / UNIT for folder in (package / "units", package.parent / "systemd")]
    text = next(path for path in found if path.is_file()).read_text(encoding="utf-8")
    return text.replace(DEFAULT_PROGRAM, _program()).replace(DEFAULT_MARKER, str(state_dir / MARKER))


def _program() -> str:
    called = Path(sys.argv[0])
    if called.suffix == ".py":
        return f"{sys.executable} -m rigd.cli.main"
    return str(called.absolute())
