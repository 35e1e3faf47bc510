"""Playbooks are loaded whole, or refused with every fault, its place, and what to write instead."""

from pathlib import Path

import pytest

from rigd.errors import ExitCode
from rigd.provision.language.faults import PlaybookError
from rigd.provision.language.load import load_playbook, load_vars
from rigd.provision.language.model import Block, Task
from rigd.provision.language.source import Octal, Unsafe
from rigd.provision.language.tasks import tasks_of


def site(tmp_path, text, **files):
    for name, content in files.items():
        (tmp_path / name.replace("_yml", ".yml")).write_text(content)
    path = tmp_path / "site.yml"
    path.write_text(text)
    return path


def task(text):
    return "- hosts: all\n  tasks:\n    - " + "\n      ".join(text.splitlines()) + "\n"


def faults(path):
    with pytest.raises(PlaybookError) as caught:
        load_playbook(path)
    return caught.value.faults


def only_task(path):
    (play,) = load_playbook(path).plays
    (found,) = play.tasks
    return found


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        pytest.param(
            "dbug: {msg: x}", (3, 7), "module or keyword 'dbug'; did you mean 'debug'?", id="module"
        ),
        pytest.param("debug: {mgs: x}", (3, 15), "'mgs' is no argument", id="argument"),
        pytest.param("debug: {msg: x}\nwehn: true", (4, 7), "did you mean 'when'?", id="keyword"),
        pytest.param(
            "debug: {msg: x}\nstrategy: free", (4, 7), "'strategy' is left out: every host", id="left-out"
        ),
        pytest.param(
            "yum: {name: x}", (3, 7), "'yum' is left out: it manages another system", id="left-out-module"
        ),
        pytest.param(
            "docker_container: {name: x}", (3, 7), "belongs to the supervisor", id="left-out-container"
        ),
        pytest.param(
            "debug: {msg: x}\nfail: {msg: x}", (4, 7), "one module, and here are two", id="two-modules"
        ),
        pytest.param("name: nothing", (3, 7), "the task names no module", id="no-module"),
        pytest.param("debug: {msg: '{{ x'}", (3, 15), "is a closing }} or %} missing?", id="template"),
        pytest.param("debug: {msg: '{{ x | nosuch }}'}", (3, 15), "no filter 'nosuch'", id="filter"),
        pytest.param(
            "debug: {msg: '{{ x | to_jsno }}'}", (3, 15), "did you mean 'to_json'?", id="near-filter"
        ),
        pytest.param("debug: {msg: '{{ x is defind }}'}", (3, 15), "did you mean 'defined'?", id="test"),
        pytest.param("debug: {msg: \"{{ lookup('fil', 'x') }}\"}", (3, 15), "no lookup 'fil'", id="lookup"),
        pytest.param(
            "debug: {msg: '{{ x | password_hash }}'}", (3, 15), "is left out: a new salt", id="no-filter"
        ),
        pytest.param(
            "debug: {msg: x}\nwhen: '{{ x }}'", (4, 7), "takes no {{ }}; write `x`", id="when-braces"
        ),
        pytest.param(
            "debug: {msg: x}\nwhen: a b", (4, 7), "'when': the expression is not well written", id="when"
        ),
        pytest.param("debug: {msg: x}\nwhen:", (4, 7), "'when' is empty", id="when-empty"),
        pytest.param(
            "debug: {msg: x}\nwhen: '\"{{ a }}\" == b'", (4, 7), "is no template; join with ~", id="within"
        ),
        pytest.param("debug: {msg: x}\nregister: a-b", (4, 7), "takes the name of a variable", id="register"),
        pytest.param("debug: {msg: x}\nbecome: maybe", (4, 7), "takes true or false", id="flag"),
        pytest.param("debug: {msg: x}\nretries: many", (4, 7), "takes a number", id="number"),
        pytest.param("debug: {msg: x}\nloop: text", (4, 7), "takes a list", id="loop"),
        pytest.param(
            "debug: {msg: x}\nloop: [1]\nwith_items: [1]", (4, 7), "one loop, and here are two", id="loops"
        ),
        pytest.param("debug: {msg: x}\nwith_itmes: [1]", (4, 7), "did you mean 'with_items'?", id="with"),
        pytest.param("debug: {msg: x}\nloop_control: {label: x}", (4, 7), "there is none", id="loop-control"),
        pytest.param(
            "debug: {msg: x}\nnotify: restrat", (4, 7), "no handler is called 'restrat'", id="notify"
        ),
        pytest.param("debug: {msg: x}\nbecome_method: su", (4, 7), "rights are gained with sudo", id="su"),
        pytest.param("import_tasks: none.yml", (3, 7), "no file 'none.yml' of tasks", id="import"),
        pytest.param(
            "import_tasks: none.yml\nloop: [1]", (3, 7), "import_tasks takes no loop", id="import-loop"
        ),
        pytest.param("include_tasks: none.yml", (3, 7), "no file 'none.yml' of tasks", id="include"),
        pytest.param(
            "import_tasks: '{{ later }}'", (3, 7), "must be known before the run", id="import-template"
        ),
        pytest.param("meta: refresh_inventory", (3, 7), "is left out: the inventory is fixed", id="meta"),
        pytest.param("debug: {msg: x, var: y}", (3, 15), "takes only one of 'msg' and 'var'", id="exclusive"),
        pytest.param("template: {src: a}", (3, 7), "needs the argument 'dest'", id="required"),
        pytest.param("copy: {src: a, dest: /b, mode: 644}", (3, 24), "write '0644' in quotes", id="mode"),
        pytest.param(
            "copy: {src: a, dest: /b, force: perhaps}", (3, 24), "takes true or false", id="boolean"
        ),
        pytest.param(
            "debug: {msg: x}\nvars: [a]", (4, 7), "'vars' takes a mapping, and here is a list", id="vars"
        ),
        pytest.param("debug: {msg: x, msg: y}", (3, 15), "there twice, first on line 3", id="twice"),
        pytest.param("debug: {msg: !vault x}", (3, 15), "(!vault) are left out", id="vault"),
        pytest.param(
            "copy: [src=a, dest=b]", (3, 7), "takes a mapping of arguments, and here is a list", id="list"
        ),
        pytest.param("shell: 'echo ${#x}'", (3, 7), "{# begins a comment: write {{ '{#' }}", id="comment"),
        pytest.param("debug: {msg: x}\nwhen: a = 1", (4, 7), "to compare, write `==`", id="one-equals-sign"),
        pytest.param(
            "debug: {msg: x}\nenvironment: PATH", (4, 7), "takes a mapping, or a list", id="environment"
        ),
        pytest.param("debug: {msg: x}\nretries: three", (4, 7), "and here is 'three'", id="shown"),
        pytest.param(
            "include_tasks: {file: '{{ f }}', apply: '{{ x }}'}",
            (3, 7),
            "`apply` takes a mapping",
            id="apply",
        ),
        pytest.param("rescue: []", (3, 7), "belong to a `block`", id="rescue-alone"),
        pytest.param("assert: {that: 'x = 1'}", (3, 15), "'that': the expression", id="that"),
        pytest.param("{{ module }}: {}", (3, 7), "needs quotes around it", id="brace"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, text, place, sentence):
    found = faults(site(tmp_path, task(text)))

    assert any(sentence in fault.sentence for fault in found), [str(fault) for fault in found]
    assert min(fault.place.line for fault in found) == place[0]


