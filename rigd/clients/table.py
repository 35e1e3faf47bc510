"""The clients, by the name that the command line knows them under."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rigd.clients.claude_code import claude_code
from rigd.clients.codex import codex
from rigd.clients.openai_env import openai_env
from rigd.clients.opencode import kilo, opencode
from rigd.clients.pi import pi
from rigd.clients.plan import Plan
from rigd.clients.settings import ClientFile


@dataclass(frozen=True, kw_only=True)
class Client:
    """One agent client."""

    files: Callable[[Plan], tuple[ClientFile, ...]]
    where: str
    """Folder where it looks for its file."""
    then: str
    """What to type to see that it took the file."""
    providers: str = ""
    """Key below which its providers stand."""


CLIENTS: Mapping[str, Client] = {
    "opencode": Client(
        files=opencode, where="~/.config/opencode", then="opencode models", providers="provider"
    ),
    "kilo": Client(files=kilo, where="~/.config/kilo", then="kilo models", providers="provider"),
    "pi": Client(files=pi, where="~/.pi/agent", then="pi --list-models", providers="providers"),
    "claude-code": Client(files=claude_code, where="~/.claude", then="claude -p 'say hello'"),
    "codex": Client(files=codex, where="~/.codex", then="codex --strict-config --profile {first}"),
    "openai-env": Client(files=openai_env, where=".", then=". ./{first}.env"),
}
