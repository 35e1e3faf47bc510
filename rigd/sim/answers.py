"""What the double says: the same words for the same prompt, and vLLM's JSON around them."""

import array
import json
import secrets
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rigd.sim.faults import Switches
from rigd.sim.tokenizer import END_OF_TURN, Tokenizer

_WORDS = tuple(
    """
    the code reads a file and keeps one list of open jobs then it sends each job to the first free slot and
    waits until every slot is done so a small test shows that no job gets lost when a slot dies in a run
    """.split()  # noqa: SIM905  (a text to be read)
)
_KNOWN = {"The capital of France is": "Paris"}
_SHORTEST = 24
_LONGEST = 160


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Tokens, what of them can be read, and why they end."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    """The text of each token; empty where it is a special one."""
    reason: str


def compose(
    prompt: Sequence[int], text: str, *, most: int, ignore_eos: bool, tokenizer: Tokenizer, switches: Switches
) -> Answer:
    """Return the answer to a prompt, at most `most` tokens long."""
    seed = zlib.crc32(array.array("q", prompt).tobytes())
    natural = _SHORTEST + seed % (_LONGEST - _SHORTEST)
    length = most if ignore_eos else min(most, natural)
    reason = "length" if length == most else "stop"
    if switches.on("garbage"):
        token = tokenizer.encode("!")[0]
        return Answer(tokens=(token,) * length, texts=("!",) * length, reason=reason)
    if switches.on("empty"):
        return Answer(tokens=(END_OF_TURN,) * length, texts=("",) * length, reason=reason)
    known = next((word for start, word in _KNOWN.items() if text.rstrip().endswith(start)), None)
    words = [f" {known}"] if known else []
    while len(words) < length:
        seed = (seed * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        words.append(f" {_WORDS[(seed >> 8) % len(_WORDS)]}")
    words = words[:length]
    return Answer(
        tokens=tuple(tokenizer.encode(word)[0] for word in words), texts=tuple(words), reason=reason
    )


def ended_at(answer: Answer, stops: Sequence[str]) -> Answer:
    """Return the answer up to the first of the texts at which it ends, that text left out."""
    text = "".join(answer.texts)
    found = [position for stop in stops if (position := text.find(stop)) >= 0]
    if not found:
        return answer
    texts: list[str] = []
    room = min(found)
    for piece in answer.texts:
        texts.append(piece[:room])
        room -= len(texts[-1])
        if len(texts[-1]) < len(piece):
            break
    return Answer(tokens=answer.tokens[: len(texts)], texts=tuple(texts), reason="stop")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How one request's answers look: completion or chat, whole or in chunks."""

    chat: bool
    model: str
    fingerprint: str
    details: bool
    id: str
    created: int

    def usage(self, prompt_tokens: int, completion_tokens: int, cached: int | None) -> dict[str, Any]:
        """Return the usage block."""
        block: dict[str, Any] = {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }
        if self.details and cached is not None:
            block["prompt_tokens_details"] = {"cached_tokens": cached}
        return block

    def whole(self, choices: Sequence[tuple[str, str]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the body of an answer that comes at once; a choice is its text and why it ends."""
        usage = {"prompt_tokens_details": None, **usage, "completion_tokens_details": None}
        return {
            "id": self.id,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(index, *choice) for index, choice in enumerate(choices)],
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": usage,
            "kv_transfer_params": None,
            "metrics": None,
        }

    def opening(self, index: int) -> str | None:
        """Return the chunk that comes first, if this kind has one."""
        delta = {"role": "assistant", "content": ""}
        return (
            self._chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])
            if self.chat
            else None
        )

    def chunk(self, index: int, text: str, finished: str | None) -> str:
        """Return one chunk of a choice's text."""
        choice: dict[str, Any] = {"index": index}
        choice |= {"delta": {"content": text}} if self.chat else {"text": text, "stop_reason": None}
        return self._chunk([choice | {"logprobs": None, "finish_reason": finished, "token_ids": None}])

    def closing(self, usage: dict[str, Any]) -> str:
        """Return the chunk that carries the usage."""
        return self._chunk([], usage=usage, system_fingerprint=self.fingerprint)

    def _choice(self, index: int, text: str, reason: str) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": None,
        }
        if not self.chat:
            return choice | {"text": text}
        message = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "function_call": None,
            "reasoning": None,
        }
        return choice | {"message": message}

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> str:
        body = {
            "id": self.id,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }
        return f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"


def new_shape(*, chat: bool, model: str, fingerprint: str, details: bool) -> Shape:
    """Return the shape of a new request's answers, with an id of its own."""
    number = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(8)}"
    return Shape(
        chat=chat, model=model, fingerprint=fingerprint, details=details, id=number, created=int(time.time())
    )
