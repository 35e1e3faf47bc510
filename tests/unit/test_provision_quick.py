"""The quick way into `rigd provision apply` takes what typer takes, and leaves everything else to it."""

import pytest
import typer

from rigd.cli import provision, provision_quick
from rigd.cli.provision_quick import DEFAULTS, FLAGS, ONLY_APPLY, VALUES, parse


def typers(name):
    command = typer.main.get_command(provision.app).commands[name]
    return {param.name: param for param in command.params if param.name not in ("playbook", "help")}


@pytest.mark.parametrize("name", provision_quick.COMMANDS)
def test_table_is_typers(name):
    found = typers(name)
    left = set(DEFAULTS) - (ONLY_APPLY if name == "check" else set())

    assert set(found) == left
    for variable, param in found.items():
        names = VALUES[variable][0] if variable in VALUES else FLAGS[variable]
        assert set(names) == set(param.opts), variable
        assert param.is_flag == (variable in FLAGS)
        assert (param.default or None) == (DEFAULTS[variable] or None), variable


def test_plain_command_is_taken():
    words = "provision apply site.yml --host a --host=b -e x=1 -i hosts.ini --json -f 3"

    check, found = parse(words.split())

    assert check is False
    assert (found["host"], found["extra_vars"], found["forks"]) == (["a", "b"], ["x=1"], 3)
    assert (str(found["playbook"]), str(found["inventory"]), found["as_json"]) == (
        "site.yml",
        "hosts.ini",
        True,
    )


@pytest.mark.parametrize(
    "words",
    [
        "provision apply",
        "provision apply --help",
        "provision apply a.yml b.yml",
        "provision apply a.yml --nope",
        "provision apply a.yml --host",
        "provision apply a.yml --host --json",
        "provision apply a.yml --forks many",
        "provision apply a.yml --forks 0",
        "provision check a.yml --fresh",
        "provision runs x",
        "status x y",
    ],
)
def test_anything_else_is_typers(words):
    assert parse(words.split()) is None
