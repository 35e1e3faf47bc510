"""One line of any log, cleaned: colours, timestamps and the prefixes of whoever carried it are taken off."""

import json
import re
from dataclasses import dataclass

LONGEST = 4096
"""Characters of a line that are looked at; what follows is no message."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")
_CARRIERS = re.compile(
    r"""^(?:
      \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\ ?[+-]\d\d:?\d\d)?(?:\ UTC)?[\ :]\s*   # docker, k8s, ISO
    | (?:std(?:out|err))\ [FP]\ ?                                                    # containerd
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d(?:\.\d+)?\ [\w.-]+\ [\w./@-]+(?:\[\d+\])?:\ ?  # syslog, journald
    | [\w.-]+\ kernel:\ ?                                                            # short-iso journal
    | [\w.-]+\ [\w./@-]+\[\d+\]:\ ?
    | \[(?:[A-Z][a-z]{2}\ ){2}[\ \d]\d\ \d\d:\d\d:\d\d\ \d{4}\]\ ?                     # dmesg -T
    | \[\ *\d+\.\d+\]\ ?                                                             # dmesg
    | <\d+>\ ?                                                                       # kmsg priority
    | [A-Za-z0-9][\w./-]*\ *\|\ (?=\S)                                               # docker compose
    | \[rank\d+\]:\s?                                                                # torch
    )""",
    re.VERBOSE,
)
_SOURCE = re.compile(r"^\(([A-Za-z_]\w*[^()]*?\bpid=\d+[^()]*)\) ?")
_HEAD = re.compile(
    r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\s+(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?\s+"
    r"(?:\[[^\]\s]*:\d+\]|[\w./-]+:\d+\])\s?"
)
_KERNEL = re.compile(r"^kernel: ?")


@dataclass(frozen=True, slots=True)
class Line:
    """What one line says (`text`), and which process said it (`source`, empty where the line does not tell)."""

    number: int
    source: str
    text: str
    time: str = ""
    """`MM-DD HH:MM:SS` of vLLM's own head, where there is one."""
    level: str = ""
    """Level of that head."""


def clean(raw: str, number: int) -> Line:
    """Return the line without colours, carriers' prefixes and vLLM's own head."""
    text = raw[:LONGEST].strip("\r\n\x00 ")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if text.startswith('{"log":'):
        text = _unwrapped(text)
    source, time, level = "", "", ""
    for _ in range(8):
        if match := _SOURCE.match(text):
            source = match[1]
        elif match := _HEAD.match(text):
            time, level = match["time"], match["level"]
        else:
            match = _CARRIERS.match(text) or _KERNEL.match(text)
        if match is None:
            break
        text = text[match.end() :]
    return Line(number=number, source=source, text=text.rstrip(), time=time, level=level)


def _unwrapped(text: str) -> str:
    """Return the message of a line of Docker's json-file driver."""
    try:
        message = json.loads(text)["log"]
    except (ValueError, KeyError, TypeError):
        return text
    return message.rstrip("\r\n") if isinstance(message, str) else text
