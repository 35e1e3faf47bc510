"""OpenCode's file, and Kilo's, which comes from it: a provider for each channel, as timeouts are a provider's.

`limit.input` is the channel's context, `limit.context` that and the answer, `limit.output` what a request asks for
(32,000 at most, unless the client's OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX says more).
The client looks at these only after an answer, so a plugin beside the file holds each prompt against its channel:
what is too long is summed up, or refused, before the engine sees it.
"""

import json
from importlib import resources
from typing import Any

from rigd.clients.plan import KeyKind, KeyRef, Plan
from rigd.clients.settings import ClientFile, Form, Rule, Setting

PACKAGE = "@ai-sdk/openai-compatible"
SCHEMAS = {"opencode": "https://opencode.ai/config.json", "kilo": "https://app.kilo.ai/config.json"}


def opencode(plan: Plan) -> tuple[ClientFile, ...]:
    """Return OpenCode's file."""
    return _files(plan, "opencode", ("opencode.jsonc", "opencode.json"))


def kilo(plan: Plan) -> tuple[ClientFile, ...]:
    """Return the file of Kilo's command line."""
    return _files(plan, "kilo", ("kilo.jsonc", "kilo.json"))


def _files(plan: Plan, client: str, names: tuple[str, ...]) -> tuple[ClientFile, ...]:
    ours = tuple(f"{endpoint.provider}/" for endpoint in plan.endpoints)
    settings = [Setting(path=("$schema",), value=SCHEMAS[client], rule=Rule.CHOICE)]
    settings += _providers(plan)
    picks: list[tuple[tuple[str, ...], str]] = [
        (("model",), plan.main.provider),
        (("small_model",), plan.small.provider),
        *((("agent", agent, "model"), endpoint.provider) for agent, endpoint in plan.agents.items()),
    ]
    settings += [
        Setting(path=path, value=f"{provider}/{plan.model}", rule=Rule.CHOICE, ours=ours)
        for path, provider in picks
    ]
    file = ClientFile(names=names, form=Form.JSONC, settings=tuple(settings))
    return (
        file,
        ClientFile(names=(f"plugin/rigd-{plan.rig}.js",), form=Form.WHOLE, text=_guard(plan, client)),
    )


def _guard(plan: Plan, client: str) -> str:
    """Return the plugin: both clients load what lies in the folder `plugin` beside their file."""
    providers = json.dumps([endpoint.provider for endpoint in plan.endpoints])
    head = (
        f"// Prompts that are longer than their channel of '{plan.rig}' do not leave this client. Made by\n"
        f"// `rigd clients {client}`; the next run writes it anew.\n"
    )
    code = resources.files("rigd.clients").joinpath("opencode_guard.js").read_text("utf-8")
    return f"{head}const PROVIDERS = {providers}\n\n{code}"


def _providers(plan: Plan) -> list[Setting]:
    found: list[Setting] = []
    for endpoint in plan.endpoints:
        at = ("provider", endpoint.provider)
        options, model = (*at, "options"), (*at, "models", plan.model)
        values: list[tuple[tuple[str, ...], Any]] = [
            ((*at, "npm"), PACKAGE),
            ((*at, "name"), f"{plan.rig} {endpoint.name}"),
            ((*options, "baseURL"), plan.base_url),
            *([((*options, "apiKey"), reference(plan.key))] if plan.key is not None else []),
        ]
        found += [Setting(path=path, value=value) for path, value in values]
        waits = (
            ("headerTimeout", endpoint.first_token_s, endpoint.least_s),
            ("chunkTimeout", endpoint.first_token_s, endpoint.least_s),
            ("timeout", endpoint.whole_s, endpoint.whole_s - endpoint.first_token_s + endpoint.least_s),
        )
        found += [
            Setting(path=(*options, name), value=wait_s * 1000, rule=Rule.LEAST, least=least_s * 1000)
            for name, wait_s, least_s in waits
        ]
        values = [
            ((*model, "name"), f"{plan.model} ({endpoint.name})"),
            ((*model, "tool_call"), plan.calls_tools),
            ((*model, "reasoning"), plan.thinks),
            ((*model, "limit", "context"), endpoint.window),
            ((*model, "limit", "input"), endpoint.context),
            ((*model, "limit", "output"), endpoint.output),
            *(
                [((*model, "options", "priority"), endpoint.priority)]
                if endpoint.priority is not None
                else []
            ),
        ]
        found += [Setting(path=path, value=value) for path, value in values]
    return found


def reference(key: KeyRef) -> str:
    """Return a key's place as these clients write it."""
    return f"{{env:{key.where}}}" if key.kind is KeyKind.ENV else f"{{file:{key.where}}}"
