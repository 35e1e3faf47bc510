"""Where a file that a task names is looked for, in Ansible's order."""

from collections.abc import Iterator
from pathlib import Path

from rigd.provision.language.model import Role, Scope, Task

EXTENSIONS = (".yml", ".yaml", ".json", "")


def candidates(name: str, kind: str, *, folder: Path, file: Path, role: Role | None) -> Iterator[Path]:
    """Yield the places where a file may be; `kind` is `files`, `templates`, `vars` or `tasks`.

    `folder` is the playbook's; `file` is the one that holds the task.
    """
    path = Path(name).expanduser()
    if path.is_absolute():
        yield path
        return
    seen: set[Path] = set()
    roots = [file.parent]
    if role is not None:
        roots = [role.path, role.path / "tasks", file.parent]
    for root in (*roots, folder):
        for place in (root / kind / path, root / path):
            if place not in seen:
                seen.add(place)
                yield place


def find_file(name: str, kind: str, task: Task, folder: Path) -> Path | None:
    """Return the file or folder that a task's `src`, `file` or lookup names, or None; `folder` is the playbook's."""
    places = candidates(name, kind, folder=folder, file=task.place.file, role=task.role)
    return next((place for place in places if place.exists()), None)


def find_tasks(name: str, scope: Scope) -> Path | None:
    """Return the file that an include or import of tasks names, or None."""
    role = scope.role
    roots = [scope.file.parent, scope.folder / "tasks", scope.folder]
    if role is not None:
        kind = "handlers" if scope.handlers else "tasks"
        roots = [roots[0], role.path / kind, role.path, *roots[1:]]
    for root in roots:
        place = root / Path(name).expanduser()
        if place.is_file():
            return place
    return None


def find_part(role: Path, part: str, name: str = "main") -> Path | None:
    """Return the file of a role's folder (`tasks`, `defaults`, ...), or None."""
    base = role / part / name
    if base.suffix and base.is_file():
        return base
    for extension in EXTENSIONS:
        place = base.with_name(base.name + extension) if extension else base
        if place.is_file():
            return place
    return None


def find_role(name: str, *, folder: Path, role: Role | None, roles_path: tuple[Path, ...]) -> Path | None:
    """Return the folder of a role, or None."""
    for root in role_roots(folder=folder, role=role, roles_path=roles_path):
        if (root / name).is_dir():
            return root / name
    return Path(name) if Path(name).is_absolute() and Path(name).is_dir() else None


def role_roots(*, folder: Path, role: Role | None, roles_path: tuple[Path, ...]) -> list[Path]:
    """Return the folders that roles are looked for in."""
    beside = [role.path.parent] if role is not None else []
    home = [
        Path("~/.ansible/roles").expanduser(),
        Path("/usr/share/ansible/roles"),
        Path("/etc/ansible/roles"),
    ]
    return list(dict.fromkeys([folder / "roles", *roles_path, *home, *beside, folder]))
