"""YAML text as plain values, with the line and column of every key. Every mistake of the text is told at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from rigd.rig.findings import key_text

KeyPath = tuple[str | int, ...]

MOST_VALUES = 20_000
"""Most values of a document after its aliases are followed; a rig file has a few hundred."""
MOST_DEPTH = 40
_MERGE = "tag:yaml.org,2002:merge"
_COLLECTION_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where something begins in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One mistake of a file: its place, its key if it has one, and a sentence."""

    place: Place
    key: str
    sentence: str

    @property
    def text(self) -> str:
        """The mistake without its place."""
        return f"{self.key}: {self.sentence}" if self.key else self.sentence


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a YAML text says, and where it says it."""

    value: JsonValue
    places: dict[KeyPath, Place] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Return the place of a key, or of the nearest key above it."""
        for length in range(len(path), 0, -1):
            if (found := self.places.get(path[:length])) is not None:
                return found
        return self.places.get((), Place(line=1, column=1))


class DocumentError(Exception):
    """The text is no YAML document that can be used; `faults` says every reason."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(fault.text for fault in faults))
        self.faults = faults


def read_document(text: str) -> Document:
    """Return the values of a YAML text and the place of each key. Raises `DocumentError`."""
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise DocumentError(_marked(error)) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        sentence = "a character that YAML does not allow (a control character)"
        raise DocumentError(
            Fault(place=Place(line=line, column=column), key="", sentence=sentence)
        ) from error
    except YAMLError as error:
        raise DocumentError(Fault(place=Place(line=1, column=1), key="", sentence=str(error))) from error
    if node is None:
        raise DocumentError(Fault(place=Place(line=1, column=1), key="", sentence="the file is empty"))
    reader = _Reader()
    value = reader.value(node, (), 0)
    if reader.faults:
        raise DocumentError(*reader.faults)
    return Document(value=value, places=reader.places)


def _marked(error: MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    place = Place(line=mark.line + 1, column=mark.column + 1) if mark else Place(line=1, column=1)
    problem, context = (" ".join((part or "").split()) for part in (error.problem, error.context))
    if problem.startswith("but "):
        problem, context = f"{context}, {problem}", ""
    sentence = f"not valid YAML: {problem}" + (f" ({context})" if context else "")
    advice = next((advice for sign, advice in _ADVICE.items() if sign in sentence), "")
    return Fault(place=place, key="", sentence=sentence + advice)


_ADVICE = {
    "'\\t'": "; indent with spaces, not tabs",
    "<block end>": "; is this line indented like its neighbours?",
    "mapping values are not allowed": "; put quotes around text that has a colon in it",
}


class _Reader:
    """Walks the nodes of one document and gathers values, places and faults."""

    def __init__(self) -> None:
        self.places: dict[KeyPath, Place] = {}
        self.faults: list[Fault] = []
        self._constructor: Any = YAML(typ="safe", pure=True).constructor
        self._values = 0

    def value(self, node: Node, path: KeyPath, depth: int) -> JsonValue:
        """Return the value of a node; what is wrong with it goes into `faults`."""
        self._values += 1
        self.places.setdefault(path, _place(node))
        if self._values > MOST_VALUES or depth > MOST_DEPTH:
            self._fault(node, path[:1], "aliases of aliases make this file too large to be a rig file")
            raise DocumentError(*self.faults)
        if not isinstance(node, ScalarNode) and node.tag not in _COLLECTION_TAGS:
            self._fault(node, path, f"the YAML tag {node.tag} means nothing here")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, number), depth + 1) for number, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: KeyPath, depth: int) -> JsonValue:
        own: dict[str, JsonValue] = {}
        merged: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for source in _merge_sources(value_node):
                    found = self.value(source, path, depth + 1)
                    if not isinstance(found, dict):
                        self._fault(value_node, path, "`<<` can take in mappings only")
                        continue
                    merged = found | merged
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            below = (*path, key)
            if key in own:
                first = self.places[below]
                self._fault(key_node, below, f"is there twice, first on line {first.line}")
                continue
            self.places[below] = _place(key_node)
            own[key] = self.value(value_node, below, depth + 1)
        return merged | own

    def _key(self, node: Node, path: KeyPath) -> str | None:
        if isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:str":
            return str(node.value)
        shown = f"{node.value!r}" if isinstance(node, ScalarNode) else "a list or mapping"
        self._fault(node, path, f"the key {shown} is not text; write it in quotes")
        return None

    def _scalar(self, node: Node, path: KeyPath) -> JsonValue:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        if kind not in ("str", "int", "float", "bool", "null"):
            if kind == "timestamp":
                return str(node.value)
            self._fault(node, path, f"the YAML tag !{kind.lstrip('!')} means nothing here")
            return None
        try:
            value = self._constructor.construct_object(node)
        except (YAMLError, ValueError) as error:
            self._fault(node, path, f"cannot be read as {kind}: {error}")
            return None
        return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)

    def _fault(self, node: Node, path: KeyPath, sentence: str) -> None:
        self.faults.append(Fault(place=_place(node), key=key_text(path), sentence=sentence))


def _merge_sources(node: Node) -> Iterator[Node]:
    """Yield what `<<` names: one mapping, or a list of them."""
    if isinstance(node, SequenceNode):
        yield from node.value
    else:
        yield node


def _place(node: Node) -> Place:
    return Place(line=node.start_mark.line + 1, column=node.start_mark.column + 1)
