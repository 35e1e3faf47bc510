"""Actions that bring files of the controller: template, copy, script and unarchive, turned into what the box does.

Content is named by its hash and sent only if the box asks for it, which it does only where it differs.
"""

import hashlib
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rigd.errors import UsageError
from rigd.provision.run.prepared import Filed

LARGEST_BYTES = 1 << 30
LARGEST_TEXT = 1 << 20
"""A text larger than this is not shown as a difference."""
MOST_FILES = 20_000
RUN_SCRIPT = (
    'f=$(mktemp "${TMPDIR:-/tmp}/rigd-script.XXXXXXXX") || exit 1; trap \'rm -f "$f"\' EXIT; '
    'cat >"$f" && chmod 0700 "$f" && shift && if [ -n "$RIGD_WITH" ]; then $RIGD_WITH "$f" "$@"; else "$f" "$@"; fi'
)

Find = Callable[[str, str], Path | None]
"""Takes a name and the kind of folder (`files`, `templates`); returns where it lies, None if nowhere."""
Render = Callable[[Path, Mapping[str, Any]], str]
"""Takes a template and the action's arguments; returns the text."""
Arguments = Mapping[str, Any]


def filed(action: str, arguments: Arguments, *, find: Find, render: Render, diff: bool) -> Filed | None:
    """Return what an action becomes on the box; None for one that brings no file of the controller."""
    maker = _MAKERS.get(action)
    return maker(arguments, find, render, diff) if maker else None


def _template(arguments: Arguments, find: Find, render: Render, diff: bool) -> Filed | None:  # noqa: FBT001  (a table's signature)
    source = _found(find, arguments["src"], "templates", "template")
    text = render(source, arguments)
    newline = str(arguments["newline_sequence"])
    if newline != "\n":
        text = text.replace("\n", newline)
    content = text.encode(str(arguments["output_encoding"]))
    kept = {key: value for key, value in arguments.items() if key in _COPIED}
    return _one_file(kept, content, name=source.name.removesuffix(".j2"), source=source, diff=diff)


def _copy(arguments: Arguments, find: Find, _render: Render, diff: bool) -> Filed | None:  # noqa: FBT001
    if arguments["remote_src"]:
        return None
    if arguments["content"] is not None:
        return _one_file(
            arguments, _as_text(arguments["content"]).encode(), name=None, source=None, diff=diff
        )
    name = str(arguments["src"])
    source = _found(find, name.rstrip("/") or "/", "files", "copy")
    if source.is_dir():
        return _folder(arguments, source, base="" if name.endswith("/") else source.name)
    return _one_file(arguments, source, name=source.name, source=source, diff=diff)


def _as_text(content: Any) -> str:
    if not isinstance(content, (dict, list)):
        return str(content)
    import json  # noqa: PLC0415  (seldom)

    return json.dumps(content)


def _one_file(
    arguments: Arguments, content: bytes | Path, *, name: str | None, source: Path | None, diff: bool
) -> Filed:
    digest = _digest_of(content)
    entry: dict[str, Any] = {"path": "", "sha256": digest, "sha1": _checksum_of(content), "name": name}
    if source is not None:
        entry["mode"] = stat.S_IMODE(source.stat().st_mode)
    if diff and (text := _text_of(content)) is not None:
        entry["text_after"] = text
    # The content goes by its hash, and only where it is asked for.
    own = {**arguments, "content": None, "src": str(source) if source else None, "entries": [entry]}
    return Filed(module="ansible.builtin.copy", arguments=own, blobs={digest: content})


