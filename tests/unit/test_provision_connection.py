"""How a host is reached: its target, whether it is the right one, and how a helper starts, step by step."""

import io
import os
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rigd.errors import UsageError
from rigd.provision.connection import bootstrap, packing, ssh, sshconfig, start
from rigd.provision.connection.link import connect
from rigd.provision.connection.local import LocalDoor
from rigd.provision.connection.ssh import SshDoor
from rigd.provision.connection.start import Ended, NoPythonError, start_helper
from rigd.provision.connection.target import BecomeError, HostUnreachableError, Target, target_of
from rigd.provision.target import engine, frames
from rigd.provision.target import helper as served
from rigd.provision.target.contract import Module

# --- targets ---


def test_inventory_variables_make_a_target():
    target = target_of(
        "rig",
        {"ansible_host": "10.0.0.5", "ansible_user": "ops", "ansible_port": "2222", "ansible_become_password": "pw",
         "ansible_ssh_private_key_file": "~/key", "ansible_python_interpreter": "/usr/bin/python3.12"},
        default=Target(name="", accept_new=True),
    )  # fmt: skip

    assert target == Target(
        name="rig", address="10.0.0.5", user="ops", port=2222, become_password="pw",
        key_file=Path("~/key").expanduser(),
        python="/usr/bin/python3.12", accept_new=True,
    )  # fmt: skip


@pytest.mark.parametrize("value", ["auto", "auto_silent", "auto_legacy"])
def test_ansible_s_search_for_python_is_ours(value):
    assert target_of("rig", {"ansible_python_interpreter": value}).python == "python3"


def test_a_local_host_needs_no_ssh():
    assert target_of("localhost", {"ansible_connection": "local"}).local


def test_an_unknown_connection_is_refused_with_what_there_is():
    with pytest.raises(UsageError, match="there is no connection 'winrm'") as caught:
        target_of("rig", {"ansible_connection": "winrm"})

    assert caught.value.hint == "ansible_connection is ssh or local"


def test_a_port_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="host 'rig': ansible_port: 'ssh' is no number"):
        target_of("rig", {"ansible_port": "ssh"})


def test_passwords_are_in_no_text_of_a_target():
    assert "secret" not in repr(Target(name="rig", password="secret", become_password="secret"))


# --- the package ---


def test_the_same_files_make_the_same_package():
    first = (packing.digest(), packing.archive())
    for known in (packing.digest, packing.archive, packing._files):
        known.cache_clear()

    assert (packing.digest(), packing.archive()) == first


def test_the_package_holds_what_runs_on_the_box_and_no_more():
    names = zipfile.ZipFile(io.BytesIO(packing.archive())).namelist()

    assert "__main__.py" in names
    assert all(name in ("__main__.py", "rigd/__init__.py", "rigd/provision/__init__.py")
               or name.startswith("rigd/provision/target/") for name in names)  # fmt: skip


# --- the unpacker ---


