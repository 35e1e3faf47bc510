"""`rigd sim`: the engine double in the foreground. Its own parser reads the words: they are those of `vllm serve`."""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup


class _PassThrough(TyperGroup):
    """A group that reads no word itself, `--help` included."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return []

    def invoke(self, ctx: Any) -> NoReturn:
        become(ctx.args)


app = typer.Typer(cls=_PassThrough, add_completion=False)


@app.callback()
def sim() -> None:
    """Run the engine double with the arguments of `vllm serve`."""


def become(words: Sequence[str]) -> NoReturn:
    """Replace this process by the double, so that its signals and its exit code are the caller's."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "rigd.sim", *words])  # noqa: S606  (no shell is wanted)
