"""What one loading shares: faults and warnings so far, files read, names given, where roles lie."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigd.provision.language.faults import Fault
from rigd.provision.language.keywords import Takes, is_template, unknown_keyword, wrong_value
from rigd.provision.language.model import Expression, Place, Role, Task
from rigd.provision.language.source import Unsafe, YamlList, YamlMap, read_yaml
from rigd.provision.templating import syntax
from rigd.provision.templating.render import render
from rigd.provision.templating.variables import Layers, TemplateError, Variables

MOST_DEPTH = 30
"""Most files deep that imports and includes may go."""


class Loader:
    """One loading of a playbook, or of what a task includes while it runs."""

    def __init__(
        self, folder: Path, *, extra_vars: Mapping[str, Any] | None = None, roles_path: tuple[Path, ...] = ()
    ) -> None:
        """`folder` is the playbook's."""
        self.folder = self.playbook_dir = folder
        self.roles_path = roles_path
        self.extra_vars = dict(extra_vars or {})
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self.foretold: set[Path] = set()
        """Files of dynamic includes that are checked already."""
        self.notified: list[Expression] = []
        """Names of handlers that tasks notify."""
        self.handlers: list[Task] = []
        """Of imported roles; the play takes them."""
        self.public_roles: list[Role] = []
        self.foretold_handlers: list[Task] = []
        """Of roles that are included while the play runs."""
        self.surprises = False
        """Whether the play includes something whose name is not known yet."""
        self._ids: Counter[str] = Counter()
        self._read: dict[Path, Any] = {}

    def fault(self, place: Place, sentence: str) -> None:
        """Note something that is wrong."""
        self.faults.append(Fault(place=place, sentence=sentence))

    def warn(self, place: Place, sentence: str) -> None:
        """Note something that may not be meant."""
        self.warnings.append(Fault(place=place, sentence=sentence))

    def read(self, path: Path) -> Any:
        """Return what a YAML file says; each file is read once."""
        path = path.absolute()
        if path not in self._read:
            self._read[path] = read_yaml(path, self.faults)
        return self._read[path]

    def read_tasks(self, path: Path) -> YamlList:
        """Return the list that a file of tasks or plays holds; an empty file holds none."""
        found = self.read(path)
        if isinstance(found, YamlList):
            return found
        if found is not None:
            place = Place(file=path, line=1, column=1)
            self.fault(place, "the file must hold a list (lines that begin with a dash)")
        return YamlList(path)

    def read_vars(self, path: Path) -> YamlMap:
        """Return the variables of a file; an empty file holds none."""
        found = self.read(path)
        if isinstance(found, YamlMap):
            self.check_templates(found)
            return found
        if found is not None:
            self.fault(Place(file=path, line=1, column=1), "the file must hold a mapping of variables")
        return YamlMap(path)

    def unique(self, name: str) -> str:
        """Return a task's id that no other has."""
        self._ids[name] += 1
        return name if self._ids[name] == 1 else f"{name}#{self._ids[name]}"

    def relative(self, path: Path) -> str:
        """Return a path as it stands in ids: the same on every machine that has the playbook."""
        try:
            return str(path.relative_to(self.folder))
        except ValueError:
            return "/".join(path.parts[-3:])

    def check_keywords(self, keys: YamlMap, table: Mapping[str, Takes], of: str) -> None:
        """Note every key that is no keyword of this level, and every value of the wrong kind."""
        for key in keys:
            if key not in table:
                self.fault(keys.place_of(key), unknown_keyword(key, table, of))
            else:
                self.check_keyword(keys, key, table[key])

    def check_keyword(self, keys: YamlMap, key: str, takes: Takes) -> None:
        """Note what is wrong with one keyword's value."""
        value = keys[key]
        if sentence := wrong_value(key, value, takes):
            self.fault(keys.place_of(key), sentence)
        elif key == "vars" and isinstance(value, YamlMap):
            for name in value:
                if not str(name).isidentifier():
                    sentence = f"'{name}' is no name of a variable: letters, digits and _"
                    self.fault(value.place_of(name), sentence)

    def check_templates(self, value: Any, place: Place | None = None) -> None:
        """Note every template in a value, however deep, that is not well written."""
        if isinstance(value, YamlMap):
            for key, below in value.items():
                self.check_templates(below, value.place_of(key))
        elif isinstance(value, YamlList):
            for index, below in enumerate(value):
                self.check_templates(below, value.place_of(index))
        elif isinstance(value, str) and not isinstance(value, Unsafe) and is_template(value):
            sentence = syntax.template_fault(value)
            if sentence and place is not None:
                self.fault(place, sentence)

    def conditions(self, keys: YamlMap, key: str) -> tuple[Expression, ...]:
        """Return the conditions under a keyword; faults of their grammar are noted."""
        value = keys.get(key)
        place = keys.place_of(key)
        if value is None or wrong_value(key, value, Takes.CONDITIONS):
            return ()
        if isinstance(value, YamlList):
            found = tuple(
                Expression(value=item, place=value.place_of(index)) for index, item in enumerate(value)
            )
        else:
            found = (Expression(value=value, place=place),)
        for condition in found:
            if isinstance(condition.value, str) and (sentence := syntax.condition_fault(condition.value)):
                self.fault(condition.place, f"'{key}': {sentence}")
        return found

    def static(self, value: Any, place: Place, known: Mapping[str, Any]) -> str | None:
        """Return a text that must be known before the run, its templates filled in from variables known by then."""
        if not isinstance(value, str):
            self.fault(place, "must be text")
            return None
        if not is_template(value):
            return value
        layers = Layers(play=known, extra=self.extra_vars, magic={"playbook_dir": str(self.playbook_dir)})
        try:
            return str(render(value, Variables(layers)))
        except TemplateError as error:
            sentence = f"'{value}' must be known before the run, from variables of the play or --extra-vars"
            self.fault(place, f"{sentence} (include_tasks and include_role can wait): {error}")
            return None


def texts(value: Any) -> tuple[str, ...]:
    """Return one text, or a list of them, as texts."""
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return (str(value),)


def comma_texts(value: Any) -> tuple[str, ...]:
    """Return texts, also of one with commas."""
    return tuple(part.strip() for text in texts(value) for part in text.split(",") if part.strip())


def as_mapping(value: Any, file: Path) -> YamlMap:
    """Return a mapping; an empty one for anything else, whose fault is told elsewhere."""
    return value if isinstance(value, YamlMap) else YamlMap(file)
