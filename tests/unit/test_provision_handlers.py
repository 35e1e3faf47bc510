"""Which handlers a notification means, and in which order they run."""

from dataclasses import replace
from pathlib import Path

from rigd.provision.language.model import Place, Role, Task
from rigd.provision.run.handlers import Owed, due


def handler(name, *listen, role=None, id_=None):
    return Task(
        id=id_ or name,
        place=Place(file=Path("site.yml"), line=1, column=1),
        name=name,
        action="ansible.builtin.debug",
        arguments={},
        listen=listen,
        role=Role(name=role, path=Path(role)) if role else None,
    )


def run(handlers, *names):
    return [(found.id, paid) for found, paid in due(handlers, names, lambda task: task.name)]


def test_handlers_run_in_the_order_of_their_definition():
    handlers = [handler("a"), handler("b")]

    assert run(handlers, "b", "a") == [("a", ("a",)), ("b", ("b",))]


def test_topic_is_paid_with_the_last_handler_that_listens():
    handlers = [handler("a", "web"), handler("b", "web")]

    assert run(handlers, "web") == [("a", ()), ("b", ("web",))]


def test_handler_notified_by_name_and_topic_runs_once():
    assert run([handler("a", "web")], "web", "a") == [("a", ("web", "a"))]


def test_of_handlers_with_one_name_the_first_of_the_last_role_counts():
    handlers = [handler("a", "web", id_=str(number)) for number in range(2)]
    later = Role(name="later", path=Path("later"))
    handlers += [replace(each, id=f"later {each.id}", role=later) for each in handlers]

    assert run(handlers[:2], "a") == [("0", ("a",))]
    assert run(handlers, "a", "web") == [("later 0", ("a", "web"))]


def test_role_may_stand_before_the_name():
    assert run([handler("a", role="web")], "web : a") == [("a", ("web : a",))]


def test_name_that_means_no_handler_is_left_owed():
    assert run([handler("a")], "gone") == []


def test_owed_tells_what_is_new():
    owed = Owed(["a"])

    assert owed.add(["a", "b", "b"]) == ("b",)
    owed.paid(["a"])
    assert owed.names == ("b",)
