"""`unarchive`: a tar or zip archive is unpacked in a folder, and every file in it is as the archive has it."""

import fnmatch
import os
import shutil
import stat
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rigd.provision.target import attributes, digests, web, writing
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

MOST_MEMBERS = 200_000


@dataclass(frozen=True)
class Member:
    """One member of an archive."""

    name: str
    kind: str
    mode: int
    size: int
    target: str
    modified_s: float


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Compare the archive with what is in the folder."""
    dest = arguments["dest"]
    if arguments["creates"] is not None and os.path.exists(arguments["creates"]):
        return {"skip": f"skipped, since {arguments['creates']} exists", "dest": dest}
    if not os.path.isdir(dest):
        raise ModuleError(f"dest '{dest}' must be an existing dir")
    with _archive(arguments, box) as path, _opened(path, arguments) as archive:
        members = [(member.name, _differs(arguments, dest, member, read)) for member, read in archive]
    return {
        "dest": dest,
        "seen": attributes.look(dest, follow=True),
        "differing": [name for name, differs in members if differs],
        "files": [name for name, _differs in members],
        "ids": attributes.identity(arguments),
    }


@contextmanager
def _archive(arguments: Mapping[str, Any], box: Box) -> Iterator[str]:
    """Give the path of the archive on the box: there already, sent by the controller, or fetched."""
    source = arguments["src"]
    if arguments["sha256"] is None and "://" not in source:
        if not os.path.isfile(source):
            raise ModuleError(f"Source '{source}' does not exist on the box")
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="rigd-unarchive-") as folder:
        path = os.path.join(folder, os.path.basename(source))
        if arguments["sha256"] is not None:
            with open(path, "wb") as file:
                file.write(box.blob(arguments["sha256"]))
        else:
            with web.ask({**_WEB, **arguments, "url": source}) as answer:
                if answer.status >= web.FAILING:
                    raise ModuleError(f"cannot fetch {web.shown(source)}: the server answers {answer.status}")
                web.fetch(answer, path, box.progress)
        yield path


_WEB = {name: one.default for name, one in web.ARGUMENTS.items()}


@contextmanager
def _opened(path: str, arguments: Mapping[str, Any]) -> Iterator["Iterator[tuple[Member, Any]]"]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield _wanted(_zip_members(archive), arguments)
        else:
            with tarfile.open(path) as archive_:
                yield _wanted(_tar_members(archive_), arguments)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise ModuleError(
            f"'{arguments['src']}' is no archive that can be read (tar, gz, bz2, xz, zip): {error}"
        ) from error


def _tar_members(archive: tarfile.TarFile) -> "Iterator[tuple[Member, Any]]":
    for one in archive:
        kind = "directory" if one.isdir() else "link" if one.issym() else "hard" if one.islnk() else "file"
        if not (one.isdir() or one.isreg() or one.issym() or one.islnk()):
            continue  # Devices and pipes have no place in what a playbook unpacks.
        member = Member(one.name, kind, one.mode & 0o7777, one.size, one.linkname, one.mtime)
        yield member, (lambda one=one: archive.extractfile(one))


def _zip_members(archive: zipfile.ZipFile) -> "Iterator[tuple[Member, Any]]":
    for one in archive.infolist():
        mode = one.external_attr >> 16
        kind = "directory" if one.is_dir() else "link" if stat.S_ISLNK(mode) else "file"
        target = archive.read(one).decode() if kind == "link" else ""
        default = 0o755 if kind == "directory" else 0o644
        yield (
            Member(
                one.filename,
                kind,
                stat.S_IMODE(mode) or default,
                one.file_size,
                target,
                time.mktime((*one.date_time, 0, 0, -1)),
            ),
            (lambda one=one: archive.open(one)),
        )


def _wanted(
    members: "Iterator[tuple[Member, Any]]", arguments: Mapping[str, Any]
) -> "Iterator[tuple[Member, Any]]":
    """Yield what is to be unpacked: stripped, included, excluded, and inside the folder."""
    strip = _strip(arguments["extra_opts"] or [])
    for count, (member, read) in enumerate(members):
        if count > MOST_MEMBERS:
            raise ModuleError(f"the archive has more than {MOST_MEMBERS:,} members")
        parts = _parts(member.name)[strip:]
        if not parts:
            continue
        name = "/".join(parts)
        # A hard link names another member, by that one's full name.
        target = "/".join(_parts(member.target)[strip:]) if member.kind == "hard" else member.target
        if (
            ".." in parts
            or member.name.startswith("/")
            or (member.kind == "link" and _leaves(name, target))
            or (member.kind == "hard" and (".." in _parts(target) or not target))
        ):
            raise ModuleError(
                f"the archive's member '{member.name}' would leave the folder: nothing was unpacked"
            )
        if _excluded(member.name, arguments["exclude"]) or (
            arguments["include"] and not _listed(member.name, arguments["include"])
        ):
            continue
        yield replace(member, name=name, target=target), read


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _strip(options: list[str]) -> int:
    strip = 0
    words = iter(options)
    for word in words:
        if word.startswith("--strip-components"):
            text = word.partition("=")[2] or next(words, "")
            if not text.isdigit():
                raise ModuleError("--strip-components needs a number")
            strip = int(text)
        elif word not in ("--no-same-owner", "-o", "-q"):
            raise ModuleError(
                f"extra_opts '{word}' is not known here; --strip-components=N and --no-same-owner are"
            )
    return strip


def _leaves(name: str, target: str) -> bool:
    full = os.path.normpath(os.path.join("/x", os.path.dirname(name), target))
    return target.startswith("/") or not (full + "/").startswith("/x/")


def _excluded(name: str, patterns: "list[str] | None") -> bool:
    """Return whether a pattern fits a folder or file on the way to this member, as tar matches them."""
    parts = _parts(name)
    pieces = [
        "/".join(parts[low:high]) for low in range(len(parts)) for high in range(low + 1, len(parts) + 1)
    ]
    return any(
        fnmatch.fnmatchcase(piece, "/".join(_parts(one))) for one in patterns or [] for piece in pieces
    )


def _listed(name: str, wanted: "list[str] | None") -> bool:
    bare = name.rstrip("/")
    return any(bare == one.rstrip("/") or bare.startswith(one.rstrip("/") + "/") for one in wanted or [])


def _differs(arguments: Mapping[str, Any], dest: str, member: Member, read: Any) -> bool:
    path = os.path.join(dest, member.name)
    seen = attributes.look(path)
    if seen is None:
        return True
    newer = seen["mtime_ns"] / 1e9 > member.modified_s
    if arguments["keep_newer"] and seen["kind"] == "file" and member.kind == "file" and newer:
        return False
    if seen["kind"] != ("file" if member.kind == "hard" else member.kind):
        return True
    if member.kind in ("link", "hard"):
        return member.kind == "link" and str(seen["target"]) != member.target
    uid, gid = attributes.identity(arguments)
    wish = arguments["mode"] if arguments["mode"] is not None else member.mode
    if attributes.differences(path, seen, mode=wish, uid=uid, gid=gid):
        return True
    return member.kind == "file" and not _same(path, int(seen["size"]), member, read)


def _same(path: str, size: int, member: Member, read: Any) -> bool:
    if size != member.size:
        return False
    with open(path, "rb") as ours, read() as theirs:
        return digests.of_stream(ours) == digests.of_stream(theirs)


def difference(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return that it must be unpacked, and for how many members."""
    count = len(state.get("differing", ()))
    if not count:
        return []
    return [
        Change(
            what=f"unpack {count} differing members",
            subject=state["dest"],
            data={"names": state["differing"]},
        )
    ]


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Unpack what differs, each file in one step."""
    names = set(changes[0].data["names"])
    with _archive(arguments, box) as path, _opened(path, arguments) as archive:
        for member, read in archive:
            if member.name in names:
                _unpack(arguments, state, member, read)


def _unpack(arguments: Mapping[str, Any], state: Mapping[str, Any], member: Member, read: Any) -> None:
    path = os.path.join(state["dest"], member.name)
    folder = os.path.dirname(path)
    if not (os.path.realpath(folder) + "/").startswith(os.path.realpath(state["dest"]).rstrip("/") + "/"):
        raise ModuleError(
            f"'{folder}' is a link that leaves '{state['dest']}': nothing is unpacked through it"
        )
    try:
        os.makedirs(path if member.kind == "directory" else folder, exist_ok=True)
        fresh = f"{path}.rigd-{os.getpid()}"
        if member.kind == "link":
            writing.put_link(path, member.target)
        elif member.kind == "hard":
            writing.put_hard_link(path, os.path.join(state["dest"], member.target))
        elif member.kind == "file":
            with read() as source, open(fresh, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            os.chmod(fresh, member.mode)
            os.replace(fresh, path)
    except OSError as error:
        raise ModuleError(f"cannot unpack '{path}': {error.strerror}") from error
    seen = attributes.look(path)
    if seen is not None and seen["kind"] != "link":
        uid, gid = state["ids"]
        wish = arguments["mode"] if arguments["mode"] is not None else member.mode
        attributes.put(attributes.differences(path, seen, mode=wish, uid=uid, gid=gid))


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the folder as it is, and the archive's members where they are asked for."""
    facts = {"src": arguments["src"], "dest": state["dest"]}
    if "skip" in state:
        return {**facts, "msg": state["skip"], "skipped": True}
    files = {"files": state["files"]} if arguments["list_files"] else {}
    return {**facts, **attributes.names(state["seen"]), **files}


