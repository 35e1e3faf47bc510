"""YAML as Ansible reads it (1.1: `yes` is true, 0644 is octal), as plain values that know their places.

PyYAML reads it, since Ansible does: whatever both read, both read alike. Mappings and lists are `YamlMap` and
`YamlList`, which are a `dict` and a `list` that can also say where each of their parts stands.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rigd.provision.language.faults import Fault
from rigd.provision.language.model import Place

MOST_BYTES = 4_000_000
MOST_VALUES = 200_000
"""Most values of a file after its aliases are followed."""
MOST_DEPTH = 60
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_VAULT = (
    "encrypted values (!vault) are left out: keep the secret in a file that only its owner reads and use "
    "lookup('file', ...), or give it with --extra-vars @FILE"
)
_LINES = (
    (re.compile(r"^ *\t"), "; indent with spaces, not tabs"),
    (re.compile(r"[:-] +\{\{"), "; text that begins with {{ needs quotes around it"),
    (re.compile(r"[:-] +[@%`]"), "; text that begins with @, % or ` needs quotes around it"),
)
"""What a line that cannot be read may look like."""
_MESSAGES = {
    "<block end>": "; is this line indented like its neighbours?",
    "mapping values are not allowed": "; is it indented like its neighbours? Text with a colon in it needs quotes",
}


class Unsafe(str):
    """Text that is never taken for a template (`!unsafe`)."""

    __slots__ = ()


class Octal(int):
    """A number that was written in octal, such as a file mode of 0644."""

    __slots__ = ()


class YamlMap(dict[Any, Any]):
    """A mapping that knows where it and its keys stand."""

    __slots__ = ("_own", "_places", "file")

    def __init__(self, file: Path, own: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.file = file
        self._own = own
        self._places: dict[Any, tuple[Path, int, int]] = {}

    @property
    def place(self) -> Place:
        """Where the mapping begins."""
        return Place(file=self.file, line=self._own[0], column=self._own[1])

    def place_of(self, key: Any) -> Place:
        """Return the place of a key, or of the mapping if it has no such key."""
        if (found := self._places.get(key)) is None:
            return self.place
        return Place(file=found[0], line=found[1], column=found[2])

    def put(self, key: Any, value: Any, file: Path, mark: tuple[int, int]) -> None:
        """Set a key and its place."""
        self[key] = value
        self._places[key] = (file, *mark)

    def take(self, other: "YamlMap") -> None:
        """Take over what another mapping holds, with its places; what both have becomes the other's."""
        self.update(other)
        self._places.update(other._places)  # noqa: SLF001  (of its own kind)


