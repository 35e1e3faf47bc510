"""What `rigd clients` prints: what a client is told, and its files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rigd.cli.clients_write import Change
from rigd.cli.console import print_text, say
from rigd.clients.merge import merge
from rigd.clients.plan import KeyKind, Plan
from rigd.clients.settings import ClientFile
from rigd.clients.table import CLIENTS


def summary(client: str, plan: Plan, notes: Sequence[str]) -> None:
    """Tell on stderr what the client is told, and what to know about it."""
    say(
        f"{client}: {plan.rig} at {plan.base_url}; prompts are read at {plan.rate:,.0f} tokens/s ({plan.rate_from})"
    )
    for endpoint in plan.endpoints:
        agents = ", ".join(agent for agent, one in plan.agents.items() if one is endpoint)
        say(
            f"  {endpoint.provider}: context {endpoint.context:,}, output {endpoint.output:,}, "
            f"waits {endpoint.first_token_s} s for a token{f'; {agents}' if agents else ''}"
        )
    for note in notes:
        say(f"rigd: {note}")


def print_files(client: str, files: Iterable[ClientFile]) -> None:
    """Print the files on stdout, each after a line on stderr that says where it goes."""
    for file in files:
        say(f"--- {CLIENTS[client].where}/{file.names[0]}")
        print_text(merge(None, file).text.rstrip("\n"))


def keyless(plan: Plan, environ: Mapping[str, str]) -> str | None:
    """Return what a person must do before the client has its key."""
    if plan.key is None or plan.key.kind is KeyKind.FILE or environ.get(plan.key.where):
        return None
    return f"the client looks for the key in {plan.key.where}, which is not set here"


def document(
    client: str, plan: Plan, version: str | None, notes: Sequence[str], files: Iterable[Change]
) -> dict[str, Any]:
    """Return all of it as JSON."""
    return {
        "client": client,
        "client_version": version,
        "rig": plan.rig,
        "base_url": plan.base_url,
        "model": plan.model,
        "key": None if plan.key is None else {plan.key.kind.value: plan.key.where},
        "prefill": {"tokens_per_s": plan.rate, "said_by": plan.rate_from},
        "channels": [
            {
                "name": endpoint.name,
                "provider": endpoint.provider,
                "context": endpoint.context,
                "output": endpoint.output,
                "first_token_timeout_s": endpoint.first_token_s,
                "request_timeout_s": endpoint.whole_s,
            }
            for endpoint in plan.endpoints
        ],
        "agents": {agent: endpoint.name for agent, endpoint in plan.agents.items()},
        "files": [{**change.document(), "text": change.text} for change in files],
        "notes": list(notes),
    }
