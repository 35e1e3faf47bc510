"""The Docker SDK, wrapped 1:1: each function is one call and returns a small frozen value. All of it blocks.

Judgement (which container is ours, what to do about an error) lives above.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

import docker
import docker.errors
import docker.types
import docker.utils
import requests.exceptions
import urllib3.exceptions

from rigd.errors import RigdError

Client: TypeAlias = docker.APIClient
T = TypeVar("T")

CLIENT_TIMEOUT_S = 60
"""Longest silence of Docker within one call; callers give up on theirs earlier."""
_SOCKET = "unix:///var/run/docker.sock"
_NOT_FOUND, _CONFLICT = 404, 409
_RUNNING_STATES = frozenset({"running", "paused", "restarting"})
_LOST = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,
    OSError,
)


class DockerError(RigdError):
    """Docker refused; `detail` is its own text."""

    def __init__(self, message: str, *, detail: str = "", hint: str | None = None) -> None:
        """Say what was asked; `detail` says why not."""
        super().__init__(message, hint=hint)
        self.detail = detail


class DockerMissingError(DockerError):
    """There is no such container or image."""


class DockerConflictError(DockerError):
    """The name is taken, or the object is in a state that does not allow it."""


class DockerUnreachableError(DockerError):
    """Docker does not answer: nothing is known."""


@dataclass(frozen=True, kw_only=True)
class ContainerSeen:
    """One container as `docker inspect` tells it."""

    id: str
    name: str
    image: str
    labels: Mapping[str, str]
    status: str
    running: bool
    paused: bool
    pid: int
    exit_code: int | None
    oom_killed: bool
    error: str
    created_s: float


@dataclass(frozen=True, kw_only=True)
class ContainerEvent:
    """One line of the events stream."""

    container: str
    action: str
    exit_code: int | None
    at_s: float


@dataclass(frozen=True, kw_only=True)
class BindMount:
    """A folder or file of the host in the container."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class DeviceAsk:
    """One device request: all cards (`count` -1) or those named."""

    driver: str = ""
    count: int = 0
    device_ids: tuple[str, ...] = ()
    capabilities: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Creation:
    """A container to be made. Sizes in bytes; restart policy is always `no`."""

    image: str
    name: str | None
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    mounts: tuple[BindMount, ...] = ()
    devices: tuple[DeviceAsk, ...] = ()
    runtime: str | None = None
    shm_size: int | None = None
    ipc: str | None = None
    network: str = "bridge"
    publish: tuple[tuple[int, str, int], ...] = ()
    """Container port, host address, host port."""
    ulimits: tuple[tuple[str, int, int], ...] = ()
    memory: int | None = None
    pids_limit: int | None = None
    user: str | None = None
    log_max_bytes: int = 64 * 1024 * 1024
    oom_score: int | None = None


@dataclass(frozen=True, kw_only=True)
class PullStep:
    """How far an image pull is."""

    layers: int
    layers_done: int
    bytes_done: int
    bytes_total: int


class Stream(Generic[T]):
    """What Docker sends as it happens; any thread may close it, which ends the iteration."""

    def __init__(self, source: Any, asked: str, make: Callable[[Any], T]) -> None:
        """Wrap the SDK's stream; `make` turns one item into a value."""
        self._source = source
        self._asked = asked
        self._make = make
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        """Yield values until the stream ends; `DockerUnreachableError` when Docker goes away."""
        try:
            with _asking(self._asked):
                for item in self._source:
                    yield self._make(item)
        except DockerError:
            if not self._closed:
                raise
        except (AttributeError, ValueError) as error:  # A connection that ends in the middle of an item.
            if not self._closed:
                raise DockerUnreachableError(self._asked, detail=str(error)) from error
        finally:
            self._closed = True
            with contextlib.suppress(Exception):  # The SDK would leave the connection to the collector.
                self._source._response.close()  # noqa: SLF001

    def close(self) -> None:
        """End the stream: shuts the socket down, and the reading thread cleans up."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):  # The SDK digs for the socket, which may be gone already.
                self._source.close()


def connect() -> Client:
    """Return a client of the Docker that `DOCKER_HOST` names, or of this host's."""
    with _asking("cannot reach Docker"):
        knock()
        settings: Any = docker.utils.kwargs_from_env()
        return docker.APIClient(version="auto", timeout=CLIENT_TIMEOUT_S, **settings)


def knock() -> None:
    """Raise `DockerUnreachableError` at once where nobody listens; the SDK would leave a socket open each time."""
    url = os.environ.get("DOCKER_HOST") or _SOCKET
    if not url.startswith("unix://"):
        return
    with _asking("cannot reach Docker"), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(CLIENT_TIMEOUT_S)
        probe.connect(url.removeprefix("unix://"))


