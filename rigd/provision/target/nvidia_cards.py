"""Cards as nvidia-smi tells of them: by UUID, since indices change with the order of the bus."""

from typing import Any

from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.questions import ask

FIELDS = (
    "uuid", "index", "name", "power.limit", "power.min_limit", "power.max_limit", "persistence_mode", "pci.bus_id",
    "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max", "memory.used",
    "memory.total", "driver_version",
)  # fmt: skip
TIMEOUT_S = 60.0
MISMATCH = "Driver/library version mismatch"


def query(box: Box) -> list[dict[str, Any]]:
    """Return the cards, numbers as floats, what a card cannot tell as None."""
    argv = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    answer = ask(box, argv, timeout_s=TIMEOUT_S)
    if answer.rc != 0:
        raise fault(answer.stdout + answer.stderr, answer.rc)
    return [
        dict(zip(FIELDS, map(_value, line.split(", ")), strict=False))
        for line in answer.stdout.splitlines()
        if line
    ]


def fault(text: str, rc: int) -> ModuleError:
    """Return why nvidia-smi does not answer, and what to do."""
    if MISMATCH in text:
        return ModuleError(
            "the driver's library was updated under the loaded module (Driver/library version mismatch). Reboot;"
            " until"
            " then running containers go on, and none must be made anew"
        )
    if "couldn't communicate with the NVIDIA driver" in text:
        return ModuleError(
            "no NVIDIA driver is loaded: reboot into the kernel that has it, or see `dkms status`"
        )
    if rc in (127, -1) or "No such file" in text or "not found" in text:
        return ModuleError(
            "there is no nvidia-smi on the box: install the driver first (`rigd.box.nvidia_driver`)"
        )
    return ModuleError(f"nvidia-smi ended with {rc}: {text.strip()[-500:]}", rc=rc)


def _value(text: str) -> Any:
    text = text.strip()
    if text.startswith("[") or text in ("N/A", ""):
        return None
    try:
        return float(text)
    except ValueError:
        return text
