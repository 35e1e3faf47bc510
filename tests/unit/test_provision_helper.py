"""The helper and its engine, spoken to as the controller does: probe, apply, probe again, and every way out."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from rigd.provision.connection import client
from rigd.provision.connection.client import Helper
from rigd.provision.connection.local import start_in_process
from rigd.provision.connection.target import HostUnreachableError
from rigd.provision.target import engine, frames, masking
from rigd.provision.target import helper as served
from rigd.provision.target.contract import Argument, Change, Kind, Module, ModuleError

CONTENT = b"content\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SECRET = "hunter2-and-more"


def module(**fields: Any) -> Module:
    """Return a module that sets one value in a dictionary, unless told otherwise."""
    base: dict[str, Any] = {
        "names": ("rigd.box.sample",),
        "arguments": {
            "want": Argument(default="on"),
            "password": Argument(secret=True),
            "path": Argument(kind=Kind.PATH),
            "paths": Argument(kind=Kind.LIST, elements=Kind.PATH),
        },
        "probe": lambda _arguments, _box: {"is": "off"},
        "difference": lambda arguments, state: (
            [] if state["is"] == arguments["want"] else [Change(what=f"{state['is']} -> {arguments['want']}")]
        ),
        "apply": lambda _arguments, _state, _changes, _box: None,
    }
    return Module(**base | fields)


def switch() -> Module:
    """Return a module whose apply makes its probe see what was wanted."""
    box = {"is": "off"}
    return module(
        probe=lambda _arguments, _box: dict(box),
        apply=lambda arguments, _state, _changes, _box: box.update({"is": arguments["want"]}),
        result=lambda _arguments, state: {"now": state["is"]},
    )


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: Any) -> Any:
        raise error

    return act


@pytest.fixture
def helper() -> Iterator[Helper]:
    started = start_in_process(host="box", blobs=lambda digest: CONTENT if digest == DIGEST else None)
    yield started
    started.close()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the engine know these modules."""

    def know(**modules: Module) -> None:
        monkeypatch.setattr(engine.modules, "module_of", modules.get)

    return know


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Give what is logged for the curious."""
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(client, "_debug", lambda what, **fields: lines.append({"what": what, **fields}))
    return lines


def task(name: str = "sample", **fields: Any) -> Mapping[str, Any]:
    return {"id": f"task-{name}", "module": name, **fields}


def test_hello_tells_who_answers(helper):
    assert {"protocol", "python", "uid", "user", "boot_id", "hostname"} <= set(helper.hello)
    assert helper.hello["protocol"] == frames.PROTOCOL


def test_a_probe_tells_what_differs_and_changes_nothing(helper, known):
    known(sample=module(apply=raising(AssertionError("applied"))))

    event = helper.one("batch", tasks=[task()])

    assert (event["event"], event["changed"]) == ("probed", True)
    assert event["changes"] == [{"what": "off -> on", "subject": ""}]


def test_a_probe_that_finds_nothing_to_do_has_the_result_s_facts(helper, known):
    known(sample=module(result=lambda _arguments, state: {"state": state["is"]}))

    event = helper.one("batch", tasks=[task(arguments={"want": "off"})])

    assert (event["changed"], event["changes"], event["facts"]) == (False, [], {"state": "off"})


def test_equal_states_have_equal_fingerprints(helper, known):
    known(sample=module(), other=module(probe=lambda _arguments, _box: {"is": "elsewhere"}))

    first, second, third = helper.request("batch", tasks=[task(), task(), task("other")])

    assert first["state"] == second["state"] != third["state"]


def test_apply_changes_looks_again_and_probes_what_follows(helper, known):
    known(sample=switch(), next=module())

    applied, probed = helper.request("apply", task=task(), then=[task("next")])

    assert (applied["event"], applied["changed"], applied["facts"]) == ("applied", True, {"now": "on"})
    assert (probed["event"], probed["task"]) == ("probed", "task-next")


def test_a_change_that_does_not_hold_is_a_failure(helper, known):
    known(sample=module())

    (event,) = helper.request("apply", task=task(), then=[task()])

    assert (event["event"], event["begun"]) == ("failed", True)
    assert event["msg"].startswith("it was done, yet it still differs: off -> on")


@pytest.mark.parametrize(
    "again",
    [
        pytest.param({"converges": False}, id="a-module-that-never-converges"),
        pytest.param(
            {"difference": lambda _arguments, _state: [Change(what="restart", once=True)]},
            id="an-act-of-once",
        ),
    ],
)
def test_an_act_that_would_be_done_again_is_no_failure(helper, known, again):
    known(sample=module(**again))

    assert helper.one("apply", task=task())["event"] == "applied"


def test_work_that_does_not_count_is_not_changed(helper, known):
    known(
        sample=module(difference=lambda _arguments, _state: [Change(what="lists", counts=False, once=True)])
    )

    probed = helper.one("batch", tasks=[task()])
    applied = helper.one("apply", task=task())

    assert (probed["changed"], len(probed["changes"]), applied["changed"]) == (False, 1, False)


def test_apply_of_what_already_holds_does_nothing(helper, known):
    known(sample=module(apply=raising(AssertionError("applied"))))

    assert helper.one("apply", task=task(arguments={"want": "off"}))["changed"] is False


def test_check_mode_never_applies(helper, known):
    known(sample=module(apply=raising(AssertionError("applied"))))

    assert helper.one("apply", task=task(check=True))["changed"] is True


def test_what_cannot_be_foretold_is_skipped_in_check_mode(helper, known):
    known(sample=module(skipped_in_check=True))

    event = helper.one("batch", tasks=[task(check=True)])

    assert (event["skipped"], event["changes"], event["changed"]) == (True, [], False)


def test_texts_before_and_after_come_only_where_somebody_looks(helper, known):
    change = Change(what="text", before="a", after="b" * 300_000, subject="/etc/x")
    known(sample=module(difference=lambda _arguments, _state: [change]))

    plain = helper.one("batch", tasks=[task()])["changes"]
    shown = helper.one("batch", tasks=[task(diff=True)])["changes"]

    assert plain == [{"what": "text", "subject": "/etc/x"}]
    assert (shown[0]["before"], shown[0]["after"]) == ("a", "[300000 characters, too many to show]\n")


@pytest.mark.parametrize(("stop", "seen"), [(False, 3), (True, 2)])
def test_a_batch_stops_at_the_first_change_if_asked(helper, known, stop, seen):
    known(same=module(difference=lambda _arguments, _state: []), sample=module())

    events = list(helper.request("batch", tasks=[task("same"), task(), task("same")], stop_at_change=stop))

    assert len(events) == seen


def test_a_batch_stops_at_the_first_failure(helper, known):
    known(sample=module(probe=raising(ModuleError("cannot read it", rc=7))), next=module())

    (event,) = helper.request("batch", tasks=[task(), task("next")])

    assert (event["event"], event["msg"], event["facts"], event["begun"]) == (
        "failed", "cannot read it", {"rc": 7}, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(ValueError("odd"), "sample broke off with ValueError: odd", id="fault"),
        pytest.param(
            FileNotFoundError(2, "No such file", "/etc/x"), "sample: no such file: /etc/x", id="file"
        ),
        pytest.param(
            PermissionError(13, "Denied", "/etc/x"), "sample: permission denied on /etc/x", id="rights"
        ),
        pytest.param(SystemExit(3), None, id="exit"),
    ],
)
def test_a_fault_of_a_module_is_a_sentence_and_the_helper_lives(helper, known, error, sentence):
    if sentence is None:
        error, sentence = RuntimeError("exit"), "sample broke off with RuntimeError"
    known(sample=module(probe=raising(error)), next=module())

    event = helper.one("batch", tasks=[task()])

    assert event["msg"].startswith(sentence)
    assert helper.one("batch", tasks=[task("next")])["event"] == "probed"


def test_a_traceback_goes_to_the_debug_log_alone(helper, known, logged):
    known(sample=module(probe=raising(ValueError("odd"))))

    events = list(helper.request("batch", tasks=[task()]))

    assert "Traceback" not in json.dumps(events)
    assert ["Traceback" in line["trace"] for line in logged] == [True]


def test_an_unknown_module_is_a_failed_task(helper, known):
    known()

    assert helper.one("batch", tasks=[task()])["msg"] == "there is no module 'sample'"


def test_left_out_arguments_have_their_defaults_and_paths_are_the_box_s(helper, known, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    known(sample=module(result=lambda arguments, _state: dict(arguments)))
    arguments = {"path": "~/$SUB/x$UNKNOWN", "paths": ["~", "${SUB}"]}

    facts = helper.one("batch", tasks=[task(arguments=arguments, environment={"SUB": "deep"})])["facts"]

    assert facts == {
        "want": "on", "password": None, "path": "/home/me/deep/x$UNKNOWN", "paths": ["/home/me", "deep"],
    }  # fmt: skip


def test_secret_arguments_are_masked_in_all_that_is_said(helper, known):
    known(
        sample=module(
            probe=lambda arguments, _box: {"is": arguments["password"]},
            difference=lambda _arguments, state: [
                Change(what=f"set {state['is']}", before=state["is"], subject="x")
            ],
            apply=raising(ModuleError(f"cannot set {SECRET}", stdout=SECRET, lines=[f"a {SECRET} b"])),
        )
    )
    arguments = {"password": SECRET}

    events = [
        *helper.request("batch", tasks=[task(arguments=arguments, diff=True)]),
        *helper.request("apply", task=task(arguments=arguments, diff=True)),
    ]

    assert SECRET not in json.dumps(events)
    assert events[-1]["msg"] == f"cannot set {masking.MASK}"


def test_of_a_secret_task_only_the_facts_are_told(helper, known, logged):
    def apply(_arguments: Any, _state: Any, _changes: Any, box: Any) -> dict[str, str]:
        box.progress(f"working with {SECRET}")
        return {"stdout": SECRET}

    known(
        sample=module(
            converges=False,
            apply=apply,
            difference=lambda _arguments, _state: [Change(what=SECRET, before=SECRET)],
        ),
        broken=module(probe=raising(ValueError(SECRET))),
    )

    (applied,) = helper.request("apply", task=task(secret=True, diff=True))
    failed = helper.one("batch", tasks=[task("broken", secret=True)])

    assert applied["facts"] == {"stdout": SECRET}
    assert SECRET not in json.dumps([applied["changes"], failed, logged])


def test_short_secrets_do_not_garble_other_words():
    mask = masking.masker_of({"p": Argument(secret=True)}, {"p": "on"})

    assert mask({"a": "on", "b": "once upon"}) == {"a": masking.MASK, "b": "once upon"}


def test_backups_are_facts(helper, known, tmp_path):
    (tmp_path / "file").write_text("old")
    known(
        sample=module(
            converges=False,
            apply=lambda arguments, _state, _changes, box: box.write(arguments["path"], b"new", backup=True),
        )
    )

    facts = helper.one("apply", task=task(arguments={"path": str(tmp_path / "file")}))["facts"]

    assert facts["backup_file"].startswith(str(tmp_path / "file"))


def test_content_is_asked_of_the_controller_when_it_is_needed(helper, known):
    known(
        sample=module(
            probe=lambda arguments, box: {"is": box.blob(arguments["want"]).decode()}, result=lambda _a, s: s
        )
    )

    assert helper.one("batch", tasks=[task(arguments={"want": DIGEST})])["facts"] == {"is": "content\n"}


def test_content_that_the_controller_does_not_hold_is_a_failed_task(helper, known):
    known(sample=module(probe=lambda arguments, box: box.blob(arguments["want"])))

    assert (
        "the controller does not hold it"
        in helper.one("batch", tasks=[task(arguments={"want": "0" * 64})])["msg"]
    )


def test_progress_comes_while_the_task_runs(helper, known):
    known(
        sample=module(
            converges=False, apply=lambda _arguments, _state, _changes, box: box.progress("unpacking 1 of 2")
        )
    )

    events = [(event["event"], event.get("text")) for event in helper.request("apply", task=task())]

    assert events == [("progress", "unpacking 1 of 2"), ("applied", None)]


SLEEPER = module(probe=lambda _arguments, box: box.run(["sleep", "60"]))


def test_a_request_over_its_deadline_is_called_off_and_the_helper_lives(helper, known):
    known(sample=SLEEPER, next=module())

    (event,) = helper.request("batch", tasks=[task()], deadline_s=0.2)

    assert (event["event"], event["cancelled"]) == ("failed", True)
    assert helper.one("batch", tasks=[task("next")])["event"] == "probed"


def test_leaving_a_request_early_calls_it_off(helper, known):
    known(next=module(), sample=SLEEPER)

    for event in helper.request("batch", tasks=[task("next"), task()]):
        assert event["task"] == "task-next"
        break

    assert helper.one("batch", tasks=[task("next")], deadline_s=1)["event"] == "probed"


def test_a_helper_that_does_not_stop_is_given_up(helper, known, monkeypatch):
    monkeypatch.setattr(client, "CANCEL_DEADLINE_S", 0.1)
    let_go = threading.Event()
    known(sample=module(probe=lambda _arguments, _box: {"is": str(let_go.wait(5))}))

    with pytest.raises(HostUnreachableError, match="the helper on 'box' does not answer"):
        list(helper.request("batch", tasks=[task()], deadline_s=0.1))

    let_go.set()
    assert not helper.alive


def test_a_closed_helper_ends_what_it_runs(helper, known, block_until):
    ended = threading.Event()

    def probe(_arguments: Any, box: Any) -> Any:
        try:
            box.run(["sleep", "60"])
        finally:
            ended.set()

    known(sample=module(probe=probe))
    events = helper.request("batch", tasks=[task()])
    threading.Timer(0.1, helper.close).start()

    (event,) = events

    assert (event["event"], event["cancelled"]) == ("failed", True)
    block_until(ended.is_set, 5)


def test_an_unknown_request_is_refused(helper):
    with pytest.raises(HostUnreachableError, match="does not know the request 'dance'"):
        helper.one("dance")


def test_a_silent_controller_is_taken_for_gone():
    said: list[bytes] = []
    words = iter([frames.SYNC])

    def receive() -> bytes:
        chunk = next(words, None)
        if chunk is None:
            raise TimeoutError
        return chunk

    served.Helper(receive, said.append).serve()

    assert said == [frames.READY]


def test_what_stood_on_the_input_before_the_controller_s_words_is_dropped():
    said: list[bytes] = []
    stream = iter([b"a password\n" + frames.SYNC + frames.pack({"request": "hello", "id": 4})])

    served.Helper(lambda: next(stream, b""), said.append).serve()

    assert b"password" not in b"".join(said)


def test_content_that_cannot_be_read_here_is_a_failed_task_there(known):
    known(sample=module(probe=lambda arguments, box: box.blob(arguments["want"])))
    unreadable = start_in_process(host="box", blobs=raising(PermissionError(13, "Permission denied", "/x")))

    event = unreadable.one("batch", tasks=[task(arguments={"want": DIGEST})])

    assert "the controller cannot read it" in event["msg"]
    unreadable.close()


def test_a_helper_that_answers_no_beat_is_cut_off_even_where_sending_is_stuck(monkeypatch):
    monkeypatch.setattr(client, "BEAT_S", 0.05)
    closed = threading.Event()

    class Stuck:
        """A stream that greets, and then takes nothing and says nothing until it is closed."""

        said = iter([frames.READY, frames.pack({"event": "hello", "id": 1, "protocol": frames.PROTOCOL}),
                     frames.pack({"event": "done", "id": 1})])  # fmt: skip
        full = False

        def receive(self) -> bytes:
            chunk = next(self.said, None)
            if chunk is None:
                closed.wait(5)
            return chunk or b""

        def send(self, _data: bytes) -> None:
            if self.full:
                closed.wait(5)
                raise BrokenPipeError

        def close(self) -> None:
            closed.set()

        def last_words(self) -> str:
            return ""

    stream = Stuck()
    reader = frames.Reader(stream.receive)
    reader.skip_past(frames.READY, limit_bytes=100)
    stuck = Helper(stream, reader, host="box", blobs=lambda _digest: None)
    stream.full = True

    with pytest.raises(HostUnreachableError, match="the link to 'box' is cut"):
        list(stuck.request("batch", tasks=[task()]))


def test_a_request_that_waits_for_content_can_be_called_off(known):
    known(sample=module(probe=lambda arguments, box: box.blob(arguments["want"])), next=module())
    let_go = threading.Event()
    slow = start_in_process(host="box", blobs=lambda _digest: CONTENT if let_go.wait(5) else None)

    threading.Timer(0.3, let_go.set).start()
    (event,) = slow.request("batch", tasks=[task(arguments={"want": DIGEST})], deadline_s=0.1)

    assert event["cancelled"]
    assert slow.one("batch", tasks=[task("next")])["event"] == "probed"
    slow.close()
