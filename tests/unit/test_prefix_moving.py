"""What counts as a moving part of a prompt, and what does not."""

import itertools

import pytest

from rigd.prefix.finding import Level
from rigd.prefix.moving import moving_at, moving_parts


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Today's date: 2026-07-11", "date"),
        ("Today is Saturday, July 11, 2026.", "date"),
        ("Current date: Sat Jul 11 2026", "date"),
        ("date 11 July 2026", "date"),
        ("now 7/11/2026", "date"),
        ("Today is Monday.", "date"),
        ("Day of the week: Saturday", "date"),
        ("It's the 11th of July 2026", "date"),
        ("date 2026/07/11", "date"),
        ("today 2026年7月11日", "date"),
        ("<current_date>2026-07-11</current_date>", "date"),
        ("Today is the 11th of July.", "date"),
        ("Current year: 2026", "date"),
        ("date 20260711", "date"),
        ("7/11/26, 2:25 PM", "timestamp"),
        ("now 11-Jul-2026", "date"),
        ("at 2026-07-11T14:25:30.123Z it began", "timestamp"),
        ("Date: Sat, 11 Jul 2026 14:25:30 +0000", "timestamp"),
        ("Saturday, July 11, 2026 at 2:25 PM", "timestamp"),
        ("7/11/2026, 2:25:30 PM", "timestamp"),
        ("run of 20260711T142530Z", "timestamp"),
        ("Sat Jul 11 14:25:30 CEST 2026", "timestamp"),
        ("The current time is 14:25", "time"),
        ("session 3f2b8c1e-9a4d-4c6b-8e2f-1a2b3c4d5e6f", "uuid"),
        ("Session: ses_7f3kq92mzx", "id"),
        ("01J9Z3NDEKTSV4RRFFQ69G5FAV", "id"),
        ("nonce: aGVsbG8gd29ybGQ5OTk=", "id"),
        ('"conversation_id": "abc123def"', "id"),
        ("started 1783779930", "unix time"),
        ("It began at 1783779930.25.", "unix time"),
        ("ns 1783779930123456789", "unix time"),
        ("HEAD at 4ad4c38", "hex"),
        ("object at 0x7f8a2c001230", "hex"),
        ("request #17 of today", "counter"),
        ("served at localhost:43817", "counter"),
        ("MCP server at http://localhost:53412/sse", "counter"),
        ("Session: 17", "counter"),
        ("in container 3f2a9c1d4e5f", "hex"),
        ("PID 43817", "counter"),
        ("Turn 7 of 20", "counter"),
        ("Token budget: 104,233 left", "counter"),
        ("ws://localhost:9229/3f2b8c1e-9a4d-4c6b-8e2f-1a2b3c4d5e6f", "uuid"),
        ("scratch: /tmp/opencode-x81k/notes", "temporary path"),
        ("C:\\Users\\me\\AppData\\Local\\Temp\\x", "temporary path"),
        ("Working directory: /home/me/project", "absolute path"),
        ("gitStatus: M src/a.py", "repository state"),
        ("On branch feature/foo", "repository state"),
        ("Hello {{ current_date }}", "placeholder"),
        ("in ${PWD} you", "placeholder"),
        ("it is $(date +%F)", "placeholder"),
        ("Now: {current_date}", "placeholder"),
        ("Now: %DATE%", "placeholder"),
    ],
)
def test_moving_part_is_found_and_named(text, kind):
    found = moving_parts(text)

    assert [one.part.kind for one in found if one.level is Level.WARNING] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "Step 1: read the file. Step 2: edit it.",
        "Answer in at most 4 lines, at a ratio of 16:9.",
        "Use HTTP/1.1 and port 8080, version 1.2.3, section 4.2.",
        "Colours are #ff8800 and the range is 10-20.",
        "decade, facade, deadbeef, accede",
        "Prefer {{name}} placeholders in templates.",
        "Write src/a.py before tests/test_a.py.",
        "The year 2024 was good; 3,141,592 people agree.",
        "Never deploy on a Friday.",
        "Times look like 2026-07-11T14:25:30Z.",
        "An id, for example ses_7f3kq92mzx, names a session.",
        "Write scratch files below /tmp/ or to /tmp/notes.",
        "See https://example.org/commit/4ad4c38 and https://example.org/3f2b8c1e-9a4d-4c6b-8e2f-1a2b3c4d5e6f",
        "- git status shows what changed",
        "The pull request #26415 says: wait ${TIMEOUT} and ${LIFETIME}.",
        "It answers GET /days/{date}.",
        'Answer like {"id": "call_123456", "time": "2024-01-01T00:00:00Z"}.',
        "The constant is 1618033988; call 1512345678.",
        "Message 3 must be short. Request: 5 files. Turn 1: read.",
        "FROM vllm/vllm-openai@sha256:4ad4c38f00d1",
        "A four-step process:\n1. Read.\n2. Write.",
    ],
)
def test_static_text_is_left_alone(text):
    assert [one.part.kind for one in moving_parts(text) if one.level is Level.WARNING] == []


def test_a_date_without_a_word_about_now_is_a_note():
    (found,) = moving_parts("The API version is 2023-06-01.")

    assert (found.part.kind, found.level) == ("date", Level.NOTE)


def test_parts_do_not_overlap_and_come_in_order():
    found = moving_parts(
        "Today 2026-07-11T10:00:00Z in /tmp/3f2b8c1e-9a4d-4c6b-8e2f-1a2b3c4d5e6f/x, request #3"
    )

    assert [one.part.kind for one in found] == ["timestamp", "uuid", "counter"]
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))


def test_the_part_at_a_place_is_found_from_within_it():
    text = "x" * 500 + " today is 2026-07-11 and goes on"
    at = text.index("-11")

    found = moving_at(text, at, at + 1)

    assert found is not None
    assert found.part.kind == "date"
    assert moving_at(text, 10, 11) is None
