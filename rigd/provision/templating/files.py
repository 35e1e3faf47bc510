"""Files of templates, as the action `template` and the lookup of that name fill them in."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateSyntaxError
from jinja2.loaders import FileSystemLoader

from rigd.provision.language.faults import nearest
from rigd.provision.templating import environment, syntax
from rigd.provision.templating.render import explained
from rigd.provision.templating.values import final
from rigd.provision.templating.variables import TemplateError, Variables, with_newlines

_HEADER = "#jinja2:"
_OPTIONS = (
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "trim_blocks",
    "lstrip_blocks",
    "newline_sequence",
    "keep_trailing_newline",
)
"""What a template file's first line, or the arguments of `template`, may set."""


def render_file(
    text: str,
    variables: Variables,
    *,
    name: str,
    folders: Iterable[Path] = (),
    options: Mapping[str, Any] | None = None,
    secret: bool = False,
) -> str:
    """Return what a file of templates gives. `folders`: where its `include` and `import` look for others.

    `options` are the arguments of `template` that are about Jinja; a first line `#jinja2: ...` wins over them.
    """
    try:
        chosen, text = _header(
            text, {key: value for key, value in (options or {}).items() if key in _OPTIONS}
        )
        made = _file_environment(tuple(sorted(chosen.items())), tuple(map(str, folders)))
        template = made.from_string(text)
        found = final(environment.run(template, variables))
        result = "" if found is None else str(found)
    except Exception as error:
        raise explained(error, "cannot fill in the file", name, variables, None, secret=secret) from error
    return with_newlines(result, text)


@functools.lru_cache(maxsize=32)
def _file_environment(
    options: tuple[tuple[str, Any], ...], folders: tuple[str, ...]
) -> environment.Environment:
    chosen = dict(options)
    chosen.pop("keep_trailing_newline", None)
    return environment.make_environment(escaping=False, loader=FileSystemLoader(folders), **chosen)


def _header(text: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    if not text.startswith(_HEADER):
        return options, text
    line, _, rest = text.partition("\n")
    for pair in line.removeprefix(_HEADER).split(","):
        key, _, value = (part.strip() for part in pair.partition(":"))
        if key not in _OPTIONS:
            raise TemplateError(f"the first line sets '{key}', which is no option{nearest(key, _OPTIONS)}")
        word = value.strip("\"'")
        options[key] = word.lower() == "true" if word.lower() in ("true", "false") else word
    return options, rest


def file_fault(path: Path, options: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return the line of a file of templates that is not well written, and why; None when all is well."""
    try:
        text = path.read_text(encoding="utf-8")
        chosen, rest = _header(text, {key: value for key, value in options.items() if key in _OPTIONS})
        tree = _file_environment(tuple(sorted(chosen.items())), (str(path.parent),)).parse(rest)
    except TemplateSyntaxError as error:
        return error.lineno + (rest is not text), f"the template is not well written: {error.message}"
    except TemplateError as error:
        return 1, str(error)
    except UnicodeDecodeError:
        return 1, "the template is not UTF-8 text"
    except OSError as error:
        return 1, f"the template cannot be read: {error.strerror}"
    sentence = syntax.unknown_in(tree)
    return (1, sentence) if sentence else None
