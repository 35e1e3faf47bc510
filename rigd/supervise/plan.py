"""A rig file made ready: the rig, its launch specification, and the policy that decisions go by."""

import os
from dataclasses import dataclass
from pathlib import Path

from rigd.engine.launch import launch_spec
from rigd.engine.spec import LaunchSpec
from rigd.rig.load import load
from rigd.rig.schema import Rig
from rigd.supervise.moves import Policy


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the daemon works by until the rig file is read again."""

    path: Path
    rig: Rig
    spec: LaunchSpec

    @property
    def policy(self) -> Policy:
        """The policy of this rig for `decide`."""
        return Policy(
            supervision=self.rig.supervision,
            warm=self.rig.warm,
            digest=self.spec.digest,
            prefixes=tuple(prefix.name for prefix in self.rig.prefixes),
        )


def load_plan(path: Path) -> Plan:
    """Read a rig file and return what it comes to. Raises `UsageError` that names every mistake."""
    rig = load(path).rig
    spec = launch_spec(rig, rig_folder=path.resolve().parent, home=Path(os.path.expanduser("~")))  # noqa: PTH111
    return Plan(path=path, rig=rig, spec=spec)
