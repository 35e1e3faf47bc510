"""Who is told: receivers under names that tell no secret, their URLs at the last moment, and a message to try."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rigd.adapters import notify
from rigd.adapters.blocking import run_blocking
from rigd.adapters.notify import Letter
from rigd.errors import RigdError, explain
from rigd.rig.alert_urls import masked_url, without_url
from rigd.rig.schema import Alerts, PrivateUrl, SecretRef
from rigd.runtime.secrets import reference, resolve_secret
from rigd.supervise.alert_state import Level, Message
from rigd.supervise.decision import Entry
from rigd.supervise.outbox import DETAIL_LIMIT
from rigd.supervise.quiet import clock

DISK_S = 5.0
"""Longest wait for the files that hold URLs, in seconds."""


def trial_message(rig: str, box: str, *, now_s: float, zone: str | None) -> Message:
    """Return a message that says it is a test."""
    body = f"This is a test: alerts of rig '{rig}' arrive here.\n\nbox {box}, {clock(now_s, zone)}"
    return Message(id=f"test-{now_s:.0f}", at_s=now_s, level=Level.INFO, title=f"{rig}: test", body=body)


async def try_out(
    message: Message, named: Mapping[str, SecretRef | PrivateUrl], *, folder: Path
) -> list[dict[str, Any]]:
    """Send one message to every receiver at once; return what came of it, in the rig file's order."""
    details: dict[str, str] = {}

    def read() -> dict[str, str]:
        found = {}
        for name, url in named.items():
            try:
                found[name] = url_of(url, folder)
            except RigdError as error:
                details[name] = explain(error)
        return found

    urls = await run_blocking(read, deadline_s=DISK_S)
    done = await notify.send([letter_of(message, name, url) for name, url in urls.items()]) if urls else ()
    taken = {item.name for item in done if item.ok}
    details |= {item.name: cleaned(item.detail, urls[item.name]) for item in done if not item.ok}
    return [
        {
            "name": label(url),
            "url": masked_url(urls[name]) if name in urls else None,
            "ok": name in taken,
            "detail": details.get(name, ""),
        }
        for name, url in named.items()
    ]


def named_urls(rules: Alerts) -> dict[str, SecretRef | PrivateUrl]:
    """Return the receivers by a name that never changes and tells no URL."""
    return {_name(url): url for url in rules.urls}


def _name(url: SecretRef | PrivateUrl) -> str:
    if isinstance(url, SecretRef):
        return ":".join(reference(url))
    return f"url:{hashlib.sha256(url.get_secret_value().encode()).hexdigest()[:12]}"


def label(url: SecretRef | PrivateUrl) -> str:
    """Return a receiver as people are shown it."""
    return ":".join(reference(url)) if isinstance(url, SecretRef) else str(url)


def labelled(entry: Entry, named: Mapping[str, SecretRef | PrivateUrl]) -> Entry:
    """Return a journal entry with the receiver's label in place of its name."""
    data = dict(entry.data)
    name = str(data.get("receiver", ""))
    url = named.get(name)
    if url is None:
        return entry
    shown = label(url)
    data["receiver"] = shown
    return replace(entry, message=entry.message.replace(name, shown), data=tuple(data.items()))


def url_of(url: SecretRef | PrivateUrl, folder: Path) -> str:
    """Return the URL itself. Raises `SecretError` that names the place, never the value."""
    if isinstance(url, PrivateUrl):
        return url.get_secret_value()
    if url.file is not None:
        path = folder / os.path.expanduser(url.file)  # noqa: PTH111  (`~` alone, as in every path of a rig file)
        return resolve_secret(SecretRef(file=str(path)))
    return resolve_secret(url)


def letter_of(message: Message, name: str, url: str) -> Letter:
    """Return a message addressed to one receiver."""
    return Letter(
        id=message.id, name=name, url=url, title=message.title, body=message.body, level=str(message.level)
    )


def cleaned(detail: str, url: str | None) -> str:
    """Return what Apprise says of a refusal, without anything of the URL."""
    return (detail if url is None else without_url(detail, url))[:DETAIL_LIMIT]
