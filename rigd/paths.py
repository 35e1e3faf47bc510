"""Where things lie by default. Standard library only: `rigd status` must start fast.

Root and systemd use the system folders; a person uses the XDG ones.
"""

import os
from collections.abc import Mapping
from pathlib import Path


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return where the store and the engine's logs are kept (survives a reboot)."""
    if given := environ.get("RIGD_STATE_DIR") or environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/rigd")
    return Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/")) / ".local/state") / "rigd"


def provision_dir(environ: Mapping[str, str]) -> Path:
    """Return where provisioning keeps its runs, and what it goes on with after a reboot.

    Root's own folder: what root runs after a boot must not lie where the daemon's user can write.
    """
    if os.geteuid() == 0 and not (environ.get("RIGD_STATE_DIR") or environ.get("STATE_DIRECTORY")):
        return Path("/var/lib/rigd-provision")
    return state_dir(environ)


def runtime_dir(environ: Mapping[str, str]) -> Path:
    """Return where the socket and the engine's secret files lie (gone after a reboot)."""
    if given := environ.get("RIGD_RUNTIME_DIR") or environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/run/rigd")
    if base := environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "rigd"
    return state_dir(environ) / "run"


def socket_path(environ: Mapping[str, str]) -> Path:
    """Return the daemon's unix socket: `RIGD_SOCKET`, else `rigd.sock` in the runtime folder."""
    if given := environ.get("RIGD_SOCKET"):
        return Path(given)
    return runtime_dir(environ) / "rigd.sock"
