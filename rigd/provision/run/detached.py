"""`async` with `poll: 0`: a command that is begun and left alone, out of reach of what ends with the helper."""

import shlex
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rigd.errors import UsageError
from rigd.provision.run.calls import Call
from rigd.provision.target import modules

BEGIN = """\
job="$1"; limit="$2"; shift 2
if [ "$(id -u)" = 0 ] && command -v systemd-run >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
  for name in $RIGD_NAMES; do set -- "--setenv=$name" "$@"; done
  exec systemd-run --quiet --collect --same-dir --unit="$job" --property=RuntimeMaxSec="$limit" "$@"
fi
setsid -f timeout "$limit" "$@" </dev/null >/dev/null 2>&1
"""
"""A unit of its own where systemd is, else a session of its own; both end it when its time is up."""
ABLE = frozenset({"command", "shell"})


def detached(call: Call, seconds: float, short: str) -> Call:
    """Return the call that begins this one and does not wait for it."""
    module = modules.module_of("ansible.builtin.command")
    if short not in ABLE or module is None:
        raise UsageError(
            f"only command and shell can be left running with `poll: 0`, not {short}",
            hint="leave out poll: 0",
        )
    job = f"rigd-async-{uuid.uuid4().hex[:12]}"
    arguments = {
        "argv": ["/bin/sh", "-c", BEGIN, "begin", job, f"{seconds:g}", *_words(call.arguments, short)],
        "expand_argument_vars": False,
        **{key: call.arguments.get(key) for key in ("chdir", "creates", "removes")},
    }
    environment = {**call.environment, "RIGD_NAMES": " ".join(call.environment)}
    return replace(call, module=module, arguments=arguments, environment=environment, job=job)


def _words(arguments: Mapping[str, Any], short: str) -> list[str]:
    if arguments.get("argv"):
        return [str(word) for word in arguments["argv"]]
    if short == "shell":
        return [str(arguments.get("executable") or "/bin/sh"), "-c", str(arguments["cmd"])]
    return shlex.split(str(arguments["cmd"]))
