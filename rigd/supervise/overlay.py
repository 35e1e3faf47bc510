"""What rigd changed on top of the rig file, one knob a step, each with its reason. Pure.

    effective engine = rig file + overlay

The overlay lives in the stored status; it is cleared when the rig file's engine or the engine's version changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rigd.rig.schema import Rig
from rigd.supervise import knobs
from rigd.supervise.knobs import Scalar

OPERATOR = "operator"
"""Class of a step that a person asked for: never undone by rigd."""
RAISED = "room"
"""Class of a step beyond the wish: requests had to wait although there was room."""


@dataclass(frozen=True, kw_only=True)
class KnobStep:
    """One knob turned, and why. `old` is what it stood at in effect, None where vLLM's default held."""

    knob: str
    old: Scalar
    new: Scalar
    kind: str
    """Class of the failure that led to it, or `operator`, or `room`."""
    sentence: str
    at_s: float = 0.0
    start: int = 0
    """Start whose failure led to it."""
    evidence: str = ""
    """The line of the log that says so, with its number."""
    version: str = ""
    """Engine version that it was found with."""
    basis: str = ""
    """Digest of the specification that the rig file alone gave."""

    def __str__(self) -> str:
        """Return it as a person reads it: `max_num_seqs 10 -> 5`."""
        return f"{self.knob} {_shown(self.knob, self.old)} -> {_shown(self.knob, self.new)}"


def apply(rig: Rig, steps: Sequence[KnobStep]) -> Rig:
    """Return the rig with every step taken in order. Raises `knobs.UnknownKnobError`."""
    engine = rig.engine
    for step in steps:
        engine = knobs.write(engine, step.knob, step.new)
    return rig.model_copy(update={"engine": engine})


def _shown(knob: str, value: Scalar) -> str:
    if value is None:
        return "off" if knob == "speculative" else "vLLM's default"
    return str(value)
