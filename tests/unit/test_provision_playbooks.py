"""The playbooks that come with rigd: they load, build on one another in order, and say which variables they take."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rigd.provision.language.load import load_playbook
from rigd.provision.language.model import Block
from rigd.provision.templating.environment import compiled, run

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
SITE = PLAYBOOKS / "site.yml"
SMALL = sorted(path for path in PLAYBOOKS.glob("*.yml") if path != SITE)
ORDER = (
    "preflight", "clock", "apt", "base", "headers", "blacklist", "driver", "secure_boot", "reboot", "persistence",
    "power", "docker", "daemon_json", "toolkit", "cdi", "disks", "sysctl", "headless", "tailscale", "firewall",
    "updates", "rigd", "smoke",
)  # fmt: skip
VARIABLE = re.compile(r"#   (\w+) \((.+?)\): (.+(?:\n#     .+)*)")
PREFIXES = ("preflight", "clock", "apt", "base", "driver", "reboot", "power", "docker", "toolkit", "disks", "sysctl",
            "limits", "swap", "headless", "tailscale", "firewall", "updates", "rigd", "smoke")  # fmt: skip
DEFAULTED = re.compile(r"\b(\w+) \| default\(('[^']*'|\d+|true|false|\[\]|\{\})\)")
BEGIN, END = "<!-- made from the playbooks' heads: begin -->\n", "<!-- end -->\n"


@dataclass(frozen=True, kw_only=True)
class Variable:
    name: str
    default: str
    meaning: str


def variables(playbook: Path) -> dict[str, Variable]:
    """Return what the comment at the top of a playbook says of its variables."""
    head = playbook.read_text().partition("\n- name")[0]
    found = [
        Variable(name=name, default=default, meaning=re.sub(r"\n#\s+", " ", meaning))
        for name, default, meaning in VARIABLE.findall(head)
    ]
    assert ("# Variables:" in head) == bool(found), playbook
    return {variable.name: variable for variable in found}


def source(playbook: Path) -> str:
    """Return the text of a playbook below its head, with the files of tasks that it includes."""
    text = playbook.read_text().partition("\n- name")[2]
    seen: set[str] = set()
    while more := set(re.findall(r"(?:import|include)_tasks: (?:tasks/)?(\S+)", text)) - seen:
        seen |= more
        text += "".join((PLAYBOOKS / "tasks" / name).read_text() for name in sorted(more))
    return re.sub(r"(?m)^\s*#.*$", "", text)


def test_site_imports_every_playbook_in_the_order_in_which_they_build_on_one_another():
    entries = yaml.safe_load(SITE.read_text())

    assert [entry["ansible.builtin.import_playbook"] for entry in entries] == [
        f"{name}.yml" for name in ORDER
    ]
    assert [entry["tags"] for entry in entries] == list(ORDER)
    assert {path.stem for path in SMALL} == set(ORDER)


@pytest.mark.parametrize("playbook", [SITE, *SMALL], ids=lambda path: path.stem)
def test_each_loads_without_fault_or_warning(playbook):
    loaded = load_playbook(playbook)

    assert loaded.warnings == ()
    assert all(play.hosts == "all" and play.name for play in loaded.plays)


@pytest.mark.parametrize("playbook", SMALL, ids=lambda path: path.stem)
def test_every_task_has_a_name(playbook):
    (play,) = load_playbook(playbook).plays
    queue = [*play.tasks, *play.handlers]
    for node in queue:
        queue += [*node.tasks, *node.rescue, *node.always] if isinstance(node, Block) else []

    assert [str(node.place) for node in queue if not node.name] == []


COMMANDS = (
    "ansible.builtin.command",
    "ansible.builtin.shell",
    "ansible.builtin.raw",
    "ansible.builtin.script",
)


@pytest.mark.parametrize(
    "path", [*SMALL, *sorted((PLAYBOOKS / "tasks").glob("*.yml"))], ids=lambda path: path.stem
)
def test_every_command_says_when_it_changes_something(path):
    queue, silent = [*yaml.safe_load(path.read_text())], []
    for node in queue:
        queue += [
            one for key in ("tasks", "handlers", "block", "rescue", "always") for one in node.get(key, ())
        ]
        used = next((key for key in COMMANDS if key in node), None)
        inner = node.get(used) if used and isinstance(node[used], dict) else {}
        said = {"changed_when", *({"creates", "removes"} & {*inner, *node.get("args", {})})} & {*node, *inner}
        if used and not said:
            silent.append(node["name"])

    assert silent == []


@pytest.mark.parametrize("playbook", SMALL, ids=lambda path: path.stem)
def test_each_says_at_its_top_what_it_does_and_which_variables_it_takes(playbook):
    text = source(playbook)
    known = variables(playbook)
    asked = set(re.findall(r"\b(\w+) \| default\(", text)) | set(
        re.findall(r"\b(\w+) is (?:not )?defined", text)
    )
    asked = {name for name in asked if name.startswith(PREFIXES)} - {"rigd_version", "rigd_own_wheel"}
    asked -= set(re.findall(r"register: (\w+)", text)) | set(re.findall(r"(\w+)\.(?:stdout|rc)", text))

    assert playbook.read_text().startswith("# ")
    assert {name for name in known if not re.search(rf"\b{name}\b", text)} == set()
    assert asked - set(known) == set()


@pytest.mark.parametrize("playbook", SMALL, ids=lambda path: path.stem)
def test_the_defaults_that_are_told_are_those_that_hold(playbook):
    known = variables(playbook)
    for name, value in DEFAULTED.findall(source(playbook)):
        if name in known and known[name].default.split()[0] not in ("this", "none", "the"):
            assert known[name].default.split(" ")[0] in (value.strip("'"), value), name


def test_only_rigd_runs_what_only_rigd_knows():
    """Ansible reads a file of tasks when it gets there, so modules that it lacks stand in files of their own."""
    for path in [*SMALL, *(PLAYBOOKS / "tasks").glob("*.yml")]:
        strange = re.findall(
            r"(?m)^\s*(rigd\.box\.\w+|ansible\.posix\.\w+|community\.\w+\.\w+):", path.read_text()
        )
        assert not strange or path.name.startswith("rigd_"), path
    for path in SMALL:
        for name in re.findall(r"include_tasks: tasks/(rigd_\w+)\.yml", path.read_text()):
            after = path.read_text().partition(f"tasks/{name}.yml")[2][:200]
            assert "rigd_version is defined" in after, (path, name)


@pytest.mark.parametrize(
    ("release", "key"),
    [("bookworm", "3bf863cc"), ("noble", "3bf863cc"), ("trixie", "8793F200"), ("resolute", "60DF8A40")],
)
def test_the_driver_s_repository_has_the_key_of_its_release(release, key):
    (play,) = yaml.safe_load((PLAYBOOKS / "driver.yml").read_text())
    wanted = run(compiled(play["vars"]["nvidia_key"]), {"ansible_facts": {"distribution_release": release}})

    assert wanted == key


def table() -> str:
    """Return the table of all variables as it stands in the playbooks' README."""
    rows = [(name, variable) for name in ORDER for variable in variables(PLAYBOOKS / f"{name}.yml").values()]
    lines = [f"| {name} | `{row.name}` | {row.default} | {row.meaning} |\n" for name, row in rows]
    return "| playbook | variable | default | meaning |\n|---|---|---|---|\n" + "".join(lines)


def test_the_readme_lists_the_variables():
    """To make it anew: `python tests/unit/test_provision_playbooks.py`."""
    text = (PLAYBOOKS / "README.md").read_text()

    assert table() == text.partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    readme = PLAYBOOKS / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")
