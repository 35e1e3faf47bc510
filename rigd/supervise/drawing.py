"""Draws the states from the transition table: `python -m rigd.supervise.drawing` prints what the README shows."""

import sys

from rigd.supervise.state import TRANSITIONS, State


def mermaid() -> str:
    """Return the transition table as a Mermaid state diagram; maintenance, reachable from anywhere, is a note."""
    lines = ["stateDiagram-v2", "    [*] --> stopped"]
    lines += [
        f"    {before} --> {after}: {why}"
        for (before, after), why in TRANSITIONS.items()
        if State.MAINTENANCE not in {before, after}
    ]
    leaving = [
        f"{after} ({why})" for (before, after), why in TRANSITIONS.items() if before is State.MAINTENANCE
    ]
    left = ", ".join(leaving)
    lines.append(f"    note right of stopped: maintenance is entered from any state, and left to {left}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(mermaid() + "\n")