def inspect(client: Client, container: str) -> ContainerSeen:
    """Return one container by id or name."""
    with _asking(f"cannot inspect the container {container!r}"):
        return _seen(client.inspect_container(container))


def with_label(client: Client, label: str) -> tuple[str, ...]:
    """Return the ids of all containers, ended ones too, that have this `name=value` label."""
    with _asking(f"cannot list the containers with label {label!r}"):
        return tuple(str(one["Id"]) for one in client.containers(all=True, filters={"label": label}))


def publisher(client: Client, port: int) -> str | None:
    """Return the name of the running container that publishes this port of the host."""
    with _asking(f"cannot list the containers that publish port {port}"):
        for one in client.containers(filters={"publish": str(port)}):
            return str(one["Names"][0]).lstrip("/")
        return None


def image_id(client: Client, image: str) -> str | None:
    """Return the id of a local image, or None."""
    try:
        with _asking(f"cannot inspect the image {image!r}"):
            return str(client.inspect_image(image)["Id"])  # type: ignore[no-untyped-call]  # not in its stubs
    except DockerMissingError:
        return None


def pull(client: Client, image: str, report: Callable[[PullStep], None], cancelled: threading.Event) -> None:
    """Pull the image, telling how far it is; leave early when `cancelled` is set."""
    layers = _Layers()
    with _asking(f"cannot pull the image {image!r}"):
        for line in client.pull(image, stream=True, decode=True):
            if cancelled.is_set():
                return
            if "error" in line:
                raise DockerError(f"cannot pull the image {image!r}", detail=str(line["error"]))
            if layers.take(line):
                report(layers.step())


def ask_registry(client: Client, image: str) -> None:
    """Have Docker ask the image's registry about it; a registry that refuses has answered."""
    with _asking(f"cannot ask the registry about the image {image!r}"):
        try:
            client.inspect_distribution(image)  # type: ignore[no-untyped-call]  # not in its stubs
        except docker.errors.APIError as error:
            if not error.is_client_error():
                raise


def create(client: Client, wanted: Creation) -> str:
    """Make the container and return its id; it does not run yet."""
    with _asking(f"cannot create the container {wanted.name or wanted.image!r}"):
        host: dict[str, Any] = client.create_host_config(**_host_config(wanted))
        made = client.create_container(
            image=wanted.image,
            name=wanted.name,
            entrypoint=list(wanted.entrypoint) or None,
            command=list(wanted.command),
            environment=dict(wanted.environment),
            labels=dict(wanted.labels),
            ports=[port for port, _, _ in wanted.publish],
            user=wanted.user,
            host_config=host,
            healthcheck={"test": ["NONE"]},  # rigd probes; the image's own check would only cost.
        )
        return str(made["Id"])


def start(client: Client, container: str) -> None:
    """Start a container that was made."""
    with _asking(f"cannot start the container {container[:12]!r}"):
        client.start(container)


def kill(client: Client, container: str, signal: str) -> None:
    """Signal the container's first process."""
    with _asking(f"cannot signal the container {container[:12]!r}"):
        client.kill(container, signal)


def unpause(client: Client, container: str) -> None:
    """Let a paused container go on."""
    with _asking(f"cannot unpause the container {container[:12]!r}"):
        client.unpause(container)


def remove(client: Client, container: str) -> None:
    """Remove the container and its anonymous volumes, running or not; absent is no error."""
    with contextlib.suppress(DockerMissingError), _asking(f"cannot remove the container {container[:12]!r}"):
        client.remove_container(container, force=True, v=True)


def wait(client: Client, container: str, timeout_s: int) -> int:
    """Return the exit code of a container once it has ended."""
    with _asking(f"cannot wait for the container {container[:12]!r}"):
        return int(client.wait(container, timeout=timeout_s)["StatusCode"])


def output(client: Client, container: str, *, stdout: bool, stderr: bool) -> str:
    """Return the last lines that an ended container wrote."""
    with _asking(f"cannot read the output of the container {container[:12]!r}"):
        text: bytes = client.logs(container, stdout=stdout, stderr=stderr, tail=200)
        return text.decode(errors="replace")


def logs(client: Client, container: str, *, since_s: int | None, follow: bool) -> Stream[bytes]:
    """Return the container's output from `since_s` on, one record an item, each after its time and a blank."""
    with _asking(f"cannot follow the output of the container {container[:12]!r}"):
        source = client.logs(
            container, stream=True, follow=follow, timestamps=True, since=since_s or None, tail="all"
        )
        return Stream(source, f"cannot follow the output of the container {container[:12]!r}", bytes)


def events(client: Client, label: str, *, since_s: float) -> Stream[ContainerEvent]:
    """Return what happens to containers with this label, from `since_s` on."""
    with _asking("cannot follow Docker's events"):
        source = client.events(since=int(since_s), filters={"type": "container", "label": label}, decode=True)
        return Stream(source, "cannot follow Docker's events", _event)


