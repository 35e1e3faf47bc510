"""Variables: which layer wins, when values are filled in, what errors say."""

import pytest

from rigd.errors import explain
from rigd.provision.language.source import Unsafe
from rigd.provision.templating.files import render_file
from rigd.provision.templating.render import expression, holds, render
from rigd.provision.templating.values import OMIT, Plain
from rigd.provision.templating.variables import (
    EVERYTHING,
    HostVars,
    Layers,
    TemplateError,
    UndefinedVariableError,
    Variables,
    fact_variables,
)

LOWEST_FIRST = (
    "defaults",
    "inventory",
    "facts",
    "play",
    "vars_files",
    "roles",
    "task",
    "included",
    "results",
    "role_parameters",
    "parameters",
    "extra",
    "magic",
    "local",
)
SEVERAL = frozenset({"defaults", "vars_files", "roles", "task", "parameters"})


def variables(**values):
    return Variables(Layers(play=values))


def layers(names):
    return Layers(**{name: ({"x": name},) if name in SEVERAL else {"x": name} for name in names})


@pytest.mark.parametrize("number", range(1, len(LOWEST_FIRST)))
def test_a_higher_layer_wins(number):
    assert Variables(layers(LOWEST_FIRST[: number + 1]))["x"] == LOWEST_FIRST[number]


def test_the_innermost_of_several_wins():
    found = Variables(
        Layers(task=({"x": "block"}, {"x": "task"}), parameters=({"y": "outer"}, {"y": "inner"}))
    )

    assert (found["x"], found["y"]) == ("task", "inner")


def test_a_value_may_use_what_is_defined_later_or_higher():
    found = Variables(
        Layers(defaults=({"url": "http://{{ host }}:{{ port }}"},), play={"host": "a"}, extra={"port": 1})
    )

    assert found["url"] == "http://a:1"


def test_what_a_box_answers_is_never_a_template():
    found = Variables(
        Layers(
            play={
                "shown": "{{ result.stdout }} {{ ansible_kernel }}",
                "unsafe": Unsafe("{{ secret }}"),
                "secret": 1,
            },
            results=Plain(result={"stdout": "{{ secret }}"}),
            facts=fact_variables({"kernel": "{{ secret }}"}),
        )
    )

    assert render("{{ shown }} {{ unsafe }}", found) == "{{ secret }} {{ secret }} {{ secret }}"
    assert render("{{ ansible_facts.kernel }}", found) == "{{ secret }}"


def test_a_circle_of_variables_is_told_with_its_names():
    with pytest.raises(TemplateError, match="in a circle: a -> b -> c -> a"):
        render("{{ a }}", variables(a="{{ b }}", b="x{{ c }}", c="{{ a }}"))


def test_a_mapping_may_use_its_own_keys_but_not_itself():
    found = variables(d={"root": "/x", "file": "{{ d.root }}/y", "loop": "{{ d.loop }}"})

    assert render("{{ d.file }}", found) == "/x/y"
    with pytest.raises(TemplateError, match=r"in a circle: d.loop -> d.loop"):
        render("{{ d.loop }}", found)


def test_an_undefined_name_is_told_with_the_nearest():
    with pytest.raises(UndefinedVariableError) as caught:
        render("{{ dokcer_version }}", variables(docker_version=1))

    assert str(caught.value) == (
        "cannot fill in '{{ dokcer_version }}': 'dokcer_version' is undefined; did you mean 'docker_version'?"
    )


def test_an_undefined_name_is_told_with_who_wanted_it():
    with pytest.raises(UndefinedVariableError, match=r"'nowhere' is undefined \(wanted by 'b', by 'a'\)"):
        render("{{ a }}", variables(a="{{ b }}", b="{{ nowhere }}"))


def test_a_missing_key_is_told_with_the_nearest():
    with pytest.raises(UndefinedVariableError, match="a mapping has no 'prot'; did you mean 'port'"):
        render("{{ service.prot }}", variables(service={"port": 1}))


def test_errors_of_templates_name_nothing_of_the_program():
    with pytest.raises(TemplateError) as caught:
        render("{{ d.some.more }}", variables(d={"same": 1}))
    with pytest.raises(TemplateError) as other:
        render("{{ 'a' | b64decode(1, 2, 3, 4) }}", variables())

    assert explain(caught.value).endswith("a mapping has no 'some'; did you mean 'same'?")
    assert "`b64decode` is given other arguments than it takes" in explain(other.value)


def test_omitted_values_are_left_out():
    found = variables()

    value = {"a": "{{ nowhere | default(omit) }}", "b": [1, "{{ omit }}"], "c": {"d": "{{ omit }}"}}
    assert render(value, found) == {"b": [1], "c": {}}
    assert render("{{ nowhere | default(omit) }}", found) is OMIT


