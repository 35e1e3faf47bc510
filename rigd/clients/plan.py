"""What every client file is made from: an endpoint for each channel, and which agent uses which."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rigd.errors import UsageError
from rigd.rig.schema import Channel, Rig, SecretRef

ASSUMED_TOKENS_PER_S = 500.0
"""Prefill rate where nobody knows better: about half of what two RTX 3090 do with a 27B model."""
SLOW_DECODE_TOKENS_PER_S = 10.0
"""A stream among many; whole answers are given the time that this takes."""
MARGIN = 2.0
"""A cold prompt may wait for another one's prefill."""
LEAST_MARGIN = 1.25
"""A timeout that somebody has set stays when it is longer than the worst cold prefill by this."""
LEAST_S = 300
"""What clients wait by default; never less."""
ROUND_S = 10


class Role(enum.Enum):
    """How much of the engine an agent needs."""

    LARGE = "large"
    """Plans, builds, and sums up whole conversations."""
    MIDDLE = "middle"
    """Subagents with a task of their own."""
    SMALL = "small"
    """Titles and the like."""


AGENTS: Mapping[str, Role] = {
    "plan": Role.LARGE,
    "build": Role.LARGE,
    "compaction": Role.LARGE,  # It reads the whole conversation that has become too long.
    "general": Role.MIDDLE,
    "explore": Role.MIDDLE,
    "summary": Role.SMALL,
    "title": Role.SMALL,
}
"""Agents that come with the clients, by what they need."""


class KeyKind(enum.Enum):
    """How a client finds the key."""

    ENV = "env"
    FILE = "file"


@dataclass(frozen=True, kw_only=True)
class KeyRef:
    """Where the client finds the key; never the key."""

    kind: KeyKind
    where: str
    """Name of a variable, or path of a file."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One channel as a client sees it."""

    name: str
    """Of the channel."""
    provider: str
    """Rig and channel: unique among all that a client may know."""
    context: int
    """Longest prompt in tokens."""
    output: int
    """Longest answer in tokens."""
    priority: int | None
    """As the engine schedules it; None where it schedules by arrival."""
    first_token_s: int
    """How long to wait for the first token, and between two."""
    least_s: int
    """The shortest of such waits that is long enough."""
    whole_s: int
    """How long a whole answer may take."""

    @property
    def window(self) -> int:
        """Prompt and answer together."""
        return self.context + self.output


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a client is told."""

    rig: str
    model: str
    """Name that the engine serves under."""
    root_url: str
    """Scheme, host and port."""
    key: KeyRef | None
    endpoints: tuple[Endpoint, ...]
    """The one with the largest context first."""
    agents: Mapping[str, Endpoint]
    rate: float
    """Tokens a second that prompts are read with."""
    rate_from: str
    thinks: bool
    """The engine has a parser for reasoning: its answers have a part of their own for it."""
    calls_tools: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def base_url(self) -> str:
        """Where OpenAI's paths begin."""
        return f"{self.root_url}/v1"

    @property
    def main(self) -> Endpoint:
        return self.agents["build"]

    @property
    def small(self) -> Endpoint:
        return self.agents["title"]


def make_plan(
    rig: Rig,
    *,
    model: str,
    root_url: str,
    key: KeyRef | None,
    rate: float | None,
    rate_from: str,
    chosen: Mapping[str, str] | None = None,
) -> Plan:
    """Return what a client of this rig is told. `chosen` names channels of agents. Raises `UsageError`."""
    if not rig.channels:
        raise UsageError(
            f"cannot write client files for '{rig.name}': its rig file has no channels",
            hint="add `channels:` (name, context, output); `rigd budget RIG --fit` says what fits",
        )
    arguments = rig.engine.arguments
    policy = arguments.extra.get("scheduling-policy", arguments.extra.get("scheduling_policy"))
    used = rate if rate is not None else ASSUMED_TOKENS_PER_S
    endpoints = tuple(
        _endpoint(rig.name, channel, used, scheduled=policy == "priority")
        for channel in sorted(rig.channels, key=lambda channel: -channel.context)
    )
    return Plan(
        rig=rig.name,
        model=model,
        root_url=root_url.rstrip("/"),
        key=key,
        endpoints=endpoints,
        agents=_agents(rig.channels, endpoints, chosen or {}),
        rate=used,
        rate_from=rate_from if rate is not None else "assumed; --rate states it",
        thinks=bool(arguments.reasoning_parser),
        calls_tools=bool(arguments.enable_auto_tool_choice),
        notes=() if arguments.enable_auto_tool_choice else (NO_TOOLS,),
    )


NO_TOOLS = (
    "the engine calls no tools: agents need engine.arguments.enable_auto_tool_choice and tool_call_parser"
)


def _endpoint(rig: str, channel: Channel, rate: float, *, scheduled: bool) -> Endpoint:
    cold_s = channel.context / rate
    wait_s = max(LEAST_S, math.ceil(cold_s * MARGIN / ROUND_S) * ROUND_S)
    return Endpoint(
        name=channel.name,
        provider=f"{rig}-{channel.name}",
        context=channel.context,
        output=channel.output,
        priority=channel.priority if scheduled else None,
        first_token_s=wait_s,
        least_s=math.ceil(max(LEAST_S, cold_s * LEAST_MARGIN)),
        whole_s=wait_s + math.ceil(channel.output / SLOW_DECODE_TOKENS_PER_S / ROUND_S) * ROUND_S,
    )


def _agents(
    channels: Sequence[Channel], endpoints: Sequence[Endpoint], chosen: Mapping[str, str]
) -> dict[str, Endpoint]:
    """Return each agent's endpoint: as chosen, else by what its role needs."""
    parallel = {channel.name: channel.parallel for channel in channels}
    between = endpoints[1:-1] or endpoints[1:] or endpoints
    roles = {
        Role.LARGE: endpoints[0],
        Role.MIDDLE: max(between, key=lambda endpoint: parallel[endpoint.name]),
        Role.SMALL: endpoints[-1],
    }
    found = {agent: roles[role] for agent, role in AGENTS.items()}
    named = {endpoint.name: endpoint for endpoint in endpoints}
    for agent, channel in chosen.items():
        if channel not in named:
            raise UsageError(
                f"--agent {agent}={channel}: the rig has no channel '{channel}'",
                hint=f"it has {', '.join(named)}",
            )
        found[agent] = named[channel]
    return found


def key_of(reference: SecretRef | None, rig: str, *, on_the_box: bool) -> KeyRef | None:
    """Return where a client finds the key: the daemon's own file on the box, a variable of its own elsewhere."""
    if reference is None:
        return None
    if on_the_box and reference.file is not None:
        return KeyRef(kind=KeyKind.FILE, where=reference.file)
    return KeyRef(kind=KeyKind.ENV, where=f"{rig.upper().replace('-', '_').replace('.', '_')}_API_KEY")