def _digest_of(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    seen = content.stat()
    return file_digest(content, seen.st_mtime_ns, seen.st_size)


def _checksum_of(content: bytes | Path) -> str:
    """Return what Ansible's result has as `checksum`."""
    if isinstance(content, bytes):
        return hashlib.sha1(content, usedforsecurity=False).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def _text_of(content: bytes | Path) -> str | None:
    """Return content as text for a difference; None for what is no text, or too long to read."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size > LARGEST_TEXT:
        return None
    read = content if isinstance(content, bytes) else content.read_bytes()
    return None if b"\0" in read else read.decode("utf-8", "replace")


def _folder(arguments: Arguments, source: Path, *, base: str) -> Filed:
    entries: list[dict[str, Any]] = []
    blobs: dict[str, bytes | Path] = {}
    for path in _below(source, follow=bool(arguments["local_follow"])):
        inside = str(Path(base) / path.relative_to(source))
        if path.is_symlink() and not arguments["local_follow"]:
            entries.append({"path": inside, "link": str(path.readlink())})
        elif path.is_dir():
            entries.append({"path": inside, "directory": True})
        else:
            seen = path.stat()
            digest = file_digest(path, seen.st_mtime_ns, seen.st_size)
            blobs[digest] = path
            entries.append(
                {"path": inside, "sha256": digest, "name": path.name, "mode": stat.S_IMODE(seen.st_mode)}
            )
    if base:
        entries.insert(0, {"path": base, "directory": True})
    own = {**arguments, "src": str(source), "entries": entries}
    return Filed(module="ansible.builtin.copy", arguments=own, blobs=blobs)


def _below(source: Path, *, follow: bool) -> Iterator[Path]:
    count = 0
    for folder, folders, files in os.walk(source, followlinks=follow):
        folders.sort()
        for name in (*folders, *sorted(files)):
            count += 1
            if count > MOST_FILES:
                raise UsageError(
                    f"the folder '{source}' holds more than {MOST_FILES} files: pack it and unarchive it"
                )
            yield Path(folder) / name


@lru_cache(maxsize=4096)
def file_digest(path: Path, _changed_ns: int, size: int) -> str:
    """Return a file's sha256; computed once for each time it changes."""
    if size > LARGEST_BYTES:
        raise UsageError(f"'{path}' is larger than 1 GiB: let the box fetch it with get_url")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _script(arguments: Arguments, find: Find, _render: Render, _diff: bool) -> Filed | None:  # noqa: FBT001
    words = shlex.split(str(arguments["cmd"]))
    if not words:
        raise UsageError("script needs the name of a script")
    source = _found(find, words[0], "files", "script")
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"'{source}' is no text: copy it to the box and run it with command") from None
    with_ = shlex.quote(str(arguments["executable"] or ""))
    own = {
        "argv": ["/bin/sh", "-c", f"RIGD_WITH={with_}; {RUN_SCRIPT}", "script", source.name, *words[1:]],
        "stdin": text,
        "stdin_add_newline": False,
        "expand_argument_vars": False,
        "chdir": arguments["chdir"],
        "creates": arguments["creates"],
        "removes": arguments["removes"],
    }
    return Filed(module="ansible.builtin.command", arguments=own)


def _unarchive(arguments: Arguments, find: Find, _render: Render, _diff: bool) -> Filed | None:  # noqa: FBT001
    name = str(arguments["src"])
    if arguments["remote_src"] or "://" in name:
        return None
    source = _found(find, name, "files", "unarchive")
    seen = source.stat()
    digest = file_digest(source, seen.st_mtime_ns, seen.st_size)
    return Filed(
        module="ansible.builtin.unarchive",
        arguments={**arguments, "src": str(source), "sha256": digest},
        blobs={digest: source},
    )


def _found(find: Find, name: str, kind: str, action: str) -> Path:
    source = find(name, kind)
    if source is None:
        raise UsageError(
            f"{action}: there is no '{name}' on this machine: it is looked for in '{kind}' beside the tasks"
        )
    return source


_COPIED = frozenset(
    {
        "dest", "backup", "force", "follow", "validate", "mode", "owner", "group", "attributes",
        "directory_mode", "unsafe_writes", "seuser", "serole", "setype", "selevel",
    }
)  # fmt: skip
_MAKERS: Mapping[str, Callable[[Arguments, Find, Render, bool], Filed | None]] = {
    "template": _template,
    "copy": _copy,
    "script": _script,
    "unarchive": _unarchive,
}