@pytest.fixture
def unpacker(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(*, fresh: str = "") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", packing.unpacker(), str(tmp_path / "base"), "abc", fresh],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.communicate(timeout=10)


def sent(archive: bytes, digest: bytes | None = None) -> bytes:
    import hashlib  # noqa: PLC0415

    return (
        frames.SYNC + struct.pack(">I", len(archive)) + (digest or hashlib.sha256(archive).digest()) + archive
    )


def test_a_helper_is_asked_for_once_then_found(unpacker, tmp_path):
    first = unpacker()
    assert first.stdout.readline() == b"RIGD-HELPER NEED\n"
    # A password that sudo did not ask for comes first, and is dropped.
    first.stdin.write(b"a password\n" + sent(packing.archive()))
    first.stdin.flush()
    assert first.stdout.readline() == frames.READY

    second = unpacker()

    assert second.stdout.readline() == frames.READY
    assert [path.name for path in (tmp_path / "base").iterdir()] == ["helper-abc"]
    assert list((tmp_path / "base" / "helper-abc").rglob("*.pyc"))


def test_a_helper_that_may_be_broken_is_asked_for_anew(unpacker, tmp_path):
    place = tmp_path / "base" / "helper-abc"
    place.mkdir(parents=True)
    (place / "__main__.py").write_text("broken(")

    process = unpacker(fresh="fresh")

    assert process.stdout.readline() == b"RIGD-HELPER NEED\n"
    process.stdin.write(sent(packing.archive()))
    process.stdin.flush()
    assert process.stdout.readline() == frames.READY


def test_a_helper_that_did_not_come_whole_is_not_started(unpacker, tmp_path):
    process = unpacker()

    _, said = process.communicate(sent(packing.archive(), b"0" * 32), timeout=10)

    assert b"the helper did not come whole" in said
    assert not (tmp_path / "base").exists()


def test_helpers_of_older_versions_are_cleared_away(unpacker, tmp_path):
    for name, age_s in (("helper-old", 40 * 86400), ("helper-recent", 3600)):
        place = tmp_path / "base" / name
        place.mkdir(parents=True)
        os.utime(place, (0, place.stat().st_mtime - age_s))

    process = unpacker()
    process.stdout.readline()
    process.stdin.write(sent(packing.archive()))
    process.stdin.flush()
    process.stdout.readline()

    assert {path.name for path in (tmp_path / "base").iterdir()} == {"helper-recent", "helper-abc"}


# --- starting, behind a door that plays a part ---


class Script:
    """A stream that says these chunks; a None in them is where a helper takes over."""

    def __init__(self, *chunks: bytes | None, stderr: str = "") -> None:
        self.sent = b""
        self._chunks = list(chunks)
        self._stderr = stderr
        self._inner: Any = None

    def receive(self) -> bytes:
        if self._inner is not None:
            return self._inner.receive()
        chunk = self._chunks.pop(0) if self._chunks else b""
        if chunk is None:
            self._inner = _served()
            return self._inner.receive()
        return chunk

    def send(self, data: bytes) -> None:
        self.sent += data
        if self._inner is not None:
            self._inner.send(data)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def last_words(self) -> str:
        return self._stderr


def _served() -> Any:
    from rigd.provision.connection.local import PipeStream  # noqa: PLC0415

    requests_out, requests_in = os.pipe()
    events_out, events_in = os.pipe()
    far = PipeStream(requests_out, events_in)

    def serve() -> None:
        served.Helper(far.receive, far.send).serve()
        far.close()

    threading.Thread(target=serve, daemon=True).start()
    return PipeStream(events_out, requests_in)


class Scene:
    """A door whose streams and commands are written beforehand."""

    login = "ops"
    open_to_others: bool | None = None

    def __init__(self, *streams: Script, ends: tuple[Ended, ...] = ()) -> None:
        self.opened: list[list[str]] = []
        self.ran: list[tuple[list[str], bytes]] = []
        self._streams = list(streams)
        self._ends = list(ends)

    def open(self, argv: list[str]) -> Script:
        self.opened.append(argv)
        return self._streams.pop(0)

    def run(self, argv: list[str], *, stdin: bytes = b"", deadline_s: float) -> Ended:
        self.ran.append((argv, stdin))
        return self._ends.pop(0)

    def knock(self) -> bool | None:
        return self.open_to_others


ENTERED = b"RIGD-HELPER ENTERED\n"
RIG = Target(name="rig", become_password="pass word")


def begin(scene: Scene, user: str | None = "root", target: Target = RIG) -> Any:
    return start_helper(scene, target, user, blobs=lambda _digest: None)


def ended(rc: int, stdout: bytes = b"", stderr: bytes = b"") -> Ended:
    return Ended(rc=rc, stdout=stdout, stderr=stderr)


def test_a_helper_in_place_starts_with_one_command_whatever_the_shell_says_before():
    scene = Scene(Script(b"motd\nRIGD-HEL", b"PER ENTERED\n", None))

    helper = begin(scene)

    assert (helper.hello["protocol"], len(scene.opened), scene.ran) == (frames.PROTOCOL, 1, [])
    helper.close()


def test_a_missing_helper_is_sent():
    stream = Script(ENTERED, b"RIGD-HELPER NEED\n", None)

    begin(Scene(stream)).close()

    assert packing.archive() in stream.sent


def test_sudo_that_asks_gets_the_password_on_its_input_after_it_was_tried():
    asking = Script(ENTERED, None)
    scene = Scene(Script(stderr="sudo: a password is required"), asking, ends=(ended(0),))

    begin(scene).close()

    assert scene.ran == [(["sudo", "-k", "-S", "-p", "", "-u", "root", "--", "true"], b"pass word\n")]
    assert asking.sent.startswith(b"pass word\n" + frames.SYNC)
    assert not any("pass word" in word for argv in scene.opened for word in argv)


def test_a_wrong_password_is_told_by_the_exit_code_alone():
    scene = Scene(
        Script(stderr="x"), ends=(ended(1, stderr=b"Maximum 3 incorrect authentication attempts\n"),)
    )

    with pytest.raises(
        BecomeError, match="does not let 'ops' become 'root' with the password given: Maximum 3"
    ):
        begin(scene)


def test_no_password_says_how_to_give_one():
    with pytest.raises(BecomeError, match="sudo on 'rig' wants the password of 'ops'") as caught:
        begin(Scene(Script(stderr="sudo: a password is required")), target=Target(name="rig"))

    assert "--ask-become-pass" in str(caught.value.hint)


def test_no_sudo_is_a_sentence():
    with pytest.raises(BecomeError, match="there is no sudo"):
        begin(Scene(Script(b"RIGD-HELPER NO-SUDO\n")))


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        pytest.param(Script(ENTERED, b"RIGD-HELPER NO-PYTHON\n"), "there is no Python there", id="none"),
        pytest.param(
            Script(ENTERED, stderr="RIGD-HELPER OLD-PYTHON 3.8\n"),
            r"Python is too old there \(3\.8",
            id="old",
        ),
    ],
)
def test_a_box_without_python_is_a_sentence(stream, sentence):
    with pytest.raises(NoPythonError, match=sentence):
        begin(Scene(stream))


