"""Keys of a file that its client does not read: silently ignored there, so told here, with their place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rigd.clients import jsonc
from rigd.clients.jsonc import Node

ANY = "*"
"""Any key: names of providers, models, agents."""

TOP = frozenset(
    [
        "$schema",
        "agent",
        "attachment",
        "autoshare",
        "autoupdate",
        "command",
        "compaction",
        "default_agent",
        "disabled_providers",
        "enabled_providers",
        "enterprise",
        "experimental",
        "formatter",
        "instructions",
        "keybinds",
        "layout",
        "logLevel",
        "lsp",
        "mcp",
        "mode",
        "model",
        "permission",
        "plugin",
        "provider",
        "reference",
        "references",
        "server",
        "share",
        "shell",
        "skills",
        "small_model",
        "snapshot",
        "subagent_depth",
        "theme",
        "tool_output",
        "tools",
        "tui",
        "username",
        "watcher",
    ]
)
PROVIDER = frozenset(
    ["api", "name", "env", "id", "npm", "whitelist", "blacklist", "options", "models", "discoverModels"]
)
MODEL = frozenset(
    [
        "id",
        "name",
        "family",
        "release_date",
        "attachment",
        "reasoning",
        "temperature",
        "tool_call",
        "interleaved",
        "cost",
        "limit",
        "modalities",
        "experimental",
        "status",
        "provider",
        "options",
        "headers",
        "variants",
    ]
)
LIMIT = frozenset({"context", "input", "output"})

OPENCODE: Mapping[tuple[str, ...], Collection[str]] = {
    (): TOP,
    ("provider", ANY): PROVIDER,
    ("provider", ANY, "models", ANY): MODEL,
    ("provider", ANY, "models", ANY, "limit"): LIMIT,
}
"""As the schema of 1.18 has them. Options take anything, and agents give what they do not know to the model."""
KILO = {path: keys for path, keys in OPENCODE.items() if path}
"""Its own keys at the top are many; below them it is OpenCode's file."""
PLACES: Mapping[str, Mapping[tuple[str, ...], Collection[str]]] = {"opencode": OPENCODE, "kilo": KILO}

MEANT = {
    "contextWindow": "limit.context",
    "context_window": "limit.context",
    "maxTokens": "limit.output",
    "max_tokens": "limit.output",
    "maxOutputTokens": "limit.output",
    "providers": "provider",
    "agents": "agent",
    "baseURL": "options.baseURL",
    "apiKey": "options.apiKey",
}
"""Keys that people write, and those that are read."""


@dataclass(frozen=True, kw_only=True)
class Unread:
    """One key that the client does not read."""

    path: str
    line: int
    column: int
    meant: str | None

    def __str__(self) -> str:
        """Return it as a sentence."""
        meant = f"; `{self.meant}` is read" if self.meant else ""
        return f"line {self.line}, column {self.column}: {self.path} is no key that the client reads{meant}"


def unread(text: str, client: str) -> tuple[Unread, ...]:
    """Return what a client ignores in its file. Raises `JsoncError`."""
    found: list[Unread] = []
    root = jsonc.parse(text)
    for path, known in PLACES.get(client, {}).items():
        for names, node in _nodes(root, path, ()):
            for key, at in node.keys.items():
                if key not in known:
                    line, column = jsonc.place(text, at)
                    where = ".".join((*names, key))
                    found.append(Unread(path=where, line=line, column=column, meant=MEANT.get(key)))
    return tuple(sorted(found, key=lambda one: (one.line, one.column)))


def stale(present: object, providers: str, rig: str, known: Sequence[str], model: str) -> tuple[str, ...]:
    """Return providers and models that bear the rig's name and are of no channel any more."""
    there = present.get(providers) if isinstance(present, Mapping) else None
    if not isinstance(there, Mapping):
        return ()
    gone = [str(name) for name in there if str(name).startswith(f"{rig}-") and name not in known]
    found = [
        f"{providers}.{name} is of no channel of '{rig}' any more: delete it if nothing uses it"
        for name in gone
    ]
    for name in known:
        models = there[name].get("models") if isinstance(there.get(name), Mapping) else None
        others = [str(one) for one in models if one != model] if isinstance(models, Mapping) else []
        found += [
            f"{providers}.{name}.models.{one} is not what the engine serves ({model}): delete it"
            for one in others
        ]
    return tuple(found)


def _nodes(node: Node, path: Sequence[str], names: tuple[str, ...]) -> list[tuple[tuple[str, ...], Node]]:
    """Return the objects at a path, each with the keys that lead there."""
    if node.members is None:
        return []
    if not path:
        return [(names, node)]
    found = []
    for key, inner in node.members.items():
        if path[0] in (ANY, key):
            found += _nodes(inner, path[1:], (*names, key))
    return found
