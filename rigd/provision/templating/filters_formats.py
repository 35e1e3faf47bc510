"""Filters from and to formats: JSON, YAML, base64, hashes. Pure."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from rigd.provision.templating.filters_text import FilterError, text
from rigd.provision.templating.values import Missing, MissingError

_UUID_SPACE = "361E6D51-FAEC-444A-9079-341386DA8E2E"
"""Ansible's own name space: the same text gives the same id in both."""


def _b64encode(value: Any, encoding: str = "utf-8", urlsafe: bool = False) -> str:  # noqa: FBT001, FBT002  (by place)
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    return encode(text(value).encode(encoding, "surrogateescape")).decode()


def _b64decode(value: Any, encoding: str = "utf-8", urlsafe: bool = False) -> str:  # noqa: FBT001, FBT002  (by place)
    decode = base64.urlsafe_b64decode if urlsafe else base64.b64decode
    return decode(text(value)).decode(encoding)


def _hash(value: Any, kind: str = "sha1") -> str:
    try:
        return hashlib.new(kind, text(value).encode("utf-8", "surrogateescape")).hexdigest()
    except ValueError as error:
        raise FilterError(f"there is no hash '{kind}'") from error


def _to_json(value: Any, **options: Any) -> str:
    return json.dumps(value, default=_for_json, **options)


def _for_json(value: Any) -> Any:
    if isinstance(value, Missing):
        raise MissingError(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if isinstance(value, date):
        return value.isoformat()
    raise FilterError(f"a value of type {type(value).__name__} cannot be written as JSON")


def _to_nice_json(value: Any, indent: int = 4, sort_keys: bool = True, **options: Any) -> str:  # noqa: FBT001, FBT002  (by place)
    options.pop("separators", None)
    return _to_json(value, indent=indent, sort_keys=sort_keys, separators=(",", ": "), **options)


def _from_json(value: Any, **_options: Any) -> Any:
    try:
        return json.loads(text(value))
    except ValueError as error:
        raise FilterError(f"the text is not JSON: {error}") from error


def _to_yaml(value: Any, *_more: Any, default_flow_style: bool | None = None, **options: Any) -> str:
    import yaml  # noqa: PLC0415  (few templates need it)

    written = yaml.dump(
        value, Dumper=_dumper(), allow_unicode=True, default_flow_style=default_flow_style, **options
    )
    # A lone scalar is not followed by the mark that its document ends.
    return str(written).removesuffix("...\n")


def _to_nice_yaml(
    value: Any,
    indent: int = 4,
    *_more: Any,
    default_flow_style: bool = False,
    **options: Any,
) -> str:
    return _to_yaml(value, indent=indent, default_flow_style=default_flow_style, **options)


def _dumper() -> Any:
    import yaml  # noqa: PLC0415  (few templates need it)

    class Dumper(yaml.SafeDumper):
        """Writes values that are a kind of text, number, list or mapping as just that."""

    for kind in (str, int, list, dict):
        represent = yaml.SafeDumper.yaml_representers[kind]
        Dumper.add_multi_representer(kind, represent)
    return Dumper


def _from_yaml(value: Any) -> Any:
    if not isinstance(value, (str, bytes)):
        return value
    return next(iter(_yaml_documents(text(value))), None)


def _from_yaml_all(value: Any) -> list[Any]:
    return [] if value is None else list(_yaml_documents(text(value)))


def _yaml_documents(value: str) -> Iterator[Any]:
    import yaml  # noqa: PLC0415  (few templates need it)

    try:
        yield from yaml.safe_load_all(value)
    except yaml.YAMLError as error:
        raise FilterError(f"the text is not YAML: {' '.join(str(error).split())}") from error


def _to_uuid(value: Any, namespace: Any = _UUID_SPACE) -> str:
    import uuid  # noqa: PLC0415  (few templates need it)

    return str(uuid.uuid5(uuid.UUID(str(namespace)), text(value)))


FILTERS: Mapping[str, Callable[..., Any]] = {
    "b64decode": _b64decode,
    "b64encode": _b64encode,
    "checksum": _hash,
    "from_json": _from_json,
    "from_yaml": _from_yaml,
    "from_yaml_all": _from_yaml_all,
    "hash": _hash,
    "md5": lambda value: _hash(value, "md5"),
    "sha1": _hash,
    "to_json": _to_json,
    "to_nice_json": _to_nice_json,
    "to_nice_yaml": _to_nice_yaml,
    "to_uuid": _to_uuid,
    "to_yaml": _to_yaml,
}