def test_a_user_that_is_not_there_is_named():
    with pytest.raises(BecomeError, match="there is no user 'ada' on 'rig'"):
        begin(Scene(Script(ENTERED, stderr="RIGD-HELPER NO-USER ada\n")), user="ada")


def test_an_interpreter_that_is_not_there_is_named():
    target = Target(name="rig", python="/opt/py/python3", bootstrap=True)

    with pytest.raises(NoPythonError, match="there is no '/opt/py/python3' there") as caught:
        begin(Scene(Script(ENTERED, b"RIGD-HELPER NO-PYTHON\n")), target=target)

    assert "ansible_python_interpreter" in str(caught.value.hint)


def test_a_helper_that_ends_at_once_is_sent_anew():
    scene = Scene(Script(ENTERED, stderr="SyntaxError"), Script(ENTERED, None))

    begin(scene).close()

    assert ('-z "fresh"' in scene.opened[1][4], '-z "fresh"' in scene.opened[0][4]) == (True, False)


def test_a_helper_that_never_starts_is_told_with_its_last_words():
    scene = Scene(Script(ENTERED, stderr="a\nKilled"), Script(ENTERED, stderr="a\nKilled"))

    with pytest.raises(HostUnreachableError, match="cannot start the helper on 'rig': Killed"):
        begin(scene)


def test_a_start_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(start, "START_DEADLINE_S", 0.1)
    waiting = threading.Event()

    class Hanging(Script):
        def receive(self) -> bytes:
            waiting.wait(5)
            return b""

        def close(self) -> None:
            waiting.set()

    with pytest.raises(HostUnreachableError, match="cannot start the helper"):
        begin(Scene(Hanging(), Hanging()), user=None)


@pytest.mark.parametrize("comes_in", [True, False, None])
def test_a_task_can_have_the_controller_try_another_connection(monkeypatch, comes_in):
    asking = Module(
        names=("rigd.box.asking",), arguments={}, probe=lambda _arguments, box: box.reached(),
        difference=lambda _arguments, _state: [], apply=lambda *_: None,
        result=lambda _arguments, state: {"comes_in": state},
    )  # fmt: skip
    monkeypatch.setattr(engine.modules, "module_of", {"asking": asking}.get)
    scene = Scene(Script(ENTERED, None))
    scene.open_to_others = comes_in

    helper = begin(scene)
    event = helper.one("batch", tasks=[{"id": "1", "module": "asking"}])

    assert event["facts"] == {"comes_in": comes_in}
    helper.close()


# --- a box without Python ---


