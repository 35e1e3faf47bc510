"""Claude Code's `settings.json`: it speaks Anthropic's messages, which vLLM serves beside OpenAI's.

It knows one set of limits, not one for each agent: those of the channel that builds.
"""

import shlex

from rigd.clients.plan import KeyKind, Plan
from rigd.clients.settings import ClientFile, Form, Rule, Setting

MODELS = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
)
LEAST_COMPACT = 100_000
"""Smaller ones it takes for this number; then the window alone says when to sum up."""
KEYLESS = "echo none"
"""Without any key it asks a person to log in."""


def claude_code(plan: Plan) -> tuple[ClientFile, ...]:
    """Return Claude Code's file."""
    channel = plan.main
    values = {
        "ANTHROPIC_BASE_URL": plan.root_url,
        **dict.fromkeys(MODELS, plan.model),
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(channel.window),
        **(
            {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(channel.context)}
            if channel.context >= LEAST_COMPACT
            else {}
        ),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(channel.output),
        # A line that changes with every request, at the very front of the prompt: nothing behind it would hit.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    settings = [Setting(path=("env", name), value=value) for name, value in values.items()]
    waits = (
        ("API_TIMEOUT_MS", channel.whole_s, channel.whole_s - channel.first_token_s + channel.least_s),
        ("CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS", channel.first_token_s, channel.least_s),
        ("CLAUDE_STREAM_IDLE_TIMEOUT_MS", channel.first_token_s, channel.least_s),
    )
    settings += [
        Setting(path=("env", name), value=str(wait_s * 1000), rule=Rule.LEAST, least=least_s * 1000)
        for name, wait_s, least_s in waits
    ]
    settings.append(Setting(path=("apiKeyHelper",), value=_helper(plan)))
    return (ClientFile(names=("settings.json",), form=Form.JSONC, settings=tuple(settings)),)


def _helper(plan: Plan) -> str:
    """Return the command that prints the key."""
    if plan.key is None:
        return KEYLESS
    if plan.key.kind is KeyKind.FILE:
        return f"head -n 1 {shlex.quote(plan.key.where)}"
    return f"printenv {plan.key.where}"
