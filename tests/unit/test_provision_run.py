"""The runner: results, conditions, loops, includes, delegation, facts; against the real helper in this process."""

import time

import pytest
from provisioning import Bench

from rigd.errors import UsageError
from rigd.provision.run import boxes


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


# --- first run, second run, check ---

FILES = """
    - name: folder
      file: {path: "{{ here }}/d", state: directory}
    - name: copy
      copy: {content: "a", dest: "{{ here }}/d/a"}
    - name: line
      lineinfile: {path: "{{ here }}/d/a", line: "{{ item }}"}
      loop: [x, y]
"""


def test_second_run_changes_nothing(bench):
    first = bench.play(FILES.replace('content: "a"', 'content: "a", force: false'))
    second = bench.run()

    assert (first.code, first.counts) == (0, {"ok": 3, "changed": 3})
    assert (second.code, second.counts) == (0, {"ok": 3})


def test_check_changes_nothing_and_says_that_something_would(bench, tmp_path):
    found = bench.play("- {name: folder, file: {path: '{{ here }}/d', state: directory}}\n", check=True)

    assert (found.code, found.counts) == (3, {"ok": 1, "changed": 1})
    assert not (tmp_path / "d").exists()


def test_check_with_nothing_to_do_is_done(bench, tmp_path):
    (tmp_path / "d").mkdir()

    found = bench.play("- {name: folder, file: {path: '{{ here }}/d', state: directory}}\n", check=True)

    assert found.code == 0


def test_task_may_look_only_or_act_in_spite_of_check(bench, tmp_path):
    found = bench.play(
        """
        - {name: acts, file: {path: "{{ here }}/acts", state: touch}, check_mode: false}
        - {name: looks, file: {path: "{{ here }}/looks", state: touch}}
        """,
        check=True,
    )

    assert found.counts["changed"] == 2
    assert sorted(path.name for path in tmp_path.glob("*s")) == ["acts"]


def test_what_check_cannot_know_is_said_and_is_no_error(bench):
    found = bench.play(
        """
        - {name: command, command: "echo 5", register: out}
        - {name: depends, debug: {msg: "{{ out.stdout }}"}}
        - {name: decides, debug: {msg: "never"}, when: out.rc == 0}
        - {name: other, debug: {msg: "fine"}}
        """,
        check=True,
    )

    assert found.names("skipped") == ["command", "depends", "decides"]
    assert "out" in found.ended("depends").result["remark"]
    assert found.shown("other") == "fine"


def test_command_that_only_looks_runs_in_check(bench):
    found = bench.play(
        """
        - {name: look, command: "echo 5", register: out, changed_when: false}
        - {name: depends, debug: {msg: "{{ out.stdout }}"}}
        """,
        check=True,
    )

    assert found.shown("depends") == "5"


def test_diff_tells_both_texts(bench, tmp_path):
    (tmp_path / "a").write_text("one\n")

    found = bench.play('- {name: copy, copy: {content: "two\\n", dest: "{{ here }}/a"}}\n', diff=True)

    [difference] = found.ended("copy").result["diff"]
    assert (difference["before"], difference["after"]) == ("one\n", "two\n")


# --- results and conditions ---


def test_registered_result_is_as_ansible_has_it(bench):
    found = bench.play(
        """
        - {name: run, shell: "echo a; echo b", register: out, changed_when: false}
        - {name: lines, debug: {msg: "{{ out.stdout_lines | join('+') }} {{ out.rc }} {{ out.changed }}"}}
        - {name: skip, command: "true", register: out, when: false}
        - {name: skipped, debug: {msg: "{{ out is skipped }} {{ out.changed }}"}}
        """
    )

    assert found.shown("lines") == "a+b 0 False"
    assert found.shown("skipped") == "True False"


def test_failure_ends_the_host_with_the_place(bench):
    found = bench.play("- {name: bad, command: 'false'}\n- {name: later, debug: {msg: x}}\n")

    assert (found.code, found.counts) == (1, {"failed": 1})
    assert found.ended("bad").place.endswith("site.yml:4:7")
    assert "later" not in found.names()


