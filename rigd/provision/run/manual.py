"""What `rigd provision modules` and `left-out` print, made from the tables that playbooks are checked against."""

from collections.abc import Mapping
from typing import Any

from rigd.errors import UsageError
from rigd.provision.language import left_out as omitted
from rigd.provision.language.actions import ACTIONS, find_signature
from rigd.provision.language.faults import nearest
from rigd.provision.target import modules
from rigd.provision.target.contract import Argument
from rigd.provision.templating import filters, lookups


def summaries() -> list[dict[str, str]]:
    """Return every module and action with one line about it, in the order of their names."""
    found = []
    for name in sorted({*ACTIONS, *modules.short_names()}):
        signature = find_signature(name)
        if signature is not None:
            found.append({"name": signature.names[0], "summary": str(getattr(signature, "summary", ""))})
    return found


def page(name: str) -> dict[str, Any]:
    """Return what there is to say of one module or action."""
    signature = find_signature(name)
    if signature is None:
        if reason := omitted.module_reason(name):
            raise UsageError(f"'{name}' is left out: {reason}")
        raise UsageError(f"there is no module '{name}'{nearest(name, (*ACTIONS, *modules.short_names()))}")
    return {
        "name": signature.names[0],
        "names": list(signature.names),
        "summary": str(getattr(signature, "summary", "")),
        "free_form": signature.free_form,
        "arguments": {key: _argument(argument) for key, argument in signature.arguments.items()},
        "exclusive": [list(group) for group in signature.exclusive],
        "one_of": [list(group) for group in signature.one_of],
        "differs": list(getattr(signature, "differs", ())),
    }


def _argument(argument: Argument) -> dict[str, Any]:
    return {
        "type": argument.kind.value,
        "required": argument.required,
        "default": argument.default,
        "choices": list(argument.choices),
        "aliases": list(argument.aliases),
        "left_out": argument.left_out,
    }


def as_text(found: Mapping[str, Any]) -> str:
    """Return a page for a person."""
    lines = [f"{found['name']}: {found['summary']}", ""]
    for key, argument in found["arguments"].items():
        if argument["left_out"]:
            lines.append(f"  {key:<20} left out: {argument['left_out']}")
            continue
        more = [argument["type"]]
        if argument["required"]:
            more.append("required")
        elif argument["default"] is not None:
            more.append(f"default {argument['default']!r}")
        if argument["choices"]:
            more.append("one of " + ", ".join(map(str, argument["choices"])))
        if argument["aliases"]:
            more.append("also " + ", ".join(argument["aliases"]))
        lines.append(f"  {key:<20} {'; '.join(more)}")
    lines += [f"  one of {', '.join(group)} is needed" for group in found["one_of"]]
    lines += [f"  only one of {', '.join(group)}" for group in found["exclusive"]]
    if found["differs"]:
        lines += ["", "Differs from Ansible's:", *(f"  - {text}" for text in found["differs"])]
    return "\n".join(lines)


def left_out() -> list[dict[str, str]]:
    """Return all that Ansible has and rigd leaves out, each with its reason."""
    tables = (
        ("keyword", {**omitted.KEYWORDS, **omitted.TASK_KEYWORDS}),
        ("module", omitted.MODULES),
        ("loop", {f"with_{name}": reason for name, reason in omitted.LOOPS.items()}),
        ("filter", filters.LEFT_OUT),
        ("lookup", lookups.LEFT_OUT),
        ("ignored", omitted.IGNORED),
    )
    found = [{"what": "differs", "name": name, "reason": how} for name, how in DIFFERENCES]
    found += [
        {"what": what, "name": name, "reason": reason}
        for what, table in tables
        for name, reason in sorted(table.items())
    ]
    for name in sorted({*ACTIONS, *modules.short_names()}):
        signature = find_signature(name)
        for key, argument in signature.arguments.items() if signature else ():
            if argument.left_out and name != "copy":
                found.append({"what": "argument", "name": f"{name}: {key}", "reason": argument.left_out})
    return found


DIFFERENCES = (
    ("hosts", "every host goes through a play by itself; plays begin together, tasks do not"),
    ("gather_facts", "facts are read when a task first uses one, and once for each boot"),
    ("when", "a condition that is not true or false is an error, whatever ALLOW_BROKEN_CONDITIONALS says"),
    ("--check", "a command with `changed_when: false` runs, since it says itself that it changes nothing"),
    ("--check", "a task that needs what check mode cannot know is skipped and says so, and does not fail"),
    (
        "notify",
        "a loop that failed half-way still notifies for what it changed, if its failure is rescued or ignored",
    ),
    ("notify", "a run that broke off still owes its handlers; the same command runs them"),
    ("register", "in a run that goes on, a task that the broken one changed still counts as changed"),
    ("reboot", "asked once, however often the run breaks off; this machine's run goes on after its boot"),
    (
        "async",
        "waited for within its time; with `poll: 0` only command and shell, unless what they create is there",
    ),
    ("no_log", "a name with templates is shown as it is written, since it may hold what is not to be seen"),
    ("run_once", "runs on the first host of the play that is still there; the others count its result, too"),
    ("meta: end_host", "handlers that the host owes run before it ends"),
    ("| bool", "a word that it does not know is an error, not false"),
    ("environment", "a variable that is null is empty, not 'None'"),
    ("arguments", 'stand in the playbook: a template of all of them (`file: "{{ them }}"`) is an error'),
    ("--tags", "a tag that no task carries is an error"),
    ("apt, file, ...", "`rigd provision modules NAME` tells each module's own differences"),
)
"""How the runner differs from Ansible's on purpose: what it is about, and how."""
