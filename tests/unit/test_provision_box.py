"""The real box: commands with a deadline, files in one step, content from the controller."""

import hashlib
import os
import stat
import sys
import threading
from pathlib import Path

import psutil
import pytest

from rigd.provision.target import processes, writing
from rigd.provision.target.box import Blobs, RealBox
from rigd.provision.target.contract import ModuleError
from rigd.provision.target.processes import Groups, TaskCancelled


def test_a_command_gives_code_and_both_streams():
    done = RealBox().run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in" * 100_000, ok=None)

    assert (done.rc, done.stdout, done.stderr) == (3, "in" * 100_000, "err\n")


def test_a_command_that_fails_raises_with_its_last_words():
    with pytest.raises(ModuleError, match=r"`sh -c .*` ended with 4: no such card") as caught:
        RealBox().run(["sh", "-c", "echo no such card >&2; exit 4"])

    assert caught.value.facts["rc"] == 4


def test_a_command_that_does_not_exist_is_a_sentence():
    with pytest.raises(ModuleError, match="there is no command 'nvidia-nothing' on the box"):
        RealBox().run(["nvidia-nothing"])


def test_a_folder_that_does_not_exist_is_a_sentence():
    with pytest.raises(ModuleError, match="there is no such folder"):
        RealBox().run(["true"], folder="/no/such/folder")


def test_a_command_over_its_deadline_is_ended_with_its_children(tmp_path, block_until):
    pid_file = tmp_path / "pid"

    with pytest.raises(ModuleError, match=r"did not end within 0\.2 s") as caught:
        RealBox().run(["sh", "-c", f"echo said; sleep 60 & echo $! > {pid_file}; wait"], timeout_s=0.2)

    assert caught.value.facts["stdout"] == "said\n"
    block_until(lambda: not _runs(int(pid_file.read_text())))


def test_a_command_that_ignores_the_polite_signal_is_killed(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.1)

    with pytest.raises(ModuleError, match="did not end"):
        RealBox().run(
            [sys.executable, "-c", "import signal,time; signal.signal(15, 1); time.sleep(60)"], timeout_s=0.3
        )


def test_what_a_command_leaves_behind_does_not_hold_it(tmp_path):
    done = RealBox().run(["sh", "-c", "sleep 5 & echo started"], timeout_s=4)

    assert done.stdout == "started\n"


def test_of_much_output_the_end_is_kept(monkeypatch):
    monkeypatch.setattr(processes, "OUTPUT_LIMIT_BYTES", 1000)

    done = RealBox().run(["sh", "-c", "yes line | head -n 10000; echo last"])

    assert done.stdout.startswith("[49005 bytes left out]\n")
    assert done.stdout.endswith("line\nlast\n")


def test_a_command_reads_nothing_and_answers_in_a_known_language():
    done = RealBox(environment={"MINE": "yes"}).run(["sh", "-c", "cat; echo $LC_ALL $MINE"])

    assert done.stdout == "C.UTF-8 yes\n"


def test_system_programs_are_found_by_any_user(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    assert RealBox().environment()["PATH"] == "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def test_the_task_s_own_timeout_limits_every_command():
    box = RealBox(timeout_s=0.2)

    with pytest.raises(ModuleError, match="did not end within"):
        box.run(["sleep", "60"])
    with pytest.raises(ModuleError, match=r"did not end within its timeout of 0\.2 s"):
        box.run(["true"])


def test_calling_off_ends_the_command_that_runs():
    groups = Groups()
    threading.Timer(0.2, groups.end_all).start()

    with pytest.raises(TaskCancelled):
        RealBox(groups=groups).run(["sleep", "60"])


def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    path = tmp_path / "new"

    RealBox().write(str(path), b"text")

    assert path.read_bytes() == b"text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~writing.umask()
    assert _names(tmp_path) == ["new"]


def test_a_rewritten_file_keeps_mode_and_owner(tmp_path):
    path = tmp_path / "old"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    path.chmod(0o640)
    owner = (path.stat().st_uid, path.stat().st_gid)

    RealBox().write(str(path), b"new")

    seen = path.stat()
    assert (path.read_text(), stat.S_IMODE(seen.st_mode), (seen.st_uid, seen.st_gid)) == ("new", 0o640, owner)


def test_a_wanted_mode_is_given_at_once(tmp_path):
    path = tmp_path / "secret"

    RealBox().write(str(path), b"new", mode=0o600)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("follow", "kept"), [(True, True), (False, False)])
def test_a_link_is_followed_or_replaced(tmp_path, follow, kept):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")

    RealBox().write(str(tmp_path / "link"), b"new", follow=follow)

    assert ((tmp_path / "link").is_symlink(), (tmp_path / "link").read_text()) == (kept, "new")
    assert (tmp_path / "real").read_text() == ("new" if follow else "old")


def test_a_backup_is_told_and_holds_the_old(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    box = RealBox()

    box.write(str(path), b"new", backup=True)

    assert [Path(copy).read_text() for copy in box.backups] == ["old"]
    assert box.backups[0].startswith(f"{path}.")


def test_what_a_power_cut_left_behind_is_cleared_away(tmp_path):
    (tmp_path / ".file.rigd-new").write_text("half")

    RealBox().write(str(tmp_path / "file"), b"whole")

    assert _names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        pytest.param("no/such/file", r"there is no folder .*no/such", id="no-folder"),
        pytest.param("folder", "it is a folder", id="folder"),
    ],
)
def test_where_nothing_can_be_written_is_a_sentence(tmp_path, path, sentence):
    (tmp_path / "folder").mkdir()

    with pytest.raises(ModuleError, match=sentence):
        RealBox().write(str(tmp_path / path), b"")


def test_a_full_disk_is_a_sentence_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", _full)

    with pytest.raises(ModuleError, match="no space is left on its disk; free some, nothing was changed"):
        RealBox().write(str(path), b"new")

    assert path.read_text() == "old"
    assert _names(tmp_path) == ["file"]


def test_content_is_fetched_once_and_checked():
    content = b"x" * 100
    asked: list[str] = []
    digest = hashlib.sha256(content).hexdigest()
    box = RealBox(blobs=Blobs(lambda digest: asked.append(digest) or content))

    assert (box.blob(digest), box.blob(digest), asked) == (content, content, [digest])
    with pytest.raises(ModuleError, match="not the one asked for"):
        box.blob("0" * 64)


def test_progress_is_told_at_most_a_few_times_a_second():
    told: list[str] = []
    box = RealBox(tell=told.append)

    for number in range(1000):
        box.progress(str(number))

    assert told == ["0"]


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _full(_handle: int) -> None:
    raise OSError(28, "No space left on device")
