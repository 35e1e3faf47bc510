"""A person's own file: comments, order and unknown keys survive, and a second run changes nothing."""

import json
import re

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from rigd.clients import jsonc
from rigd.clients.merge import FileFaultError, merge
from rigd.clients.settings import ClientFile, Form, Rule, Setting

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
SPACES = st.sampled_from(
    ["", " ", "\n", "\n  ", "\n\t", ' // note, {with} "signs"\n', "/* a, } note */", "\r\n  "]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | KEYS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
WISHES = st.lists(
    st.tuples(st.lists(st.sampled_from(["provider", "agent", "a", "b"]), min_size=1, max_size=3), VALUES),
    max_size=4,
)


@st.composite
def written(draw, value):
    """Write a value as a person might: spaces, comments and trailing commas anywhere."""

    def text(one):
        if isinstance(one, dict):
            parts = [
                f"{spaced(json.dumps(key, ensure_ascii=False))}:{spaced(text(inner))}"
                for key, inner in one.items()
            ]
            return "{" + ",".join(parts) + trailing(parts) + "}"
        if isinstance(one, list):
            parts = [spaced(text(inner)) for inner in one]
            return "[" + ",".join(parts) + trailing(parts) + "]"
        return json.dumps(one, ensure_ascii=False)

    def spaced(inner):
        return draw(SPACES) + inner + draw(SPACES)

    def trailing(parts):
        return draw(st.sampled_from(["", ",", ", // last\n"])) if parts else draw(SPACES)

    return spaced(text(value))


FILES = st.dictionaries(KEYS | st.sampled_from(["provider", "agent", "a"]), VALUES, max_size=4).flatmap(
    lambda value: st.tuples(st.just(value), written(value))
)


def comments(text):
    """Return the comments of a file in order; texts in quotes are none."""
    found = re.findall(r'"(?:[^"\\]|\\.)*"|(//[^\r\n]*|/\*.*?\*/)', text, re.DOTALL)
    return [one for one in found if one]


def order(value, path=()):
    """Return all paths of a value in the order in which they are written."""
    if not isinstance(value, dict):
        return [path]
    return [path, *(inner for key, one in value.items() for inner in order(one, (*path, key)))]


def at(value, path):
    for key in path:
        value = value[key]
    return value


@given(FILES)
def test_a_written_value_is_read_as_it_was_meant(file):
    value, text = file
    assert jsonc.parse(text).value == value


@given(FILES, WISHES)
def test_comments_order_and_other_keys_survive_and_the_second_time_changes_nothing(file, wishes):
    value, text = file
    done = text
    put = {}
    for path, wish in wishes:
        try:
            done = jsonc.put(done, path, wish)
        except jsonc.JsoncError:
            continue  # something else than an object is in the way
        put[tuple(path)] = wish
    after = jsonc.parse(done).value

    last = [
        path
        for path in put
        if not any(
            other[: len(path)] == path or path[: len(other)] == other for other in put if other != path
        )
    ]
    assert all(at(after, path) == put[path] for path in last)
    assert [path for path in order(after) if path in order(value)] == [
        path for path in order(value) if path in order(after)
    ]
    touched = tuple(path[:1] for path in put)
    assert {key: one for key, one in value.items() if (key,) not in touched}.items() <= after.items()
    if not any(isinstance(at_or_none(value, path), dict | list) for path in put):
        assert comments(done) == comments(text)
    again = done
    for path in last:
        again = jsonc.put(again, path, put[path])
    assert again == done


def at_or_none(value, path):
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "line 1, column 1", "nothing in it"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3", "a comma or } is missing"),
        ('{\n  "a": tru\n}', "line 2, column 8", "a value was expected"),
        ('{ "a": 1, /* open', "line 1, column 11", "does not end"),
        ("{ a: 1 }", "line 1, column 3", "a key in quotes"),
        ('{ "a": "x\ny" }', "line 1, column 8", "does not end on its line"),
        ('{ "a": 1 } }', "line 1, column 12", "more after the end"),
        ('{"a": 1, "a": 2}', "line 1, column 10", "twice"),
        ("[" * 200, "line 1, column 102", "too deeply"),
        ('{"a": "\\q"}', "line 1, column 7", "escape"),
    ],
    ids=lambda value: value[:12],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(text, place, says):
    with pytest.raises(jsonc.JsoncError) as caught:
        jsonc.parse(text)
    assert str(caught.value).startswith(place)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "x": 1\n}'),
        ("{ // mine\n}", '{ // mine\n  "x": 1\n}'),
        ('{"a": 0}', '{"a": 0, "x": 1}'),
        ('{\n\t"a": 0 // why\n}\n', '{\n\t"a": 0, // why\n\t"x": 1\n}\n'),
        ('{\n    "a": 0,\n    // end\n}', '{\n    "a": 0,\n    // end\n    "x": 1,\n}'),
        ('{\r\n  "a": 0\r\n}', '{\r\n  "a": 0,\r\n  "x": 1\r\n}'),
    ],
    ids=["empty", "comment", "one line", "tabs", "trailing comma", "windows"],
)
def test_a_new_key_is_written_as_its_neighbours_are(before, after):
    assert jsonc.put(before, ["x"], 1) == after


