"""A report is read from what `rigd provision --json` tells, and the real one tells it so."""

import asyncio
import json
import sys

import pytest

from rigd.adapters.trusted import untrusted
from rigd.supervise import drift_root, drift_run
from rigd.supervise.drift import DriftAct
from rigd.supervise.drift_report import DIFFERENCES_LIMIT, Reading
from rigd.supervise.drift_run import Asked


def read(*events, check=True, code=0, **more):
    reading = Reading(check=check)
    for event in events:
        reading.take(event if isinstance(event, str) else json.dumps(event))
    return reading.report(code, **more)


def result(name, outcome, place="site.yml:3", **more):
    return {"event": "result", "name": name, "place": place, "outcome": outcome, **more}


def recap(**counts):
    return {"event": "recap", "hosts": {"localhost": {"failed": 0, "unreachable": 0, **counts}}}


def test_tasks_that_would_change_are_differences():
    report = read(
        result("a", "ok"),
        result("b", "changed", result={"changes": ["content", "mode"]}),
        {"event": "item", "outcome": "changed", "label": "one"},
        {"event": "item", "outcome": "ok", "label": "two"},
        result("c", "changed", looped=True),
        recap(),
        code=3,
    )

    assert report.ok
    assert [(one.task, one.what) for one in report.differences] == [("b", "content; mode"), ("c", "one")]


def test_handlers_of_a_check_are_no_differences_of_their_own():
    report = read(
        {"event": "task", "name": "restart", "place": "h.yml:1", "handler": True},
        result("restart", "changed", place="h.yml:1"),
        recap(),
    )

    assert report.differences == ()


def test_a_failure_is_told_and_a_rescued_or_ignored_one_is_not():
    bad = result("a", "failed", result={"msg": "apt is locked"})

    assert read(bad, recap(failed=1), code=1).message == "'a' (site.yml:3): apt is locked"
    assert read(bad, recap(rescued=1)).ok
    assert read({**bad, "ignored": True}, recap(ignored=1)).ok


def test_a_run_that_never_began_says_what_rigd_said():
    report = read(
        code=2,
        errors="rigd: cannot use 'x.yml':\n  x.yml:3:5: no module 'coppy'\n  -> rigd provision modules\n",
    )

    assert not report.ok
    assert report.message == "cannot use 'x.yml': x.yml:3:5: no module 'coppy'"
    assert report.hint == "rigd provision modules"


def test_another_run_on_the_box_is_told_apart_from_trouble():
    said = "another run is at work on 'localhost': 17 run of site.yml"

    assert read(result("", "failed", result={"msg": said}), recap(failed=1), code=1).busy
    assert read(code=1, errors=f"rigd: {said}\n").busy
    assert not read(code=1, errors="rigd: no\n").busy


def test_an_apply_that_ends_before_a_reboot_says_so():
    assert read(recap(), check=False, code=3).reboot
    assert not read(recap(), check=True, code=3).reboot


def test_garbage_and_floods_are_survived():
    flood = [result(f"t{number}", "changed") for number in range(200)]

    report = read("not json", "[1]", "{}", *flood, recap(), code=3)

    assert (len(report.differences), report.more) == (DIFFERENCES_LIMIT, 200 - DIFFERENCES_LIMIT)


# --- the child ---

SITE = """
- hosts: all
  gather_facts: false
  tasks:
    - {{name: mine, ansible.builtin.copy: {{dest: {folder}/mine, content: x}}, tags: [mine]}}
    - {{name: theirs, ansible.builtin.copy: {{dest: {folder}/theirs, content: "{{{{ word }}}}"}}}}
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    monkeypatch.setenv("RIGD_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "site.yml").write_text(SITE.format(folder=tmp_path))
    (tmp_path / "vars.yml").write_text("word: y\n")
    return Asked(
        playbook=tmp_path / "site.yml", variables=tmp_path / "vars.yml", apply=("mine",), deadline_s=60
    )


async def test_a_check_tells_which_differences_may_be_applied_and_an_apply_applies_those(asked):
    folder = asked.playbook.parent

    report = await drift_run.carry_out(DriftAct.CHECK, asked, asyncio.Event())

    assert (report.ok, report.message) == (True, "")
    assert {one.task: one.allowed for one in report.differences} == {"mine": True, "theirs": False}
    applied = await drift_run.carry_out(DriftAct.APPLY, asked, asyncio.Event())
    assert ([one.task for one in applied.differences], applied.ok) == (["mine"], True)
    assert (folder / "mine").exists()
    assert not (folder / "theirs").exists()


async def test_a_stop_ends_a_run_and_says_so(asked, tmp_path):
    (tmp_path / "site.yml").write_text(
        "- {hosts: all, gather_facts: false, tasks: [{command: sleep 0.5}, {command: sleep 30}]}\n"
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)

    report = await drift_run.carry_out(DriftAct.APPLY, Asked(**{**vars(asked), "apply": ()}), stop)

    assert (report.ok, report.stopped) == (False, True)


async def test_a_playbook_that_wants_a_reboot_gets_none(asked, tmp_path):
    (tmp_path / "site.yml").write_text(
        f"- {{hosts: all, gather_facts: false, tasks: [{{reboot: {{reboot_command: 'touch {tmp_path}/down'}}}}]}}\n"
    )

    report = await drift_run.carry_out(DriftAct.APPLY, Asked(**{**vars(asked), "apply": ()}), asyncio.Event())

    assert (report.ok, report.reboot) == (True, True)
    assert not (tmp_path / "state" / "resume.json").exists()
    await asyncio.sleep(0)
    assert not (tmp_path / "down").exists()


# --- root's one-shot ---


RIG = """
name: r
engine: {{runtime: process, version: 0.32.0, model: m}}
host:
  drift: {{playbook: {playbook}, apply: {apply}}}
