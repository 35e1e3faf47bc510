"""Pi's files: a provider for each channel in `models.json`, and how long it waits in `settings.json`."""

import shlex
from typing import Any

from rigd.clients.plan import Endpoint, KeyKind, KeyRef, Plan
from rigd.clients.settings import ClientFile, Form, Rule, Setting

SCHEMA = "https://pi.dev/schemas/models.schema.json"
KEEP_RECENT = 20_000
"""Tokens that Pi keeps word for word by default."""
KEYLESS = "none"
"""Pi lists no model of a provider without a key."""


def pi(plan: Plan) -> tuple[ClientFile, ...]:
    """Return Pi's two files."""
    settings = [Setting(path=("$schema",), value=SCHEMA, rule=Rule.CHOICE)]
    for endpoint in plan.endpoints:
        at = ("providers", endpoint.provider)
        values: dict[str, Any] = {
            "name": f"{plan.rig} {endpoint.name}",
            "baseUrl": plan.base_url,
            "api": "openai-completions",
            "apiKey": reference(plan.key),
            "models": [_model(plan, endpoint)],
        }
        settings += [Setting(path=(*at, name), value=value) for name, value in values.items()]
    ours = tuple(endpoint.provider for endpoint in plan.endpoints)
    wait_s = max(endpoint.first_token_s for endpoint in plan.endpoints)
    least_s = max(endpoint.least_s for endpoint in plan.endpoints)
    chosen = Rule.CHOICE
    defaults = [
        Setting(path=("defaultProvider",), value=plan.main.provider, rule=chosen, ours=ours),
        Setting(path=("defaultModel",), value=plan.model, rule=chosen, ours=(plan.model,)),
        Setting(path=("httpIdleTimeoutMs",), value=wait_s * 1000, rule=Rule.LEAST, least=least_s * 1000),
        *(_compaction(plan, endpoint) for endpoint in plan.endpoints),
    ]
    return (
        ClientFile(names=("models.json",), form=Form.JSONC, settings=tuple(settings)),
        ClientFile(names=("settings.json",), form=Form.JSONC, settings=tuple(defaults)),
    )


def _compaction(plan: Plan, endpoint: Endpoint) -> Setting:
    """Return when Pi sums up. By default it leaves more of the window free than small channels have at all."""
    numbers = {
        "reserveTokens": endpoint.output,
        "keepRecentTokens": min(KEEP_RECENT, endpoint.context // 4),
    }
    return Setting(path=("compaction", "modelOverrides", f"{endpoint.provider}/{plan.model}"), value=numbers)


def _model(plan: Plan, endpoint: Endpoint) -> dict[str, Any]:
    compat: dict[str, Any] = {
        "supportsDeveloperRole": False,
        "supportsReasoningEffort": False,
        "maxTokensField": "max_tokens",
    }
    if endpoint.priority is not None:
        compat["vllmPriority"] = endpoint.priority
    return {
        "id": plan.model,
        "name": f"{plan.model} ({endpoint.name})",
        "reasoning": plan.thinks,
        "contextWindow": endpoint.window,
        "maxTokens": endpoint.output,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "compat": compat,
    }


def reference(key: KeyRef | None) -> str:
    """Return a key's place as Pi writes it."""
    if key is None:
        return KEYLESS
    return f"${key.where}" if key.kind is KeyKind.ENV else f"!head -n 1 {shlex.quote(key.where)}"