MODULE = Module(
    names=("ansible.builtin.unarchive",),
    summary="a tar or zip archive is unpacked in a folder",
    arguments={
        "src": Argument(kind=Kind.PATH, required=True),
        "sha256": Argument(left_out="the controller fills it for an archive of its own"),
        "dest": Argument(kind=Kind.PATH, required=True),
        "remote_src": Argument(kind=Kind.BOOLEAN, default=False),
        "copy": Argument(kind=Kind.BOOLEAN, default=True, left_out="use remote_src"),
        "creates": Argument(kind=Kind.PATH),
        "list_files": Argument(kind=Kind.BOOLEAN, default=False),
        "exclude": Argument(kind=Kind.LIST),
        "include": Argument(kind=Kind.LIST),
        "keep_newer": Argument(kind=Kind.BOOLEAN, default=False),
        "extra_opts": Argument(kind=Kind.LIST),
        "validate_certs": Argument(kind=Kind.BOOLEAN, default=True),
        "decrypt": Argument(kind=Kind.BOOLEAN, default=True),
        "io_buffer_size": Argument(kind=Kind.INTEGER, default=65536),
        **attributes.ARGUMENTS,
    },
    exclusive=(("include", "exclude"),),
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    differs=(
        "owners come from `owner` and `group`, never from the archive",
        "a member that would leave the folder is refused",
        "files are compared by content, so a second run changes nothing whatever the archive's dates say",
    ),
)
