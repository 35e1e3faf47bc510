"""The last known good settings, kept whole beside the store: written when they have proved themselves, read back."""

from pathlib import Path

from rigd import log
from rigd.errors import RigdError, explain
from rigd.rig.schema import Rig
from rigd.runtime import startlog
from rigd.supervise.plan import Plan, make_plan

FILE = "known-good.json"
"""The rig whose settings last stayed healthy, as JSON; secrets are references in it."""


def keep(plan: Plan, state_dir: Path) -> None:
    """Keep a plan as the last known good one; a disk in trouble keeps the one before."""
    try:
        startlog.write_private(state_dir / FILE, plan.rig.model_dump_json(indent=1))
    except OSError as error:
        log.get("known_good").warning("the known good settings cannot be kept", error=explain(error))


def recall(wish: Plan, state_dir: Path) -> Plan:
    """Return the last known good plan, or `wish` where there is none that can be used."""
    path = state_dir / FILE
    try:
        return make_plan(wish.path, Rig.model_validate_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RigdError) as error:
        text = explain(error)
        log.get("known_good").error("the known good settings cannot be used", path=str(path), error=text)
        return wish