def test_python_is_installed_as_root(monkeypatch):
    told: list[str] = []
    scene = Scene(ends=(ended(0, ENTERED),))

    bootstrap.install_python(scene, RIG, tell=told.append)

    assert "install python3" in scene.ran[0][0][4]
    assert told[0].startswith("installing Python on rig")


def test_python_is_installed_with_the_password_where_sudo_asks():
    scene = Scene(ends=(ended(1), ended(0), ended(0, ENTERED)))

    bootstrap.install_python(scene, RIG, tell=lambda _text: None)

    assert scene.ran[2][1] == b"pass word\n"


@pytest.mark.parametrize(
    ("end", "kind", "sentence"),
    [
        pytest.param(ended(3, ENTERED + b"RIGD-HELPER NO-APT\n"), NoPythonError, "it has no apt-get", id="no-apt"),
        pytest.param(ended(127, b"RIGD-HELPER NO-SUDO\n"), BecomeError, "there is no sudo", id="no-sudo"),
        pytest.param(
            ended(100, ENTERED, b"E: Unable to locate package\n"), HostUnreachableError,
            "apt-get ended with 100: E: Unable to locate package", id="apt-fails",
        ),
    ],
)  # fmt: skip
def test_python_that_cannot_be_installed_is_a_sentence(end, kind, sentence):
    with pytest.raises(kind, match=sentence):
        bootstrap.install_python(Scene(ends=(end,)), RIG, tell=lambda _text: None)


# --- ssh, to a server of the test's own ---


