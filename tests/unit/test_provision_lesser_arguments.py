"""Arguments that few playbooks use: what each leaves in a folder, `F`, and that a second run finds nothing to do."""

import http.server
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rigd.errors import UsageError
from rigd.provision.language.arguments import check_arguments
from rigd.provision.target import engine

TEXT = "alpha = 1\nbeta = 2\nbeta = 3\n"
SHA1_OF_A = "3f786850e387550fdab836ed7e6dc881de23001b"
"""Of a line with `a`."""
SHA1_OF_X = "11f6ad8ec52a2984abaafd7c3b516503785c2072"


@dataclass(frozen=True, kw_only=True)
class Case:
    module: str
    arguments: Mapping[str, Any]
    left: Mapping[str, str]
    """Files whose content, or links whose end (`-> END`), must be so afterwards; "" for what is not there."""
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""


def case(
    name: str, module: str, left: Mapping[str, str], files: Mapping[str, str] | None = None, *, prepare: str = "",
    **arguments: Any,
) -> Any:  # fmt: skip
    one = Case(module=module, arguments=arguments, left=left, files=files or {}, prepare=prepare)
    return pytest.param(one, id=name)


def line(name: str, before: str, after: str, **arguments: Any) -> Any:
    return case(f"line-{name}", "lineinfile", {"f": after}, {"f": before}, path="F/f", **arguments)


def block(name: str, before: str, after: str, **arguments: Any) -> Any:
    return case(
        f"block-{name}", "blockinfile", {"f": after}, {"f": before}, path="F/f", block="x", **arguments
    )


