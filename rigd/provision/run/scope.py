"""What one task sees: its variables, and values, conditions, loops and templates computed with them."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rigd.errors import RigdError, UsageError
from rigd.provision.language.model import Expression, Loop, Place
from rigd.provision.templating import files, render
from rigd.provision.templating.lookups import loop_items
from rigd.provision.templating.values import OMIT, Plain
from rigd.provision.templating.variables import Variables


class Scope:
    """The variables that a task sees, and what can be asked of them."""

    def __init__(self, variables: Variables, *, secret: bool = False) -> None:
        self.variables = variables
        self._secret = secret

    def value(self, raw: Any) -> Any:
        """Return a raw value with all templates in it filled in; None for one that comes to `omit`."""
        if raw is None or isinstance(raw, (bool, int, float)):
            return raw
        found = render.render(raw, self.variables, secret=self._secret)
        return None if found is OMIT else found

    def compute(self, expression: str) -> Any:
        """Return the value of an expression."""
        return render.expression(expression, self.variables, secret=self._secret)

    def holds(self, expression: Expression) -> bool:
        """Return whether a condition holds."""
        return render.holds(expression.value, self.variables, place=expression.place, secret=self._secret)

    def arguments(self, raw: Mapping[str, Any], places: Mapping[str, Place]) -> dict[str, Any]:
        """Return a task's arguments filled in; those that come to `omit` are gone."""
        found = {
            name: render.render(value, self.variables, place=places.get(name), secret=self._secret)
            for name, value in raw.items()
        }
        return {name: value for name, value in found.items() if value is not OMIT}

    def get(self, name: str, *, default: Any) -> Any:
        """Return a variable, or the default where there is none."""
        return self.value("{{ " + name + " }}") if name in self.variables else default

    def plus(self, variables: Mapping[str, Any]) -> "Scope":
        """Return the scope with these on top, such as a loop's item."""
        local = Plain({**self.variables.layers.local, **variables})
        return Scope(self.variables.fork(local=local), secret=self._secret)

    def hushed(self) -> "Scope":
        """Return the scope of a `no_log` task: its errors show no value."""
        return Scope(self.variables, secret=True)

    def items(self, loop: Loop) -> list[Any]:
        """Return the items of a loop."""
        values = self.value(loop.items)
        try:
            return list(loop_items(loop.style, values, self.variables))
        except RigdError:
            raise
        except Exception as error:
            raise UsageError(f"cannot make out the loop: {error}") from error

    def template(self, path: Path, options: Mapping[str, Any]) -> str:
        """Return what a file of templates gives."""
        seen = path.stat()
        text = _text(path, seen.st_mtime_ns, seen.st_size)
        own = self.plus(
            {"template_path": str(path), "template_host": "", "template_destpath": options.get("dest")}
        )
        return files.render_file(
            text,
            own.variables,
            name=str(path),
            folders=(path.parent, Path(own.variables["playbook_dir"])),
            options=options,
        )


@lru_cache(maxsize=256)
def _text(path: Path, _changed_ns: int, _size: int) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"the template '{path}' is not UTF-8 text") from None
