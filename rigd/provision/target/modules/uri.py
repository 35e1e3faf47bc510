"""`uri`: one HTTP request from the box, and what the answer must be."""

import json
import os
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import attributes, web
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

MOST_CONTENT = 8 * 1024 * 1024
READING = frozenset({"GET", "HEAD", "OPTIONS"})


def probe(arguments: Mapping[str, Any], _box: Box) -> dict[str, Any]:
    """See whether `creates` or `removes` make the request needless; ask, if asking changes nothing."""
    for name, there in (("creates", True), ("removes", False)):
        path = arguments[name]
        if path is not None and os.path.exists(path) is there:
            return {"skip": f"skipped, since '{path}' {'exists' if there else 'does not exist'}"}
    if arguments["method"].upper() in READING and arguments["dest"] is None:
        return {"answer": _asked(arguments)}
    return {}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the request that may change something; reading is no change."""
    if "skip" in state or "answer" in state:
        return []
    url = web.shown(arguments["url"])
    return [Change(what=f"{arguments['method'].upper()} {url}", subject=url, once=True, counts=False)]


def apply(arguments: Mapping[str, Any], _state: Any, _changes: list[Change], box: Box) -> dict[str, Any]:
    """Send the request; it counts as no change, as with Ansible, unless a file was written."""
    answer = _asked(arguments)
    content = answer.pop("raw", None)
    if arguments["dest"] is not None and content is not None:
        dest = arguments["dest"]
        name = os.path.basename(urllib.parse.urlsplit(arguments["url"]).path) or "index"
        path = os.path.join(dest, name) if os.path.isdir(dest) else dest
        old = None
        if os.path.exists(path):
            with open(path, "rb") as file:
                old = file.read()
        if old != content:
            box.write(path, content)
        changed = old != content
        if (seen := attributes.look(path, follow=True)) is not None:
            uid, gid = attributes.identity(arguments)
            differing = attributes.differences(path, seen, mode=arguments["mode"], uid=uid, gid=gid)
            attributes.put(differing)
            changed = changed or bool(differing)
        return {**answer, "path": path, "changed": changed}
    return {**answer, "changed": False}


def _asked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    body, kind = _body(arguments)
    headers = {**({"Content-Type": kind} if kind else {}), **(arguments["headers"] or {})}
    method = arguments["method"].upper()
    follow = str(arguments["follow_redirects"]).lower()
    follows = follow in {"all", "yes", "true"} or (follow in {"safe", "urllib2"} and method in READING)
    began_s = time.monotonic()
    with web.ask(
        arguments, method=method, headers=headers, body=body, timeout_s=arguments["timeout"], follow=follows
    ) as answer:
        content = answer.body.read(MOST_CONTENT + 1)
    if len(content) > MOST_CONTENT:
        raise ModuleError(
            f"{web.shown(arguments['url'])} answers more than {MOST_CONTENT >> 20} MiB: use get_url"
        )
    facts = _facts(arguments, answer, content, int(time.monotonic() - began_s))
    if answer.status not in [int(code) for code in arguments["status_code"]]:
        wanted = ", ".join(map(str, arguments["status_code"]))
        raise ModuleError(f"Status code was {answer.status} and not [{wanted}]: {answer.reason}", **facts)
    return {**facts, "raw": content} if arguments["dest"] is not None else facts


def _facts(arguments: Mapping[str, Any], answer: web.Answer, content: bytes, elapsed: int) -> dict[str, Any]:
    failed = answer.status >= web.FAILING
    facts: dict[str, Any] = {
        "status": answer.status,
        "url": web.shown(answer.url),
        "elapsed": elapsed,
        "redirected": answer.url != arguments["url"],
        "msg": f"HTTP Error {answer.status}: {answer.reason}" if failed else f"OK ({len(content)} bytes)",
        **{name.replace("-", "_"): value for name, value in answer.headers.items()},
    }
    kind = answer.headers.get("content-type", "")
    text = content.decode("utf-8", "replace")
    if arguments["return_content"] or failed:
        facts["content"] = text
    if "json" in kind:
        try:
            facts["json"] = json.loads(text)
        except ValueError:
            facts["json_error"] = "the answer says it is JSON, and is not"
    return facts


def _body(arguments: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
    body, layout = arguments["body"], arguments["body_format"]
    if arguments["src"] is not None:
        try:
            with open(arguments["src"], "rb") as file:
                return file.read(), None
        except OSError as error:
            raise ModuleError(f"cannot read '{arguments['src']}': {error.strerror}") from error
    if body is None:
        return None, None
    if layout == "json":
        return (body if isinstance(body, str) else json.dumps(body)).encode(), "application/json"
    if layout == "form-urlencoded":
        pairs = body if isinstance(body, str) else urllib.parse.urlencode(body, doseq=True)
        return pairs.encode(), "application/x-www-form-urlencoded"
    return (body if isinstance(body, str) else json.dumps(body)).encode(), None


def _together(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("src") is not None and not arguments.get("remote_src"):
        return "`src` is a file of the box: bring it there by `copy`, and say `remote_src: true`"
    return None


MODULE = Module(
    names=("ansible.builtin.uri",),
    summary="one HTTP request from the box, and what the answer must be",
    arguments={
        **web.ARGUMENTS,
        "method": Argument(default="GET"),
        "body": Argument(kind=Kind.ANY),
        "body_format": Argument(choices=("form-urlencoded", "json", "raw"), default="raw"),
        "headers": Argument(kind=Kind.MAPPING),
        "status_code": Argument(kind=Kind.LIST, elements=Kind.INTEGER, default=[200]),
        "return_content": Argument(kind=Kind.BOOLEAN, default=False),
        "timeout": Argument(kind=Kind.FLOAT, default=30),
        "follow_redirects": Argument(default="safe"),
        "creates": Argument(kind=Kind.PATH),
        "removes": Argument(kind=Kind.PATH),
        "dest": Argument(kind=Kind.PATH),
        "src": Argument(kind=Kind.PATH),
        "remote_src": Argument(kind=Kind.BOOLEAN, default=False),
        "force": Argument(kind=Kind.BOOLEAN, default=False),
        "unix_socket": Argument(kind=Kind.PATH, left_out="use command with curl --unix-socket"),
        **attributes.ARGUMENTS,
    },
    probe=probe,
    difference=difference,
    apply=apply,
    result=lambda _arguments, state: (
        {"msg": state["skip"], "skipped": False} if "skip" in state else state.get("answer", {})
    ),
    exclusive=(("body", "src"),),
    check_arguments=_together,
    differs=(
        "`body_format: form-multipart` is left out: curl by `command` sends files",
        "`src` is a file of the box alone, so it goes with `remote_src: true`; `copy` brings one there",
    ),
)
