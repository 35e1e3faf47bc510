"""A box that answers from a record: what it is asked is looked up, what it is told to do is noted."""

from collections.abc import Mapping
from pathlib import Path

from rigd.provision.target.contract import CommandResult, ModuleError

Answer = str | tuple[int, str] | tuple[int, str, str]


class RecordedBox:
    """Answers by the longest beginning of the command line that the record knows; other programs are not there."""

    def __init__(self, record: Mapping[str, Answer] | None = None, *, check: bool = False) -> None:
        self.record = dict(record or {})
        self.check = check
        self.backups: list[str] = []
        self.ran: list[str] = []
        self.stdin: list[bytes | None] = []
        self.told: list[str] = []
        self.variables: dict[str, str] = {}
        self.open_to_others: bool | None = True

    def run(
        self, argv, *, stdin=None, environment=None, folder=None, timeout_s=600.0, ok=(0,)
    ) -> CommandResult:
        line = " ".join(argv)
        self.ran.append(line)
        self.stdin.append(stdin)
        known = [beginning for beginning in self.record if line.startswith(beginning)]
        if not known:
            raise ModuleError(f"there is no command '{argv[0]}' on the box", rc=2, cmd=[*argv])
        answer = self.record[max(known, key=len)]
        rc, stdout, stderr = (0, answer, "") if isinstance(answer, str) else (*answer, "")[:3]
        if ok is not None and rc not in ok:
            raise ModuleError(
                f"`{line}` ended with {rc}: {stderr or stdout}", rc=rc, stdout=stdout, stderr=stderr
            )
        return CommandResult(argv=tuple(argv), rc=rc, stdout=stdout, stderr=stderr)

    def blob(self, digest: str) -> bytes:
        raise ModuleError(f"no content {digest}")

    def write(self, path, content, *, mode=None, backup=False, follow=True) -> None:
        Path(path).write_bytes(content)

    def progress(self, text: str) -> None:
        self.told.append(text)

    def reached(self) -> bool | None:
        return self.open_to_others

    def environment(self) -> Mapping[str, str]:
        return self.variables


def filled(module, **given):
    """Return all arguments of a module, those not given at their defaults."""
    return {name: known.default for name, known in module.arguments.items()} | given


def whats(changes) -> list[str]:
    return [change.what for change in changes]
