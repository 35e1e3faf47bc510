"""Apprise URLs as they may be shown. Pure.

An Apprise URL is a secret nearly as a whole: tokens stand where others have a host, a user or a path. So only
the schema is shown, and the host where the schema is known to address a server by name.
"""

import re
from urllib.parse import urlsplit

MASK = "***"
BY_HOST = frozenset({
    "apprise", "apprises", "form", "forms", "gotify", "gotifys", "json", "jsons", "mailto", "mailtos",
    "matrix", "matrixs", "mmost", "mmosts", "mqtt", "mqtts", "ntfy", "ntfys", "rsyslog", "xml", "xmls",
})  # fmt: skip
"""Schemas whose URL names a server; of every other one the host may be a token."""
_SCHEMA = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]{0,31})://.", re.DOTALL)
_HOST = re.compile(r"^(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|[0-9a-f:]*:[0-9a-f:]+)$")
_TOKEN_LIKE = re.compile(r"^(tk_|[0-9a-f]{24,}$)")


def schema_of(url: str) -> str | None:
    """Return the schema of an Apprise URL, or None where the text is none."""
    match = _SCHEMA.match(url)
    return match[1].lower() if match else None


def masked_url(url: str) -> str:
    """Return a URL without anything that could be a secret: `ntfys://ntfy.example.org/***`, `tgram://***`."""
    schema = schema_of(url)
    if schema is None:
        return MASK
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return f"{schema}://{MASK}"
    if schema not in BY_HOST or not _HOST.match(host) or _TOKEN_LIKE.match(host):
        return f"{schema}://{MASK}"
    shown = f"[{host}]" if ":" in host else host
    return f"{schema}://{shown}{f':{port}' if port else ''}/{MASK}"


def holds_secret(url: str) -> bool:
    """Return whether a URL is likely to hold a credential: all do, except a bare server of a known schema."""
    if schema_of(url) not in BY_HOST:
        return True
    try:
        parts = urlsplit(url)
    except ValueError:
        return True
    return bool(parts.username or parts.password or parts.query) or masked_url(url).endswith(f"//{MASK}")


def without_url(text: str, url: str) -> str:
    """Return text with every part of a URL that could be a secret replaced, for errors that others wrote."""
    shown = masked_url(url)
    parts = {part for part in re.split(r"[/?&=@:#,+%\s]+", url) if len(part) >= 4}  # noqa: PLR2004  (shorter: words)
    for part in sorted({url, *parts}, key=len, reverse=True):
        if part not in shown:
            text = text.replace(part, MASK)
    return text
