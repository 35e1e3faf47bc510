"""What is still to be delivered to whom, and when the next try is due. Pure.

In order for each receiver; a receiver that refuses is tried again at growing intervals and holds up no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from rigd.supervise.alert_state import AlertState, Message
from rigd.supervise.decision import Entry

LIMIT = 100
"""Messages that wait; the oldest go first."""
BATCH = 5
"""Messages for one receiver in one delivery."""
KEEP_S = 3 * 86400.0
"""How long a message is tried to be delivered, in seconds."""
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 900.0
DETAIL_LIMIT = 300


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A message and who has not got it yet."""

    message: Message
    to: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """How deliveries to one URL have gone; `name` is never the URL."""

    name: str
    fails: int = 0
    """Deliveries refused since the last that was taken."""
    next_s: float = 0.0
    sent_s: float | None = None
    detail: str = ""
    """What the last refusal said."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of delivering one message to one receiver."""

    id: str
    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Outbox:
    """Everything that is still to be delivered."""

    parcels: tuple[Parcel, ...] = ()
    receivers: tuple[Receiver, ...] = ()

    def receiver(self, name: str) -> Receiver:
        """Return what is known of a receiver."""
        return next((item for item in self.receivers if item.name == name), Receiver(name=name))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """All that the alerts store: what was seen of the journal, what is told, what is to be delivered."""

    seen_s: float = 0.0
    """Time of the newest journal entry that is in `alerts`."""
    cursor: int = 0
    """Number of a journal entry that is in `alerts`, as are all before it."""
    alerts: AlertState = AlertState()  # noqa: RUF009  (a frozen value)
    outbox: Outbox = Outbox()


KEPT = TypeAdapter(Kept)
"""Writes it as JSON and reads it back."""


def put(
    outbox: Outbox, messages: Sequence[Message], names: Sequence[str]
) -> tuple[Outbox, tuple[Entry, ...]]:
    """Return the outbox with these messages for all receivers; what had no room is for the journal."""
    parcels = (*outbox.parcels, *(Parcel(message=message, to=tuple(names)) for message in messages))
    lost = parcels[: max(0, len(parcels) - LIMIT)]
    entries = tuple(_lost(parcel.message, f"more than {LIMIT} messages wait") for parcel in lost)
    return replace(outbox, parcels=parcels[-LIMIT:]), entries


def due(outbox: Outbox, *, now_s: float) -> tuple[tuple[str, Message], ...]:
    """Return (receiver, message) for what is to be tried now, in order for each receiver."""
    jobs: list[tuple[str, Message]] = []
    for name in dict.fromkeys(name for parcel in outbox.parcels for name in parcel.to):
        known = outbox.receiver(name)
        if known.next_s > now_s:
            continue
        waiting = [parcel.message for parcel in outbox.parcels if name in parcel.to]
        jobs += [(name, message) for message in waiting[: 1 if known.fails else BATCH]]
    return tuple(jobs)


def settle(outbox: Outbox, outcomes: Iterable[Outcome], *, now_s: float) -> tuple[Outbox, tuple[Entry, ...]]:
    """Return the outbox after these outcomes, and what the journal says of them."""
    entries: list[Entry] = []
    for outcome in outcomes:
        parcel = next((item for item in outbox.parcels if item.message.id == outcome.id), None)
        if parcel is None or outcome.name not in parcel.to:
            continue  # Known already: another daemon's delivery ended after it.
        before = outbox.receiver(outcome.name)
        after = _after(before, outcome, now_s=now_s)
        if outcome.ok:
            outbox = _delivered(outbox, parcel, outcome.name)
            entries.append(_sent(parcel.message, before, now_s=now_s))
        elif before.fails == 0:
            entries.append(_refused(parcel.message, after, now_s=now_s))
        others = tuple(item for item in outbox.receivers if item.name != outcome.name)
        outbox = replace(outbox, receivers=(*others, after))
    return outbox, tuple(entries)


def tidy(outbox: Outbox, names: Sequence[str], *, now_s: float) -> tuple[Outbox, tuple[Entry, ...]]:
    """Return the outbox without receivers that are gone from the rig file, and without what is too old."""
    kept: list[Parcel] = []
    entries: list[Entry] = []
    for parcel in outbox.parcels:
        to = tuple(name for name in parcel.to if name in names)
        if to and now_s - parcel.message.at_s > KEEP_S:
            entries.append(_lost(parcel.message, f"not delivered within {KEEP_S / 86400:.0f} days"))
        elif to:
            kept.append(replace(parcel, to=to))
    receivers = tuple(item for item in outbox.receivers if item.name in names)
    tidied = replace(outbox, parcels=tuple(kept), receivers=receivers)
    return (outbox if tidied == outbox else tidied), tuple(entries)


def _after(before: Receiver, outcome: Outcome, *, now_s: float) -> Receiver:
    if outcome.ok:
        return replace(before, fails=0, next_s=0.0, sent_s=now_s, detail="")
    wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(before.fails, 20))
    detail = outcome.detail[:DETAIL_LIMIT]
    return replace(before, fails=before.fails + 1, next_s=now_s + wait_s, detail=detail)


def _delivered(outbox: Outbox, parcel: Parcel, name: str) -> Outbox:
    left = replace(parcel, to=tuple(other for other in parcel.to if other != name))
    parcels = tuple(left if item is parcel else item for item in outbox.parcels)
    return replace(outbox, parcels=tuple(item for item in parcels if item.to))


def _sent(message: Message, before: Receiver, *, now_s: float) -> Entry:
    tries = f" after {before.fails} refusals" if before.fails else ""
    data = (("alert", message.id), ("receiver", before.name), ("late_s", round(now_s - message.at_s, 1)))
    return Entry(kind="alert-sent", message=f"told {before.name}{tries}: {message.title}", data=data)


def _refused(message: Message, after: Receiver, *, now_s: float) -> Entry:
    text = f"cannot tell {after.name}: {after.detail or 'refused'}; trying again at growing intervals"
    data = (("alert", message.id), ("receiver", after.name), ("again_s", round(after.next_s - now_s, 1)))
    return Entry(kind="alert-failed", message=text, data=data)


def _lost(message: Message, why: str) -> Entry:
    return Entry(
        kind="alert-lost", message=f"not told: {message.title} ({why})", data=(("alert", message.id),)
    )
