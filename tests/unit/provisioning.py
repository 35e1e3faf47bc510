"""A box for runner tests: the real helper in this process, with reboots played and every request counted."""

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigd.provision.connection.link import connect
from rigd.provision.connection.target import HostUnreachableError
from rigd.provision.run.events import ItemEnded, Noted, Progress, RunEnded, TaskEnded
from rigd.provision.run.start import Request, ready

REBOOT_ID = "reboot"


@dataclass
class FakeBox:
    """What lasts over helpers and runs: the boot, reboots asked, requests so far."""

    name: str = "box"
    local: bool = False
    boot: int = 1
    reboots: int = 0
    pending: bool = False
    gone: bool = False
    away: frozenset[str] = frozenset()
    """Hosts that do not answer, while others do."""
    requests: list[tuple[str, list[str]]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=lambda: {"kernel": "6.1", "distribution": "Debian"})
    facts_asked: int = 0
    targets: list[Any] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)
    """Other runs that hold the box's lock, each until it was asked for once."""
    fault: Callable[[str], None] = lambda _where: None
    """Called before and after each request; a test breaks the run there."""

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def power_cycle(self) -> None:
        """Boot: a reboot that was asked happens now."""
        self.boot += 1
        self.pending = False

    def way(self, target, *, blobs, tell) -> "FakeWay":
        self.targets.append(target)
        return FakeWay(self, target, blobs, tell)


class FakeWay:
    """A `Link` of the connection, to the fake box."""

    def __init__(self, box, target, blobs, tell) -> None:
        self.box = box
        self._real = connect(type(target)(name=target.name, local=True), blobs=blobs, tell=tell)
        self.target = type(target)(name=target.name, local=box.local)
        self._helpers: list[FakeHelper] = []

    def helper(self, user=None) -> "FakeHelper":
        if self.box.gone or self.target.name in self.box.away:
            raise HostUnreachableError(f"host '{self.target.name}' does not answer", temporary=True)
        self._helpers.append(FakeHelper(self.box, self._real.helper()))
        return self._helpers[-1]

    def reset(self) -> None:
        self._real.reset()

    def wait_until_back(self, *, old_boot_id, deadline_s) -> dict[str, Any]:
        if self.box.pending:
            self.box.power_cycle()
        for helper in self._helpers:
            helper.alive = False
        return {"boot_id": self.box.boot_id}

    def close(self) -> None:
        self._real.close()


class FakeHelper:
    """A helper whose boot id is the fake box's; it counts what it is asked."""

    def __init__(self, box, real) -> None:
        self._box = box
        self._real = real
        self.alive = True

    @property
    def hello(self) -> dict[str, Any]:
        return {**self._real.hello, "boot_id": self._box.boot_id}

    def request(self, kind, *, deadline_s=None, **fields) -> Iterator[dict[str, Any]]:
        if self._box.gone:
            raise HostUnreachableError("the link is cut", temporary=True)
        tasks = fields.get("tasks") or [fields["task"], *fields.get("then", ())]
        self._box.requests.append((kind, [task["id"] for task in tasks]))
        self._box.fault(f"before {kind}")
        yield from self._answers(kind, tasks, deadline_s, fields)
        self._box.fault(f"after {kind}")

    def _answers(self, kind, tasks, deadline_s, fields) -> Iterator[dict[str, Any]]:
        if tasks[0]["id"] == REBOOT_ID:
            if not self._box.pending:
                self._box.reboots += 1
                self._box.pending = True
            yield {"event": "applied", "changed": True, "changes": [], "facts": {}}
            return
        yield from self._real.request(kind, deadline_s=deadline_s, **fields)

    def one(self, kind, *, deadline_s=None, **fields) -> dict[str, Any]:
        if kind == "lock":
            holders = self._box.holders
            return {"event": "busy", "holder": holders.pop(0)} if holders else {"event": "locked"}
        return self._real.one(kind, deadline_s=deadline_s, **fields)

    def facts(self, subset=None) -> dict[str, Any]:
        self._box.facts_asked += 1
        return dict(self._box.facts)

    def close(self) -> None:
        self._real.close()


@dataclass
class Outcome:
    """What a run did, for assertions."""

    code: int
    events: list[Any]
    recap: dict[str, dict[str, int]]
    reboot: Callable[[], None] | None = None

    def ended(self, name) -> TaskEnded:
        [found] = [event for event in self.events if isinstance(event, TaskEnded) and event.name == name]
        return found

    def names(self, outcome=None) -> list[str]:
        return [
            event.name
            for event in self.events
            if isinstance(event, TaskEnded) and (outcome is None or event.outcome.value == outcome)
        ]

    def shown(self, name) -> Any:
        return self.ended(name).result.get("shown", {}).get("msg")

    def messages(self) -> list[Any]:
        return [
            event.result["shown"]["msg"]
            for event in self.events
            if isinstance(event, (TaskEnded, ItemEnded)) and "msg" in (event.result.get("shown") or {})
        ]

    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, (Noted, Progress))]

    @property
    def counts(self) -> dict[str, int]:
        [counts] = self.recap.values()
        return {word: number for word, number in counts.items() if number}

    def text(self) -> str:
        """All that was told, as `--json` prints it."""
        return json.dumps([repr(event) for event in self.events])


class Bench:
    """Writes playbooks and runs them against a fake box."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.box = FakeBox()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def playbook(self, tasks: str, *, handlers: str = "", head: str = "") -> Path:
        """Write a play of these tasks for all hosts."""
        text = (
            "- hosts: all\n  vars: {here: "
            + str(self.folder)
            + "}\n"
            + textwrap.indent(textwrap.dedent(head), "  ")
        )
        text += "  tasks:\n" + textwrap.indent(textwrap.dedent(tasks), "    ")
        if handlers:
            text += "  handlers:\n" + textwrap.indent(textwrap.dedent(handlers), "    ")
        return self.write("site.yml", text)

    def run(self, playbook: Path | None = None, *, fault=None, **options: Any) -> Outcome:
        """Run a playbook; errors of its files come out as they are."""
        told: list[Any] = []
        options.setdefault("hosts", ("box",))
        request = Request(playbook=playbook or self.folder / "site.yml", **options)
        engine = ready(request, state_dir=self.state_dir, tell=told.append, way=self.box.way, fault=fault)
        ended = engine.run()
        assert isinstance(told[-1], RunEnded)
        return Outcome(
            reboot=ended.reboot,
            code=ended.exit_code,
            events=told,
            recap={name: dict(c) for name, c in ended.recap.items()},
        )

    def play(self, tasks: str, *, handlers: str = "", head: str = "", **options: Any) -> Outcome:
        """Write a play and run it."""
        return self.run(self.playbook(tasks, handlers=handlers, head=head), **options)
