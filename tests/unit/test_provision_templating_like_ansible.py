"""What templates give is what ansible-core gives: expressions.json has its answers (make_expressions.py made it)."""

import json
from pathlib import Path

import pytest

from rigd.provision.language.source import read_yaml
from rigd.provision.templating.render import render
from rigd.provision.templating.variables import Layers, TemplateError, Variables

DATA = Path(__file__).parents[1] / "data" / "playbooks"
CASES = json.loads((DATA / "expressions.json").read_text())
VARIABLES = read_yaml(DATA / "expressions.yml", [])["variables"]
ON_PURPOSE = {
    "{{ range(3) }}": [0, 1, 2],
}
"""Where rigd gives something else, and what."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"][:60])
def test_an_expression_gives_what_ansible_gives(case):
    variables = Variables(
        Layers(play=VARIABLES), lambda name, _kind: next(filter(Path.exists, [Path(name)]), None)
    )
    expression = case["expression"]

    try:
        found = [render(expression, variables)]
    except TemplateError:
        found = None

    expected = [ON_PURPOSE[expression]] if expression in ON_PURPOSE else case["value"]
    assert json.loads(json.dumps(found)) == expected