@dataclass(kw_only=True)
class _Layers:
    """Adds up the progress lines of a pull."""

    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    def take(self, line: Mapping[str, Any]) -> bool:
        """Take in one line; return whether it told something new."""
        layer, status = str(line.get("id", "")), str(line.get("status", ""))
        detail = line.get("progressDetail") or {}
        if not layer:
            return False
        if status == "Downloading":
            self._sizes[layer] = (int(detail.get("current", 0)), int(detail.get("total", 0)))
        elif status in ("Download complete", "Already exists", "Pull complete"):
            total = self._sizes.get(layer, (0, 0))[1]
            self._sizes[layer] = (total, total)
            self._done.add(layer)
        elif status in ("Pulling fs layer", "Waiting"):
            self._sizes.setdefault(layer, (0, 0))
        else:
            return False
        return True

    def step(self) -> PullStep:
        return PullStep(
            layers=len(self._sizes),
            layers_done=len(self._done),
            bytes_done=sum(done for done, _ in self._sizes.values()),
            bytes_total=sum(total for _, total in self._sizes.values()),
        )


def _host_config(wanted: Creation) -> dict[str, Any]:
    part_bytes = max(1024 * 1024, wanted.log_max_bytes)
    settings: dict[str, Any] = {
        "restart_policy": {"Name": "no"},
        "network_mode": wanted.network,
        # Docker's own copy has a limit of its own, or a talkative engine fills the disk.
        "log_config": docker.types.LogConfig(
            type="json-file", config={"max-size": str(part_bytes), "max-file": "2"}
        ),
        "mounts": [
            docker.types.Mount(
                target=mount.target, source=mount.source, type="bind", read_only=mount.read_only
            )
            for mount in wanted.mounts
        ],
        "device_requests": [
            docker.types.DeviceRequest(
                driver=ask.driver,
                count=ask.count,
                device_ids=list(ask.device_ids),
                capabilities=[list(group) for group in ask.capabilities],
            )
            for ask in wanted.devices
        ],
        "ulimits": [
            docker.types.Ulimit(name=name, soft=soft, hard=hard) for name, soft, hard in wanted.ulimits
        ],
        "port_bindings": {inside: (host, outside) for inside, host, outside in wanted.publish},
        "ipc_mode": wanted.ipc,
        "shm_size": wanted.shm_size,
        "mem_limit": wanted.memory,
        "pids_limit": wanted.pids_limit,
        "runtime": wanted.runtime,
        "oom_score_adj": wanted.oom_score,
    }
    return {name: value for name, value in settings.items() if value not in (None, [], {})}


def _seen(found: Mapping[str, Any]) -> ContainerSeen:
    state = found["State"]
    status = str(state["Status"])
    running = status in _RUNNING_STATES
    return ContainerSeen(
        id=str(found["Id"]),
        name=str(found["Name"]).lstrip("/"),
        image=str(found["Config"]["Image"]),
        labels=dict(found["Config"].get("Labels") or {}),
        status=status,
        running=running,
        paused=bool(state.get("Paused")),
        pid=int(state.get("Pid") or 0),
        exit_code=None if running or status == "created" else int(state["ExitCode"]),
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        created_s=_seconds(str(found["Created"])),
    )


def _seconds(stamp: str) -> float:
    """Return Docker's time, which has nine digits of a second, as Unix time."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(whole + "+00:00").timestamp()
    return seconds + (float(f"0.{fraction}") if fraction.isdigit() else 0.0)


def _event(line: Any) -> ContainerEvent:
    actor = line.get("Actor") or {}
    code = str((actor.get("Attributes") or {}).get("exitCode", ""))
    return ContainerEvent(
        container=str(actor.get("ID") or line.get("id") or ""),
        action=str(line.get("Action") or line.get("status") or ""),
        exit_code=int(code) if code.isdigit() else None,
        at_s=float(line.get("timeNano", 0)) / 1e9,
    )


@contextlib.contextmanager
def _asking(asked: str) -> Iterator[None]:
    """Turn what the SDK raises into one of four errors; `asked` says what was tried."""
    try:
        yield
    except docker.errors.APIError as error:
        kinds = {_NOT_FOUND: DockerMissingError, _CONFLICT: DockerConflictError}
        kind = kinds.get(getattr(error.response, "status_code", None) or 0, DockerError)
        # The SDK's own errors tell the status and the address of its socket twice around Docker's words.
        said = str(error.explanation or error)
        raise kind(asked, detail=said) from docker.errors.DockerException(said)
    except (docker.errors.DockerException, *_LOST) as error:
        raise DockerUnreachableError(
            asked, detail=str(error), hint="see whether Docker runs: `systemctl status docker`"
        ) from error
