"""Blocks with rescue and always, handlers, and what ends a play early."""

import threading
import time

import pytest
from provisioning import Bench

from rigd.provision.run.start import Request, ready


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_rescue_sees_what_failed_and_the_play_goes_on(bench):
    found = bench.play(
        """
        - block:
            - {name: breaks, command: "false"}
            - {name: never, debug: {msg: never}}
          rescue:
            - {name: told, debug: {msg: "{{ ansible_failed_task.name }} {{ ansible_failed_result.rc }}"}}
          always:
            - {name: tidy, debug: {msg: tidy}}
        - {name: later, debug: {msg: "{{ ansible_failed_task is defined }}"}}
        """
    )

    assert (found.code, found.counts) == (0, {"ok": 3, "rescued": 1})
    assert found.messages() == ["breaks 1", "tidy", True]


def test_always_runs_when_rescue_fails_too(bench):
    found = bench.play(
        """
        - block: [{name: one, command: "false"}]
          rescue: [{name: two, command: "false"}]
          always: [{name: tidy, debug: {msg: tidy}}]
        - {name: later, debug: {msg: later}}
        """
    )

    assert (found.code, found.messages()) == (1, ["tidy"])
    assert found.counts == {"ok": 1, "failed": 1, "rescued": 1}


def test_inner_failure_goes_to_the_outer_rescue(bench):
    found = bench.play(
        """
        - block:
            - block: [{command: "false"}]
              always: [{debug: {msg: inner}}]
          rescue: [{debug: {msg: outer}}]
        """
    )

    assert (found.code, found.messages()) == (0, ["inner", "outer"])


def test_unreachable_host_is_not_rescued(bench):
    bench.box.gone = True

    found = bench.play("- {block: [{command: 'true'}], rescue: [{debug: {msg: rescued}}]}\n")

    assert (found.code, found.messages()) == (4, [])


def test_handlers_run_once_in_their_order_after_the_tasks(bench):
    found = bench.play(
        """
        - {name: a, copy: {content: x, dest: "{{ here }}/a"}, notify: [second, first]}
        - {name: b, copy: {content: x, dest: "{{ here }}/b"}, notify: topic}
        """,
        handlers="""
        - {name: first, debug: {msg: first}}
        - {name: second, listen: topic, debug: {msg: second}}
        - {name: third, debug: {msg: third}}
        """,
    )

    assert found.messages() == ["first", "second"]


def test_handlers_do_not_run_without_a_change_nor_after_a_failure(bench):
    tasks = '- {name: a, copy: {content: x, dest: "{{ here }}/a"}, notify: h}\n'
    handlers = "- {name: h, debug: {msg: h}}\n"
    bench.play(tasks, handlers=handlers)

    again = bench.play(tasks, handlers=handlers)
    failing = bench.play(
        tasks.replace("content: x", "content: y") + "- {command: 'false'}\n", handlers=handlers
    )

    assert again.messages() == []
    assert failing.messages() == []


def test_handlers_may_be_forced(bench):
    found = bench.play(
        '- {copy: {content: y, dest: "{{ here }}/a"}, notify: h}\n- {command: "false"}\n',
        handlers="- {name: h, debug: {msg: h}}\n",
        head="force_handlers: true\n",
    )

    assert (found.code, found.messages()) == (1, ["h"])


def test_flush_runs_them_now_and_handlers_may_notify(bench):
    found = bench.play(
        """
        - {copy: {content: x, dest: "{{ here }}/a"}, notify: one}
        - {meta: flush_handlers}
        - {debug: {msg: task}}
        """,
        handlers="""
        - {name: two, debug: {msg: two}}
        - {name: one, debug: {msg: one}, changed_when: true, notify: two}
        """,
    )

    assert found.messages() == ["one", "two", "task"]


def test_loop_that_failed_half_way_still_owes_for_what_it_changed(bench):
    found = bench.play(
        """
        - block:
            - {name: l, command: "test {{ item }} = 1", loop: [1, 2], notify: h}
          rescue: [{debug: {msg: rescued}}]
        """,
        handlers="- {name: h, debug: {msg: h}}\n",
    )

    assert found.messages() == ["rescued", "h"]


def test_notified_name_that_is_no_handler_fails(bench):
    found = bench.play("- {name: a, command: 'true', notify: \"{{ 'no' }}\"}\n")

    assert "no handler 'no'" in found.ended("a").result["msg"]


def test_sections_flush_between_them(bench):
    path = bench.write(
        "s.yml",
        """
        - hosts: all
          pre_tasks: [{command: "true", notify: h}]
          tasks: [{debug: {msg: tasks}}]
          post_tasks: [{debug: {msg: post}}]
          handlers: [{name: h, debug: {msg: handler}}]
        """,
    )

    assert bench.run(path).messages() == ["handler", "tasks", "post"]


def test_stop_ends_after_the_task_that_runs_and_tidies_up(bench, tmp_path):
    bench.playbook(
        """
        - block:
            - {name: long, shell: "touch {{ here }}/here; while ! test -e {{ here }}/go; do sleep 0.02; done"}
            - {name: never, copy: {content: x, dest: "{{ here }}/never"}}
          always:
            - {name: tidy, copy: {content: x, dest: "{{ here }}/tidy"}}
        """
    )
    told = []
    engine = ready(Request(playbook=tmp_path / "site.yml", hosts=("box",)), state_dir=bench.state_dir,
                   tell=told.append, way=bench.box.way)  # fmt: skip
    thread = threading.Thread(target=engine.run)
    thread.start()
    until_s = time.monotonic() + 10
    while not (tmp_path / "here").exists():
        assert time.monotonic() < until_s
        time.sleep(0.01)
    engine.stop.ask()
    (tmp_path / "go").touch()
    thread.join(10)

    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "go",
        "here",
        "site.yml",
        "tidy",
    ]
    assert told[-1].exit_code == 1
