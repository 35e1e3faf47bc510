"""Roles: their order, what their tasks see, and what is wrong with them. said.json holds what ansible-core says."""

import json
from pathlib import Path

import pytest

from rigd.provision.language.faults import PlaybookError
from rigd.provision.language.inventory import hosts_named
from rigd.provision.language.load import load_playbook, load_role, load_tasks, load_vars_file
from rigd.provision.language.model import Block, Task
from rigd.provision.templating.render import first_false, render
from rigd.provision.templating.values import Plain
from rigd.provision.templating.variables import Variables, layers_for

ORDER = Path(__file__).parents[1] / "data" / "playbooks" / "roles_order"


class Teller:
    """Runs the few actions of the test's playbook, for what its tasks say and see."""

    def __init__(self, play, host, facts):
        self.play = play
        self.host = host
        self.facts = facts
        self.files = [load_vars_file(entry, lambda text: text) for entry in play.vars_files]
        self.said = []
        self.notified = set()
        self.roles = {}

    def run(self, nodes):
        for node in nodes:
            if isinstance(node, Block):
                self.run(node.tasks)
            elif not (node.role and node.role.once) or (
                self.roles.setdefault(node.role.once, node.role) is node.role
            ):
                self.task(node)

    def task(self, task: Task):
        layers = layers_for(
            play=self.play,
            task=task,
            host=self.host,
            vars_files=self.files,
            results=self.facts,
            magic={"inventory_hostname": "box"},
        )
        variables = Variables(layers)
        if first_false(task.when, variables) is not None:
            return
        arguments = render(dict(task.arguments), variables)
        action = task.action.rpartition(".")[2]
        if action == "debug":
            self.said.append(arguments["msg"])
            self.notified.update(task.notify)
        elif action == "set_fact":
            self.facts.update(arguments)
        elif action == "include_tasks":
            self.run(load_tasks(arguments["file"], task).nodes)
        elif action == "include_role":
            parts = {key.removesuffix("_from"): arguments[key] for key in arguments if key.endswith("_from")}
            self.run(load_role(arguments["name"], task, parts=parts).nodes)

    def handlers(self):
        last = {handler.name: handler for handler in self.play.handlers}
        for handler in self.play.handlers:
            if last[handler.name] is handler and self.notified.intersection((handler.name, *handler.listen)):
                self.task(handler)
        self.notified.clear()


def test_roles_say_what_they_say_under_ansible():
    playbook = load_playbook(ORDER / "site.yml")
    (host,) = hosts_named(["box"], playbook=playbook.path).hosts
    facts, said = {}, []

    for play in playbook.plays:
        teller = Teller(play, host, facts)
        teller.run((*play.pre_tasks, *play.roles, *play.tasks))
        teller.handlers()
        teller.run(play.post_tasks)
        said += teller.said

    assert said == json.loads((ORDER / "said.json").read_text())


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "site.yml"


def sentences(path: Path) -> list[str]:
    with pytest.raises(PlaybookError) as caught:
        load_playbook(path)
    return [fault.sentence for fault in caught.value.faults]


def test_a_missing_role_is_told_with_the_nearest(tmp_path):
    site = write(
        tmp_path, {"site.yml": "- hosts: all\n  roles: [dokcer]\n", "roles/docker/tasks/main.yml": ""}
    )

    (sentence,) = sentences(site)

    assert sentence.startswith("there is no role 'dokcer'")
    assert sentence.endswith("did you mean 'docker'?")


def test_roles_that_need_one_another_are_told(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  roles: [a]\n",
            "roles/a/meta/main.yml": "dependencies: [b]\n",
            "roles/b/meta/main.yml": "dependencies: [a]\n",
        },
    )

    assert any("depend on one another" in sentence for sentence in sentences(site))


def test_faults_of_a_role_name_its_file(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  roles: [a]\n",
            "roles/a/tasks/main.yml": "- debug:\n    mgs: x\n",
            "roles/a/handlers/main.yml": "- name: h\n  debug: {msg: '{{ x | nofilter }}'}\n",
            "roles/a/defaults/main.yml": "x: '{{ unfinished'\n",
        },
    )

    with pytest.raises(PlaybookError) as caught:
        load_playbook(site)

    found = {(fault.place.file.parent.name, fault.place.line) for fault in caught.value.faults}
    assert found == {("tasks", 2), ("handlers", 2), ("defaults", 1)}


