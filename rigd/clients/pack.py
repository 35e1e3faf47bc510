"""Prompt files for a coordinator and its subagents, in each client's form.

All begin with the same rules, and each agent's own part follows: what the agents share is cached once. Nothing in
them depends on day, machine or user.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

from rigd.clients.plan import Plan
from rigd.clients.settings import ClientFile, Form

COMMON = "common"


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent of the pack."""

    name: str
    about: str
    primary: bool
    like: str
    """The client's own agent whose channel fits it, too."""


AGENTS_OF_PACK = (
    Agent(
        name="coordinator",
        about="Splits a task by a contract and gives its parts to subagents, all at once",
        primary=True,
        like="build",
    ),
    Agent(
        name="coder",
        about="Writes one part of a task, against the contract in design.md, in files of its own",
        primary=False,
        like="general",
    ),
    Agent(
        name="reviewer",
        about="Reads one part and says what is wrong with it; changes nothing",
        primary=False,
        like="explore",
    ),
)


def prompt(agent: Agent) -> str:
    """Return an agent's whole prompt."""
    return f"{_text(COMMON)}\n{_text(agent.name)}"


def pack(client: str, plan: Plan | None = None) -> tuple[ClientFile, ...]:
    """Return the pack as a client wants it. With a plan each agent is bound to its channel."""
    form = CLIENTS[client]
    return tuple(
        ClientFile(
            names=(f"{form.folder}/{agent.name}.md",),
            form=Form.WHOLE,
            text=f"{form.head(agent, plan)}{prompt(agent)}",
        )
        for agent in AGENTS_OF_PACK
    )


def _text(name: str) -> str:
    return resources.files("rigd.clients").joinpath("prompts", f"{name}.md").read_text("utf-8")


# --- how each client wants it ---


@dataclass(frozen=True, kw_only=True)
class PackForm:
    """Where a client looks for agents, and what stands before the prompt."""

    folder: str
    head: Callable[[Agent, Plan | None], str]


def _opencode(agent: Agent, plan: Plan | None) -> str:
    lines = [f"description: {agent.about}", f"mode: {'primary' if agent.primary else 'subagent'}"]
    if plan is not None:
        lines.append(f"model: {plan.agents[agent.like].provider}/{plan.model}")
    if agent.name == "reviewer":
        lines += ["permission:", "  edit: deny"]
    return _front(lines)


def _claude(agent: Agent, _plan: Plan | None) -> str:
    lines = [f"name: {agent.name}", f"description: {agent.about}"]
    if agent.name == "reviewer":
        lines.append("disallowedTools: Edit, Write, NotebookEdit")
    return _front(lines)


def _plain(_agent: Agent, _plan: Plan | None) -> str:
    return ""


def _front(lines: list[str]) -> str:
    return "\n".join(["---", *lines, "---", "", ""])


CLIENTS: Mapping[str, PackForm] = {
    "opencode": PackForm(folder=".opencode/agent", head=_opencode),
    "kilo": PackForm(folder=".kilo/agent", head=_opencode),
    "claude-code": PackForm(folder=".claude/agents", head=_claude),
    "plain": PackForm(folder="prompts", head=_plain),
}
