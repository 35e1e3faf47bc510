"""Modules about files beside Ansible's own: same task, same bytes and modes, same `changed`, also in check mode."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import install
import pytest

from rigd.provision.language.arguments import check_arguments
from rigd.provision.target import engine, modules

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]
"""Ansible takes a second a task where the machine is shared, and the first test waits for all of them."""

TEXT = "alpha = 1\nbeta = 2\n# comment\nbeta = 3\ngamma = 4\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task in a folder of its own, named `F` in its arguments."""

    module: str
    arguments: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    prepare: str = ""


def case(
    name: str, module: str, files: Mapping[str, str] | None = None, *, prepare: str = "", **arguments: Any
):
    return pytest.param(Case(module=module, arguments=arguments, files=files or {}, prepare=prepare), id=name)


def line(name: str, text: str | None = TEXT, **arguments: Any):
    return case(f"line-{name}", "lineinfile", {} if text is None else {"f": text}, path="F/f", **arguments)


def block(name: str, text: str | None = TEXT, **arguments: Any):
    return case(f"block-{name}", "blockinfile", {} if text is None else {"f": text}, path="F/f", **arguments)


def replaced(name: str, text: str | None = TEXT, **arguments: Any):
    return case(f"replace-{name}", "replace", {} if text is None else {"f": text}, path="F/f", **arguments)


