"""A planted secret under `no_log` is in nothing that a run prints, tells or writes down."""

import io

import pytest
from provisioning import Bench

from rigd.cli.provision_output import Lines, Screen

SECRET = "hunter2-planted"
TASKS = """
- {name: write, copy: {content: "{{ password }}", dest: "{{ here }}/secret"}, no_log: true, register: out}
- {name: again, copy: {content: "{{ password }}!", dest: "{{ here }}/secret"}, no_log: true, notify: h}
- {name: says, shell: "echo {{ password }}; echo {{ password }} >&2", no_log: true}
- {name: fails, shell: "echo {{ password }}; exit 3", no_log: true, ignore_errors: true}
- {name: loops, shell: "test {{ item }} = x", loop: ["{{ password }}", x], no_log: true, ignore_errors: true}
- {name: template, template: {src: t.j2, dest: "{{ here }}/t"}, no_log: true}
- {name: divides, command: "echo {{ 1 / (password | length - 15) }}", no_log: true, ignore_errors: true}
- {name: undefined, command: "echo {{ password }} {{ nothing }}", no_log: true, ignore_errors: true}
- {name: wrong, file: {path: "{{ here }}/x", state: "{{ password }}"}, no_log: true, ignore_errors: true}
- {name: mode, file: {path: "{{ here }}/x", state: touch, mode: "{{ password }}"}, no_log: true, ignore_errors: true}
- {name: condition, command: "true", when: password, no_log: true, ignore_errors: true}
- {name: says no, fail: {msg: "{{ password }}"}, no_log: true, ignore_errors: true}
- {name: debug, debug: {msg: "{{ password }}"}, no_log: true}
- {name: assert, assert: {that: ["password == 'x'"], fail_msg: "{{ password }}"}, no_log: true, ignore_errors: true}
- {name: fact, set_fact: {other: "{{ password }}"}, no_log: true}
- name: tries
  shell: "echo {{ password }}; false"
  register: tried
  until: tried.rc == 0
  retries: 1
  delay: 0
  no_log: true
  ignore_errors: true
- {name: "named {{ password }}", shell: "true", no_log: true}
- {name: asks, pause: {prompt: "{{ password }}", seconds: 0}, no_log: true}
- {name: replaced, lineinfile: {path: "{{ here }}/secret", line: "{{ password }}?"}, no_log: true}
- name: block
  no_log: true
  block:
    - {name: inner, command: "echo {{ password }}"}
    - {name: breaks, shell: "echo {{ password }}; exit 1"}
  rescue:
    - {name: mends, debug: {msg: "{{ ansible_failed_result }}"}}
"""
HANDLERS = '- {name: h, shell: "echo {{ password }}", no_log: true}\n'


@pytest.mark.parametrize("check", [False, True], ids=["apply", "check"])
def test_secret_is_nowhere(tmp_path, check):
    bench = Bench(tmp_path)
    bench.write("templates/t.j2", "{{ password }}\n")
    bench.write("vars.yml", f"password: {SECRET}\n")
    (tmp_path / "secret").write_text(f"old {SECRET}\n")

    found = bench.play(
        TASKS, handlers=HANDLERS, extra_vars=(f"@{tmp_path}/vars.yml",), diff=True, check=check
    )

    screen, lines = io.StringIO(), io.StringIO()
    for event in found.events:
        Screen(screen, colour=False)(event)
        Lines(lines)(event)
    assert found.code in (0, 3), screen.getvalue()
    assert SECRET not in found.text()
    assert SECRET not in screen.getvalue()
    assert SECRET not in lines.getvalue()
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or SECRET not in path.read_text()


def test_secret_arguments_are_masked_without_no_log(tmp_path):
    bench = Bench(tmp_path)

    secret = f"url_password: '{SECRET}'"
    found = bench.play(
        f"- {{name: get, get_url: {{url: 'file:///nothing/here', dest: '{tmp_path}/x', {secret}}}}}\n"
    )

    assert found.code == 1
    assert SECRET not in found.text()
