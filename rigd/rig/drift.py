"""The rig file's `host.drift:` section: the playbook that the host is held against, and what may be mended alone."""

from typing import Annotated

from pydantic import Field

from rigd.rig.model import Model, Seconds

Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]


class Drift(Model):
    """Whether the host is still as a playbook says."""

    playbook: str | None = None
    """Playbook that the host is held against (`rigd provision check`), from the rig file's folder; none: never. For
    root's one-shot the file, its folder and the variables must be root's own."""
    variables: str | None = None
    """File of variables for it, as `-e @FILE` takes one."""
    every_s: Seconds | None = 21600.0
    """How often it is looked; none: only after a boot. Seconds."""
    at_boot: bool = True
    """Look once after every boot."""
    apply: tuple[Tag, ...] = ()
    """Tags of the playbook whose tasks may be applied unattended; never while the engine works or comes up, nor in
    maintenance, and never a reboot."""
    idle_s: Annotated[float, Field(ge=0)] = 30.0
    """How long the engine must have been without a request before something is applied. Seconds."""
    deadline_s: Seconds = 3600.0
    """Longest run; then it ends after the task that runs. Seconds."""