class Server(paramiko.ServerInterface):
    """Lets in those whom `methods` says, and answers commands with their own text."""

    def __init__(self, methods: str) -> None:
        self._methods = methods

    def get_allowed_auths(self, _username: str) -> str:
        return self._methods

    def check_auth_none(self, _username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL if self._methods == "none" else paramiko.AUTH_FAILED

    def check_auth_password(self, _username: str, password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL if password == "let me in" else paramiko.AUTH_FAILED

    def check_channel_request(self, _kind: str, _chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        def answer() -> None:
            channel.sendall(command)
            channel.sendall_stderr(b"warning\n")
            channel.send_exit_status(3)
            channel.close()

        # The channel's request is answered when this returns; only then may the command speak and end.
        threading.Timer(0.02, answer).start()
        return True


@pytest.fixture(scope="module")
def host_key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


@pytest.fixture
def serve(host_key: paramiko.PKey) -> Iterator[Callable[[str], int]]:
    """Give `serve(methods)`, which returns the port of a server."""
    listening: list[socket.socket] = []
    transports: list[paramiko.Transport] = []

    def begin_serving(methods: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listening.append(listener)

        def accept() -> None:
            while True:
                try:
                    near, _ = listener.accept()
                    transport = paramiko.Transport(near)
                    transports.append(transport)
                    transport.add_server_key(host_key)
                    transport.start_server(server=Server(methods))
                except (OSError, EOFError, paramiko.SSHException):
                    return

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    yield begin_serving
    for listener in listening:
        # Closing alone does not wake the thread that waits for the next one.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for transport in transports:
        transport.close()
        transport.join(5)


@pytest.fixture
def ssh_target(
    tmp_path: Path, host_key: paramiko.PKey, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Target]:
    """Give targets that know the server, and have neither keys nor agent."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def make(port: int, *, known: bool = True, **fields: Any) -> Target:
        files = tmp_path / "known"
        if known:
            files.write_text(f"[127.0.0.1]:{port} {host_key.get_name()} {host_key.get_base64()}\n")
        config = tmp_path / "config"
        config.write_text(f"Host *\n UserKnownHostsFile {files}\n")
        return Target(name="rig", address="127.0.0.1", port=port, user="ops", ssh_config=config, **fields)

    return make


def test_a_network_that_has_proved_the_user_needs_no_key(serve, ssh_target):
    door = SshDoor(ssh_target(serve("none")))

    assert door.run(["echo", "a b"], deadline_s=5) == Ended(rc=3, stdout=b"echo 'a b'", stderr=b"warning\n")
    door.close()


def test_another_connection_is_tried_up_to_the_server_s_greeting(serve, ssh_target, monkeypatch):
    monkeypatch.setattr(ssh, "KNOCK_DEADLINE_S", 0.2)
    door = SshDoor(ssh_target(serve("none")))

    assert door.knock()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(paramiko.Transport, "getpeername", lambda _transport: silent.getsockname())
        assert not door.knock()
    assert not door.knock()
    door.close()


def test_a_password_lets_in_where_keys_are_not_to_be_had(serve, ssh_target):
    door = SshDoor(ssh_target(serve("password"), password="let me in"))

    assert door.alive
    door.close()


def test_a_wrong_login_is_a_sentence_with_what_to_try(serve, ssh_target):
    port = serve("password")

    with pytest.raises(
        HostUnreachableError, match=r"cannot log in to 'rig' as ops@127\.0\.0\.1:\d+: it takes neither"
    ) as caught:
        SshDoor(ssh_target(port, password="wrong"))

    assert (caught.value.hint, caught.value.temporary) == (f"try: ssh -p {port} ops@127.0.0.1", False)


def test_no_key_at_all_is_a_sentence(serve, ssh_target):
    with pytest.raises(HostUnreachableError, match="it takes none of our keys"):
        SshDoor(ssh_target(serve("publickey")))


def test_an_unknown_host_is_refused_before_anything_is_proved(serve, ssh_target):
    with pytest.raises(HostUnreachableError, match="is not known"):
        SshDoor(ssh_target(serve("none"), known=False))


def test_an_unknown_host_is_stored_once_asked_for(serve, ssh_target, tmp_path):
    port = serve("none")

    SshDoor(ssh_target(port, known=False, accept_new=True)).close()

    assert (tmp_path / "known").read_text().startswith(f"[127.0.0.1]:{port} ecdsa-sha2-nistp256 ")
    SshDoor(ssh_target(port, known=False)).close()


def test_a_host_that_does_not_listen_is_temporary(ssh_target, free_port):
    with pytest.raises(HostUnreachableError, match=r"cannot reach 'rig' at ops@127\.0\.0\.1") as caught:
        SshDoor(ssh_target(free_port))

    assert caught.value.temporary


def test_a_name_that_nobody_knows_is_a_sentence(ssh_target, monkeypatch):
    def unknown(*_args: Any, **_kwargs: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(HostUnreachableError, match=r"there is no host named '127\.0\.0\.1'"):
        SshDoor(ssh_target(22))


class Answer:
    """A helper that names its boot; or none, because of this error."""

    def __init__(self, boot: Any) -> None:
        if isinstance(boot, Exception):
            raise boot
        self.hello = {"boot_id": boot}


def answering(monkeypatch: pytest.MonkeyPatch, link: Any, boots: Iterator[Any]) -> None:
    """Have a link's helper answer from these boots, or fail with these errors, without a pause between."""
    monkeypatch.setattr(link, "helper", lambda _user=None: Answer(next(boots)))
    monkeypatch.setattr(ssh, "REBOOT_POLL_S", 0)


def time_flies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten seconds pass at each look at the clock."""
    now_s = iter(range(0, 10_000, 10))
    monkeypatch.setattr(ssh.time, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(ssh, "REBOOT_POLL_S", 0)


def test_a_reboot_is_over_when_another_boot_answers(monkeypatch):
    boots = iter(
        [
            HostUnreachableError("off", temporary=True),
            "old",
            HostUnreachableError("off", temporary=True),
            "new",
        ]
    )
    link = connect(Target(name="rig"), blobs=lambda _digest: None)

    answering(monkeypatch, link, boots)

    assert link.wait_until_back(old_boot_id="old", deadline_s=60) == {"boot_id": "new"}


def test_a_host_that_refuses_us_for_a_while_around_its_reboot_is_waited_for(monkeypatch):
    refused = HostUnreachableError("cannot log in to 'rig': it takes none of our keys")
    down = HostUnreachableError("off", temporary=True)
    said: Iterator[Any] = iter([refused, down, refused, refused, "new"])
    link = connect(Target(name="rig"), blobs=lambda _digest: None)

    answering(monkeypatch, link, said)

    assert link.wait_until_back(old_boot_id="old", deadline_s=60) == {"boot_id": "new"}


def test_a_host_that_goes_on_refusing_us_after_its_reboot_ends_the_wait(monkeypatch):
    link = connect(Target(name="rig"), blobs=lambda _digest: None)

    def refused(_user: str | None = None) -> Any:
        raise HostUnreachableError("cannot log in to 'rig': it takes none of our keys")

    monkeypatch.setattr(link, "helper", refused)
    time_flies(monkeypatch)

    with pytest.raises(HostUnreachableError, match="it takes none of our keys"):
        link.wait_until_back(old_boot_id="old", deadline_s=600)


def test_a_wait_for_a_reboot_has_an_end(monkeypatch):
    link = connect(Target(name="rig"), blobs=lambda _digest: None)

    def off(_user: str | None = None) -> Any:
        raise HostUnreachableError("cannot reach 'rig'", temporary=True)

    monkeypatch.setattr(link, "helper", off)
    time_flies(monkeypatch)

    with pytest.raises(HostUnreachableError, match="did not come back within 60 s: cannot reach 'rig'"):
        link.wait_until_back(old_boot_id="old", deadline_s=60)


def test_a_wait_for_a_reboot_ends_with_the_link(monkeypatch):
    link = connect(Target(name="rig"), blobs=lambda _digest: None)

    def closed_meanwhile(_user: str | None = None) -> Any:
        link.close()
        raise HostUnreachableError("cannot reach 'rig'", temporary=True)

    monkeypatch.setattr(link, "helper", closed_meanwhile)

    with pytest.raises(HostUnreachableError, match="no longer waited for"):
        link.wait_until_back(old_boot_id="old", deadline_s=60)


# --- this machine ---


def test_this_machine_is_reached_in_this_process():
    link = connect(Target(name="localhost", local=True), blobs=lambda _digest: None)

    helper = link.helper()

    assert helper is link.helper(helper.hello["user"])
    assert helper.hello["pid"] == os.getpid()
    link.close()
    assert not helper.alive


def test_this_machine_cannot_wait_for_its_own_reboot():
    link = connect(Target(name="localhost", local=True), blobs=lambda _digest: None)
    boot_id = link.helper().hello["boot_id"]

    with pytest.raises(UsageError, match="cannot wait for its own reboot"):
        link.wait_until_back(old_boot_id=boot_id, deadline_s=1)
    link.close()


def test_a_child_process_s_streams_and_last_words(block_until):
    stream = LocalDoor().open(["sh", "-c", "read line; echo got $line; echo bad >&2"])
    stream.send(b"this\n")

    assert stream.receive() == b"got this\n"
    assert stream.receive() == b""
    block_until(lambda: stream.last_words() == "bad\n", 2)
    stream.close()


# --- the ssh configuration ---


def test_included_files_of_the_ssh_configuration_are_read_in_their_place(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh" / "config.d"
    folder.mkdir(parents=True)
    (folder / "rigs").write_text("Host rig\n  HostName 10.0.0.5\n  User first")
    (folder / "rest").write_text("Host rig\n  Port 2222\n")
    (tmp_path / ".ssh" / "config").write_text(
        "ServerAliveInterval 5\nInclude config.d/*\nHost rig\n  User second\n"
        "Host *\n  Include missing\n  IdentityFile ~/key\nInclude config\n"
    )
    monkeypatch.setattr(sshconfig, "SYSTEM_FILE", tmp_path / "none")

    rig, other = (sshconfig.read(None).lookup(name) for name in ("rig", "other"))

    assert (rig["hostname"], rig["user"], rig["port"]) == ("10.0.0.5", "first", "2222")
    assert (other["hostname"], other["identityfile"]) == ("other", [str(tmp_path / "key")])
    assert "user" not in other


def test_a_host_may_be_left_out_of_a_general_gateway(serve, ssh_target, tmp_path):
    target = ssh_target(serve("none"))
    with (tmp_path / "config").open("a") as file:
        file.write("Host 127.0.0.1\n  ProxyJump none\nHost *\n  ProxyJump bastion.example\n")

    door = SshDoor(target)

    assert door.alive
    door.close()


def test_a_server_that_is_none_is_a_sentence_and_no_traceback(ssh_target, capfd):
    listener = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        near, _ = listener.accept()
        near.close()

    threading.Thread(target=hang_up, daemon=True).start()

    with pytest.raises(HostUnreachableError, match="cannot reach 'rig'"):
        SshDoor(ssh_target(listener.getsockname()[1]))

    listener.close()
    assert capfd.readouterr().err == ""