MARKED = "# BEGIN ANSIBLE MANAGED BLOCK\nx\n# END ANSIBLE MANAGED BLOCK\n"
UNPACKED = {"src": "F/x.tar", "dest": "F/o", "remote_src": True}
CASES = [
    line("of-yamls-literal", "a\n", "a\none\n", line="one\n"),
    line("form-feed-ends-none", "a\x0cbeta\nx\n", "a\x0cbeta\nx\nB\n", regexp="^beta", line="B"),
    line("separator-ends-none", "a\u2028beta\n", "a\u2028beta\n", regexp="^beta", state="absent"),
    line("before-the-last-without-newline", "a\nb", "a\nc\nb", insertbefore="^b", line="c"),
    line("after-the-last-without-newline", "a\nb", "a\nb\nc\n", insertafter="^b", line="c"),
    line("there-without-newline", "a\nb", "a\nb\n", regexp="^z", line="b"),
    line("backrefs-by-name", "g = 4\n", "g=4\n", regexp=r"^(?P<n>g) = (\d)", line=r"\g<n>=\2", backrefs=True),
    line("before-first-match", TEXT, TEXT.replace("beta", "new\nbeta", 1), insertbefore="^beta", line="new",
         firstmatch=True),
    block("after-named-bof", "a\n", "a\n" + MARKED, insertafter="BOF"),
    block("after-a-pattern-of-two-lines", TEXT + "c\n", TEXT + MARKED + "c\n", insertafter="(?m)^beta = 2\nbeta"),
    block("before-a-pattern-of-two-lines", TEXT, "alpha = 1\n" + MARKED + "beta = 2\nbeta = 3\n",
          insertbefore="(?m)^beta = 2\nbeta"),
    block("marker-of-yamls-literal", "a\n", "a\n# BEGIN\nx\n# END\n", marker="# {mark}\n"),
    case("folder-recursed-into-that-is-not-there", "file", {"a/b/": "0700"}, path="F/a/b", recurse=True, mode="0700"),
    case("folder-where-a-link-leads", "file", {"d/": "0700", "l": "-> d"}, prepare="ln -s d l", path="F/l",
         state="directory", mode="0700"),
    case("hard-link-into-a-folder", "file", {"d/f": "x"}, {"f": "x", "d/y": ""}, src="F/f", dest="F/d", state="hard"),
    case("hard-link-instead-of-a-link", "file", {"h": "x", "g": "y"}, {"f": "x", "g": "y"}, prepare="ln -s g h",
         src="F/f", dest="F/h", state="hard"),
    case("copy-of-a-folders-content-to-a-new-one", "copy", {"new/a": "1"}, {"s/a": "1"}, src="F/s/", dest="F/new",
         remote_src=True),
    case("copy-keeps-links", "copy", {"t/s/l": "-> a", "t/s/n": "-> none"}, {"s/a": "1"},
         prepare="ln -s a s/l; ln -s none s/n", src="F/s", dest="F/t", remote_src=True),
    case("copy-of-what-a-link-leads-to", "copy", {"g": "x"}, {"f": "x"}, prepare="ln -s f l", src="F/l", dest="F/g",
         remote_src=True),
    case("copy-preserves-folders-modes", "copy", {"t/s/b/": "0710"}, {"s/b/c": "2"}, prepare="chmod 710 s/b",
         src="F/s", dest="F/t", remote_src=True, mode="preserve"),
    case("copy-proved", "copy", {"g": "x"}, {"f": "x"}, src="F/f", dest="F/g", remote_src=True, checksum=SHA1_OF_X),
    case("unarchive-without-what-a-pattern-fits", "unarchive", {"o/s/a.txt": "1", "o/s/b.log": ""},
         {"s/a.txt": "1", "s/b.log": "2"}, prepare="tar cf x.tar s; mkdir o", **UNPACKED, exclude=["*.log"]),
    case("unarchive-without-a-folder-anywhere", "unarchive", {"o/s/a": "1", "o/s/t": ""},
         {"s/a": "1", "s/t/b": "2"}, prepare="tar cf x.tar s; mkdir o", **UNPACKED, exclude=["t"]),
    case("unarchive-strips-hard-links", "unarchive", {"o/t/a": "1", "o/t/h": "1"}, {"s/t/a": "1"},
         prepare="ln s/t/a s/t/h; tar cf x.tar s; mkdir o", **UNPACKED, extra_opts=["--strip-components=1"]),
    case("unarchive-keeps-newer", "unarchive", {"o/s/a": "newer"}, {"s/a": "1", "o/s/a": "newer"},
         prepare="tar cf x.tar s; touch -d 2040-01-01 o/s/a", **UNPACKED, keep_newer=True),
    case("unarchive-replaces-older", "unarchive", {"o/s/a": "1"}, {"s/a": "1", "o/s/a": "older"},
         prepare="tar cf x.tar s; touch -d 2000-01-01 o/s/a", **UNPACKED, keep_newer=True),
    case("get-url-by-force-takes-what-was-put-back", "get_url", {"g": "x"}, {"f": "x", "g": "y"},
         prepare="touch -d 2001-01-01 f", url="file://F/f", dest="F/g", force=True),
]  # fmt: skip
REFUSED = [
    ("lineinfile", {"path": "F/f", "line": "two\nlines"}, "use `blockinfile`"),
    ("lineinfile", {"path": "F/f", "regexp": "^[ab]$", "line": "c"}, "finds a line to change on every run"),
    ("file", {"path": "F/f", "recurse": True}, "recurse is for a directory"),
    ("file", {"path": "F/f", "src": "F/g"}, "src is for a link"),
    ("file", {"path": "F/l", "state": "directory", "follow": False}, "already exists as a link"),
    ("copy", {"src": "F/f", "dest": "F/g", "remote_src": True, "checksum": "00"}, "nothing was copied"),
    ("wait_for", {"path": "F/f", "search_regex": "("}, "no regular expression"),
]  # fmt: skip


def put(folder: Path, files: Mapping[str, str], prepare: str = "") -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    subprocess.run(["sh", "-c", prepare], cwd=folder, check=True)


def done(module: str, arguments: Mapping[str, Any], folder: Path, *, check: bool = False) -> dict[str, Any]:
    def told(value: Any) -> Any:
        return value.replace("F/", f"{folder}/") if isinstance(value, str) and "F/" in value else value

    known = check_arguments(module, {name: told(value) for name, value in arguments.items()})
    return engine.apply(engine.Work(id="t", module=module, arguments=known, check=check), engine.Place())


def seen(folder: Path, name: str) -> str:
    path = folder / name
    if path.is_symlink():
        return f"-> {path.readlink()}"
    if name.endswith("/"):
        return f"{path.stat().st_mode & 0o7777:04o}"
    return path.read_bytes().decode() if path.exists() else ""


