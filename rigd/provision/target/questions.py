"""Questions to programs that may not be there."""

from rigd.provision.target.contract import Box, CommandResult, ModuleError

NOT_THERE = 127
"""What a shell ends with for a command that it does not find."""


def ask(box: Box, argv: list[str], *, timeout_s: float = 60.0) -> CommandResult:
    """Run a program and return how it ended, whatever its exit code; 127 where the box has no such program."""
    try:
        return box.run(argv, ok=None, timeout_s=timeout_s)
    except ModuleError as error:
        if "there is no command" not in str(error):
            raise
        return CommandResult(argv=tuple(argv), rc=NOT_THERE, stdout="", stderr=str(error))