class YamlList(list[Any]):
    """A list that knows where it and its items stand."""

    __slots__ = ("_own", "_places", "file")

    def __init__(self, file: Path, own: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.file = file
        self._own = own
        self._places: list[tuple[int, int]] = []

    @property
    def place(self) -> Place:
        """Where the list begins."""
        return Place(file=self.file, line=self._own[0], column=self._own[1])

    def place_of(self, index: int) -> Place:
        """Return the place of an item."""
        line, column = self._places[index] if index < len(self._places) else self._own
        return Place(file=self.file, line=line, column=column)

    def put(self, value: Any, mark: tuple[int, int]) -> None:
        """Append an item and its place."""
        self.append(value)
        self._places.append(mark)


def read_yaml(path: Path, faults: list[Fault]) -> Any:
    """Return the values of a YAML (or JSON) file; what is wrong with it goes into `faults`, and None comes back."""
    try:
        if path.stat().st_size > MOST_BYTES:
            faults.append(_fault(path, (1, 1), f"is larger than {MOST_BYTES // 1_000_000} MB"))
            return None
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        faults.append(_fault(path, (1, 1), "is not UTF-8 text"))
        return None
    except OSError as error:
        faults.append(_fault(path, (1, 1), f"cannot be read: {error.strerror}"))
        return None
    if text.startswith("$ANSIBLE_VAULT;"):
        faults.append(_fault(path, (1, 1), _VAULT))
        return None
    return parse_yaml(text, path, faults)


def parse_yaml(text: str, path: Path, faults: list[Fault]) -> Any:
    """Return the values of a YAML text; `path` names it in places. None where nothing can be used, or is there."""
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        faults.append(_marked(error, path, text))
        return None
    except yaml.YAMLError as error:
        faults.append(_fault(path, (1, 1), f"not valid YAML: {' '.join(str(error).split())}"))
        return None
    if node is None:
        return None
    return _Reader(path, faults).value(node, depth=0, unsafe=False)


def _fault(path: Path, mark: tuple[int, int], sentence: str) -> Fault:
    return Fault(place=Place(file=path, line=mark[0], column=mark[1]), sentence=sentence)


def _marked(error: yaml.MarkedYAMLError, path: Path, text: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    where = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem, context = (" ".join((part or "").split()) for part in (error.problem, error.context))
    sentence = f"not valid YAML: {problem}" + (f" ({context})" if context else "")
    line = "".join(text.splitlines()[where[0] - 1 : where[0]])
    advice = next((advice for pattern, advice in _LINES if pattern.search(line)), "")
    advice = advice or next((advice for sign, advice in _MESSAGES.items() if sign in sentence), "")
    return _fault(path, where, sentence + advice)


_SCALARS: Mapping[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "bool": (SafeConstructor.construct_yaml_bool, bool),
    "float": (SafeConstructor.construct_yaml_float, float),
    "int": (SafeConstructor.construct_yaml_int, int),
    "timestamp": (SafeConstructor.construct_yaml_timestamp, str),
}


class _Reader:
    """Walks the nodes of one document."""

    def __init__(self, path: Path, faults: list[Fault]) -> None:
        self._path = path
        self._faults = faults
        self._constructor = SafeConstructor()
        self._values = 0

    def value(self, node: Node, *, depth: int, unsafe: bool) -> Any:
        self._values += 1
        if self._values > MOST_VALUES or depth > MOST_DEPTH:
            if self._values <= MOST_VALUES + MOST_DEPTH:
                self._values = MOST_VALUES + MOST_DEPTH
                self._fault(node, "aliases of aliases, or nesting, make this file too large")
            return None
        tag = node.tag
        if tag == "!unsafe":
            unsafe = True
            tag = _plain_tag(node)
        if isinstance(node, MappingNode):
            return self._mapping(node, depth, unsafe=unsafe) if self._is(node, tag, "map") else None
        if isinstance(node, SequenceNode):
            if not self._is(node, tag, "seq"):
                return None
            found = YamlList(self._path, _mark(node))
            for item in node.value:
                found.put(self.value(item, depth=depth + 1, unsafe=unsafe), _mark(item))
            return found
        return self._scalar(node, tag, unsafe=unsafe)

    def _is(self, node: Node, tag: str, kind: str) -> bool:
        if tag == _CORE + kind:
            return True
        self._fault(node, f"the YAML tag {_shown(tag)} means nothing here")
        return False

    def _mapping(self, node: MappingNode, depth: int, *, unsafe: bool) -> YamlMap:
        own = YamlMap(self._path, _mark(node))
        merged = YamlMap(self._path, _mark(node))
        for key_node, value_node in node.value:
            if key_node.tag == _CORE + "merge":
                for source in _merge_sources(value_node):
                    found = self.value(source, depth=depth + 1, unsafe=unsafe)
                    if isinstance(found, YamlMap):
                        for name in found:
                            if name not in merged:
                                place = found.place_of(name)
                                merged.put(name, found[name], place.file, (place.line, place.column))
                    else:
                        self._fault(value_node, "`<<` can take in mappings only")
                continue
            key = self._key(key_node)
            if key is None:
                continue
            if key in own:
                first = own.place_of(key).line
                self._fault(key_node, f"the key '{key}' is there twice, first on line {first}")
                continue
            value = self.value(value_node, depth=depth + 1, unsafe=unsafe)
            own.put(key, value, self._path, _mark(key_node))
        if not merged:
            return own
        merged.take(own)
        return merged

    def _key(self, node: Node) -> Any:
        if isinstance(node, ScalarNode):
            key = self._scalar(node, node.tag, unsafe=False)
            if isinstance(key, (str, int)):
                return key
        self._fault(node, "a key must be text or a number; text that begins with {{ needs quotes around it")
        return None

    def _scalar(self, node: Node, tag: str, *, unsafe: bool) -> Any:
        text = str(node.value)
        if tag == _CORE + "str":
            return Unsafe(text) if unsafe else text
        kind = tag.removeprefix(_CORE)
        if kind == "null":
            return None
        if kind not in _SCALARS:
            self._fault(node, _VAULT if tag == "!vault" else f"the YAML tag {_shown(tag)} means nothing here")
            return None
        construct, convert = _SCALARS[kind]
        try:
            value = convert(construct(self._constructor, node))
        except (ConstructorError, ValueError) as error:
            self._fault(node, f"cannot be read as {kind}: {error}")
            return None
        octal = kind == "int" and text.startswith("0") and text.isdigit() and len(text) > 1
        return Octal(value) if octal else value

    def _fault(self, node: Node, sentence: str) -> None:
        self._faults.append(_fault(self._path, _mark(node), sentence))


def _plain_tag(node: Node) -> str:
    kinds = {MappingNode: "map", SequenceNode: "seq", ScalarNode: "str"}
    return _CORE + kinds[type(node)]


def _shown(tag: str) -> str:
    return tag.replace(_CORE, "!!")


def _merge_sources(node: Node) -> Iterator[Node]:
    if isinstance(node, SequenceNode):
        yield from node.value
    else:
        yield node


def _mark(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