def test_ignored_failure_goes_on_and_counts_as_ansible_counts_it(bench):
    found = bench.play(
        "- {name: bad, command: 'false', ignore_errors: true}\n- {name: later, debug: {msg: x}}\n"
    )

    assert (found.code, found.counts) == (0, {"ok": 2, "changed": 1, "ignored": 1})


def test_failed_when_and_changed_when_see_the_result(bench):
    found = bench.play(
        """
        - name: tolerated
          shell: "echo warn; exit 3"
          register: out
          failed_when: out.rc not in [0, 3]
          changed_when: "'done' in out.stdout"
        - {name: refused, command: "echo oops", register: out, failed_when: "'oops' in out.stdout"}
        """
    )

    assert found.names("ok") == ["tolerated"]
    assert found.names("failed") == ["refused"]


def test_until_tries_again_and_counts_attempts(bench):
    found = bench.play(
        """
        - name: flaky
          shell: "echo x >> {{ here }}/n; test $(wc -l < {{ here }}/n) -ge 3"
          register: out
          until: out.rc == 0
          retries: 5
          delay: 0
        - {name: attempts, debug: {msg: "{{ out.attempts }}"}}
        """
    )

    assert found.shown("attempts") == 3
    assert len([text for text in found.notes() if "RETRYING" in text]) == 2


def test_until_gives_up_after_its_retries(bench, tmp_path):
    found = bench.play(
        """
        - name: never
          shell: "echo x >> {{ here }}/n; false"
          register: out
          until: out.rc == 0
          retries: 2
          delay: 0
          ignore_errors: true
        - {name: attempts, debug: {msg: "{{ out.attempts }}"}}
        """
    )

    # One try and two more; Ansible's own count says 2.
    assert len((tmp_path / "n").read_text().splitlines()) == 3
    assert found.shown("attempts") == 2


def test_condition_that_is_no_boolean_is_refused(bench):
    found = bench.play("- {name: bad, debug: {msg: x}, when: \"'yes'\"}\n")

    assert "not true or false" in found.ended("bad").result["msg"]


def test_timeout_ends_the_command(bench):
    found = bench.play("- {name: slow, command: 'sleep 20', timeout: 1}\n")

    assert found.counts == {"failed": 1}
    assert found.ended("slow").took_s < 5


def test_async_task_is_waited_for_within_its_time(bench):
    found = bench.play(
        """
        - {name: quick, command: "echo hi", async: 20, poll: 1, register: out}
        - {name: said, debug: {msg: "{{ out.stdout }}"}}
        - {name: slow, command: "sleep 20", async: 1, poll: 1}
        """
    )

    assert found.shown("said") == "hi"
    assert found.names("failed") == ["slow"]


def test_command_that_is_not_polled_goes_on_by_itself(bench, tmp_path, block_until):
    began_s = time.monotonic()
    found = bench.play(
        """
        - name: begin
          shell: "while ! test -e {{ here }}/go; do sleep 0.02; done; echo $WORD > {{ here }}/done"
          args: {chdir: "{{ here }}"}
          environment: {WORD: said}
          async: 20
          poll: 0
          register: out
        - {name: told, debug: {msg: "{{ out.started }} {{ out.ansible_job_id is match('rigd-async-') }}"}}
        """
    )
    assert found.shown("told") == "1 True"
    assert time.monotonic() - began_s < 10
    (tmp_path / "go").touch()

    block_until(lambda: (tmp_path / "done").exists() and (tmp_path / "done").read_text() == "said\n")


# --- variables ---


def test_precedence_of_what_a_run_sets(bench):
    bench.write("more.yml", "a: included\nb: included\n")
    found = bench.play(
        """
        - {name: play, debug: {msg: "{{ a }}"}, vars: {a: task}}
        - {include_vars: more.yml}
        - {name: included, debug: {msg: "{{ a }} {{ b }}"}}
        - {set_fact: {a: fact}}
        - {name: fact, debug: {msg: "{{ a }} {{ c }}"}, vars: {a: task, c: "{{ b }}!"}}
        """,
        extra_vars=("b=extra",),
    )

    shown = [found.shown(name) for name in ("play", "included", "fact")]
    assert shown == ["task", "included extra", "fact extra!"]


