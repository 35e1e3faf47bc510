"""Reading ahead: how few requests a run needs, and that nothing is read before it may be."""

import pytest
from provisioning import Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def requests(bench):
    found = list(bench.box.requests)
    bench.box.requests.clear()
    return [(kind, len(ids)) for kind, ids in found]


COPIES = "\n".join(f'- {{copy: {{content: x, dest: "{{{{ here }}}}/f{n}"}}}}' for n in range(10)) + "\n"


def test_converged_tasks_are_probed_in_one_request(bench):
    bench.play(COPIES)
    requests(bench)

    bench.run()

    assert requests(bench) == [("batch", 10)]


def test_first_run_needs_one_request_a_task(bench):
    bench.play(COPIES)

    found = requests(bench)

    assert found[0] == ("batch", 10)
    assert found[1:] == [("apply", 2)] * 9 + [("apply", 1)]


def test_batches_grow_again_after_a_change(bench, tmp_path):
    bench.play(COPIES)
    (tmp_path / "f2").write_text("y")
    requests(bench)

    bench.run()

    assert requests(bench) == [("batch", 10), ("apply", 2), ("batch", 2), ("batch", 4)]


def test_loop_is_probed_in_one_request(bench):
    bench.play("- {file: {path: '{{ here }}/{{ item }}', state: touch, access_time: preserve, "
               "modification_time: preserve}, loop: [a, b, c]}\n")  # fmt: skip
    requests(bench)

    bench.run()

    assert requests(bench) == [("batch", 3)]


def test_task_that_uses_a_result_waits_for_it_and_others_do_not(bench):
    bench.play(
        """
        - {stat: {path: "{{ here }}"}, register: st}
        - {copy: {content: "{{ st.stat.isdir }}", dest: "{{ here }}/a"}}
        - {copy: {content: "x", dest: "{{ here }}/b"}}
        """
    )
    requests(bench)

    bench.run()

    # The second waits for the first; the third went with it.
    assert requests(bench) == [("batch", 2), ("batch", 1)]


def test_result_is_waited_for_through_variables_that_use_it(bench, tmp_path):
    found = bench.play(
        """
        - {name: a, command: "echo {{ here }}", register: out, changed_when: false}
        - {name: b, copy: {content: "{{ way }}", dest: "{{ here }}/b"}}
        - {name: c, copy: {content: "{{ hostvars[inventory_hostname].out.rc }}", dest: "{{ here }}/c"}}
        """,
        head="vars_files: [v.yml]\n",
    ) if bench.write("v.yml", 'way: "{{ out.stdout }}/x"\n') else None  # fmt: skip

    assert found is not None
    assert found.code == 0
    assert (tmp_path / "b").read_text() == f"{tmp_path}/x"
    assert (tmp_path / "c").read_text() == "0"


def test_controllers_actions_do_not_break_a_batch(bench):
    bench.play(
        """
        - {copy: {content: "x", dest: "{{ here }}/a"}}
        - {debug: {msg: x}}
        - {set_fact: {y: 1}}
        - {assert: {that: [y == 1]}}
        - {copy: {content: "x", dest: "{{ here }}/b"}}
        - {copy: {content: "{{ y }}", dest: "{{ here }}/c"}}
        """
    )
    requests(bench)

    bench.run()

    assert requests(bench) == [("batch", 2), ("batch", 1)]


def test_skipped_tasks_cost_nothing(bench):
    bench.play("- {copy: {content: x, dest: '{{ here }}/a'}, when: false}\n")

    assert requests(bench) == []


def test_nothing_is_read_past_an_include_a_delegation_or_a_flush(bench):
    bench.write("inc.yml", "- {copy: {content: x, dest: '{{ here }}/i'}}\n")
    bench.play(
        """
        - {copy: {content: "x", dest: "{{ here }}/a"}}
        - {include_tasks: inc.yml}
        - {copy: {content: "x", dest: "{{ here }}/b"}}
        - {meta: flush_handlers}
        - {copy: {content: "x", dest: "{{ here }}/c"}}
        """
    )
    requests(bench)

    bench.run()

    assert requests(bench) == [("batch", 1)] * 4


def test_change_is_seen_by_what_was_read_before_it(bench, tmp_path):
    found = bench.play(
        """
        - {name: write, copy: {content: "new", dest: "{{ here }}/a"}}
        - {name: look, stat: {path: "{{ here }}/a"}, register: st}
        - {name: said, debug: {msg: "{{ st.stat.size }}"}}
        """
    )

    assert found.shown("said") == 3


def test_lookup_on_this_machine_sees_what_a_task_before_it_wrote(bench, tmp_path):
    bench.box.local = True
    (tmp_path / "a").write_text("old")
    bench.play(
        """
        - {copy: {content: "new", dest: "{{ here }}/a"}}
        - {copy: {content: "{{ lookup('file', here ~ '/a') }}", dest: "{{ here }}/b"}}
        """
    )

    assert (tmp_path / "b").read_text() == "new"


def test_check_probes_everything_in_one_request(bench):
    bench.play(COPIES, check=True)

    assert requests(bench) == [("batch", 10)]


def test_long_plays_are_probed_in_several_requests(bench):
    bench.play(
        "- {copy: {content: x, dest: '{{ here }}/f{{ item }}'}, loop: '{{ range(150) | list }}'}\n",
        check=True,
    )

    assert requests(bench) == [("batch", 64), ("batch", 64), ("batch", 22)]
