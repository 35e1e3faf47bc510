"""Results of tasks as Ansible shapes them, for `register`, conditions and what is shown. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rigd.errors import RigdError, explain
from rigd.provision.run.calls import Answer
from rigd.provision.run.events import Outcome

CENSORED = "the output has been hidden due to the fact that 'no_log: true' was specified for this result"
Result = dict[str, Any]


def of_answer(answer: Answer, *, changed: bool) -> Result:
    """Return a module's result."""
    result: Result = {"changed": changed, **answer.facts}
    result["failed"] = answer.failed is not None
    if answer.failed is not None:
        result["msg"] = answer.failed
    if answer.changes and changed:
        result["changes"] = [str(change["what"]) for change in answer.changes]
    return with_lines(result)


def with_lines(result: Result) -> Result:
    """Return the result with `stdout_lines` and `stderr_lines` beside what they split."""
    for stream in ("stdout", "stderr"):
        text = result.get(stream)
        if isinstance(text, str):
            result.setdefault(f"{stream}_lines", text.splitlines())
    return result


def failed(message: str, **facts: Any) -> Result:
    """Return the result of a task that failed."""
    return {"changed": False, "failed": True, "msg": message, **facts}


def sentence(error: RigdError) -> str:
    """Return an error and what to do next as the message of a result."""
    return explain(error) + (f" ({error.hint})" if error.hint else "")


def unreachable(message: str) -> Result:
    """Return the result of a task whose host does not answer."""
    return {"changed": False, "unreachable": True, "msg": message}


def skipped(reason: str, **facts: Any) -> Result:
    """Return the result of a task that was skipped."""
    return {"changed": False, "skipped": True, "skip_reason": reason, **facts}


def done(**facts: Any) -> Result:
    """Return the result of a controller's action that changes nothing."""
    return {"changed": False, "failed": False, **facts}


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """Return how a task with this result ended."""
    if result.get("unreachable"):
        return Outcome.UNREACHABLE
    if result.get("failed"):
        return Outcome.FAILED
    if result.get("skipped"):
        return Outcome.SKIPPED
    return Outcome.CHANGED if result.get("changed") else Outcome.OK


def of_loop(items: Sequence[Result]) -> Result:
    """Return the result of a whole loop."""
    if not items:
        return skipped("No items in the list", results=[], skipped_reason="No items in the list")
    bad = any(item.get("failed") or item.get("unreachable") for item in items)
    none_ran = all(item.get("skipped") for item in items)
    result: Result = {
        "results": list(items),
        "changed": any(item.get("changed") for item in items),
        "failed": bad,
        "skipped": none_ran,
        "msg": "One or more items failed"
        if bad
        else "All items skipped"
        if none_ran
        else "All items completed",
    }
    if any(item.get("unreachable") for item in items):
        result["unreachable"] = True
    return result


def shown(result: Mapping[str, Any], *, secret: bool, diff: bool) -> Result:
    """Return what may be shown of a result: nothing but its kind where `no_log` stands."""
    if secret:
        kept = {key: result[key] for key in ("changed", "failed", "skipped", "unreachable") if key in result}
        return {"censored": CENSORED, **kept}
    return {key: value for key, value in result.items() if key != "diff" or diff}


def registered(result: Mapping[str, Any]) -> Result:
    """Return what `register` keeps: the whole result, without what is only for showing."""
    return {key: value for key, value in result.items() if key not in {"changes", "remark", "shown"}}


def diffs(answer: Answer) -> list[dict[str, Any]]:
    """Return the differences of an answer as Ansible's `diff` has them."""
    found: list[dict[str, Any]] = []
    for change in answer.changes:
        subject = change.get("subject") or ""
        if change.get("before") is None and change.get("after") is None:
            found.append({"prepared": f"{subject}: {change['what']}" if subject else str(change["what"])})
        else:
            found.append(
                {
                    "before": change.get("before") or "",
                    "after": change.get("after") or "",
                    "before_header": subject,
                    "after_header": subject,
                }
            )
    return found