def test_facts_are_asked_once_and_only_when_used(bench):
    unused = bench.play("- {name: x, debug: {msg: 1}}\n")
    asked_unused = bench.box.facts_asked
    used = bench.play(
        """
        - {name: x, debug: {msg: "{{ ansible_kernel }} {{ ansible_facts.distribution }}"}}
        - {name: y, debug: {msg: "{{ ansible_facts['kernel'] }}"}}
        """
    )

    assert (unused.code, asked_unused) == (0, 0)
    assert (used.shown("x"), used.shown("y"), bench.box.facts_asked) == ("6.1 Debian", "6.1", 1)


def test_facts_that_nobody_gathers_are_undefined(bench):
    found = bench.play("- {name: x, debug: {msg: '{{ ansible_kernel }}'}}\n", head="gather_facts: false\n")

    assert "'ansible_kernel' is undefined" in found.ended("x").result["msg"]


def test_magic_variables(bench):
    found = bench.play(
        """
        - name: m
          debug: {msg: "{{ inventory_hostname }} {{ groups.all }} {{ ansible_check_mode }} {{ playbook_dir }}"}
        - {name: r, debug: {msg: yes}, when: rigd_version is defined}
        - {name: h, debug: {msg: "{{ hostvars['box'].x }}"}, vars: {x: 1}, ignore_errors: true}
        """
    )

    assert found.shown("m") == f"box ['box'] False {bench.folder}"
    assert found.shown("r") is True


# --- loops ---


def test_loop_results_and_labels(bench):
    found = bench.play(
        """
        - name: loop
          command: "echo {{ n.v }}"
          loop: [{v: 1}, {v: 2}, {v: 3}]
          loop_control: {loop_var: n, index_var: i, label: "v{{ n.v }}", extended: true}
          when: n.v != 2
          changed_when: ansible_loop.last
          register: out
        - name: all
          debug: {msg: "{{ out.results | map(attribute='skipped', default=false) | list }} {{ out.changed }}"}
        - name: own
          debug: {msg: "{{ last.n.v }}{{ last.i }}{{ last.ansible_loop_var }}"}
          vars: {last: "{{ out.results[2] }}"}
        """
    )

    labels = [event.label for event in found.events if type(event).__name__ == "ItemEnded"]
    assert labels == ["v1", "v2", "v3"]
    assert found.shown("all") == "[False, True, False] True"
    assert found.shown("own") == "32n"


def test_loop_over_nothing_is_skipped(bench):
    found = bench.play("- {name: loop, command: 'true', loop: []}\n")

    assert found.counts == {"skipped": 1}


def test_loop_over_what_is_not_there_is_skipped_if_the_condition_says_so(bench):
    found = bench.play(
        "- {name: loop, command: 'echo {{ item }}', loop: '{{ nothing }}', when: nothing is defined}\n"
    )

    assert found.counts == {"skipped": 1}


def test_loop_breaks_when_told(bench):
    found = bench.play(
        "- {name: l, debug: {msg: '{{ item }}'}, loop: [1, 2, 3], loop_control: {break_when: [item == 2]}}\n"
    )

    assert found.messages() == [1, 2]


# --- includes, roles, delegation ---


def test_included_tasks_see_the_loop_and_their_variables(bench):
    bench.write("inc.yml", '- {name: in, debug: {msg: "{{ n }} {{ extra }}"}}\n')

    found = bench.play(
        """
        - include_tasks: inc.yml
          loop: [1, 2]
          loop_control: {loop_var: n}
          vars: {extra: "e{{ n }}"}
        """
    )

    assert found.messages() == ["1 e1", "2 e2"]


def test_role_brings_defaults_files_templates_and_handlers(bench, tmp_path):
    bench.write("roles/web/defaults/main.yml", "listen_on: 80\n")
    bench.write("roles/web/files/f", "file\n")
    bench.write("roles/web/templates/t.j2", "port {{ listen_on }}\n")
    bench.write("roles/web/handlers/main.yml", '- {name: restart, debug: {msg: "restart {{ listen_on }}"}}\n')
    bench.write(
        "roles/web/tasks/main.yml",
        """
        - {name: file, copy: {src: f, dest: "{{ here }}/f"}, notify: restart}
        - {name: template, template: {src: t.j2, dest: "{{ here }}/t"}, notify: restart}
        """,
    )

    found = bench.play(
        "- {name: again, include_role: {name: web}, vars: {listen_on: 82}}\n",
        head="roles: [{role: web, listen_on: 81}]\n",
    )

    assert (tmp_path / "f").read_text() == "file\n"
    assert (tmp_path / "t").read_text() == "port 82\n"
    assert found.names().count("web : restart") == 1


