"""The boxes of a run: one helper a host and user, spoken to in the runner's values; and the facts they tell."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigd.errors import RigdError
from rigd.provision.connection.client import Event, Helper
from rigd.provision.connection.link import Link as Way
from rigd.provision.connection.link import connect
from rigd.provision.connection.target import HostUnreachableError, Target
from rigd.provision.run.calls import Answer, Busy, Call, Link, Lost
from rigd.provision.run.results import sentence

ASK_DEADLINE_S = 25_000.0
"""Longest wait for one frame; a task's own deadline is shorter, and kept on the box."""
GRACE_S = 30.0
LOCK_PATIENCE_S = 10.0
"""A run that was killed holds the box's lock until its helper has seen that, and ended what it ran."""
LOCK_POLL_S = 0.5

TargetOf = Callable[[str], Target]
Tell = Callable[[str], None]
Connect = Callable[..., Way]


class Contents:
    """What the controller holds for boxes, by digest: bytes, or files that are read when they are asked for."""

    def __init__(self) -> None:
        self._held: dict[str, bytes | Path] = {}

    def hold(self, blobs: Mapping[str, bytes | Path]) -> None:
        """Have these at hand from now on."""
        self._held.update(blobs)

    def __call__(self, digest: str) -> bytes | None:
        """Return content, None where it is not held."""
        found = self._held.get(digest)
        if isinstance(found, Path):
            with contextlib.suppress(OSError):
                return found.read_bytes()
            return None
        return found


class Boxes:
    """The ways from one host's thread to the boxes that its tasks run on."""

    def __init__(
        self, name: str, target_of: TargetOf, tell: Tell, *, way: Connect = connect, lock: str | None = None
    ) -> None:
        """`lock`: what this run calls itself while it keeps others from the box; None: it only looks."""
        self._name = name
        self._lock = lock
        self._target_of = target_of
        self._tell = tell
        self._connect = way
        self._contents = Contents()
        self._ways: dict[str, Way] = {}
        self._links: dict[tuple[str, str | None], HelperLink] = {}

    def link(self, call: Call) -> Link:
        """Return the link that a call goes over; content it may ask for is at hand."""
        self._contents.hold(call.blobs)
        return self.of(call.user, call.on)

    def hold(self, calls: Iterable[Call]) -> None:
        """Have the content of these calls at hand."""
        for call in calls:
            self._contents.hold(call.blobs)

    def of(self, user: str | None, on: str | None = None) -> "HelperLink":
        """Return the link to a host (None: the thread's own) and user."""
        host = on or self._name
        key = (host, user)
        found = self._links.get(key)
        if found is None or not found.alive:
            found = HelperLink(self.way(host), user, self)
            if host == self._name and self._lock is not None:
                self._take_lock(found, self._lock)
            self._links[key] = found
        return found

    def _take_lock(self, link: "HelperLink", holder: str) -> None:
        """Keep other runs from the box. Helpers of other users come under the same run's lock."""
        if any(host == self._name and other.alive for (host, _user), other in self._links.items()):
            return
        until_s = time.monotonic() + LOCK_PATIENCE_S
        while (answer := link.ask("lock", holder=holder))["event"] == "busy" and time.monotonic() < until_s:
            self._tell("waiting for another run on the box to end")
            time.sleep(LOCK_POLL_S)
        if answer["event"] == "busy":
            who = f": {answer['holder']}" if answer.get("holder") else ""
            raise Busy(
                f"another run is at work on '{self._name}'{who} (wait until it has ended, then run this again)"
            )

    def way(self, host: str | None = None) -> Way:
        """Return the way to a host (None: the thread's own)."""
        name = host or self._name
        way = self._ways.get(name)
        if way is None:
            way = self._ways[name] = self._connect(
                self._target_of(name), blobs=self._contents, tell=self._tell
            )
        return way

    def any_user(self) -> str | None:
        """Return a user whose helper runs already; facts are asked there, so that no other is started for them."""
        return next((user for host, user in self._links if host == self._name), None)

    def said(self, text: str) -> None:
        """Tell what a box does right now."""
        self._tell(text)

    def back(self, old_boot_id: str | None, deadline_s: float) -> None:
        """Wait until the thread's own box answers, from another boot than this one. Raises `Lost`."""
        self._links.clear()
        with _losing():
            self.way().wait_until_back(old_boot_id=old_boot_id, deadline_s=deadline_s)

    def reset(self) -> None:
        """Drop all connections; the next task opens them anew."""
        self._links.clear()
        for way in self._ways.values():
            way.reset()

    def abort(self) -> None:
        """End all helpers, from another thread than the one that uses them."""
        for way in list(self._ways.values()):
            with contextlib.suppress(RigdError, OSError):
                way.close()

    def close(self) -> None:
        """End all helpers."""
        for way in self._ways.values():
            with contextlib.suppress(RigdError, OSError):
                way.close()
        self._links.clear()
        self._ways.clear()


