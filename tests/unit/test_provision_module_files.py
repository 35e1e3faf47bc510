"""Modules about files and the web: what they refuse, keep and prove, on this machine in a folder of the test."""

import hashlib
import http.server
import io
import json
import os
import pwd
import stat
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigd.provision.language.arguments import check_arguments
from rigd.provision.target import attributes, engine, fstab, guarded


def run(
    name: str, *, check: bool = False, blobs: dict[str, bytes] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Do a task as the helper does; return its event."""
    entries = arguments.pop("entries", None)
    known = check_arguments(name, arguments)
    if entries is not None:
        known |= {"entries": entries, "content": None}
    place = engine.Place(blobs=engine.Blobs(lambda digest: (blobs or {})[digest]))
    return engine.apply(engine.Work(id="t", module=name, arguments=known, check=check, diff=True), place)


def twice(name: str, **arguments: Any) -> dict[str, Any]:
    """Do a task two times; the second must find nothing to do."""
    first = run(name, **arguments)
    assert first["event"] == "applied", first
    second = run(name, **arguments)
    assert (second["event"], second["changed"]) == ("applied", False), second
    return first


# --- attributes ---


@pytest.mark.parametrize(
    ("wish", "now", "directory", "expected"),
    [
        ("0644", 0o600, False, 0o644),
        ("1777", 0o755, True, 0o1777),
        (0o750, 0o700, True, 0o750),
        ("u=rw,g=r,o=r", 0o777, False, 0o644),
        ("g+w", 0o644, False, 0o664),
        ("go-rwx", 0o777, False, 0o700),
        ("a+X", 0o644, False, 0o644),
        ("a+X", 0o744, False, 0o755),
        ("a+X", 0o644, True, 0o755),
        ("+x", 0o644, False, 0o755),
        ("u+s", 0o755, False, 0o4755),
        ("g=u", 0o640, False, 0o660),
        ("o=", 0o777, False, 0o770),
        ("+t", 0o777, True, 0o1777),
        ("u=rwx,u-x", 0o000, False, 0o600),
    ],
)
def test_modes_are_read_as_chmod_reads_them(tmp_path, wish, now, directory, expected):
    path = tmp_path / "p"
    path.mkdir() if directory else path.touch()
    path.chmod(now)

    assert attributes.wanted_mode(wish, now, directory=directory, mask=0o022) == expected
    if isinstance(wish, str):
        subprocess.run(["sh", "-c", 'umask 022; chmod "$1" "$2"', "sh", wish, path], check=True)
        assert stat.S_IMODE(path.stat().st_mode) == expected


def test_unknown_owner_says_what_to_do(tmp_path):
    (tmp_path / "f").touch()
    event = run("file", path=str(tmp_path / "f"), owner="nobody-of-that-name")

    assert "there is no user 'nobody-of-that-name'" in event["msg"]


# --- removal ---


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc",
        "/usr/",
        "/usr/../etc",
        "//var",
        "/./proc//",
        "/home",
        "/var/lib/docker",
        "/etc/passwd",
        "/etc/ssh/",
        "/etc/../",
        "/lib",
    ],
)
def test_system_folders_are_never_removed(path):
    event = run("file", check=True, path=path, state="absent")

    assert event["event"] == "failed"
    assert "never removes" in event["msg"]


def test_link_to_a_system_folder_may_go_and_the_folder_stays(tmp_path):
    (tmp_path / "l").symlink_to("/etc")
    twice("file", path=str(tmp_path / "l"), state="absent")

    assert Path("/etc/passwd").exists()


def test_parent_that_is_a_link_does_not_hide_a_system_folder(tmp_path):
    (tmp_path / "root").symlink_to("/")

    assert guarded.why_kept(str(tmp_path / "root" / "etc")) is not None


@pytest.mark.parametrize("path", ["/", "/etc/", "/usr/../etc", "/home", "/var/lib"])
def test_no_system_folder_gets_one_mode_or_owner_for_all_below(path):
    event = run("file", check=True, path=path, state="directory", recurse=True, owner="root")

    assert event["event"] == "failed"
    assert "need different owners" in event["msg"]


def test_link_to_a_system_folder_is_none_the_better_for_it(tmp_path):
    (tmp_path / "l").symlink_to("/etc")
    event = run("file", check=True, path=f"{tmp_path}/l/", state="directory", recurse=True, mode="0700")

    assert "need different owners" in event["msg"]


def test_home_of_who_works_here_is_kept(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    entry = pwd.struct_passwd(("ada", "x", os.getuid(), os.getgid(), "", str(home), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [entry])
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: entry)

    assert guarded.at_work() == {"ada"}
    assert "home of 'ada'" in (guarded.why_kept(f"{home}/../home/") or "")
    assert guarded.why_kept(str(home / "x")) is None


def test_mount_points_and_what_holds_them_are_kept():
    inside = next(mount["path"] for mount in fstab.mounted() if mount["path"].count("/") > 1)

    assert guarded.why_kept(inside) is not None
    assert guarded.why_kept(str(Path(inside).parent)) is not None


# --- copy ---


def test_content_is_asked_for_only_where_it_differs(tmp_path):
    content = b"hello\n"
    digest = hashlib.sha256(content).hexdigest()
    entry = {"path": "", "sha256": digest, "name": "f"}
    target = str(tmp_path / "f")
    first = run("copy", dest=target, content="x", entries=[entry], blobs={digest: content}, mode="0600")
    second = run("copy", dest=target, content="x", entries=[entry], blobs={}, mode="0600")

    assert (first["changed"], second["changed"]) == (True, False)
    assert (tmp_path / "f").read_bytes() == content
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_backup_keeps_the_old_content(tmp_path):
    path = tmp_path / "f"
    path.write_text("old\n")
    event = run("lineinfile", path=str(path), line="new", backup=True)

    assert Path(event["facts"]["backup_file"]).read_text() == "old\n"


def test_refused_validation_leaves_the_file_and_says_what_the_command_said(tmp_path):
    path = tmp_path / "f"
    path.write_text("old\n")
    event = run("lineinfile", path=str(path), line="new", validate="sh -c 'echo no good >&2; exit 3' %s")

    assert "no good" in event["msg"]
    assert path.read_text() == "old\n"


def test_lines_that_grow_on_every_run_are_refused(tmp_path):
    path = tmp_path / "f"
    path.write_text("gamma = 4\n")
    event = run("lineinfile", path=str(path), regexp=r"^(gamma) = (\d+)", line=r"\1 = \g<2>0", backrefs=True)

    assert "every run" in event["msg"]
    assert path.read_text() == "gamma = 4\n"


def test_replacement_that_matches_itself_is_refused(tmp_path):
    path = tmp_path / "f"
    path.write_text("a\n")
    event = run("replace", path=str(path), regexp="a", replace="aa")

    assert "every run" in event["msg"]
    assert path.read_text() == "a\n"


# --- json_merge ---

DAEMON = {"log-driver": "local", "features": {"containerd-snapshotter": True}, "dns": ["1.1.1.1"]}


def test_foreign_keys_and_their_order_are_kept(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps(DAEMON))
    twice(
        "rigd.box.json_merge",
        path=str(path),
        value={"runtimes": {"nvidia": {"path": "x"}}, "features": {"cdi": True}},
    )
    merged = json.loads(path.read_text())

    assert merged == {**DAEMON, "features": {"containerd-snapshotter": True, "cdi": True},
                      "runtimes": {"nvidia": {"path": "x"}}}  # fmt: skip
    assert list(merged)[:3] == list(DAEMON)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "line 1, column"),
        ('{\n  // comment\n  "a": 1}', "JSON has no comments"),
        ("[1]", "not an object"),
        ('{"a": 1, "a": 2}', "twice"),
    ],
)
def test_file_that_is_no_json_object_is_refused_and_stays(tmp_path, text, said):
    path = tmp_path / "daemon.json"
    path.write_text(text)
    event = run("rigd.box.json_merge", path=str(path), value={"b": 1})

    assert said in event["msg"]
    assert path.read_text() == text


def test_missing_or_empty_file_becomes_one(tmp_path):
    path = tmp_path / "daemon.json"
    twice("rigd.box.json_merge", path=str(path), value={"a": {"b": 1}})
    path.write_text("\n")
    twice("rigd.box.json_merge", path=str(path), value={"a": {"b": 1}})

    assert json.loads(path.read_text()) == {"a": {"b": 1}}


def test_lists_are_replaced_or_united_and_keys_removed(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps(DAEMON))
    twice(
        "rigd.box.json_merge",
        path=str(path),
        value={"dns": ["9.9.9.9"]},
        union="dns",
        remove="features.containerd-snapshotter",
    )

    assert json.loads(path.read_text()) == {
        "log-driver": "local",
        "features": {},
        "dns": ["1.1.1.1", "9.9.9.9"],
    }


# --- the web ---


class Server(http.server.BaseHTTPRequestHandler):
    """Answers by path; notes what came."""

    seen: list[tuple[str, str, str | None]] = []  # noqa: RUF012  (one server a test)

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        Server.seen.append((self.command, self.path, self.headers.get("Authorization")))
        status, headers, body = {
            "/file": (200, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, b"content\n"),
            "/sums": (
                200,
                {},
                f"{hashlib.sha256(b'content' + bytes([10])).hexdigest()}  file\n{'0' * 64}  other\n".encode(),
            ),
            "/json": (200, {"Content-Type": "application/json"}, b'{"a": 1}'),
            "/gone": (404, {}, b"nothing here"),
            "/moved": (302, {"Location": "/json"}, b""),
            "/short": (200, {"Content-Length": "100"}, b"short"),
        }[self.path]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = answer  # noqa: N815  (the library calls them so)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    Server.seen = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download_is_proved_by_a_file_of_checksums_and_not_repeated(web, tmp_path):
    target = str(tmp_path / "file")
    twice("get_url", url=f"{web}/file", dest=target, checksum=f"sha256:{web}/sums")

    assert [path for command, path, _ in Server.seen if command == "GET"].count("/file") == 1


def test_wrong_checksum_leaves_the_old_file(web, tmp_path):
    path = tmp_path / "file"
    path.write_text("old\n")
    event = run("get_url", url=f"{web}/file", dest=str(path), checksum=f"sha256:{'1' * 64}")

    assert "was wanted" in event["msg"]
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("old\n", 1)


def test_folder_as_destination_asks_by_date_and_does_not_fetch_again(web, tmp_path):
    twice("get_url", url=f"{web}/file", dest=str(tmp_path))

    assert (tmp_path / "file").read_text() == "content\n"


@pytest.mark.parametrize(("path", "said"), [("/gone", "404"), ("/short", "ended after 5 of 100 bytes")])
def test_failed_download_says_why_and_leaves_nothing(web, tmp_path, path, said):
    event = run("get_url", url=web + path, dest=str(tmp_path / "f"))

    assert said in event["msg"]
    assert list(tmp_path.iterdir()) == []


def test_address_that_refuses_is_a_sentence(tmp_path):
    event = run("get_url", url="http://127.0.0.1:9/x", dest=str(tmp_path / "f"))

    assert "connection refused" in event["msg"]


def test_uri_reads_json_and_is_no_change(web):
    event = run("uri", url=f"{web}/json")

    assert (event["changed"], event["facts"]["json"], event["facts"]["status"]) == (False, {"a": 1}, 200)


def test_uri_takes_the_named_status_and_refuses_others(web):
    assert run("uri", url=f"{web}/gone", status_code=[200, 404])["event"] == "applied"
    refused = run("uri", url=f"{web}/gone")

    assert refused["msg"].startswith("Status code was 404 and not [200]")
    assert refused["facts"]["content"] == "nothing here"


def test_uri_posts_once_and_not_in_check_mode(web):
    arguments = {"url": f"{web}/json", "method": "POST", "body": {"k": "v"}, "body_format": "json"}
    run("uri", check=True, **arguments)
    assert Server.seen == []
    run("uri", **arguments)

    assert [command for command, _, _ in Server.seen] == ["POST"]


def test_password_of_a_url_is_not_told(web):
    host = web.removeprefix("http://")
    event = run("uri", url=f"http://me:hidden-word@{host}/gone")

    assert "hidden-word" not in json.dumps(event)


# --- unarchive ---


def archive(path: Path, members: dict[str, str], *, links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            one = tarfile.TarInfo(name)
            one.size = len(text)
            tar.addfile(one, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            one = tarfile.TarInfo(name)
            one.type, one.linkname = tarfile.SYMTYPE, target
            tar.addfile(one)
    return path


@pytest.mark.parametrize(
    ("members", "links"),
    [({"../out": "x"}, {}), ({"/abs": "x"}, {}), ({"a": "x"}, {"l": "../../etc"}), ({}, {"l": "/etc"})],
)
def test_member_that_would_leave_the_folder_is_refused_before_anything_is_unpacked(tmp_path, members, links):
    source = archive(tmp_path / "a.tgz", members, links=links)
    (tmp_path / "o").mkdir()
    event = run("unarchive", src=str(source), dest=str(tmp_path / "o"), remote_src=True)

    assert "would leave the folder" in event["msg"]
    assert list((tmp_path / "o").iterdir()) == []


def test_nothing_is_unpacked_through_a_link_that_lies_in_the_folder(tmp_path):
    source = archive(tmp_path / "a.tgz", {"d/f": "x"})
    (tmp_path / "o").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "o/d").symlink_to(tmp_path / "elsewhere")
    event = run("unarchive", src=str(source), dest=str(tmp_path / "o"), remote_src=True)

    assert event["event"] == "failed"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_changed_file_is_put_back_and_nothing_else(tmp_path):
    source = archive(tmp_path / "a.tgz", {"d/f": "x", "g": "y"})
    (tmp_path / "o").mkdir()
    twice("unarchive", src=str(source), dest=str(tmp_path / "o"), remote_src=True)
    (tmp_path / "o/g").write_text("tampered")
    event = run("unarchive", src=str(source), dest=str(tmp_path / "o"), remote_src=True)

    assert event["changes"][0]["what"] == "unpack 1 differing members"
    assert (tmp_path / "o/g").read_text() == "y"


def test_zip_is_unpacked_as_well(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("d/f", "x")
    (tmp_path / "o").mkdir()
    twice("unarchive", src=str(tmp_path / "a.zip"), dest=str(tmp_path / "o"), remote_src=True)

    assert (tmp_path / "o/d/f").read_text() == "x"


def test_what_is_no_archive_is_a_sentence(tmp_path):
    (tmp_path / "a.tgz").write_text("not an archive")
    (tmp_path / "o").mkdir()
    event = run("unarchive", src=str(tmp_path / "a.tgz"), dest=str(tmp_path / "o"), remote_src=True)

    assert "is no archive that can be read" in event["msg"]
