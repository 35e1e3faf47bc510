"""What came out when rigd and Ansible did the same side by side: each of these was otherwise once."""

import base64
from pathlib import Path

import pytest
from provisioning import Bench

from rigd.errors import UsageError
from rigd.provision.run.calls import Busy
from rigd.provision.target.modules import apt_key


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_tries_are_counted_before_a_result_is_judged(bench: Bench) -> None:
    found = bench.play(
        """
        - name: thrice
          shell: echo x >> {{ here }}/tries; test "$(wc -l < {{ here }}/tries)" -ge 3
          register: tried
          until: tried is succeeded
          retries: 5
          delay: 0
          changed_when: tried.attempts > 2
        """
    )

    assert found.counts == {"ok": 1, "changed": 1}


def test_until_does_not_ask_about_what_check_mode_skips(bench: Bench) -> None:
    found = bench.play(
        '- {name: later, command: "true", register: out, until: out.rc == 0, retries: 1, delay: 0}',
        check=True,
    )

    assert found.counts == {"skipped": 1}


def test_script_that_need_not_run_is_skipped_and_a_command_is_ok(bench: Bench) -> None:
    bench.write("files/job.sh", "#!/bin/sh\ntrue\n")
    found = bench.play(
        """
        - {name: script, script: job.sh, args: {creates: "{{ here }}"}}
        - {name: command, command: "true", args: {creates: "{{ here }}"}}
        """
    )

    assert (found.names("skipped"), found.names("ok")) == (["script"], ["command"])


def test_archive_that_is_unpacked_already_is_skipped(bench: Bench) -> None:
    found = bench.play(
        '- {name: archive, unarchive: {src: /none.tar, dest: "{{ here }}", creates: "{{ here }}", remote_src: true}}'
    )

    assert found.names("skipped") == ["archive"]


def test_kernels_own_files_can_be_slurped(bench: Bench) -> None:
    found = bench.play(
        """
        - {name: slurp, slurp: {src: /proc/sys/kernel/ostype}, register: kernel}
        - {name: content, debug: {msg: "{{ kernel.content }}"}}
        """
    )

    assert base64.b64decode(found.shown("content")) == b"Linux\n"


def test_command_that_took_too_long_has_no_exit_code_and_no_change(bench: Bench) -> None:
    found = bench.play(
        """
        - {name: slow, command: sleep 5, timeout: 0.1, ignore_errors: true, register: slow}
        - {debug: {msg: "{{ slow is timedout }}"}}
        """
    )

    assert (found.counts, found.messages()) == ({"ok": 2, "ignored": 1}, [True])
    assert "rc" not in found.ended("slow").result


def test_arguments_are_judged_together_with_their_defaults_at_load(bench: Bench) -> None:
    bench.play("- {name: fine, apt: {deb: /none.deb}, when: false}")

    with pytest.raises(UsageError, match="goes with `state: present` alone"):
        bench.play("- {name: wrong, apt: {deb: /none.deb, state: absent}, when: false}")


def test_no_task_can_ignore_that_another_run_is_at_work(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_args: object, **_kwargs: object) -> None:
        raise Busy("another run is at work on 'box'")

    monkeypatch.setattr("rigd.provision.run.boxes.Boxes._take_lock", busy)
    found = bench.play('- {name: one, command: "true", ignore_errors: true}\n- {name: two, command: "true"}')

    assert found.code == 1
    assert found.counts == {"failed": 1}
    assert "another run is at work" in found.text()


@pytest.mark.parametrize(
    ("name", "armored"), [("twin.gpg", False), ("twin", False), ("twin.asc", True)], ids=str
)
def test_keyring_is_of_the_kind_that_apt_reads_by_its_name(tmp_path: Path, name: str, armored: bool) -> None:
    raw = b"\x99\x00\x01\x04"
    text = (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"
        + base64.b64encode(raw)
        + b"\n-----END PGP PUBLIC KEY BLOCK-----\n"
    )

    assert apt_key._keyring(str(tmp_path / name), text) == (text if armored else raw)


def test_keyring_keeps_the_keys_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "twin.gpg").write_bytes(b"\x99\x00\x01\x04")

    assert (
        apt_key._keyring(str(tmp_path / "twin.gpg"), b"\x99\x00\x01\x05")
        == b"\x99\x00\x01\x04\x99\x00\x01\x05"
    )


@pytest.mark.parametrize(
    ("tasks", "messages"),
    [
        pytest.param(
            "- {import_role: {name: one}, when: false}\n- import_role: {name: two}\n", ["base", "two"],
            id="skipped-first",
        ),
        pytest.param(
            "- {include_role: {name: one}, when: false}\n- import_role: {name: two}\n", ["base", "two"],
            id="never-included",
        ),
        pytest.param(
            "- include_role: {name: one}\n- include_role: {name: two}\n- import_role: {name: one}\n",
            ["base", "one", "two", "one"], id="each-once",
        ),
        pytest.param(
            "- import_role: {name: base}\n- import_role: {name: base}\n- import_role: {name: one}\n",
            ["base", "base", "base", "one"], id="asked-for-again",
        ),
    ],
)  # fmt: skip
def test_role_that_others_depend_on_runs_once_wherever_it_is_reached_first(
    bench: Bench, tasks: str, messages: list[str]
) -> None:
    for name in ("one", "two", "base"):
        bench.write(f"roles/{name}/tasks/main.yml", f"- debug: {{msg: {name}}}\n")
        bench.write(f"roles/{name}/meta/main.yml", f"dependencies: {['base'] if name != 'base' else []}\n")

    assert bench.play(tasks).messages() == messages


