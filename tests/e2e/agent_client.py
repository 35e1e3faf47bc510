"""A client as agents are: one long system prompt, and a conversation for each question. URL MODEL NAME QUESTION..."""

import json
import sys
import urllib.request

KEY = "sk-agent-7f3kq92mzx"
RULES = "\n".join(
    f"Rule {number} of this house: item {number * 7919 % 10007} precedes {number}." for number in range(600)
)


def ask(url: str, model: str, name: str, question: str) -> None:
    """Ask one question as a stream, and read the answer to its end."""
    body = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": f"You are {name}, an agent.\n{RULES}"},
            {"role": "user", "content": question},
        ],
    }
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  (the address is the test's own)
        for line in answer:
            if line.startswith(b"data: {") and "error" in json.loads(line[6:]):
                raise SystemExit(line.decode())


if __name__ == "__main__":
    for words in sys.argv[4:]:
        ask(sys.argv[1], sys.argv[2], sys.argv[3], words)