class HelperLink:
    """One helper, in the runner's values."""

    def __init__(self, way: Way, user: str | None, boxes: Boxes) -> None:
        self._way = way
        self._user = user
        self._boxes = boxes
        self._helper: Helper | None = None

    @property
    def local(self) -> bool:
        """Whether the box is this machine."""
        return self._way.target.local

    @property
    def alive(self) -> bool:
        """Whether it can be spoken to; one that was not started yet can."""
        return self._helper is None or self._helper.alive

    @property
    def helper(self) -> Helper:
        """Return the helper, started when first asked for. Raises `Lost`."""
        if self._helper is None:
            with _losing():
                self._helper = self._way.helper(self._user)
        return self._helper

    @property
    def boot_id(self) -> str:
        """Return what the box's kernel calls this boot."""
        return str(self.helper.hello["boot_id"])

    def probe(self, calls: Sequence[Call], *, stop_at_change: bool) -> list[Answer]:
        """Return an answer for each call up to the first that fails, or that differs if asked to stop there."""
        self._boxes.hold(calls)
        return self._ask(
            "batch", calls[0], tasks=[_work(call) for call in calls], stop_at_change=stop_at_change
        )

    def apply(self, call: Call, then: Sequence[Call]) -> tuple[Answer, list[Answer]]:
        """Carry out a call, then probe others."""
        self._boxes.hold((call, *then))
        answers = self._ask(
            "apply", call, task=_work(call), then=[_work(later) for later in then], stop_at_change=True
        )
        return answers[0], answers[1:]

    def facts(self, subset: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Return the facts of the box."""
        helper = self.helper
        with _losing():
            return helper.facts(None if subset is None else frozenset(subset))

    def ask(self, kind: str, **fields: Any) -> Event:
        """Send another request that has one event for an answer."""
        helper = self.helper
        with _losing():
            return helper.one(kind, deadline_s=GRACE_S, **fields)

    def close(self) -> None:
        """End the helper and what it started."""
        if self._helper is not None:
            self._helper.close()

    def _ask(self, kind: str, first: Call, **fields: Any) -> list[Answer]:
        deadline_s = first.timeout_s + GRACE_S if first.timeout_s else ASK_DEADLINE_S
        answers: list[Answer] = []
        helper = self.helper
        with _losing():
            for event in helper.request(kind, deadline_s=deadline_s, **fields):
                if event["event"] == "progress":
                    self._boxes.said(str(event.get("text", "")))
                else:
                    answers.append(_answer(event))
        if not answers:
            raise Lost("the helper had no answer; run the same command again: it goes on where it was")
        return answers


class _losing:  # noqa: N801  (used as a statement)
    """Turns what says that a host is gone into `Lost`; rights that are refused stay a task's failure."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, HostUnreachableError):
            raise Lost(sentence(error)) from error


def _work(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "module": call.module.names[0],
        "arguments": call.arguments,
        "environment": call.environment,
        "check": call.check,
        "diff": call.diff,
        "timeout_s": call.timeout_s,
        "secret": call.secret,
    }


def _answer(event: Event) -> Answer:
    facts = event.get("facts") or {}
    if event["event"] == "failed":
        return Answer(failed=str(event.get("msg") or "it failed"), facts=facts)
    return Answer(
        changes=tuple(event.get("changes") or ()),
        facts=facts,
        skipped=bool(event.get("skipped")),
        counted=event.get("changed"),
    )
