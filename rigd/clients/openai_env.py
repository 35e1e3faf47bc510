"""Variables for whatever reads OpenAI's: a file for the shell, one for each channel."""

import shlex

from rigd.clients.plan import Endpoint, KeyKind, Plan
from rigd.clients.settings import ClientFile, Form


def openai_env(plan: Plan) -> tuple[ClientFile, ...]:
    """Return a file for each channel, to be read by a shell (`. FILE`)."""
    return tuple(
        ClientFile(names=(f"{endpoint.provider}.env",), form=Form.WHOLE, text=_text(plan, endpoint))
        for endpoint in plan.endpoints
    )


def _text(plan: Plan, endpoint: Endpoint) -> str:
    values = {
        "OPENAI_BASE_URL": plan.base_url,
        "OPENAI_API_BASE": plan.base_url,
        "OPENAI_MODEL": plan.model,
        "OPENAI_MAX_TOKENS": str(endpoint.output),
        "OPENAI_CONTEXT_TOKENS": str(endpoint.context),
        "OPENAI_TIMEOUT": str(endpoint.whole_s),
    }
    head = (
        f"# {plan.rig}, channel {endpoint.name}: `. {endpoint.provider}.env` in a shell. Made by\n"
        f"# `rigd clients openai-env`; the next run writes it anew.\n"
    )
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    return head + "\n".join([*lines, f"export OPENAI_API_KEY={_key(plan)}"]) + "\n"


def _key(plan: Plan) -> str:
    """Return how the shell finds the key. Libraries refuse to start without any."""
    if plan.key is None:
        return "none"
    if plan.key.kind is KeyKind.ENV:
        return f'"${plan.key.where}"'
    return f'"$(head -n 1 {shlex.quote(plan.key.where)})"'