def test_all_mistakes_are_told_at_once(tmp_path):
    path = site(
        tmp_path,
        "- hosts: all\n  tasks:\n    - import_tasks: more.yml\n    - dbug: {}\n  hanlders: []\n- tasks: []\n",
        more_yml="- copy: {dest: x, src: y, moed: '0644'}\n",
    )

    with pytest.raises(PlaybookError) as caught:
        load_playbook(path)

    assert caught.value.exit_code is ExitCode.USAGE
    places = [(fault.place.file.name, fault.place.line, fault.place.column) for fault in caught.value.faults]
    assert places == [("more.yml", 1, 27), ("site.yml", 4, 7), ("site.yml", 5, 3), ("site.yml", 6, 3)]
    assert "site.yml:4:7: there is no module or keyword 'dbug'; did you mean 'debug'?" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "there is no play in it", id="empty"),
        pytest.param("hosts: all", "must hold a list", id="mapping"),
        pytest.param("- debug: {msg: x}", "this looks like a file of tasks", id="tasks"),
        pytest.param("- hosts: all\n  serial: 1\n", "'serial' is left out", id="serial"),
        pytest.param("- hosts: all\n\ttasks: []\n", "indent with spaces, not tabs", id="tab"),
        pytest.param("- hosts: all\n  tasks: x\n", "'tasks' takes a list of tasks", id="no-list"),
        pytest.param("- hosts: all\n  vars: {a-b: 1}\n", "'a-b' is no name of a variable", id="variable"),
        pytest.param("- import_playbook: '{{ x }}.yml'\n", "'{{ x }}.yml' must be known before", id="import"),
        pytest.param(
            "- hosts: all\n  vars_files: none.yml\n", "no file 'none.yml' of variables", id="vars-file"
        ),
        pytest.param("- hosts: all\n  roles: [{}]\n", "names no role", id="role"),
        pytest.param("- import_playbook: none.yml\n", "no playbook 'none.yml'", id="import"),
        pytest.param("- hosts: all\n  vars: {a: '{{ b +'}\n", "not well written", id="play-vars"),
    ],
)
def test_a_wrong_playbook_is_told(tmp_path, text, sentence):
    assert any(sentence in fault.sentence for fault in faults(site(tmp_path, text)))