def test_keywords_under_apply_hold_for_included_tasks_and_may_use_the_loop(bench: Bench) -> None:
    bench.write("more.yml", '- {name: more, debug: {msg: "{{ v }} {{ later }}"}}\n')
    bench.write("roles/r/tasks/main.yml", '- debug: {msg: "{{ v }}"}\n')
    bench.write("roles/r/defaults/main.yml", "v: default\n")
    found = bench.play(
        """
        - include_tasks: {file: more.yml, apply: {vars: {v: "{{ item }}"}, when: [item != 2, true]}}
          loop: [1, 2, 3]
          vars: {later: "!"}
        - include_role: {name: r, apply: {vars: {v: applied}}}
        """
    )

    assert found.messages() == ["1 !", "3 !", "applied"]


def test_handler_that_is_notified_while_handlers_run_has_its_turn_in_their_order(bench: Bench) -> None:
    found = bench.play(
        '- {command: "true", notify: [one, last]}\n',
        handlers="""
        - {name: one, debug: {msg: one}, changed_when: true, notify: two}
        - {name: two, debug: {msg: two}}
        - {name: last, debug: {msg: last}}
        """,
    )

    assert found.messages() == ["one", "two", "last"]


def test_tasks_of_a_folder_within_a_role_import_what_lies_beside_them(bench: Bench) -> None:
    bench.write("roles/r/tasks/main.yml", "- include_tasks: sub/first.yml\n")
    bench.write("roles/r/tasks/sub/first.yml", "- import_tasks: second.yml\n- include_tasks: third.yml\n")
    bench.write("roles/r/tasks/sub/second.yml", "- debug: {msg: beside}\n")
    bench.write("roles/r/tasks/second.yml", "- debug: {msg: above}\n")
    bench.write("roles/r/tasks/third.yml", "- debug: {msg: found above}\n")

    assert bench.play("- import_role: {name: r}\n").messages() == ["beside", "found above"]


def test_inner_defaults_of_a_module_replace_outer_ones(bench: Bench) -> None:
    found = bench.play(
        """
        - {name: outer, command: pwd, register: outer}
        - {name: inner, command: pwd, register: inner, module_defaults: {command: {stdin: x}}}
        - debug: {msg: "{{ [outer.stdout == '/', inner.stdout == '/'] }}"}
        """,
        head="module_defaults: {ansible.builtin.command: {chdir: /}}\n",
    )

    assert found.messages() == [[True, False]]


def test_facts_that_one_host_sets_for_all_are_there_on_all(bench: Bench) -> None:
    bench.write("more.yml", "included: file\n")
    bench.playbook(
        """
        - {name: set, set_fact: {chosen: "{{ inventory_hostname }}"}, run_once: true}
        - {name: include, include_vars: more.yml, run_once: true}
        - debug: {msg: "{{ chosen }} {{ included }}"}
        """
    )

    assert bench.run(hosts=("one", "two")).messages() == ["one file", "one file"]


def test_set_fact_answers_with_its_facts_and_leaves_out_what_is_omitted(bench: Bench) -> None:
    found = bench.play(
        """
        - {name: set, set_fact: {kept: 1, gone: "{{ nowhere | default(omit) }}"}, register: told}
        - debug: {msg: "{{ told.ansible_facts }} {{ gone is defined }}"}
        - {set_fact: {kept: 2, cacheable: true}}
        - debug: {msg: "{{ ansible_facts.kept }}"}
        - {name: nothing, set_fact: {gone: "{{ omit }}"}, ignore_errors: true}
        - debug: {msg: "{{ nowhere | default(omit) }}"}
        """
    )

    assert found.messages() == ["{'kept': 1} False", 2, "Hello world!"]
    assert "sets no variable" in found.ended("nothing").result["msg"]


def test_what_failed_is_known_after_the_rescue(bench: Bench) -> None:
    found = bench.play(
        """
        - block: [{name: broken, command: "false"}]
          rescue: [{debug: {msg: rescue}}]
          always: [{debug: {msg: "{{ ansible_failed_task.name }}"}}]
        - debug: {msg: "{{ ansible_failed_result.rc }}"}
        """
    )

    assert found.messages() == ["rescue", "broken", 1]


def test_imported_playbook_is_where_its_plays_look(bench: Bench) -> None:
    bench.write("files/name", "outer")
    bench.write("inner/files/name", "inner")
    bench.write("inner/more.yml", '- debug: {msg: "{{ playbook_dir | basename }}"}\n')
    bench.write(
        "inner/site.yml",
        """
        - hosts: all
          tasks:
            - import_tasks: "{{ playbook_dir }}/more.yml"
            - debug: {msg: "{{ lookup('file', 'name') }}"}
        """,
    )

    found = bench.run(bench.write("site.yml", "- import_playbook: inner/site.yml\n"))

    assert found.messages() == ["inner", "inner"]


def test_content_that_is_no_text_is_written_as_ansible_writes_it(bench: Bench) -> None:
    bench.play(
        """
        - {copy: {content: "{{ true }}", dest: "{{ here }}/flag"}}
        - {copy: {content: {a: [1, true]}, dest: "{{ here }}/mapping"}}
        """
    )

    assert (bench.folder / "flag").read_text() == "True"
    assert (bench.folder / "mapping").read_text() == '{"a": [1, true]}'


def test_file_of_variables_with_another_ending_is_no_accident(bench: Bench) -> None:
    bench.write("more/a.yml", "a: 1\n")
    bench.write("more/b.txt", "b: 1\n")
    found = bench.play(
        """
        - {name: strict, include_vars: {dir: more}, ignore_errors: true}
        - {name: loose, include_vars: {dir: more, ignore_unknown_extensions: true}}
        """
    )

    assert found.counts == {"ok": 2, "ignored": 1}
    assert "b.txt' ends in none of .json, .yaml, .yml" in found.ended("strict").result["msg"]
