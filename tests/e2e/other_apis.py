"""An engine for one question, in Anthropic's messages and OpenAI's responses as vLLM has them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "Hello from the rig."


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request that came by."""

    path: str
    key: str | None
    body: dict[str, Any]


@dataclass(kw_only=True)
class OtherApis:
    """What was asked so far, and where."""

    port: int
    asked: list[Asked] = field(default_factory=list)

    def prompts(self, path: str) -> list[Asked]:
        """Return the requests of one path, in order."""
        return [one for one in self.asked if one.path.split("?")[0] == path]


def _messages(model: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": usage}  # fmt: skip
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def _responses(model: str) -> list[dict[str, Any]]:
    item = {"id": "i1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": ANSWER, "annotations": []}]}  # fmt: skip
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, **details}
    made = {"id": "r1", "object": "response", "model": model, "status": "in_progress", "output": []}
    return [
        {"type": "response.created", "response": made},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed",
         "response": {**made, "status": "completed", "output": [item], "usage": usage}},
    ]  # fmt: skip


ANSWERS = {"/v1/messages": _messages, "/v1/responses": _responses}


@contextmanager
def other_apis() -> Iterator[OtherApis]:
    """Serve on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            key = self.headers.get("authorization") or self.headers.get("x-api-key")
            here.asked.append(Asked(path=self.path, key=key, body=body))
            events = ANSWERS.get(self.path.split("?")[0])
            self.send_response(200 if events else 404)
            self.send_header("content-type", "text/event-stream" if events else "application/json")
            self.send_header("connection", "close")
            self.end_headers()
            for number, event in enumerate(events(str(body.get("model"))) if events else ()):
                data = json.dumps({**event, "sequence_number": number})
                self.wfile.write(f"event: {event['type']}\ndata: {data}\n\n".encode())
            if not events:
                self.wfile.write(b"{}")

        def do_GET(self) -> None:
            here.asked.append(Asked(path=self.path, key=self.headers.get("authorization"), body={}))
            self.send_response(404)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = OtherApis(port=server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