SHA256_OF_X = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
BLOCK = "# BEGIN ANSIBLE MANAGED BLOCK\nold\n# END ANSIBLE MANAGED BLOCK\n"
CASES = [
    line("appends", line="delta = 5"),
    line("is-there", line="gamma = 4"),
    line("no-final-newline", "alpha = 1", line="beta = 2"),
    line("no-final-newline-same", "alpha = 1", line="alpha = 1"),
    line("regexp-takes-last", regexp="^beta", line="beta = 9"),
    line("regexp-firstmatch", regexp="^beta", line="beta = 9", firstmatch=True),
    line("regexp-no-match-line-there", regexp="^zeta", line="gamma = 4"),
    line("regexp-no-match-appends", regexp="^zeta", line="zeta = 7"),
    line("search-string", search_string="# comment", line="# other"),
    line("backrefs", regexp=r"^(gamma) = (\d+)", line=r"\1 = <\2>", backrefs=True),
    line("backrefs-no-match", regexp="^zeta(.)", line=r"\1", backrefs=True),
    line("after-last", insertafter="^beta", line="new"),
    line("after-first", insertafter="^beta", line="new", firstmatch=True),
    line("after-nothing", insertafter="^zeta", line="new"),
    line("after-eof", insertafter="EOF", line="new"),
    line("before-last", insertbefore="^beta", line="new"),
    line("before-bof", insertbefore="BOF", line="new"),
    line("before-nothing", insertbefore="^zeta", line="new"),
    line("create", None, line="new", create=True, mode="0600"),
    line("missing-fails", None, line="new"),
    line("absent-regexp", regexp="^beta", state="absent"),
    line("absent-line", line="gamma = 4", state="absent"),
    line("absent-search", search_string="=", state="absent"),
    line("absent-nothing", regexp="^zeta", state="absent"),
    line("absent-missing-file", None, regexp="^zeta", state="absent"),
    line("crlf", "a\r\nb\r\n", line="b"),
    line("mode-only", line="gamma = 4", mode="0640"),
    line("validate-refuses", line="x", validate="/bin/false %s"),
    line("validate-takes", line="x", validate="/usr/bin/test -f %s"),
    line("empty-file", "", line="x"),
    line("backrefs-named", regexp=r"^(?P<n>gamma) = (\d+)", line=r"\g<n>=\2", backrefs=True),
    line("before-first", insertbefore="^beta", line="new", firstmatch=True),
    line("before-no-newline", "a\nb", insertbefore="^b", line="c"),
    line("regexp-and-after", regexp="^zeta", insertafter="^alpha", line="zeta = 1"),
    line("there-without-newline", "a\nb", regexp="^z", line="b"),
    line("form-feed", "a\x0cbeta\nx\n", regexp="^beta", line="B"),
    block("appends", block="one\ntwo"),
    block("same", TEXT + "# BEGIN ANSIBLE MANAGED BLOCK\none\n# END ANSIBLE MANAGED BLOCK\n", block="one"),
    block("changes", TEXT + BLOCK + "tail\n", block="new\nlines\n"),
    block("gone-by-state", TEXT + BLOCK + "tail\n", state="absent"),
    block("gone-by-empty", TEXT + BLOCK, block=""),
    block("absent-nothing", state="absent"),
    block("absent-missing-file", None, state="absent"),
    block("missing-fails", None, block="x"),
    block("create", None, block="x", create=True),
    block("after", insertafter="^beta", block="x"),
    block("after-nothing", insertafter="^zeta", block="x"),
    block("before", insertbefore="^beta", block="x"),
    block("before-bof", insertbefore="BOF", block="x"),
    block("marker", marker="<!-- {mark} x -->", block="<a/>"),
    block("marker-words", marker="# {mark} y", marker_begin="von", marker_end="bis", block="x"),
    block("no-final-newline", "a", block="x"),
    block("newlines", insertafter="^beta = 2", block="x", prepend_newline=True, append_newline=True),
    block("newlines-at-end", block="x", prepend_newline=True, append_newline=True),
    block("after-two-lines", TEXT, insertafter="(?m)^beta = 2\n# comment", block="x"),
    block("after-named-bof", insertafter="BOF", block="x"),
    block("only-begin", TEXT + "# BEGIN ANSIBLE MANAGED BLOCK\nold\n", block="x"),
    replaced("all", regexp=r"^beta = (\d)$", replace=r"beta=\1"),
    replaced("nothing", regexp="zeta", replace="x"),
    replaced("removes", regexp="^#.*\n"),
    replaced("after", after="# comment", regexp="beta", replace="BETA"),
    replaced("before", before="# comment", regexp="beta", replace="BETA"),
    replaced("between", after="alpha", before="gamma", regexp="beta", replace="BETA"),
    replaced("section-missing", after="zeta", regexp="beta", replace="BETA"),
    replaced("missing-file", None, regexp="x", replace="y"),
    case("file-directory", "file", path="F/a/b/c", state="directory", mode="0750"),
    case("file-directory-there", "file", {"d/x": ""}, path="F/d", state="directory", mode="u=rwx,g=rx,o="),
    case("file-recurse", "file", {"d/x": "", "d/e/y": ""}, path="F/d", state="directory", mode="u=rwX,go=rX",
         recurse=True),
    case("file-file-mode", "file", {"f": ""}, path="F/f", mode="g+w,o-r"),
    case("file-file-absent", "file", path="F/f", state="file"),
    case("file-touch", "file", path="F/f", state="touch", mode="0600"),
    case("file-touch-preserve", "file", {"f": ""}, path="F/f", state="touch", modification_time="preserve",
         access_time="preserve"),
    case("file-absent", "file", {"d/x": ""}, path="F/d", state="absent"),
    case("file-absent-nothing", "file", path="F/d", state="absent"),
    case("file-link", "file", {"f": "x"}, src="F/f", dest="F/l", state="link"),
    case("file-link-relative", "file", {"f": "x"}, src="f", dest="F/l", state="link"),
    case("file-link-changes", "file", {"f": "x", "g": "y"}, prepare="ln -s f l", src="g", dest="F/l", state="link"),
    case("file-link-dangling", "file", src="F/none", dest="F/l", state="link"),
    case("file-link-dangling-forced", "file", src="F/none", dest="F/l", state="link", force=True),
    case("file-link-over-file", "file", {"f": "x", "l": "y"}, src="F/f", dest="F/l", state="link"),
    case("file-link-over-file-forced", "file", {"f": "x", "l": "y"}, src="F/f", dest="F/l", state="link", force=True),
    case("file-link-over-folder", "file", {"f": "x", "l/y": ""}, src="F/f", dest="F/l", state="link", force=True),
    case("file-hard", "file", {"f": "x"}, src="F/f", dest="F/h", state="hard"),
    case("file-hard-there", "file", {"f": "x"}, prepare="ln f h", src="F/f", dest="F/h", state="hard"),
    case("file-directory-over-file", "file", {"d": "x"}, path="F/d", state="directory"),
    case("file-follow-link-mode", "file", {"f": "x"}, prepare="ln -s f l; chmod 600 f", path="F/l", mode="0640"),
    case("file-touch-folder", "file", {"d/x": ""}, path="F/d", state="touch", mode="0700"),
    case("file-times", "file", {"f": ""}, path="F/f", modification_time="202001010000.00",
         access_time="202001010000.00"),
    case("file-recurse-new", "file", path="F/a/b", recurse=True, mode="0700"),
    case("file-recurse-file", "file", {"f": ""}, path="F/f", recurse=True),
    case("file-recurse-links", "file", {"d/x": "", "e/y": ""}, prepare="ln -s ../e/y d/m; ln -s none d/n", path="F/d",
         state="directory", mode="u=rwX,go=", recurse=True),
    case("file-directory-dangling", "file", prepare="ln -s d l", path="F/l", state="directory"),
    case("file-directory-link-itself", "file", {"d/x": ""}, prepare="ln -s d l", path="F/l", state="directory",
         follow=False),
    case("file-source-of-a-file", "file", {"f": "", "g": ""}, path="F/f", src="F/g"),
    case("file-hard-forced", "file", {"f": "x", "h": "y"}, src="F/f", dest="F/h", state="hard", force=True),
    case("file-hard-into-folder", "file", {"f": "x", "d/y": ""}, src="F/f", dest="F/d", state="hard"),
    case("file-hard-over-link", "file", {"f": "x", "g": "y"}, prepare="ln -s g h", src="F/f", dest="F/h",
         state="hard"),
    case("file-mode-words", "file", {"f": ""}, path="F/f", mode="u=rws,g=xs,o=t"),
    case("copy-remote", "copy", {"f": "x"}, src="F/f", dest="F/g", remote_src=True, mode="0600"),
    case("copy-remote-preserve", "copy", {"f": "x"}, prepare="chmod 711 f", src="F/f", dest="F/g", remote_src=True,
         mode="preserve"),
    case("copy-remote-into-folder", "copy", {"f": "x", "d/y": ""}, src="F/f", dest="F/d/", remote_src=True),
    case("copy-remote-folder", "copy", {"s/a": "1", "s/b/c": "2"}, src="F/s", dest="F/t", remote_src=True),
    case("copy-remote-folder-inside", "copy", {"s/a": "1", "s/b/c": "2", "t/x": ""}, src="F/s/", dest="F/t",
         remote_src=True),
    case("copy-remote-content-to-new", "copy", {"s/a": "1"}, src="F/s/", dest="F/new", remote_src=True),
    case("copy-remote-links", "copy", {"s/a": "1", "s/b/c": "2"}, prepare="ln -s a s/l; ln -s b s/m; ln -s none s/n",
         src="F/s", dest="F/t", remote_src=True),
    case("copy-remote-folder-preserve", "copy", {"s/a": "1", "s/b/c": "2"}, prepare="chmod 711 s/a; chmod 700 s/b",
         src="F/s", dest="F/t", remote_src=True, mode="preserve"),
    case("copy-into-new-folder", "copy", {"f": "x"}, src="F/f", dest="F/new/er/", remote_src=True,
         directory_mode="0700"),
    case("copy-checksum-wrong", "copy", {"f": "x"}, src="F/f", dest="F/g", remote_src=True, checksum="00" * 20),
    case("copy-validate-refuses", "copy", {"f": "x", "g": "y"}, src="F/f", dest="F/g", remote_src=True,
         validate="/bin/false %s"),
    case("copy-force-no", "copy", {"f": "x", "g": "y"}, src="F/f", dest="F/g", remote_src=True, force=False),
    case("copy-no-parent", "copy", {"f": "x"}, src="F/f", dest="F/no/g", remote_src=True),
    case("copy-over-link", "copy", {"f": "x", "g": "y"}, prepare="ln -s g l", src="F/f", dest="F/l", remote_src=True),
    case("stat", "stat", {"f": "x"}, path="F/f"),
    case("stat-nothing", "stat", path="F/f"),
    case("slurp", "slurp", {"f": "x"}, src="F/f"),
    case("slurp-nothing", "slurp", src="F/f"),
    case("assemble", "assemble", {"d/1": "one", "d/2": "two\n", "d/.hid": "h"}, src="F/d", dest="F/out",
         delimiter="--"),
    case("assemble-regexp", "assemble", {"d/1a": "one", "d/2b": "two\n"}, src="F/d", dest="F/out", regexp="a$"),
    case("unarchive", "unarchive", {"s/a": "1", "s/b/c": "2"}, prepare="tar czf x.tgz -C s . && mkdir o",
         src="F/x.tgz", dest="F/o", remote_src=True),
    case("unarchive-creates", "unarchive", {"o/a": "1"}, src="F/x.tgz", dest="F/o", creates="F/o/a", remote_src=True),
    case("unarchive-no-folder", "unarchive", {"a": ""}, prepare="tar cf x.tar a", src="F/x.tar", dest="F/o",
         remote_src=True),
    case("unarchive-strip", "unarchive", {"s/a": "1"}, prepare="tar cf x.tar s && mkdir o", src="F/x.tar",
         dest="F/o", remote_src=True, extra_opts=["--strip-components=1"]),
    case("unarchive-exclude", "unarchive", {"s/a.txt": "1", "s/b.log": "2"}, prepare="tar cf x.tar s && mkdir o",
         src="F/x.tar", dest="F/o", remote_src=True, exclude=["*.log"]),
    case("unarchive-strip-links", "unarchive", {"s/t/a": "1"}, prepare="ln s/t/a s/t/h; tar cf x.tar s && mkdir o",
         src="F/x.tar", dest="F/o", remote_src=True, extra_opts=["--strip-components=1"]),
    case("unarchive-keep-newer", "unarchive", {"s/a": "1", "o/s/a": "older"},
         prepare="tar cf x.tar s; touch -d 2000-01-01 o/s/a", src="F/x.tar", dest="F/o", remote_src=True,
         keep_newer=True),
    case("find", "find", {"d/a.txt": "1", "d/b.log": "", "d/e/c.txt": ""}, paths="F/d", patterns="*.txt",
         recurse=True),
    case("get-url-file", "get_url", {"f": "x"}, url="file://F/f", dest="F/g", mode="0600"),
    case("get-url-force", "get_url", {"f": "x", "g": "y"}, prepare="touch -d 2001-01-01 f", url="file://F/f",
         dest="F/g", force=True),
    case("get-url-sums", "get_url", {"f": "x", "sums": f"{SHA256_OF_X}  f\n00  other\n"}, url="file://F/f",
         dest="F/g", checksum="sha256:file://F/sums"),
    case("get-url-checksum-wrong", "get_url", {"f": "x"}, url="file://F/f", dest="F/g", checksum="sha256:00"),
]  # fmt: skip
FORETOLD = {("unarchive", "check"), ("get_url", "check"), ("copy-no-parent", "check")}
"""What check mode foretells here, and Ansible leaves open: in it, a folder may be one that a task before makes."""
ROUNDS = ("check", "first", "second")