@pytest.mark.parametrize("one", CASES)
def test_argument_does_what_it_says_once(one: Case, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    put(folder, one.files, one.prepare)

    first = done(one.module, one.arguments, folder)
    assert first["event"] == "applied", first
    second = done(one.module, one.arguments, folder)

    assert {name: seen(folder, name) for name in one.left} == one.left
    assert (second["event"], second["changed"]) == ("applied", False)


@pytest.mark.parametrize(("module", "arguments", "said"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_meant_is_refused(
    module: str, arguments: Mapping[str, Any], said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    put(folder, {"f": "a\nb\n"}, "ln -s . l")

    event = done(module, arguments, folder)

    assert event["event"] == "failed"
    assert said in event["msg"]


def test_hard_link_to_what_lies_outside_is_not_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    put(folder, {"secret": "s"}, "mkdir o")
    with tarfile.open(folder / "x.tar", "w") as archive:
        link = tarfile.TarInfo("s/h")
        link.type, link.linkname = tarfile.LNKTYPE, "../secret"
        archive.addfile(link)

    event = done("unarchive", UNPACKED, folder)

    assert "would leave the folder" in event["msg"]
    assert not (folder / "o/s").exists()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"patterns": "*.txt", "recurse": True}, ["a.txt", "c.txt"]),
        ({"file_type": "any", "size": "1k"}, ["b.log", "e", "l"]),
        ({"size": "-2"}, ["a.txt"]),
        ({"mode": "0600"}, ["b.log"]),
        ({"mode": "o=r", "exact_mode": False, "recurse": True}, ["a.txt", "c.txt"]),
        ({"contains": "^one.*three", "recurse": True}, []),
        ({"contains": "(?s)one.*three", "recurse": True, "read_whole_file": True}, ["c.txt"]),
        ({"file_type": "link"}, ["l"]),
        ({"follow": True, "recurse": True, "file_type": "link"}, ["l"]),
        ({"age": "1d", "recurse": True}, ["a.txt"]),
        ({"age": "1d", "recurse": True, "age_stamp": "ctime"}, []),
        ({"use_regex": True, "patterns": r"[ab]\.(txt|log)$", "excludes": "^b"}, ["a.txt"]),
        ({"recurse": True, "depth": 1, "file_type": "any"}, ["a.txt", "b.log", "e", "l"]),
        ({"recurse": True, "limit": 1}, ["a.txt"]),
    ],
    ids=str,
)  # fmt: skip
def test_find_finds_what_ansibles_does(
    arguments: Mapping[str, Any], names: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    put(folder, {"a.txt": "1", "b.log": "x" * 2000, "e/c.txt": "one\ntwo\nthree\n"},
        "touch -d 2001-01-01 a.txt; chmod 600 b.log; ln -s a.txt l")  # fmt: skip

    event = done("find", {"paths": "F/", **arguments}, folder)

    assert sorted(Path(one["path"]).name for one in event["facts"]["files"]) == names
    assert all(one["path"] == str(Path(one["path"])) for one in event["facts"]["files"])


def test_find_tells_all_that_stat_does_and_the_checksum(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    put(folder, {"f": "x"})

    [found] = done("find", {"paths": "F/", "get_checksum": True}, folder)["facts"]["files"]
    told = done("stat", {"path": "F/f"}, folder)["facts"]["stat"]

    assert found["checksum"] == told["checksum"] == SHA1_OF_X
    assert found.items() <= {**told, "atime": found["atime"]}.items()


def test_wait_for_gives_the_groups_of_what_it_found_wherever_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    put(folder, {"log": "ready on port 8000\n" + "noise\n" * 400_000})

    facts = done("wait_for", {"path": "F/log", "search_regex": r"^ready on (\w+) (?P<port>\d+)$"}, folder)[
        "facts"
    ]

    assert (facts["match_groups"], facts["match_groupdict"]) == (["port", "8000"], {"port": "8000"})


def test_same_content_that_is_fetched_again_is_no_change(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    put(folder, {"f": "x", "g": "x"}, "touch -d 2001-01-01 f")

    event = done("get_url", {"url": "file://F/f", "dest": "F/g", "force": True, "backup": True}, folder)

    assert (event["changed"], event["facts"].get("backup_file")) == (False, None)


@pytest.mark.parametrize("name", ["marker_begin", "marker_end"])
def test_marker_of_two_lines_is_refused_at_load(name: str) -> None:
    with pytest.raises(UsageError, match="must be one line"):
        check_arguments("blockinfile", {"path": "/f", "block": "x", name: "A\n"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "a", "job": "one\ntwo"}, "holds a line break"),
        ({"name": "a", "job": "one", "cron_file": "/etc/../etc/crontab"}, "belongs to the system"),
        ({"name": "MAIL TO", "job": "root", "env": True}, "has no blanks"),
        ({"name": "a", "job": "one", "special_time": "daily", "hour": "3"}, "stands for the five times"),
    ],
    ids=["two-lines", "the-systems-own-table", "variable-with-a-blank", "two-times"],
)
def test_job_that_cron_would_not_read_is_refused_at_load(arguments: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_arguments("cron", arguments)


def test_file_that_uri_sends_is_one_of_the_box() -> None:
    with pytest.raises(UsageError, match="bring it there by `copy`"):
        check_arguments("uri", {"url": "http://127.0.0.1/", "method": "PUT", "src": "/f"})


def test_answer_that_uri_keeps_gets_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    put(folder, {"f": "x"})
    wanted = {"url": "file://F/f", "dest": "F/g", "mode": "0600"}

    first, second = done("uri", wanted, folder), done("uri", wanted, folder)

    assert (first["changed"], second["changed"], seen(folder, "g")) == (True, False, "x")
    assert (folder / "g").stat().st_mode & 0o7777 == 0o600


def test_forced_download_from_a_server_without_dates_is_no_fault(tmp_path: Path, plain_server: str) -> None:
    folder = tmp_path / "case"
    put(folder, {"g": "hello"})

    event = done("get_url", {"url": f"{plain_server}/text", "dest": "F/g", "force": True}, folder)

    assert (event["event"], event["changed"], seen(folder, "g")) == ("applied", False, "hello")


@pytest.fixture
def plain_server() -> Iterator[str]:
    """Give the address of a server that answers `hello`, and tells no date of it."""

    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"hello")

        do_HEAD = do_GET  # noqa: N815  (the library's name)

        def log_message(self, *_arguments: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(5)


@pytest.mark.parametrize(
    ("module", "arguments", "facts"),
    [
        ("lineinfile", {"path": "F/f", "line": "x"}, {"msg": "line added", "backup": ""}),
        ("lineinfile", {"path": "F/f", "line": "a"}, {"msg": "", "backup": ""}),
        ("lineinfile", {"path": "F/f", "regexp": "a", "state": "absent"}, {"msg": "1 line(s) removed", "found": 1}),
        ("blockinfile", {"path": "F/f", "block": "x"}, {"msg": "block inserted"}),
        ("replace", {"path": "F/f", "regexp": "a", "replace": "b"}, {"msg": "1 replacements made"}),
        ("file", {"src": "F/f", "dest": "F/l", "state": "link"}, {"state": "link", "mode": "0777"}),
        ("copy", {"src": "F/f", "dest": "F/g", "remote_src": True}, {"checksum": SHA1_OF_A, "state": "file"}),
        ("assemble", {"src": "F/d", "dest": "F/g"}, {"checksum": SHA1_OF_X, "mode": "0644", "state": "file"}),
        ("unarchive", {**UNPACKED, "list_files": True}, {"files": ["d", "d/x"], "state": "directory"}),
        ("stat", {"path": "F/f"}, {"stat": {"exists": True, "isreg": True, "block_size": 4096}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_result_has_what_playbooks_register(
    module: str, arguments: Mapping[str, Any], facts: Mapping[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    put(folder, {"f": "a\n", "d/x": "x"}, "tar cf x.tar d; mkdir o")

    told = done(module, arguments, folder)["facts"]

    assert {name: _part(told[name], value) for name, value in facts.items()} == facts


def _part(told: Any, wanted: Any) -> Any:
    return {name: told[name] for name in wanted} if isinstance(wanted, dict) else told