# --- rules ---


def settings(*given, form=Form.JSONC):
    return ClientFile(names=("file",), form=form, settings=given)


def test_a_choice_of_a_person_stays_and_one_of_ours_is_brought_up_to_date():
    wish = Setting(path=("model",), value="rig-big/new", rule=Rule.CHOICE, ours=("rig-big/", "rig-small/"))

    mine = merge('{"model": "cloud/x"}', settings(wish))
    ours = merge('{"model": "rig-small/old"}', settings(wish))

    assert (mine.text, len(mine.kept)) == ('{"model": "cloud/x"}', 1)
    assert (ours.text, ours.kept) == ('{"model": "rig-big/new"}', ())


@pytest.mark.parametrize(
    ("now", "then"),
    [(5, 100), (79, 100), (80, 80), (99999, 99999), (False, False), ("90", "90"), (None, 100)],
)
def test_a_timeout_that_is_long_enough_stays(now, then):
    wish = Setting(path=("t",), value=100, rule=Rule.LEAST, least=80)
    assert json.loads(merge(json.dumps({"t": now}), settings(wish)).text) == {"t": then}


def test_a_value_in_the_way_is_named_with_its_place():
    with pytest.raises(FileFaultError, match=r"line 2, column 15: provider is no object"):
        merge('{\n  "provider": 5\n}', settings(Setting(path=("provider", "x", "npm"), value="y")))


NAMES = st.text("abcxyz-_", min_size=1, max_size=6)


@given(
    st.dictionaries(NAMES, st.integers() | st.booleans() | st.text("ab c"), max_size=3),
    st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(), max_size=2), max_size=2),
)
def test_toml_keeps_comments_order_and_other_keys(top, tables):
    document = tomlkit.document()
    document.add(tomlkit.comment("mine"))
    for key, value in top.items():
        document.add(key, value)
    for key, inner in tables.items():
        if key not in top:
            table = tomlkit.table()
            table.add(tomlkit.comment(f"about {key}"))
            table.update(inner)
            document.add(key, table)
    text = tomlkit.dumps(document)
    file = settings(
        Setting(path=("NEW",), value=1),
        Setting(path=("PROVIDERS", "RIG", "url"), value="u"),
        Setting(path=("PROVIDERS", "RIG", "auth", "args"), value=["n"]),
        form=Form.TOML,
    )

    once = merge(text, file).text
    read = tomlkit.parse(once).unwrap()

    lines = [line for line in text.splitlines() if line]
    assert [line for line in once.splitlines() if line in lines] == lines
    assert read == {
        **tomlkit.parse(text).unwrap(),
        "NEW": 1,
        "PROVIDERS": {"RIG": {"url": "u", "auth": {"args": ["n"]}}},
    }
    assert merge(once, file).text == once


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[p.rig]\nurl = 1\n"),
        ("p = { x = { url = 0 } }\n", "p = { x = { url = 0 }, rig = {url = 1}}\n"),
        ("\ufeffa = 1\r\n", "\ufeffa = 1\r\n\r\n[p.rig]\r\nurl = 1\r\n"),
        ("p.x.url = 0\n", "p.x.url = 0\n\n[p.rig]\nurl = 1\n"),
    ],
    ids=["nothing", "one line", "windows", "dotted"],
)
def test_toml_is_written_as_its_neighbours_are(before, after):
    file = settings(Setting(path=("p", "rig", "url"), value=1), form=Form.TOML)

    once = merge(before, file).text

    assert (once, merge(once, file).text) == (after, after)


@pytest.mark.parametrize("before", ["// mine\n", "\ufeff", "\n\n", "/* a */"])
def test_a_file_without_any_value_keeps_its_comments(before):
    file = settings(Setting(path=("x",), value=1))

    once = merge(before, file).text

    assert once.startswith(before.strip())
    assert jsonc.parse(once).value == {"x": 1}
    assert merge(once, file).text == once


def test_toml_with_a_mistake_is_refused_with_its_place():
    with pytest.raises(FileFaultError, match=r"^line 2, column \d+: "):
        merge("a = 1\nb = = 2\n", settings(Setting(path=("x",), value=1), form=Form.TOML))
