"""A machine of its own for a test: a Debian with real systemd and sshd, started from the lab's saved root."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import docker_inside
import install
from own_network import Network

BOOT_DEADLINE_S = 120
STOP_DEADLINE_S = 20
POLL_S = 0.1


class BoxError(AssertionError):
    """A command in the box failed, or the box itself did; carries what was said."""


@dataclass(kw_only=True)
class Box:
    """A running box. Without a network of its own it shares this machine's: its ports are this machine's."""

    root: Path
    key: Path
    port: int
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    host: str = "127.0.0.1"
    user: str = "root"
    network: Network | None = None

    @property
    def target(self) -> str:
        """Return what ssh calls it."""
        return f"{self.user}@{self.host}"

    @property
    def ssh(self) -> list[str]:
        """Return the ssh command up to the command to run there."""
        options = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "BatchMode": "yes",
                   "LogLevel": "ERROR", "ConnectTimeout": "5"}  # fmt: skip
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-i", str(self.key), "-p", str(self.port), *words, self.target]

    def run(self, command: str, *, check: bool = True, timeout_s: float = 60) -> str:
        """Run a shell command in the box over ssh; return what it printed, both streams."""
        done = subprocess.run(
            [*self.ssh, command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise BoxError(f"`{command}` ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def at_console(self, command: str, *, timeout_s: float = 60) -> str:
        """Run a shell command as at the box's own keyboard, which no firewall cuts; return what it printed."""
        leader = _children(self.process.pid)[0]
        done = subprocess.run(
            ["nsenter", "--target", str(leader), "--all", "sh", "-ec", command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        if done.returncode != 0:
            raise BoxError(f"`{command}` at the console ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def boot_again(self) -> None:
        """Wait until the box goes down for the reboot that it was asked for, and let it come up."""
        self.process.wait(BOOT_DEADLINE_S)
        self.process = _started(self.root, self.port, self.log, self.network)
        _wait_until_up(self)

    def cut_power(self) -> None:
        """End all that runs in the box at once."""
        for pid in _children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def put(self, path: str, content: str | Path, *, mode: int = 0o644) -> Path:
        """Place a text, or a copy of a file, at `path` in the box."""
        inside = self.root / path.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy(content, inside)
        else:
            inside.write_text(content)
        inside.chmod(mode)
        return inside


def _started(root: Path, port: int, log: Path, network: Network | None) -> subprocess.Popen[bytes]:
    # The machine's own systemd, if any, need not know of the box; it ends with this process.
    command = ["setpriv", "--pdeathsig=TERM", "systemd-nspawn", "-q", "-b", "--register=no",
               "--keep-unit", "--console=pipe", "-D", str(root)]  # fmt: skip
    if network is None:
        command += [f"--machine=rigd-box-{port}"]
    else:
        docker_inside.forget_groups(root)
        network.plug_in()
        command += [f"--machine={network.name}", f"--network-namespace-path=/run/netns/{network.name}",
                    *docker_inside.options(root)]  # fmt: skip
    with log.open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


@contextlib.contextmanager
def booted(saved: Path, key: Path, port: int, network: Network | None = None) -> Iterator[Box]:
    """Boot a copy of the saved root; end the box and drop the copy afterwards.

    With a network of its own Docker runs in it, too.
    """
    base = Path(tempfile.mkdtemp(prefix="rigd-box-"))
    with _copy(saved, base) as root:
        host = "127.0.0.1" if network is None else network.far
        (root / "etc/ssh/sshd_config.d/box.conf").write_text(f"Port {port}\nListenAddress {host}\n")
        if network is not None:
            docker_inside.prepare(root)
        log = base / "console.log"
        process = _started(root, port, log, network)
        box = Box(root=root, key=key, port=port, log=log, process=process, host=host, network=network)
        try:
            _wait_until_up(box)
            yield box
        finally:
            _end(box)
            if network is not None:
                docker_inside.forget_groups(root)


@contextlib.contextmanager
def lab_box(part: str = "box") -> Iterator[Box]:
    """Boot a copy of a part of the lab, at a port that nothing listens on."""
    lab = install.default_folder()
    with booted(lab / part, lab / "box_key", free_port()) as box:
        yield box


def free_port() -> int:
    """Return a TCP port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _copy(saved: Path, base: Path) -> Iterator[Path]:
    """Give a private copy of the saved root: a layer over it, or where that cannot be, every file."""
    root = base / "root"
    for folder in (root, base / "upper", base / "work"):
        folder.mkdir()
    layers = f"lowerdir={saved},upperdir={base}/upper,workdir={base}/work"
    mount = subprocess.run(
        ["mount", "-t", "overlay", "-o", layers, "overlay", root], check=False, capture_output=True
    )
    if mount.returncode != 0:
        subprocess.run(["cp", "-a", "--reflink=auto", f"{saved}/.", root], check=True)
    try:
        yield root
    finally:
        if mount.returncode == 0:
            subprocess.run(["umount", "--lazy", root], check=False)
        shutil.rmtree(base, ignore_errors=True)


def _wait_until_up(box: Box) -> None:
    until_s = time.monotonic() + BOOT_DEADLINE_S
    while True:
        state = box.run("systemctl is-system-running --wait", check=False).strip()
        if state in ("running", "degraded"):
            return
        if box.process.poll() is not None or time.monotonic() > until_s:
            tail = box.log.read_text(errors="replace")[-3000:]
            raise BoxError(f"the box did not come up ({state}):\n{tail}")
        time.sleep(POLL_S)


def _end(box: Box) -> None:
    if box.process.poll() is None:
        # Asks the init in the box to power off, as the machine's switch would.
        leader = _children(box.process.pid)
        for pid in leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGRTMIN + 4)
    try:
        box.process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        box.process.kill()
        box.process.wait(STOP_DEADLINE_S)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