def test_delegated_task_runs_elsewhere_and_registers_here(bench):
    found = bench.play(
        """
        - {name: there, command: "echo hi", delegate_to: localhost, register: out}
        - {name: here, debug: {msg: "{{ out.stdout }}"}}
        """
    )

    assert found.shown("here") == "hi"


def test_script_runs_with_its_arguments(bench):
    bench.write("files/s.sh", "#!/bin/sh\necho $1-$2\n")

    found = bench.play(
        """
        - {name: script, script: "s.sh one 'two three'", register: out}
        - {name: said, debug: {msg: "{{ out.stdout }}"}}
        """
    )

    assert found.shown("said") == "one-two three"


# --- several hosts ---


def test_hosts_run_at_once_and_one_failure_leaves_the_others_alone(bench):
    found = bench.play(
        """
        - {name: one, command: "false", when: inventory_hostname == "b"}
        - {name: two, debug: {msg: "{{ inventory_hostname }}"}}
        """,
        hosts=("a", "b", "c"),
    )

    assert found.code == 1
    assert sorted(found.messages()) == ["a", "c"]
    assert found.recap["b"]["failed"] == 1


def test_run_once_runs_on_the_first_host_and_all_see_the_result(bench, tmp_path):
    found = bench.play(
        """
        - {name: once, shell: "echo {{ inventory_hostname }} | tee -a {{ here }}/n", run_once: true, register: out}
        - {name: seen, debug: {msg: "{{ out.stdout }}"}}
        """,
        hosts=("a", "b", "c"),
    )

    assert (tmp_path / "n").read_text() == "a\n"
    assert found.messages() == ["a", "a", "a"]


def test_failed_host_is_out_of_later_plays(bench):
    path = bench.write(
        "two.yml",
        """
        - hosts: all
          tasks: [{name: one, command: "false", when: inventory_hostname == "b"}]
        - hosts: all
          tasks: [{name: two, debug: {msg: "{{ inventory_hostname }} {{ ansible_play_hosts }}"}}]
        """,
    )

    found = bench.run(path, hosts=("a", "b"))

    assert found.messages() == ["a ['a']"]


def test_host_that_does_not_answer_is_unreachable(bench):
    bench.box.gone = True

    found = bench.play("- {name: x, command: 'true'}\n")

    assert (found.code, found.counts) == (4, {"unreachable": 1})


def test_how_a_host_is_reached_comes_from_variables_and_the_play(bench):
    hosts = bench.write("hosts.ini", "a ansible_host='{{ net }}.7' net=192.0.2 ansible_port=2222\nb\n")
    path = bench.write(
        "two.yml",
        """
        - hosts: a
          remote_user: me
          port: 2200
          tasks: [{command: "true"}, {command: "true", delegate_to: b}]
        - hosts: a
          connection: local
          tasks: [{command: "true"}]
        """,
    )

    found = bench.run(path, hosts=(), inventory=hosts, extra_vars=("ansible_user=you",))

    assert found.code == 0
    first, delegated, second = bench.box.targets
    assert (first.address, first.port, first.user, first.local) == ("192.0.2.7", 2222, "you", False)
    assert (delegated.name, delegated.address) == ("b", None)
    assert (second.name, second.local) == ("a", True)


def test_connection_that_is_wrong_fails_the_task(bench):
    hosts = bench.write("hosts.ini", "a ansible_host='{{ nothing }}'\n")
    bench.playbook("- {name: x, command: 'true'}\n")

    found = bench.run(hosts=(), inventory=hosts)

    assert found.counts == {"failed": 1}


def test_facts_of_another_host_are_read_when_they_are_used(bench):
    found = bench.play(
        "- {name: x, debug: {msg: \"{{ hostvars['b'].ansible_kernel }}\"}, when: inventory_hostname == 'a'}\n",
        hosts=("a", "b"),
    )

    assert found.messages() == ["6.1"]


