"""A rig file made ready: the rig, its launch specification, and the policy that decisions go by."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rigd.engine.launch import launch_spec
from rigd.engine.spec import LaunchSpec
from rigd.rig.load import load
from rigd.rig.schema import Rig
from rigd.supervise.moves import Policy
from rigd.supervise.overlay import KnobStep, apply


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the daemon works by until the rig file is read again."""

    path: Path
    rig: Rig
    spec: LaunchSpec

    def policy(self, wish: "Plan") -> Policy:
        """Return the policy for `decide`; `wish` is the plan that the rig file alone gives."""
        return Policy(
            supervision=self.rig.supervision,
            warm=self.rig.warm,
            digest=self.spec.digest,
            engine=self.rig.engine,
            wished=wish.rig.engine,
            basis=wish.spec.digest,
            prefixes=tuple(prefix.name for prefix in self.rig.prefixes),
        )

    def with_overlay(self, steps: Sequence[KnobStep]) -> "Plan":
        """Return this plan with knobs turned. Raises `UnknownKnobError` or `UsageError`."""
        return make_plan(self.path, apply(self.rig, steps))

    def changes(self, again: "Plan") -> tuple[str, ...]:
        """Return the sections in which the rig file, read again, differs."""
        return tuple(name for name in Rig.model_fields if getattr(self.rig, name) != getattr(again.rig, name))


def load_plan(path: Path) -> Plan:
    """Read a rig file and return what it comes to. Raises `UsageError` that names every mistake."""
    return make_plan(path, load(path).rig)


def make_plan(path: Path, rig: Rig) -> Plan:
    """Return what a rig comes to. Raises `UsageError` for settings that its version of vLLM does not know."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  (Path.home() raises where there is none)
    return Plan(path=path, rig=rig, spec=launch_spec(rig, rig_folder=path.resolve().parent, home=home))