def put(folder: Path, one: Case) -> None:
    folder.mkdir(parents=True)
    for name, text in one.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    if one.prepare:
        subprocess.run(["sh", "-c", one.prepare], cwd=folder, check=True)


def told(value: Any, folder: Path) -> Any:
    """Return a value of the table with its folder filled in."""
    if isinstance(value, str):
        return str(folder) + value[1:] if value.startswith("F/") else value.replace("//F/", f"//{folder}/")
    return value


def seen(folder: Path) -> dict[str, Any]:
    """Return everything below a folder: kind, mode and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()).replace(str(folder), "F"))
        elif path.is_dir():
            found[name] = ("directory", oct(path.stat().st_mode & 0o7777))
        elif not name.endswith((".tgz", ".tar")):
            found[name] = ("file", oct(path.stat().st_mode & 0o7777), path.read_bytes(), path.stat().st_nlink)
    return found


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, need_parts) -> dict[str, dict[str, Any]]:
    """Return what Ansible did with every case: the outcome of each round, and the folder after each."""
    need_parts("peers")
    base = tmp_path_factory.mktemp("ansible")
    found: dict[str, dict[str, Any]] = {}
    for one in CASES:
        put(base / one.id, one.values[0])
        found[one.id] = {}
    for name in ROUNDS:
        results = _play(base, check=name == "check")
        for one in CASES:
            found[one.id][name] = (_outcome(results[one.id]), seen(base / one.id))
    return found


def _outcome(result: Mapping[str, Any]) -> str:
    return "failed" if result.get("failed") else "changed" if result.get("changed") else "ok"


def _play(base: Path, *, check: bool) -> dict[str, Any]:
    tasks = [
        {
            "name": one.id,
            f"ansible.builtin.{one.values[0].module}": {
                name: told(value, base / one.id) for name, value in one.values[0].arguments.items()
            },
            "ignore_errors": True,
        }
        for one in CASES
    ]
    playbook = base.parent / f"{base.name}.json"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    peers = install.default_folder() / "peers/bin"
    environment = {
        **os.environ,
        "ANSIBLE_HOME": str(base.parent / "home"),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
    }
    argv = [peers / "ansible-playbook", "-c", "local", "-i", "localhost,", playbook,
            "-e", f"ansible_python_interpreter={peers / 'python'}"]  # fmt: skip
    done = subprocess.run(
        [*argv, *(["--check"] if check else [])],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=700,
    )
    return _read(done.stdout)


def _read(text: str) -> dict[str, Any]:
    """Return each task's outcome from what `ansible-playbook` prints."""
    found: dict[str, Any] = {}
    name = ""
    for row in text.splitlines():
        if row.startswith("TASK ["):
            name = row[6 : row.index("]")]
        elif name and row.startswith(("ok:", "changed:", "fatal:", "failed:", "skipping:")):
            found[name] = {
                "changed": row.startswith("changed:"),
                "failed": row.startswith(("fatal:", "failed:")),
            }
    assert found, text
    return found


@pytest.mark.parametrize("one", CASES)
def test_file_module_does_what_ansibles_does(one: Case, theirs, tmp_path, request) -> None:
    name = request.node.callspec.id
    folder = tmp_path / name
    put(folder, one)
    module = modules.module_of(one.module)
    arguments = check_arguments(
        module.names[0], {key: told(value, folder) for key, value in one.arguments.items()}
    )

    for turn in ROUNDS:
        if {(one.module, turn), (name, turn)} & FORETOLD:
            continue
        work = engine.Work(
            id=turn, module=module.names[0], arguments=arguments, check=turn == "check", diff=True
        )
        event = engine.probe(work, engine.Place())
        if event["event"] == "probed" and event["changes"] and turn != "check":
            event = engine.apply(work, engine.Place())
        ours = "failed" if event["event"] == "failed" else "changed" if event["changed"] else "ok"

        assert (ours, seen(folder)) == theirs[name][turn], f"{turn}: {event}"
