"""Small things that modules fetch: signing keys, public keys, packages. Bounded in size, without arguments."""

from rigd.provision.target import web
from rigd.provision.target.contract import Box, ModuleError

MOST_KEY_BYTES = 4 << 20
MOST_FILE_BYTES = 4 << 30
_DEFAULTS = {name: known.default for name, known in web.ARGUMENTS.items()}


def fetch(url: str, box: Box, *, most: int = MOST_KEY_BYTES) -> bytes:
    """Return what an address holds; anything but success is a fault that says why."""
    box.progress(f"fetching {url}")
    answer = web.ask({**_DEFAULTS, "url": url}, timeout_s=60.0)
    if answer.status >= web.FAILING:
        raise ModuleError(f"cannot fetch {url}: the server answers {answer.status} {answer.reason}")
    content: bytes = answer.body.read(most + 1)
    if len(content) > most:
        raise ModuleError(
            f"cannot fetch {url}: it is larger than {most >> 20} MiB, so it is not what was meant"
        )
    return content


def text(url: str, box: Box) -> str:
    """Return the text that an address holds."""
    return fetch(url, box).decode(errors="replace")


def save(url: str, path: str, box: Box) -> None:
    """Put what an address holds into a file, block by block."""
    box.progress(f"fetching {url}")
    answer = web.ask({**_DEFAULTS, "url": url}, timeout_s=60.0)
    if answer.status >= web.FAILING:
        raise ModuleError(f"cannot fetch {url}: the server answers {answer.status} {answer.reason}")
    left = MOST_FILE_BYTES
    with open(path, "wb") as file:
        while left > 0 and (block := answer.body.read(1 << 20)):
            file.write(block)
            left -= len(block)