def test_a_missing_part_of_a_role_is_told(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  tasks:\n    - import_role: {name: a, tasks_from: instal}\n",
            "roles/a/tasks/install.yml": "",
        },
    )

    assert sentences(site) == ["the role 'a' has no file 'tasks/instal'; did you mean 'install'?"]


def test_a_role_included_by_name_is_checked_beforehand(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  tasks:\n    - include_role: {name: a}\n      when: false\n",
            "roles/a/tasks/main.yml": "- cpoy: {src: a, dest: b}\n",
        },
    )

    (sentence,) = sentences(site)

    assert sentence == "there is no module or keyword 'cpoy'; did you mean 'copy'?"


def test_handlers_of_an_included_role_answer_to_notify(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  tasks:\n    - include_role: {name: a}\n",
            "roles/a/tasks/main.yml": "- debug: {msg: x}\n  notify: h\n",
            "roles/a/handlers/main.yml": "- name: h\n  debug: {msg: x}\n",
        },
    )

    assert load_playbook(site).plays[0].handlers == ()


def test_the_loops_item_reaches_included_tasks(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  tasks:\n    - include_tasks: more.yml\n      loop: [a, b]\n",
            "more.yml": "- debug: {msg: '{{ item }}'}\n",
        },
    )
    (play,) = load_playbook(site).plays
    (include,) = play.tasks

    found = load_tasks("more.yml", include, variables=Plain(item="{{ untouched }}"))

    (task,) = found.nodes
    variables = Variables(layers_for(play=play, task=task, host=None))
    assert render(task.arguments, variables) == {"msg": "{{ untouched }}"}
    assert task.id.startswith(include.id + "/")


def test_apply_hands_keywords_to_included_tasks_and_the_includes_own_do_not_pass(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": (
                "- hosts: all\n  tags: play\n  tasks:\n"
                "    - include_tasks: {file: more.yml, apply: {tags: [given], become: true}}\n"
                "      tags: own\n      when: x\n"
            ),
            "more.yml": "- debug: {msg: x}\n  tags: inner\n",
        },
    )
    ((include,),) = (play.tasks for play in load_playbook(site).plays)

    (task,) = load_tasks("more.yml", include).nodes

    assert include.tags == {"play", "own"}
    assert (task.tags, task.when, task.become.wanted) == ({"play", "given", "inner"}, (), True)


def test_name_of_a_role_may_come_from_the_plays_variables(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  vars: {kind: big}\n  roles: ['{{ kind }}one', {role: '{{ kind }}two'}]\n",
            "roles/bigone/tasks/main.yml": "- debug: {msg: one}\n",
            "roles/bigone/meta/main.yml": "dependencies: ['{{ kind }}two']\n",
            "roles/bigtwo/tasks/main.yml": "- debug: {msg: two}\n",
        },
    )

    (play,) = load_playbook(site).plays

    assert [task.role.name for task in play.roles] == ["bigtwo", "bigone", "bigtwo"]


@pytest.mark.parametrize(
    ("meta", "sentence"),
    [
        pytest.param("- base\n", "the file must hold a mapping", id="list"),
        pytest.param("dependencies: base\n", "'dependencies' takes a list of roles", id="text"),
    ],
)
def test_dependencies_that_are_none_are_told(tmp_path, meta, sentence):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  roles: [web]\n",
            "roles/web/meta/main.yml": meta,
            "roles/base/tasks/main.yml": "[]\n",
        },
    )

    assert [each for each in sentences(site) if sentence in each]


def test_parameter_that_looks_like_a_keyword_is_warned_of(tmp_path):
    site = write(
        tmp_path,
        {
            "site.yml": "- hosts: all\n  roles: [{role: web, wehn: false, version: 80}]\n",
            "roles/web/tasks/main.yml": "[]\n",
        },
    )

    [warning] = load_playbook(site).warnings

    assert warning.endswith("'wehn' is taken for a parameter of the role; did you mean 'when'?")
