"""What every command prints with: errors on stderr with what to do next, JSON and tables on stdout."""

from __future__ import annotations

import json
import os
import sys

from rigd.errors import ExitCode, RigdError, explain, hint_of

TYPE_CHECKING = False  # Type checkers take it for true; importing `typing` for it costs 3 ms.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

DEBUG_VARIABLE = "RIGD_DEBUG"


def fail(error: BaseException) -> NoReturn:
    """Print the chain of causes and what to do next, and end the program with the error's exit code."""
    tell(error)
    raise SystemExit(int(error.exit_code if isinstance(error, RigdError) else ExitCode.FAILED))


def tell(error: BaseException) -> None:
    """Print the chain of causes and what to do next on stderr."""
    say(f"rigd: {explain(error)}")
    if hint := hint_of(error):
        say(f"  -> {hint}")


def say(text: str) -> None:
    """Print a line for a person on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def unexpected(error: BaseException, arguments: Sequence[str]) -> None:
    """Print one line about an error that nobody foresaw, and keep the details in a private file."""
    import tempfile  # noqa: PLC0415  (only on this path)
    import traceback  # noqa: PLC0415

    details = "".join(traceback.format_exception(error))
    if os.environ.get(DEBUG_VARIABLE):
        say(details)
        return
    say(f"rigd: this should not have happened: {type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="rigd-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"rigd {' '.join(arguments)}\n{details}")
    except OSError:
        say(f"  -> {DEBUG_VARIABLE}=1 shows the details")
    else:
        say(f"  -> the details are in {file.name}; please report them")


def print_json(value: Any) -> None:
    """Print one document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_line(value: Any) -> None:
    """Print one document as one line on stdout, for streams."""
    sys.stdout.write(json.dumps(value, separators=(",", ":"), default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text on stdout at once; a letter that the terminal's encoding lacks becomes `?`."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns on stdout; plain enough for `awk`, the last column as long as it likes."""
    texts = [list(head), *[["" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    for row in texts:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print_text("  ".join(cells).rstrip())
