"""Lookups: what a template reads from this machine while it is filled in; the loops `with_...` use them, too."""

import contextlib
import glob
import itertools
import os
import re
import string
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from rigd.provision.language.faults import kind_of
from rigd.provision.language.freeform import key_values
from rigd.provision.templating import lookups_data
from rigd.provision.templating.environment import OWNER
from rigd.provision.templating.filters_text import FilterError
from rigd.provision.templating.lookups_data import Lookup
from rigd.provision.templating.values import Missing, settled

PIPE_TIMEOUT_S = 60.0
MOST_BYTES = 16_000_000


def loop_items(style: str, items: Any, variables: Any) -> list[Any]:
    """Return what a loop goes over. `style` is `loop` or what follows `with_`; `items` are filled in already."""
    if style == "loop":
        if not isinstance(items, list):
            raise FilterError(
                f"`loop` takes a list, and here is {kind_of(items)}; try `| list` or `| dict2items`"
            )
        return items
    terms = items if isinstance(items, list) else [items]
    return LOOKUPS[style](terms, variables)


def _path(name: Any, kind: str, variables: Any) -> Path:
    found: Path | None = variables.search(str(name), kind)
    if found is None:
        raise FilterError(f"there is no file '{name}' beside the playbook or in the role")
    return found


def _content(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FilterError(f"'{path}' is larger than {MOST_BYTES // 1_000_000} MB")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FilterError(f"cannot read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FilterError(f"'{path}' is not UTF-8 text") from error


def _file(terms: list[Any], variables: Any, *, rstrip: bool = True, lstrip: bool = False) -> list[Any]:
    found = [_content(_path(term, "files", variables)) for term in terms]
    found = [text.lstrip() if lstrip else text for text in found]
    return [text.rstrip() if rstrip else text for text in found]


def _template(terms: list[Any], variables: Any, **options: Any) -> list[Any]:
    from rigd.provision.templating.files import render_file  # noqa: PLC0415  (it renders with these lookups)
    from rigd.provision.templating.values import Plain  # noqa: PLC0415  (as above)

    extra = options.pop("template_vars", {})
    options.pop("convert_data", None)
    if extra:
        variables = variables.fork(local=Plain({**variables.layers.local, **extra}))
    found = []
    for term in terms:
        path = _path(term, "templates", variables)
        text = render_file(
            _content(path), variables, name=str(path), folders=(path.parent,), options=options or None
        )
        found.append(text)
    return found


def _env(terms: list[Any], _variables: Any, *, default: Any = "") -> list[Any]:
    return [os.environ.get(str(term), default) for term in terms]


def _pipe(terms: list[Any], _variables: Any) -> list[Any]:
    found = []
    for term in terms:
        try:
            done = subprocess.run(  # noqa: S602  (a pipeline of the shell is what the lookup is for)
                str(term),
                shell=True,
                check=True,
                capture_output=True,
                text=True,
                timeout=PIPE_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.CalledProcessError as error:
            raise FilterError(f"the command of a `pipe` lookup ended with code {error.returncode}") from error
        except subprocess.TimeoutExpired as error:
            raise FilterError(f"the command of a `pipe` lookup took over {PIPE_TIMEOUT_S:.0f} s") from error
        found.append(done.stdout.rstrip())
    return found


def _lines(terms: list[Any], variables: Any) -> list[Any]:
    return [line for text in _pipe(terms, variables) for line in text.splitlines()]


def _fileglob(terms: list[Any], variables: Any) -> list[Any]:
    found: list[str] = []
    for term in terms:
        pattern = Path(str(term)).expanduser()
        folder = (
            variables.search(str(pattern.parent), "files") if not pattern.is_absolute() else pattern.parent
        )
        if folder is not None:
            paths = glob.glob(str(folder / pattern.name))  # noqa: PTH207  (texts are wanted)
            found.extend(sorted(path for path in paths if Path(path).is_file()))
    return found


def _wheel(_terms: list[Any], _variables: Any) -> list[Any]:
    """Return the path of this rigd as a wheel; Ansible has no such lookup, so it is named rigd.box.wheel."""
    from rigd.provision.wheel import own_wheel  # noqa: PLC0415  (only where rigd installs itself)

    return [str(own_wheel())]


def _first_found(
    terms: list[Any], variables: Any, *, files: Any = (), paths: Any = (), skip: bool = False
) -> list[Any]:
    names: list[str] = []
    folders: list[str] = _several(paths)
    for term in (*_several(files), *terms):
        if isinstance(term, Mapping):
            names.extend(_several(term.get("files", ())))
            folders.extend(_several(term.get("paths", ())))
            skip = skip or bool(term.get("skip"))
        else:
            names.append(str(term))
    for folder, name in itertools.product(folders or [""], names):
        wanted = str(Path(folder) / name)
        for kind in ("files", "templates", "vars", "tasks"):
            if path := variables.search(wanted, kind):
                return [str(path)]
    if skip:
        return []
    raise FilterError(f"none of these files is there: {', '.join(names)}")


def _several(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in re.split(r"[,;]", value) if part.strip()]
    return list(value)


def _vars(terms: list[Any], variables: Any, *, default: Any = Missing) -> list[Any]:
    found = []
    for term in terms:
        value = variables.get(str(term), default)
        found.append(Missing(name=str(term)) if value is Missing else value)
    return found


def _varnames(terms: list[Any], variables: Any) -> list[Any]:
    return [name for term in terms for name in variables if re.search(str(term), name)]


_LETTERS: Mapping[str, str] = {
    "ascii_letters": string.ascii_letters,
    "ascii_lowercase": string.ascii_lowercase,
    "ascii_uppercase": string.ascii_uppercase,
    "digits": string.digits,
    "hexdigits": string.hexdigits,
    "punctuation": string.punctuation,
}


def _password(terms: list[Any], _variables: Any, **options: Any) -> list[Any]:
    import secrets  # noqa: PLC0415  (few playbooks need it)

    found = []
    for term in terms:
        pairs, name = key_values(str(term))
        given = {**options, **pairs}
        if given.get("encrypt"):
            raise FilterError("`password` makes no hashes: a new salt would change the password in every run")
        kinds = _several(given.get("chars", "ascii_letters,digits,.,:,-,_"))
        letters = "".join(dict.fromkeys("".join(_LETTERS.get(kind, kind) for kind in kinds)))
        path = Path(name).expanduser()
        made = "".join(secrets.choice(letters) for _ in range(int(given.get("length", 20))))
        found.append(made if name == "/dev/null" else _kept(path, made))
    return found


def _kept(path: Path, made: str) -> str:
    """Return the password that a file keeps; it is written, for its owner alone, if there is none yet."""
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(made + "\n")
    return _content(path).split(" salt=")[0].rstrip("\n")


LOOKUPS: Mapping[str, Lookup] = {
    **lookups_data.LOOKUPS,
    "env": _env,
    "file": _file,
    "fileglob": _fileglob,
    "first_found": _first_found,
    "lines": _lines,
    "password": _password,
    "pipe": _pipe,
    "template": _template,
    "varnames": _varnames,
    "vars": _vars,
    "wheel": _wheel,
}
LEFT_OUT: Mapping[str, str] = {
    "config": "there is no configuration of Ansible's here",
    "csvfile": "read the file with include_vars",
    "ini": "read the file with include_vars",
    "inventory_hostnames": "use groups[...]",
    "random_string": "use lookup('password', ...), which keeps what it made",
    "unvault": "encrypted values are left out",
    "url": "fetch it on the box with get_url or uri",
}


@pass_context
def _lookup(
    context: Context, name: str, *terms: Any, wantlist: bool = False, errors: str = "strict", **options: Any
) -> Any:
    short = str(name).rpartition(".")[2]
    function = LOOKUPS.get(short)
    if function is None:
        raise FilterError(f"there is no lookup '{name}'")
    given = list(terms)
    if len(given) == 1 and isinstance(given[0], list) and short not in _KEEP_LISTS:
        given = given[0]
    try:
        found = function([settled(term) for term in given], context.resolve_or_missing(OWNER), **options)
    except FilterError:
        if errors == "strict":
            raise
        return [] if wantlist else None
    except TypeError as error:
        raise FilterError(f"the lookup '{short}' takes other options: {error}") from error
    if wantlist or not found:
        return found
    if len(found) == 1:
        return found[0]
    return ",".join(found) if all(isinstance(item, str) for item in found) else found


@pass_context
def _query(context: Context, name: str, *terms: Any, **options: Any) -> Any:
    return _lookup(context, name, *terms, **{**options, "wantlist": True})


_KEEP_LISTS = frozenset({"items", "nested", "cartesian", "together", "indexed_items", "list", "flattened"})


def _now(utc: bool = False, fmt: str | None = None) -> Any:  # noqa: FBT001, FBT002  (templates pass it by place)
    moment = datetime.now(UTC) if utc else datetime.now().astimezone()
    moment = moment.replace(tzinfo=None)
    return moment.strftime(fmt) if fmt else moment


def _undef(hint: str | None = None) -> Missing:
    return Missing(hint=hint or "a variable that must be set is not")


GLOBALS: Mapping[str, Any] = {
    "lookup": _lookup,
    "now": _now,
    "q": _query,
    "query": _query,
    "undef": _undef,
}
