"""A request to `/v1/messages` as the chat completion that vLLM makes of it: same prompt, same tokens.

Follows vLLM 0.32: system blocks are joined without a space, a billing header in front of them is dropped, tool
results become messages of their own. Images and thinking settings add nothing to a shared beginning.
"""

import json
from typing import Any

BILLING = "x-anthropic-billing-header"
"""Begins a block with a hash of each request; vLLM leaves it out of the prompt."""

Message = dict[str, Any]


def is_anthropic(body: dict[str, Any]) -> bool:
    """Return whether a body is one of `/v1/messages`."""
    tools = body.get("tools")
    named = isinstance(tools, list) and any(
        isinstance(tool, dict) and "input_schema" in tool for tool in tools
    )
    return isinstance(body.get("messages"), list) and ("system" in body or named)


def as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return the chat completion that a body comes to; one that is none of Anthropic's comes back as it is."""
    if not is_anthropic(body):
        return body
    kept = {key: body[key] for key in ("model", "cache_salt", "chat_template_kwargs") if key in body}
    system = "".join(_system_texts(body.get("system")))
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    for message in body["messages"]:
        if isinstance(message, dict):
            messages += _messages(message)
    tools = [_tool(tool) for tool in body.get("tools") or () if isinstance(tool, dict)]
    return kept | {"messages": messages} | ({"tools": tools} if tools else {})


def _system_texts(system: Any) -> list[str]:
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    if not isinstance(blocks, list):
        return []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return [text for text in texts if isinstance(text, str) and not text.startswith(BILLING)]


def _messages(message: Message) -> list[Message]:
    """Return what one message becomes: its tool results first, then what is left of it."""
    role, content = str(message.get("role")), message.get("content")
    if role == "system":
        text = "".join(_system_texts(content))
        return [{"role": "system", "content": text}] if text else []
    if not isinstance(content, list):
        return [{"role": role, "content": content}]
    blocks = [block for block in content if isinstance(block, dict)]
    results = [_result(block) for block in blocks if block.get("type") == "tool_result"]
    parts = [{"type": "text", "text": block["text"]} for block in blocks if _is_text(block)]
    thinking = "".join(
        str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"
    )
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    said: Message = {"role": role}
    if thinking:
        said["reasoning"] = thinking
    if calls:
        said["tool_calls"] = calls
    if parts:
        said["content"] = parts[0]["text"] if len(parts) == 1 else parts
    return [*results, said] if len(said) > 1 else results


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str) and bool(block["text"])


def _call(block: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": block.get("id") or "",
        "type": "function",
        "function": {"name": block.get("name") or "", "arguments": json.dumps(block.get("input") or {})},
    }


def _result(block: dict[str, Any]) -> Message:
    content = block.get("content")
    if isinstance(content, list):
        texts = (
            item.get("text") for item in content if isinstance(item, dict) and item.get("type") == "text"
        )
        content = "\n".join(text for text in texts if isinstance(text, str))
    return {"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": content or ""}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool.get("name"), "description": tool.get("description")}
    return {"type": "function", "function": function | {"parameters": tool.get("input_schema")}}