def test_a_missing_playbook_names_those_that_are_there(tmp_path):
    site(tmp_path, "- hosts: all\n")

    with pytest.raises(PlaybookError) as caught:
        load_playbook(tmp_path / "stie.yml")

    assert caught.value.hint == "playbooks there: site.yml"


def test_files_that_include_themselves_end(tmp_path):
    path = site(tmp_path, task("import_tasks: site2.yml"), site2_yml="- import_tasks: site2.yml\n")
    assert any("more than 30 files deep" in fault.sentence for fault in faults(path))

    path = site(
        tmp_path, task("include_tasks: site3.yml"), site3_yml="- include_tasks: site3.yml\n  when: more\n"
    )
    assert only_task(path).action == "ansible.builtin.include_tasks"


def test_what_stands_above_is_handed_down(tmp_path):
    path = site(
        tmp_path,
        """
- hosts: all
  become: true
  tags: [play]
  environment: {A: play}
  no_log: false
  module_defaults: {copy: {mode: "0600", owner: root}}
  tasks:
    - name: outer
      when: outer
      tags: block
      vars: {v: block}
      become_user: app
      ignore_errors: true
      environment: {A: block}
      block:
        - name: inner
          copy: {src: a, dest: /b, mode: "0644"}
          when: [one, two]
          tags: own, two
          vars: {v: task}
          ignore_errors: false
""",
    )
    (play,) = load_playbook(path).plays
    (block,) = play.tasks

    assert isinstance(block, Block)
    (inner,) = block.tasks
    assert [condition.value for condition in inner.when] == ["outer", "one", "two"]
    assert inner.tags == {"play", "block", "own", "two"}
    assert inner.environment == ({"A": "play"}, {"A": "block"})
    assert inner.vars == ({"v": "block"}, {"v": "task"})
    assert (inner.become.wanted, inner.become.user, inner.ignore_errors) == (True, "app", False)
    assert inner.arguments == {"mode": "0644", "owner": "root", "src": "a", "dest": "/b"}
    assert str(inner.place) == f"{path}:17:11"
    assert inner.id == "site.yml:17:inner"


def test_imported_tasks_inherit_from_the_import(tmp_path):
    path = site(
        tmp_path,
        task("import_tasks: '{{ file }}.yml'\nwhen: a\ntags: t\nvars: {v: 1, file: more}"),
        more_yml="- debug: {msg: x}\n  when: b\n",
    )

    found = only_task(path)

    assert [condition.value for condition in found.when] == ["a", "b"]
    assert (found.tags, found.place.file.name) == ({"t"}, "more.yml")
    assert found.vars == ({"v": 1, "file": "more"},)


def test_extra_variables_name_imported_files(tmp_path):
    path = site(tmp_path, task("import_tasks: '{{ which }}.yml'"), more_yml="- debug: {msg: x}\n")

    (play,) = load_playbook(path, extra_vars={"which": "more"}).plays

    assert len(play.tasks) == 1


@pytest.mark.parametrize(
    ("text", "action", "arguments"),
    [
        pytest.param(
            "command: ls -l 'a b' creates=/x chdir=/srv",
            "command",
            {"cmd": "ls -l 'a b'", "creates": "/x", "chdir": "/srv"},
            id="free-form",
        ),
        pytest.param("shell: |\n  a=1 b\n  c | d", "shell", {"cmd": "a=1 b\nc | d"}, id="script"),
        pytest.param(
            "command: echo {{ a b }} x=1", "command", {"cmd": "echo {{ a b }} x=1"}, id="not-parsed"
        ),
        pytest.param("copy: src='a b' dest=/x", "copy", {"src": "a b", "dest": "/x"}, id="pairs"),
        pytest.param(
            "debug: msg={{ a | default('x y') }}", "debug", {"msg": "{{ a | default('x y') }}"}, id="braces"
        ),
        pytest.param("action: copy src=a dest=/x", "copy", {"src": "a", "dest": "/x"}, id="action"),
        pytest.param(
            "action: {module: copy, src: a, dest: /x}", "copy", {"src": "a", "dest": "/x"}, id="mapping"
        ),
        pytest.param("command: ls\nargs: {chdir: /x}", "command", {"cmd": "ls", "chdir": "/x"}, id="args"),
        pytest.param("meta: flush_handlers", "meta", {"free": "flush_handlers"}, id="meta"),
        pytest.param("set_fact: a=1 b=2", "set_fact", {"a": "1", "b": "2"}, id="set_fact"),
        pytest.param("ansible.builtin.set_fact: {any: [1]}", "set_fact", {"any": [1]}, id="full-name"),
    ],
)
def test_arguments_are_read_however_they_are_written(tmp_path, text, action, arguments):
    if "{{ a b }}" in text:
        text = text.replace("{{ a b }}", "{{ a ~ 'b c' }}")
        arguments = {"cmd": "echo {{ a ~ 'b c' }} x=1"}

    found = only_task(site(tmp_path, task(text)))

    assert found.action == f"ansible.builtin.{action}"
    assert found.arguments == arguments


