"""Codex's `config.toml` gets the rig as a provider, and each channel a profile beside it: the default model stays.

Its limits are a prompt's (`model_context_window`, `model_auto_compact_token_limit`); it has none for the answer.
"""

from typing import Any

from rigd.clients.plan import KeyKind, Plan
from rigd.clients.settings import ClientFile, Form, Rule, Setting

RETRIES = 2
"""A retry reads the whole prompt again; the default of five is a storm."""


def codex(plan: Plan) -> tuple[ClientFile, ...]:
    """Return Codex's file, and one beside it for each channel (`codex --profile RIG-CHANNEL`)."""
    at = ("model_providers", plan.rig)
    provider: dict[str, Any] = {
        "name": plan.rig,
        "base_url": plan.base_url,
        "wire_api": "responses",
        "request_max_retries": RETRIES,
        "stream_max_retries": RETRIES,
    }
    settings = [Setting(path=(*at, name), value=value) for name, value in provider.items()]
    wait_s = max(endpoint.first_token_s for endpoint in plan.endpoints)
    least_s = max(endpoint.least_s for endpoint in plan.endpoints)
    settings += [
        Setting(
            path=(*at, "stream_idle_timeout_ms"), value=wait_s * 1000, rule=Rule.LEAST, least=least_s * 1000
        ),
        *_key(plan, at),
    ]
    profiles = (
        ClientFile(
            names=(f"{endpoint.provider}.config.toml",),
            form=Form.TOML,
            settings=(
                Setting(path=("model_provider",), value=plan.rig),
                Setting(path=("model",), value=plan.model),
                Setting(path=("model_context_window",), value=endpoint.window),
                Setting(path=("model_auto_compact_token_limit",), value=endpoint.context),
            ),
        )
        for endpoint in plan.endpoints
    )
    return (ClientFile(names=("config.toml",), form=Form.TOML, settings=tuple(settings)), *profiles)


def _key(plan: Plan, at: tuple[str, ...]) -> list[Setting]:
    """Return how the key is found: by a command that prints it. `env_key` and a command exclude each other."""
    if plan.key is None:
        return []
    words = ["printenv"] if plan.key.kind is KeyKind.ENV else ["head", "-n", "1"]
    return [
        Setting(path=(*at, "auth", "command"), value=words[0]),
        Setting(path=(*at, "auth", "args"), value=[*words[1:], plan.key.where]),
    ]
