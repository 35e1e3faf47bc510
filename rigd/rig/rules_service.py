"""Rules about channels, prefixes and supervision. Pure."""

from collections import Counter
from collections.abc import Iterator

from rigd.rig.findings import Finding, error, warning
from rigd.rig.schema import Rig


def channels_fit(rig: Rig) -> Iterator[Finding]:
    """Tell of channels that are longer than the engine's context, or named twice."""
    length = rig.engine.arguments.max_model_len
    names = Counter(channel.name for channel in rig.channels)
    for number, channel in enumerate(rig.channels):
        if names[channel.name] > 1:
            yield error(f"channels[{number}].name", f"{channel.name!r} is there more than once")
        if isinstance(length, int) and channel.context + channel.output > length:
            yield error(
                f"channels[{number}].context",
                f"context {channel.context} and output {channel.output} exceed max_model_len ({length})",
                f"lower context to {max(length - channel.output, 1)}",
            )


def prefixes_are_distinct(rig: Rig) -> Iterator[Finding]:
    """Tell of prefixes named twice, and of warming what no cache keeps."""
    names = Counter(prefix.name for prefix in rig.prefixes)
    for number, prefix in enumerate(rig.prefixes):
        if names[prefix.name] > 1:
            yield error(f"prefixes[{number}].name", f"{prefix.name!r} is there more than once")
    if rig.prefixes and rig.engine.arguments.enable_prefix_caching is False:
        yield error(
            "engine.arguments.enable_prefix_caching",
            "is off, so no prefix can be warmed",
            "turn it on, or remove prefixes",
        )
    if rig.prefixes and not rig.engine.arguments.enable_prompt_tokens_details:
        yield warning(
            "engine.arguments.enable_prompt_tokens_details",
            "is off, so warm prefixes can be proved from counters only, which other traffic blurs",
            "set it to true",
        )


def deadlines_make_sense(rig: Rig) -> Iterator[Finding]:
    """Tell of deadlines that cannot be kept together."""
    supervision = rig.supervision
    if supervision.stop_grace_s >= supervision.deadlines.stop_s:
        yield error(
            "supervision.stop_grace_s",
            f"{supervision.stop_grace_s:g} s leaves no time for KILL within deadlines.stop_s "
            f"({supervision.deadlines.stop_s:g} s)",
        )
    if supervision.stall_deadline_s < 2 * supervision.probe_interval_s:
        yield error(
            "supervision.stall_deadline_s",
            f"{supervision.stall_deadline_s:g} s is less than two probe intervals",
        )
    if supervision.backoff.max_s < supervision.backoff.initial_s:
        yield error("supervision.backoff.max_s", "is less than initial_s")
