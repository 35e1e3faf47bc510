"""Request bodies: what they may say, and vLLM's words when they say something else."""

import json
from dataclasses import dataclass
from typing import Any

from rigd.sim.arguments import Settings


class ApiError(Exception):
    """An answer that is not 200, in vLLM's form."""

    def __init__(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a completion or chat request wants, checked."""

    prompts: tuple[str | tuple[int, ...], ...]
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    echo: bool = False
    stops: tuple[str, ...] = ()
    """Texts at which an answer ends."""


def body_of(raw: bytes) -> dict[str, Any]:
    """Return a request's JSON object."""
    try:
        body = json.loads(raw)
    except (ValueError, UnicodeDecodeError) as error:
        position = getattr(error, "pos", 0)
        raise ApiError(
            400,
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{position}', "
            f"'msg': 'JSON decode error', 'ctx': {{'error': '{getattr(error, 'msg', 'not text')}'}}}}",
            "Bad Request",
            f"body.{position}",
        ) from error
    if not isinstance(body, dict):
        raise _invalid("", "model_attributes_type", "Input should be a valid dictionary")
    return body


def check_model(body: dict[str, Any], settings: Settings) -> None:
    """Refuse a model that is not served."""
    model = body.get("model")
    if model is not None and model not in settings.served_model_names:
        aliases = ", ".join(settings.served_model_names)
        raise ApiError(
            404, f"The model `{model}` does not exist. Valid aliases: {aliases}.", "NotFoundError", "model"
        )


def completion(body: dict[str, Any], settings: Settings) -> Ask:
    """Return what a /v1/completions body asks for."""
    prompt = body.get("prompt")
    if not prompt:
        raise ApiError(
            400,
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
            param="prompt",
        )
    limit = _max_tokens(body, ("max_tokens",), settings)
    return _ask(body, _prompts(prompt), limit if limit is not None else 16)


def chat(body: dict[str, Any], settings: Settings) -> Ask:
    """Return what a /v1/chat/completions body asks for."""
    limit = _max_tokens(body, ("max_completion_tokens", "max_tokens"), settings)
    if body.get("chat_template") is not None:
        raise ApiError(
            400,
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request "
            "with untrusted chat template.",
        )
    if body.get("tools") and body.get("tool_choice", "auto") == "auto" and not settings.tools:
        raise ApiError(
            400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        )
    return _ask(body, (render(body),), limit)


def render(body: dict[str, Any]) -> str:
    """Return the prompt that the chat template makes of a body's messages."""
    messages = body.get("messages")
    if messages is None:
        raise _invalid("messages", "missing", "Field required")
    if not isinstance(messages, list):
        raise _invalid("messages", "list_type", "Input should be a valid list")
    if not messages:
        raise ApiError(
            400, "Cannot apply chat template to an empty conversation. Provide at least one message."
        )
    parts = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid(f"messages.{index}.role", "missing", "Field required")
        parts.append(f"<|im_start|>{message['role']}\n{_content(message)}<|im_end|>\n")
    if body.get("tools"):
        listed = "\n".join(json.dumps(tool, sort_keys=True) for tool in body["tools"])
        head = f"<|im_start|>system\n# Tools\n\n<tools>\n{listed}\n</tools><|im_end|>\n"
        parts.insert(0, head)
    if body.get("add_generation_prompt", True):
        parts.append("<|im_start|>assistant\n")
        if (body.get("chat_template_kwargs") or {}).get("enable_thinking") is False:
            parts.append("<think>\n\n</think>\n\n")
    return "".join(parts)


def check_length(prompt_tokens: int, ask: Ask, settings: Settings) -> int:
    """Return how many tokens the answer may have, or refuse a prompt that is too long."""
    most = settings.max_model_len
    if prompt_tokens >= most:
        at_least = most + 1
        raise ApiError(
            400,
            f"This model's maximum context length is {most} tokens. However, your prompt contains at "
            f"least {at_least} "
            "input tokens, which exceeds this limit even without any output tokens. Please reduce "
            "the length of the "
            f"input prompt. (parameter=input_tokens, value={at_least})",
            param="input_tokens",
        )
    room = most - prompt_tokens
    if ask.max_tokens is not None and ask.max_tokens > room:
        raise ApiError(
            400,
            f"This model's maximum context length is {most} tokens. However, you requested "
            f"{ask.max_tokens} output "
            f"tokens and your prompt contains {prompt_tokens} input tokens, for a total of "
            f"{prompt_tokens + ask.max_tokens} tokens. Please reduce the length of the input prompt "
            "or the number of "
            f"requested output tokens. (parameter=input_tokens, value={prompt_tokens})",
            param="input_tokens",
        )
    return room if ask.max_tokens is None else ask.max_tokens


def _ask(body: dict[str, Any], prompts: tuple[str | tuple[int, ...], ...], limit: int | None) -> Ask:
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        value = float(temperature)
        raise ApiError(
            400,
            f"temperature must be non-negative, got {value}. (parameter=temperature, value={value})",
            param="temperature",
        )
    options = body.get("stream_options") or {}
    return Ask(
        prompts=tuple(prompt for prompt in prompts for _ in range(_choices(body))),
        max_tokens=limit,
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        echo=bool(body.get("echo")),
        stops=_stops(body.get("stop")),
    )


def _choices(body: dict[str, Any]) -> int:
    number = body.get("n") or 1
    if not isinstance(number, int) or number < 1:
        raise _invalid("n", "int_parsing", "Input should be a valid integer")
    if number > 1 and body.get("temperature") == 0:
        raise ApiError(400, f"n must be 1 when using greedy sampling, got {number}.")
    return number


def _stops(given: Any) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _invalid("stop", "string_type", "Input should be a valid string")
    return tuple(text for text in texts if text)


def _max_tokens(body: dict[str, Any], names: tuple[str, ...], settings: Settings) -> int | None:
    name, value = next(((name, body[name]) for name in names if body.get(name) is not None), (names[0], None))
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(
            name, "int_parsing", "Input should be a valid integer, unable to parse string as an integer"
        )
    if value < 1:
        text = f"max_tokens must be at least 1, got {value}. (parameter=max_tokens, value={value})"
        raise ApiError(400, text, param="max_tokens")
    most = settings.max_model_len
    if value > most:
        raise ApiError(
            400,
            f"max_tokens={value} cannot be greater than max_model_len={most}. Please request fewer "
            "output tokens. "
            f"(parameter=max_tokens, value={value})",
            param="max_tokens",
        )
    return value


def _prompts(prompt: Any) -> tuple[str | tuple[int, ...], ...]:
    match prompt:
        case str():
            return (prompt,)
        case [int(), *_]:
            return (tuple(prompt),)
        case [str(), *_]:
            return tuple(prompt)
        case [[int(), *_], *_]:
            return tuple(tuple(one) for one in prompt)
        case _:
            raise _invalid("prompt", "string_type", "Input should be a valid string")


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    if isinstance(content, list):
        text = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if message.get("tool_calls"):
        text += "\n".join(json.dumps(call, sort_keys=True) for call in message["tool_calls"])
    return text


def _invalid(where: str, kind: str, message: str) -> ApiError:
    location = f"body.{where}" if where else "body"
    return ApiError(
        400,
        f"1 validation error:\n  {{'type': '{kind}', 'loc': '{location}', 'msg': '{message}'}}",
        "Bad Request",
        location,
    )
