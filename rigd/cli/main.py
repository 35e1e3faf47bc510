"""The entry point: `rigd status` at once, everything else through typer; and no traceback at a person."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rigd.cli import status
from rigd.errors import ExitCode, RigdError

TYPE_CHECKING = False  # Type checkers take it for true; importing `typing` for it costs 3 ms.
if TYPE_CHECKING:
    from collections.abc import Sequence

SIGINT_CODE = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = _meant(list(sys.argv[1:] if argv is None else argv))
    try:
        asked = status.parse(arguments)
        if asked is not None:
            return status.quick(asked)
        if arguments[:1] == ["daemon"]:
            from rigd.cli import service  # noqa: PLC0415  (the whole daemon)

            if service.is_plain(arguments):
                return service.run(Path(arguments[1]))
        if arguments[:1] == ["provision"]:
            from rigd.cli import provision_quick  # noqa: PLC0415  (only on this path)

            if (quick := provision_quick.parse(arguments)) is not None:
                from rigd.cli import provision_run  # noqa: PLC0415  (the runner)

                return provision_run.run(quick[1], check=quick[0])
        from rigd.cli import app  # noqa: PLC0415  (typer and rich cost more than the whole of `status`)

        return app.run(arguments)
    except RigdError as error:
        from rigd.cli.console import tell  # noqa: PLC0415  (only on this path)

        tell(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return SIGINT_CODE
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python would complain at exit while flushing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except Exception as error:  # noqa: BLE001  (the boundary: a person gets a line, the details go to a file)
        from rigd.cli.console import unexpected  # noqa: PLC0415  (only on this path)

        unexpected(error, arguments)
        return int(ExitCode.FAILED)


def _meant(typed: list[str]) -> list[str]:
    """Return the arguments, with what people type first of any program turned into the command."""
    return ["version"] if typed == ["--version"] else typed


if __name__ == "__main__":
    sys.exit(main())