def test_lone_expressions_keep_their_type_and_newlines_stay():
    found = variables(n=1, s="x")

    assert render(["{{ n }}", "{{ n }}{{ n }}", "{{ s }}\n", "{{ s }}\n\n", "{{ n }} "], found) == [
        1, "11", "x\n", "x\n\n", "1 "
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        pytest.param("x == 1", True, id="comparison"),
        pytest.param("not (x == 1)", False, id="not"),
        pytest.param("y is defined", False, id="undefined"),
        pytest.param(True, True, id="literal"),
        pytest.param("'yes' | bool", True, id="bool"),
        pytest.param("x in [1, 2] and (y | default(true))", True, id="and"),
        pytest.param("'a.b' is match('a\\.b')", True, id="backslash"),
        pytest.param("result is changed", True, id="result"),
    ],
)
def test_a_condition_gives_true_or_false(condition, result):
    assert holds(condition, variables(x=1, result={"changed": True})) is result


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        pytest.param("text", r"the condition 'text' gives text \('false'\), not true or false", id="text"),
        pytest.param("[] or text", "gives text", id="or"),
        pytest.param("number", r"gives a number \(3\)", id="number"),
        pytest.param("nothing", r"gives nothing \(null\)", id="null"),
        pytest.param("items", r"gives a list \(\[1\]\)", id="list"),
        pytest.param("nowhere", "'nowhere' is undefined", id="undefined"),
        pytest.param("number > 'x'", "not supported between", id="types"),
        pytest.param(3, "is text, true or false, and here is a number", id="no-text"),
    ],
)
def test_a_condition_that_is_not_true_or_false_is_an_error(condition, sentence):
    with pytest.raises(TemplateError, match=sentence):
        holds(condition, variables(text="false", number=3, nothing=None, items=[1]))


def test_secret_errors_show_no_values():
    found = variables(password="hunter2")

    for template in ("{{ password | int + 'x' }}", "{{ password | from_json }}", "{{ password[9999].x }}"):
        with pytest.raises(TemplateError) as caught:
            render(template, found, secret=True)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(TemplateError) as caught:
        holds("password", found, secret=True)
    assert "hunter2" not in str(caught.value)


def test_hostvars_are_made_when_they_are_asked_for():
    asked = []

    def make(name):
        asked.append(name)
        return variables(address=f"10.0.0.{name}")

    found = Variables(Layers(magic=Plain(hostvars=HostVars(["1", "2"], make))))

    assert render("{{ hostvars['2'].address }}", found) == "10.0.0.2"
    assert asked == ["2"]
    assert holds("'3' not in hostvars", found)
    with pytest.raises(UndefinedVariableError):
        render("{{ hostvars['3'].address }}", found)


def test_names_needed_follow_variables_of_variables():
    found = Variables(
        Layers(
            play={"url": "http://{{ address }}", "address": "{{ probe.stdout }}", "spare": "{{ other }}"},
            results=Plain(probe={"stdout": "x"}),
        )
    )

    assert found.names_needed(["{{ url }}", {"k": "plain"}]) == {"url", "address", "probe"}
    assert found.names_needed("{{ lookup('vars', url) }}") & EVERYTHING
    assert found.names_needed("no template") == frozenset()


def test_files_of_templates_follow_ansibles_rules(tmp_path):
    (tmp_path / "part.j2").write_text("part {{ x }}\n")
    text = "{% for n in items %}\n{{ n }}\n{% endfor %}\n{% include 'part.j2' %}\n{{ '\\t' }}|\n\n"

    found = render_file(text, variables(x=1, items=[1, 2]), name="a.j2", folders=(tmp_path,))

    assert found == "1\n2\npart 1\t|\n\n"


def test_a_templates_first_line_and_the_tasks_options_set_its_marks():
    found = variables(x=1)

    assert (
        render_file(
            "#jinja2: variable_start_string:'[[', variable_end_string:']]'\n[[ x ]]{{ x }}", found, name="a"
        )
        == "1{{ x }}"
    )
    assert (
        render_file(
            "<< x >>", found, name="a", options={"variable_start_string": "<<", "variable_end_string": ">>"}
        )
        == "1"
    )


def test_errors_of_a_file_of_templates_name_it():
    with pytest.raises(TemplateError, match=r"cannot fill in the file 'a.j2': line 2 is not well written"):
        render_file("x\n{{ x", variables(), name="a.j2")
    with pytest.raises(UndefinedVariableError, match="'nowhere' is undefined"):
        render_file("{{ nowhere }}", variables(), name="a.j2")


def test_expressions_of_debug_give_values():
    assert expression("d.a", variables(d={"a": ["{{ b }}"]}, b=2)) == [2]


def test_dangerous_attributes_are_not_reached():
    with pytest.raises(TemplateError):
        render("{{ ''.__class__.__mro__ }}", variables())
    with pytest.raises(TemplateError):
        render("{{ lookup.__globals__ }}", variables())
