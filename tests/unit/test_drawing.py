"""The README's drawing of the states is the transition table."""

from pathlib import Path

from rigd.supervise.drawing import mermaid

README = Path(__file__).resolve().parents[2] / "README.md"


def test_readme_draws_the_transition_table():
    drawn = README.read_text().split("```mermaid\n")[1].split("\n```")[0]

    assert drawn == mermaid(), "paste the output of `python -m rigd.supervise.drawing` into the README"
