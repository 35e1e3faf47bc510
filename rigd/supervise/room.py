"""How much room the present engine had over the last stretch: a bounded fold of looks at its load. Pure.

    look -> bucket (a 24th of the stretch each, 24 kept) -> summary: waiting, fullest pool, preemptions, speed, memory

Climbing back and raising beyond the wish both go by it. It begins anew with each engine and each daemon.
"""

from dataclasses import dataclass, replace

from rigd.supervise.load import Load

BUCKETS = 24


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """What was seen in a part of the stretch."""

    began_s: float
    ended_s: float
    looks: int = 0
    waiting: int = 0
    """Looks at which requests were waiting."""
    kv_peak: float = 0.0
    preemptions: float = 0.0
    tokens: float = 0.0
    """Generated while the batch was full."""
    stream_s: float = 0.0
    """Seconds that streams of a full batch took together."""
    gpu_free_mib: float | None = None
    """Least memory free on the fullest card."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """The fold: buckets, oldest first, and the last look."""

    buckets: tuple[Bucket, ...] = ()
    at_s: float | None = None
    load: Load | None = None


@dataclass(frozen=True, kw_only=True)
class Roominess:
    """What the stretch comes to."""

    span_s: float
    """How much of it was looked at, from the first look to the last."""
    waiting: float
    """Share of the looks at which requests were waiting."""
    kv_peak: float
    preemptions: float
    stream_speed: float | None
    """Tokens a second and stream of a full batch; None where there was no full batch."""
    stream_s: float
    gpu_free_mib: float | None


def after_look(room: Room, load: Load, *, at_s: float, bucket_s: float, pause_s: float, full: int) -> Room:
    """Fold one look into the room.

    The batch is full from `full` running requests on. Looks further apart than `pause_s` say nothing about speed.
    """
    before, since_s = room.load, room.at_s
    if (
        before is None
        or since_s is None
        or at_s < since_s
        or load.generation_tokens < before.generation_tokens
    ):
        first = Bucket(began_s=at_s, ended_s=at_s)
        return Room(buckets=(_with_look(first, load),), at_s=at_s, load=load)
    buckets = room.buckets
    if at_s - buckets[-1].began_s >= bucket_s:
        buckets = (*buckets, Bucket(began_s=at_s, ended_s=at_s))[-BUCKETS:]
    bucket = _with_look(replace(buckets[-1], ended_s=at_s), load)
    bucket = replace(bucket, preemptions=bucket.preemptions + max(0.0, load.preemptions - before.preemptions))
    took_s = at_s - since_s
    if min(before.running, load.running) >= full and took_s <= pause_s:
        bucket = replace(
            bucket,
            tokens=bucket.tokens + load.generation_tokens - before.generation_tokens,
            stream_s=bucket.stream_s + took_s * (before.running + load.running) / 2,
        )
    return Room(buckets=(*buckets[:-1], bucket), at_s=at_s, load=load)


def _with_look(bucket: Bucket, load: Load) -> Bucket:
    return replace(
        bucket,
        looks=bucket.looks + 1,
        waiting=bucket.waiting + (load.waiting > 0),
        kv_peak=max(bucket.kv_peak, load.kv_usage or 0.0),
    )


def with_gpu(room: Room, free_mib: float) -> Room:
    """Fold the memory that is free on the fullest card into the room; before the first look it is dropped."""
    if not room.buckets:
        return room
    *earlier, last = room.buckets
    least = free_mib if last.gpu_free_mib is None else min(free_mib, last.gpu_free_mib)
    return replace(room, buckets=(*earlier, replace(last, gpu_free_mib=least)))


def roominess(room: Room) -> Roominess:
    """Return what the buckets come to together."""
    buckets = room.buckets
    if not buckets:
        return Roominess(
            span_s=0.0,
            waiting=0.0,
            kv_peak=0.0,
            preemptions=0.0,
            stream_speed=None,
            stream_s=0.0,
            gpu_free_mib=None,
        )
    looks, stream_s = sum(one.looks for one in buckets), sum(one.stream_s for one in buckets)
    free = [one.gpu_free_mib for one in buckets if one.gpu_free_mib is not None]
    return Roominess(
        span_s=buckets[-1].ended_s - buckets[0].began_s,
        waiting=sum(one.waiting for one in buckets) / max(1, looks),
        kv_peak=max(one.kv_peak for one in buckets),
        preemptions=sum(one.preemptions for one in buckets),
        stream_speed=sum(one.tokens for one in buckets) / stream_s if stream_s > 0 else None,
        stream_s=stream_s,
        gpu_free_mib=min(free) if free else None,
    )
