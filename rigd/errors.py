"""What can go wrong, split by what the caller does about it; and the exit codes of the command line.

The outer message never repeats the inner one: a boundary prints the chain once, with `explain()`.
"""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of every `rigd` command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    """Wrong usage, or a file that is not valid."""
    NOT_SO = 3
    """The thing asked about is not so (`wait`, `check`)."""
    UNREACHABLE = 4
    """No daemon answers."""


class RigdError(Exception):
    """A sentence for a person, and the next thing to type."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Say what could not be done to which object; `hint` is the next command or edit."""
        super().__init__(message)
        self.hint = hint


class UsageError(RigdError):
    """The command, or a file it names, is wrong; trying again changes nothing."""

    exit_code = ExitCode.USAGE


class UnreachableError(RigdError):
    """No daemon answers at the socket or address asked."""

    exit_code = ExitCode.UNREACHABLE


def explain(error: BaseException) -> str:
    """Return the chain of causes on one line, outermost first, each said once."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        # An error number and the path that the sentence before already names are of no help to a person.
        text = (seen.strerror if isinstance(seen, OSError) else str(seen)) or str(seen) or type(seen).__name__
        if not parts or text not in parts[-1]:
            parts.append(text)
        seen = seen.__cause__
    return ": ".join(parts)


def hint_of(error: BaseException) -> str | None:
    """Return the first hint along the chain of causes, if any."""
    seen: BaseException | None = error
    while seen is not None:
        hint = getattr(seen, "hint", None)
        if isinstance(hint, str):
            return hint
        seen = seen.__cause__
    return None