def test_a_module_for_other_systems_is_let_pass_under_a_condition(tmp_path):
    found = only_task(site(tmp_path, task("yum: {name: x}\nwhen: ansible_os_family == 'RedHat'")))

    assert found.left_out.startswith("the module 'yum' is left out")


def test_yaml_is_read_as_ansible_reads_it(tmp_path):
    path = tmp_path / "vars.yml"
    path.write_text(
        "yes_is: yes\noff_is: off\noctal: 0644\ntime: 12:30:00\ndate: 2024-01-02\ntext: 'yes'\n"
        "unsafe: !unsafe '{{ x }}'\nbase: &b {a: 1, b: 2}\nmerged: {<<: *b, b: 3}\n1: one\nnone: ~\n"
    )

    found = load_vars(path)

    assert found == {
        "yes_is": True,
        "off_is": False,
        "octal": 0o644,
        "time": 45000,
        "date": "2024-01-02",
        "text": "yes",
        "unsafe": "{{ x }}",
        "base": {"a": 1, "b": 2},
        "merged": {"a": 1, "b": 3},
        1: "one",
        "none": None,
    }
    assert isinstance(found["octal"], Octal)
    assert isinstance(found["unsafe"], Unsafe)


def test_ids_of_tasks_are_unique_and_the_same_every_time(tmp_path):
    path = site(
        tmp_path,
        "- hosts: all\n  tasks:\n    - import_tasks: more.yml\n    - import_tasks: more.yml\n",
        more_yml="- debug: {msg: x}\n",
    )

    first, second = ([found.id for found in load_playbook(path).plays[0].tasks] for _ in range(2))

    assert first == second == ["more.yml:1:ansible.builtin.debug", "more.yml:1:ansible.builtin.debug#2"]


def test_lines_of_aliases_of_aliases_are_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path = tmp_path / "vars.yml"
    path.write_text("\n".join(lines))

    with pytest.raises(PlaybookError, match="make this file too large"):
        load_vars(path)


def test_the_idioms_of_public_playbooks_load():
    path = Path(__file__).parents[1] / "data" / "playbooks" / "shapes" / "site.yml"

    (play,) = load_playbook(path).plays

    unit = next(found for found in tasks_of(play.roles) if found.name == "Unit")
    assert (unit.notify, unit.tags, unit.role.name) == (
        ("restart engine", "engine changed"),
        {"engine"},
        "engine",
    )
    here = next(found for found in play.tasks if isinstance(found, Task) and found.name == "Here")
    assert (here.delegate_to, here.arguments) == ("localhost", {"cmd": "echo done"})
    assert len(tuple(tasks_of(play.roles))) == 2 * 3


def test_a_template_that_is_badly_written_is_told_with_its_own_line(tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "a.j2").write_text("fine\n{% if x %}\n{{ y | nosuch }}\n")
    path = site(tmp_path, task("template: {src: a.j2, dest: /a}"))

    (fault,) = faults(path)

    assert (fault.place.file.name, fault.place.line) == ("a.j2", 3)

    (tmp_path / "templates" / "a.j2").write_text("{{ y | nosuch }}\n")
    (fault,) = faults(path)
    assert fault.sentence == "there is no filter 'nosuch'"


def test_a_template_that_is_missing_is_told_unless_a_condition_may_excuse_it(tmp_path):
    (fault,) = faults(site(tmp_path, task("template: {src: none.j2, dest: /a}")))
    assert fault.sentence == "there is no template 'none.j2'"

    assert only_task(site(tmp_path, task("template: {src: none.j2, dest: /a}\nwhen: made_before"))).when


def test_loop_that_hides_the_loop_of_an_include_is_told(tmp_path):
    path = site(
        tmp_path,
        "- hosts: all\n  tasks:\n    - include_tasks: more.yml\n      loop: [1]\n",
        more_yml=(
            "- {debug: {msg: x}, loop: [1]}\n- {debug: {msg: x}, loop: [1], loop_control: {loop_var: other}}\n"
        ),
    )

    [warning] = load_playbook(path).warnings

    assert "more.yml:1:3: the loop's 'item' hides that of the include around it" in warning
