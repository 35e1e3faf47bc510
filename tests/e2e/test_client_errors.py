"""Clients' own mistakes, to a real engine: an answer with 400, and not a word of trouble from rigd."""

import httpx
import pytest
from rigs import LAB

DEADLINE_S = 30
MESSAGE = {"role": "user", "content": "hello"}
BODIES = {
    "prompt longer than the context": {"messages": [{"role": "user", "content": "word " * 40_000}]},
    "more tokens asked for than fit": {"messages": [MESSAGE], "max_tokens": 10_000_000},
    "a template that raises": {
        "messages": [MESSAGE],
        "chat_template": "{{ raise_exception('roles must alternate') }}",
    },
    "messages that are none": {"messages": [{"role": "user", "content": {"no": "text"}}]},
    "no messages": {"messages": []},
}


pytestmark = LAB


@pytest.fixture
def rig(make_rig):
    made = make_rig(("vllm", "process"))
    made.settings["engine"]["arguments"]["extra"] = {"trust-request-chat-template": True}
    yield made
    made.close()
    made.daemon = None


def test_mistakes_of_clients_are_answered_with_400_and_change_nothing(rig):
    before = rig.ready()
    newest = rig.events()[-1]["at_s"]

    answers = {
        name: httpx.post(
            f"{rig.url}/v1/chat/completions", json={"model": rig.model, **body}, timeout=DEADLINE_S
        )
        for name, body in BODIES.items()
    }

    print("\n" + "\n".join(f"{name}: {one.status_code} {one.text[:150]}" for name, one in answers.items()))
    assert {one.status_code for one in answers.values()} == {400}
    assert rig.chat([MESSAGE])["usage"]["completion_tokens"] > 0
    rig.act("warm")
    rig.until(
        lambda: rig.status()["state"] == "ready" and rig.status()["warm"][0]["proved"], 60, "it is warm"
    )
    status = rig.status()
    assert (status["engine"]["id"], rig.launches()) == (before["engine"]["id"], 1)
    assert (status["failure"], status["attempts"]["failed"], status["overlay"]) == (None, 0, [])
    assert [event for event in rig.events() if event["kind"] == "failure" and event["at_s"] > newest] == []