# --- choosing ---


def test_limit_tags_and_start(bench):
    tasks = """
    - {name: a, debug: {msg: a}, tags: [x]}
    - {name: b, debug: {msg: b}}
    - {name: c, debug: {msg: c}, tags: [never, y]}
    - {name: d, debug: {msg: d}, tags: [always]}
    """

    assert bench.play(tasks).messages() == ["a", "b", "d"]
    assert bench.play(tasks, tags=("x,y",)).messages() == ["a", "c", "d"]
    assert bench.play(tasks, skip_tags=("x",)).messages() == ["b", "d"]
    assert bench.play(tasks, start_at="b").messages() == ["b", "d"]
    assert bench.play(tasks, hosts=("h", "i"), limit="i").recap.keys() == {"i"}


def test_unknown_tag_and_unknown_start_are_refused(bench):
    bench.playbook("- {name: a, debug: {msg: a}, tags: [x]}\n")

    with pytest.raises(UsageError, match="no task carries the tag 'z'"):
        bench.run(tags=("z",))
    with pytest.raises(UsageError, match="no task 'zz' to start at"):
        bench.run(start_at="zz")


def test_meta_ends_host_play_and_role(bench):
    path = bench.write(
        "two.yml",
        """
        - hosts: all
          tasks:
            - {meta: end_host, when: inventory_hostname == "a"}
            - {name: one, debug: {msg: "one {{ inventory_hostname }}"}}
        - hosts: a
          tasks:
            - {meta: end_play}
            - {name: two, debug: {msg: two}}
        """,
    )

    assert bench.run(path, hosts=("a", "b")).messages() == ["one b"]


def test_file_of_this_machine_is_copied_by_its_content(bench, tmp_path):
    bench.write("files/app.conf", "one\n").chmod(0o640)
    tasks = '- {name: copy, copy: {src: app.conf, dest: "{{ here }}/out", mode: preserve}}\n'
    first = bench.play(tasks, diff=True)
    bench.write("files/app.conf", "two\n")

    second = bench.run(diff=True)

    assert (first.counts, second.counts) == ({"ok": 1, "changed": 1}, {"ok": 1, "changed": 1})
    assert (tmp_path / "out").read_text() == "two\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
    assert second.ended("copy").result["diff"][0]["after"] == "two\n"


def test_folder_is_copied_with_all_in_it(bench, tmp_path):
    bench.write("files/etc/a", "a\n")
    bench.write("files/etc/below/b", "b\n")

    found = bench.play('- {name: copy, copy: {src: etc/, dest: "{{ here }}/out"}}\n')
    again = bench.run()

    assert found.code == 0, found.events
    assert (tmp_path / "out/below/b").read_text() == "b\n"
    assert again.counts == {"ok": 1}


def test_run_that_is_about_to_end_on_the_box_is_waited_for(bench, monkeypatch):
    monkeypatch.setattr(boxes, "LOCK_POLL_S", 0)
    bench.box.holders = ["run of old.yml"] * 3

    found = bench.play('- {name: one, shell: "true"}\n')

    assert found.code == 0
    assert "waiting for another run on the box to end" in found.notes()


def test_run_that_works_on_the_box_is_named(bench, monkeypatch):
    monkeypatch.setattr(boxes, "LOCK_PATIENCE_S", 0)
    bench.box.holders = ["run of old.yml"]

    found = bench.play('- {name: one, shell: "true"}\n')

    assert (found.code, found.counts) == (1, {"failed": 1})
    assert "another run is at work on 'box': run of old.yml (wait until it has ended" in found.text()


def test_facts_of_another_host_that_is_gone_fail_a_task_and_do_not_end_this_host(bench):
    bench.box.away = frozenset({"b"})
    playbook = bench.write(
        "site.yml",
        """
        - hosts: a
          tasks:
            - block:
                - {name: other, debug: {msg: "{{ hostvars['b'].ansible_kernel }}"}}
              rescue:
                - {name: mended, debug: {msg: x}}
        """,
    )

    found = bench.run(playbook, hosts=("a", "b"))

    assert (found.code, found.counts) == (0, {"ok": 1, "rescued": 1})
    assert "the facts of 'b' are not to be had" in found.text()
