"""`rigd demo`: the tour, told."""

import typer

from rigd import demo as tour
from rigd.cli import options
from rigd.cli.console import print_json, print_table, print_text, say
from rigd.errors import ExitCode


def demo(context: typer.Context, *, as_json: options.Json = False) -> int:
    """Show what rigd does, on this machine, in a minute: no GPU, no Docker, no root needed.

    A real daemon supervises an engine double (it speaks as vLLM does). The tour starts it, warms its prompts, then
    kills, freezes and starves it, and shows how each is noticed and recovered. Nothing is left behind.
    """
    del context
    walked = tour.run(say if as_json else print_text)
    if as_json:
        steps = [
            {
                "step": shown.name,
                "result": shown.result,
                "noticed_s": _rounded(shown.noticed_s),
                "recovered_s": _rounded(shown.recovered_s),
            }
            for shown in walked.steps
        ]
        print_json({"ok": True, "took_s": _rounded(walked.took_s), "steps": steps})
        return int(ExitCode.DONE)
    print_text("")
    rows = [(shown.name, _seconds(shown.noticed_s), _seconds(shown.recovered_s)) for shown in walked.steps]
    print_table(("WHAT HAPPENED", "NOTICED AFTER", "READY AFTER"), rows)
    print_text(f"\nThe whole tour took {walked.took_s:.0f} s, and nothing of it is left.")
    print_text("Your own rig: copy configs/example.yaml, edit it, `rigd rig validate RIG`, `rigd up RIG`.")
    return int(ExitCode.DONE)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