"""


@pytest.fixture
def one_shot(tmp_path, monkeypatch, asked):
    """Give a function that asks the one-shot as a pipe would."""

    def ask(request, *, playbook="site.yml", apply="[mine]"):
        (tmp_path / "rig.yaml").write_text(RIG.format(playbook=playbook, apply=apply))
        (tmp_path / "request").write_text(request if isinstance(request, str) else json.dumps(request) + "\n")
        with (tmp_path / "request").open("rb", buffering=0) as source:
            return drift_root.serve(tmp_path / "rig.yaml", source=source.fileno())

    monkeypatch.setattr(drift_root, "untrusted", lambda files, *, folders: None)
    return ask


@pytest.mark.parametrize(
    "request_", ["", "\n", "[]\n", '{"act": "rm"}\n', '{"act": ["check"]}\n', "x" * 5000]
)
def test_a_request_that_is_none_is_refused(one_shot, request_):
    assert "not understood" in one_shot(request_).message


def test_what_the_rig_file_does_not_ask_for_is_refused(one_shot):
    assert "does not ask for it" in one_shot({"act": "check"}, playbook="null", apply="[]").message
    assert "does not ask for it" in one_shot({"act": "apply"}, apply="[]").message


def test_a_playbook_of_others_is_not_run_by_root(one_shot, monkeypatch):
    monkeypatch.setattr(
        drift_root, "untrusted", lambda files, *, folders: "site.yml can be written by others"
    )

    report = one_shot({"act": "check"})

    assert "root does not run it: site.yml can be written by others" in report.message
    assert "chmod" in report.hint


# --- whose files they are ---


@pytest.fixture
def site(tmp_path):
    """Give a playbook in a folder of its own, with a role, all of which root alone may write."""
    site, role = tmp_path / "p" / "site.yml", tmp_path / "p" / "roles" / "x.yml"
    role.parent.mkdir(parents=True)
    for file in (site, role):
        file.write_text("")
        file.chmod(0o644)
    return site


def judged(site) -> str | None:
    return untrusted([site], folders=[site.parent])


def test_root_s_own_folder_is_trusted(site):
    assert judged(site) is None


def test_what_lies_beside_a_file_that_is_alone_does_not_matter(site):
    (site.parent / "roles/x.yml").chmod(0o666)

    assert untrusted([site]) is None


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param("p/roles/x.yml", 0o666, id="a-role"),
        pytest.param("p/site.yml", 0o664, id="the-playbook"),
        pytest.param("p", 0o777, id="its-folder"),
        pytest.param("p", 0o1777, id="a-sticky-folder-takes-new-roles"),
        pytest.param("p/roles", 0o775, id="a-folder-below"),
    ],
)
def test_what_others_may_write_is_not(site, name, mode):
    (site.parent.parent / name).chmod(mode)

    assert "can be written by others" in judged(site)


def test_a_link_is_judged_by_where_it_leads(site, tmp_path):
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "tasks.yml").write_text("")
    (site.parent / "more").symlink_to(loose)
    link = tmp_path / "link"
    link.symlink_to(site.parent)

    assert judged(site) is None
    assert judged(link / "site.yml") is None
    (loose / "tasks.yml").chmod(0o666)
    assert "tasks.yml can be written by others" in judged(link / "site.yml")
    loose.chmod(0o777)
    assert "p/more can be written by others" in judged(site)


def test_what_is_not_there_is_not_run(tmp_path):
    assert "no such file" in untrusted([tmp_path / "none" / "x.yml"])


def test_the_child_runs_this_rigd_whatever_lies_in_the_playbook_s_folder(asked):
    (asked.playbook.parent / "rigd").mkdir()
    (asked.playbook.parent / "rigd" / "__init__.py").write_text("raise SystemExit('not this one')")

    report = asyncio.run(drift_run.carry_out(DriftAct.CHECK, asked, asyncio.Event()))

    assert report.ok, report.message
    assert sys.executable
