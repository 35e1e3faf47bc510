"""Small things that modules fetch: signing keys, public keys, packages. Bounded in size, without arguments."""

from typing import Any

from rigd.provision.target.contract import Box, ModuleError

MOST_KEY_BYTES = 4 << 20
MOST_FILE_BYTES = 4 << 30
BLOCK_BYTES = 1 << 20
TIMEOUT_S = 60.0


def _open(url: str, box: Box) -> Any:
    """Return the open body of an answer that is a success."""
    from rigd.provision.target import web  # noqa: PLC0415  (40 ms, and a converged run fetches nothing)

    box.progress(f"fetching {url}")
    defaults = {name: known.default for name, known in web.ARGUMENTS.items()}
    answer = web.ask({**defaults, "url": url}, timeout_s=TIMEOUT_S)
    if answer.status >= web.FAILING:
        raise ModuleError(f"cannot fetch {url}: the server answers {answer.status} {answer.reason}")
    return answer.body


def fetch(url: str, box: Box) -> bytes:
    """Return what an address holds; anything but success is a fault that says why."""
    content: bytes = _open(url, box).read(MOST_KEY_BYTES + 1)
    if len(content) > MOST_KEY_BYTES:
        raise ModuleError(f"cannot fetch {url}: it is too large for a key (over {MOST_KEY_BYTES >> 20} MiB)")
    return content


def text(url: str, box: Box) -> str:
    """Return the text that an address holds."""
    return fetch(url, box).decode(errors="replace")


def save(url: str, path: str, box: Box) -> None:
    """Put what an address holds into a file, block by block."""
    body, left = _open(url, box), MOST_FILE_BYTES
    with open(path, "wb") as file:
        while block := body.read(BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                raise ModuleError(f"cannot fetch {url}: it is larger than {MOST_FILE_BYTES >> 30} GiB")
            file.write(block)
