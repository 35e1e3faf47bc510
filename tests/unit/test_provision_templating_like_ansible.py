"""What templates give is what ansible-core gives: expressions.json has its answers (make_expressions.py made it)."""

import json
from pathlib import Path

import pytest

from rigd.provision.language.source import read_yaml
from rigd.provision.templating.render import holds, render
from rigd.provision.templating.variables import Layers, TemplateError, Variables

DATA = Path(__file__).parents[1] / "data" / "playbooks"
ANSWERS = json.loads((DATA / "expressions.json").read_text())
CASES = [answer for answer in ANSWERS if "expression" in answer]
CONDITIONS = [answer for answer in ANSWERS if "condition" in answer]
VARIABLES = read_yaml(DATA / "expressions.yml", [])["variables"]
ON_PURPOSE = {
    "{{ range(3) }}": [0, 1, 2],
    "text | bool": None,  # Ansible takes any word that it does not know for false, with a warning.
    "'{{' in text": False,
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


@pytest.mark.parametrize("case", CONDITIONS, ids=lambda case: case["condition"][:60])
def test_a_condition_holds_where_it_holds_for_ansible(case):
    try:
        found = holds(case["condition"], Variables(Layers(play=VARIABLES)))
    except TemplateError:
        found = None

    assert found is ON_PURPOSE.get(case["condition"], case["value"])
