"""Arguments as modules get them, and the tables of what is known and what is left out."""

from dataclasses import replace

import pytest

from rigd.provision.language import keywords, left_out
from rigd.provision.language.actions import ACTIONS, find_signature, known_names
from rigd.provision.language.arguments import ArgumentsError, check_arguments, faults_in
from rigd.provision.language.freeform import free_text, key_values
from rigd.provision.language.source import Octal
from rigd.provision.target import modules
from rigd.provision.target.contract import Argument, Kind


def copy(**arguments):
    return check_arguments("copy", {"src": "a", "dest": "/b", **arguments})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(Octal(0o644), "0644", id="octal"),
        pytest.param(Octal(0o4755), "04755", id="octal-setuid"),
        pytest.param("644", "0644", id="text"),
        pytest.param("0o644", "0644", id="python"),
        pytest.param("u=rw,g=r,o=", "u=rw,g=r,o=", id="symbols"),
        pytest.param("a+X", "a+X", id="symbols-x"),
        pytest.param("preserve", "preserve", id="preserve"),
        pytest.param(493, "0755", id="number-of-no-octal-look"),
    ],
)
def test_modes_are_read(given, expected):
    assert copy(mode=given)["mode"] == expected


@pytest.mark.parametrize("given", [644, 755, 1777, "rw-r--r--", "999", [], True])
def test_other_modes_are_refused(given):
    with pytest.raises(ArgumentsError, match="'mode'"):
        copy(mode=given)


@pytest.mark.parametrize("given", [True, "yes", "on", "1", 1, "True", "y"])
def test_words_for_true(given):
    assert copy(force=given)["force"] is True


@pytest.mark.parametrize("given", [False, "no", "off", "0", 0, "False", "n"])
def test_words_for_false(given):
    assert copy(force=given)["force"] is False


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param({"seconds": "soon"}, "'seconds' takes a number", id="number"),
        pytest.param(
            {"seconds": 1, "minutes": 1}, "takes only one of 'seconds' and 'minutes'", id="exclusive"
        ),
        pytest.param({"second": 1}, "'second' is no argument of it; did you mean 'seconds'", id="unknown"),
        pytest.param({"prompt": {"a": 1}}, "'prompt' takes text, and here is a mapping", id="mapping"),
    ],
)
def test_wrong_arguments_are_told(arguments, sentence):
    with pytest.raises(ArgumentsError, match=sentence):
        check_arguments("pause", arguments)


def test_the_value_of_a_secret_argument_is_in_no_message():
    secret = Argument(kind=Kind.MODE, secret=True)
    pause = replace(ACTIONS["pause"], arguments={"prompt": secret}, exclusive=())

    (fault,) = faults_in(pause, {"prompt": "hunter2"})

    assert fault == (
        "prompt",
        "'prompt' of ansible.builtin.pause is of the wrong kind (its value is not shown)",
    )


def test_arguments_come_complete_under_their_own_names():
    found = check_arguments("ansible.builtin.include_role", {"role": "a", "public": "yes", "apply": None})

    assert (found["name"], found["public"], found["tasks_from"], found["apply"]) == ("a", True, "main", None)


def test_lists_are_read_from_text_and_single_values():
    assert check_arguments("setup", {"filter": "a, b"})["filter"] == ["a", "b"]
    assert check_arguments("setup", {"filter": 1})["filter"] == ["1"]


def test_arguments_of_set_fact_are_kept_as_they_are():
    assert check_arguments("set_fact", {"a": [1], "cacheable": "no"}) == {"a": [1], "cacheable": False}


@pytest.mark.parametrize(
    ("text", "pairs", "rest"),
    [
        pytest.param("a=1 b='x y' c=\"it's\"", {"a": "1", "b": "x y", "c": "it's"}, "", id="quotes"),
        pytest.param(
            "a={{ x | default('y z') }} b=2", {"a": "{{ x | default('y z') }}", "b": "2"}, "", id="template"
        ),
        pytest.param("word a=1 other", {"a": "1"}, "word other", id="rest"),
        pytest.param("a=b=c", {"a": "b=c"}, "", id="equals"),
    ],
)
def test_pairs_are_read_from_text(text, pairs, rest):
    assert key_values(text) == (pairs, rest)


@pytest.mark.parametrize(
    ("text", "pairs", "rest"),
    [
        pytest.param("ls  -l creates=/x", {"creates": "/x"}, "ls  -l", id="end"),
        pytest.param("creates=/x ls", {"creates": "/x"}, "ls", id="begin"),
        pytest.param("env A=1 'creates=/x' ls", {}, "env A=1 'creates=/x' ls", id="quoted"),
        pytest.param("a |\n  b  'c  d'", {}, "a |\n  b  'c  d'", id="as-written"),
    ],
)
def test_free_text_stays_as_it_is_written(text, pairs, rest):
    assert free_text(text, frozenset({"creates", "chdir"})) == (pairs, rest)


def test_a_reason_for_leaving_out_is_no_promise_of_having_it():
    known = {**keywords.PLAY, **keywords.TASK}
    assert not left_out.KEYWORDS.keys() & known.keys()
    assert not left_out.TASK_KEYWORDS.keys() & keywords.TASK.keys()
    assert not left_out.MODULES.keys() & set(known_names())


def test_no_action_hides_a_module():
    assert not ACTIONS.keys() & modules.short_names()


@pytest.mark.parametrize("name", sorted(known_names()))
def test_every_module_and_action_has_a_signature_that_holds_together(name):
    found = find_signature(name)

    assert found is not None
    aliases = [alias for argument in found.arguments.values() for alias in argument.aliases]
    groups = {key for group in (*found.exclusive, *found.one_of, *found.together) for key in group}
    assert not set(aliases) & found.arguments.keys()
    assert len(aliases) == len(set(aliases))
    assert groups <= found.arguments.keys()
    assert not found.free_form or found.free_form in found.arguments


def test_an_argument_that_may_be_omitted_excludes_no_other_before_the_run():
    signature = find_signature("rigd.box.nvidia_driver")
    given = {"branch": "{{ branch | default(omit) }}", "cuda": "13.0"}

    assert list(faults_in(signature, given)) == []
    assert list(faults_in(signature, {**given, "branch": "{{ branch }}"}))
