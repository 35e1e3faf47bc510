"""Whether a web server answers, through the proxies of the environment."""

import httpx

TRY_S = 10.0
"""Longest wait for an answer, in seconds."""
_BUSY = 429
_BROKEN = 500


async def problem_of(url: str) -> str | None:
    """Return None when the server answers, else what is wrong in a few words.

    An answer that refuses (401, 404) is one all the same; one that is too busy or broken is none.
    """
    try:
        async with httpx.AsyncClient(timeout=TRY_S, follow_redirects=True) as client:
            answer = await client.head(url)
    except httpx.HTTPError as error:
        return f"{url} does not answer: {str(error) or type(error).__name__}"
    if answer.status_code == _BUSY or answer.status_code >= _BROKEN:
        return f"{url} answers with HTTP {answer.status_code}"
    return None
