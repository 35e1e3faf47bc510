"""How a budget is shown to a person: a table, the pool as a stacked bar, what fits, the verdict."""

import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rigd.budget.channels import Plan
from rigd.budget.figure import Figure
from rigd.budget.pool import Pool
from rigd.budget.reckoning import Budget
from rigd.budget.settings import GIB
from rigd.cli.console import print_text
from rigd.rig.schema import Rig

BAR_WIDTH = 64
COLOURS = ("blue", "cyan", "green", "magenta", "yellow", "bright_blue", "bright_cyan", "bright_magenta")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
RESERVE, FREE, OVER = "reserve", "free", "too much"
MARKS = {RESERVE: "#", FREE: ".", OVER: "!"}
MARK_COLOURS = {RESERVE: "bright_black", FREE: "white", OVER: "red"}
MOST_CHANGES = 5


def show(budget: Budget, rig: Rig, *, with_fit: bool) -> None:
    """Print a budget for a person."""
    plan = budget.plan
    if plan is not None:
        _channels(plan)
        print_text("")
        _plan(plan)
        print_text("")
        _bar(plan)
        print_text("")
    _pool(budget)
    if with_fit:
        _fit(budget)
    if budget.unknown:
        print_text("not known, or taken for granted")
        for sentence in budget.unknown:
            print_text(f"  - {sentence}")
    if plan is not None:
        print_text("")
        _verdict(plan, rig)
    elif not rig.channels:
        print_text("no channels: the rig file says nothing of who uses the pool (`channels:`)")


def _aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print columns: the first `left` of them to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print_text("  ".join(cells).rstrip())


def _channels(plan: Plan) -> None:
    head = ["channel", "context", "output", "at once", "reserve", "worst case"]
    if plan.hit_rate is not None:
        head.append(f"at {plan.hit_rate:.1%} hits")
    if plan.blocks is not None:
        head.append("blocks")
    rows = [head]
    for row in plan.rows:
        one = row.channel
        cells = [
            one.name,
            *(f"{n:,}" for n in (one.context, one.output, one.parallel, row.reserve, row.worst)),
        ]
        if plan.hit_rate is not None:
            cells.append(f"{row.expected:,}")
        if plan.blocks is not None:
            cells.append(f"{row.blocks:,}")
        rows.append(cells)
    _aligned(rows)


def _plan(plan: Plan) -> None:
    outputs = " + ".join(f"{row.channel.parallel} x {row.channel.output:,}" for row in plan.rows)
    contexts = " + ".join(f"{row.channel.parallel} x {row.channel.context:,}" for row in plan.rows)
    rows = [
        ("pool", f"{plan.pool.value:,}", _origin(plan.pool)),
        ("generation reserve", f"{plan.reserve:,}", outputs),
        ("left for context", f"{plan.for_context:,}", ""),
        ("worst case, no hit", f"{plan.worst:,}", contexts),
        ("free", f"{plan.free:,}", ""),
    ]
    if plan.hit_rate is not None:
        shared = "what hits once a channel, the rest for each request"
        rows += [
            (f"expected, {plan.hit_rate:.1%} hits", f"{plan.expected:,}", shared),
            ("free then", f"{plan.free_expected:,}", ""),
        ]
    if plan.blocks is not None and plan.usable_blocks is not None:
        rows.append(
            (
                "worst case in blocks",
                f"{plan.blocks:,}",
                f"of {plan.usable_blocks:,}, each request whole blocks",
            )
        )
    name, number = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    for row in rows:
        print_text(f"{row[0].ljust(name)}  {row[1].rjust(number)}  {row[2]}".rstrip())


def _origin(figure: Figure) -> str:
    error = f", give or take {figure.error:,}" if figure.error else ""
    note = f": {figure.note}" if figure.note else ""
    return f"{figure.source}{note}{error}"


# --- the bar ---


def bar_parts(plan: Plan) -> list[tuple[str, int]]:
    """Return what the bar shows, in tokens: reserve, each channel's worst case, and what is free or too much."""
    parts = [(RESERVE, plan.reserve), *((row.channel.name, row.worst) for row in plan.rows)]
    return [*parts, (FREE, plan.free) if plan.free >= 0 else (OVER, -plan.free)]


def bar_cells(parts: Sequence[tuple[str, int]], width: int = BAR_WIDTH) -> list[int]:
    """Return the cells of each part: all of the width together, and at least one for what is not nothing."""
    whole = sum(size for _, size in parts) or 1
    exact = [size * width / whole for _, size in parts]
    cells = [max(1, int(share)) if size else 0 for (_, size), share in zip(parts, exact, strict=True)]
    while sum(cells) != width:
        step = 1 if sum(cells) < width else -1
        order = sorted(range(len(cells)), key=lambda at: step * (exact[at] - cells[at]), reverse=True)
        at = next((at for at in order if step > 0 or cells[at] > 1), order[0])
        cells[at] += step
    return cells


def _bar(plan: Plan) -> None:
    over = plan.free < 0
    parts = bar_parts(plan)
    if (
        over
    ):  # What is too much is a part of the channels' own; the bar ends where the pool does, and goes on.
        parts = parts[:-1]
    cells = bar_cells(parts)
    bar, legend = Text(), Text()
    for number, ((name, size), count) in enumerate(zip(parts, cells, strict=True)):
        mark = MARKS.get(name) or LETTERS[(number - 1) % len(LETTERS)]
        colour = MARK_COLOURS.get(name) or COLOURS[(number - 1) % len(COLOURS)]
        bar.append(mark * count, style=colour)
        legend.append(f"{'   ' if legend else ''}{mark} {name} {size:,}", style=colour)
    limit = round(BAR_WIDTH * plan.pool.value / max(sum(size for _, size in parts), 1))
    console = Console(
        file=sys.stdout,
        highlight=False,
        no_color=None if not os.environ.get("NO_COLOR") else True,
        soft_wrap=True,
    )
    console.print(Text("[").append(bar).append("]"))
    if over:
        console.print(Text(" " * limit + f"^ the pool ends here, {-plan.free:,} too much", style="red"))
    console.print(legend)


# --- the pool, what fits, the verdict ---


def _pool(budget: Budget) -> None:
    layout, computed, implied, used = budget.layout, budget.computed, budget.implied, budget.used
    if used is not None and budget.plan is None:
        print_text(f"pool  {used.value:,} tokens  {_origin(used)}")
    if layout is not None:
        state = f", {layout.state_blocks} blocks a request of recurrent state" if layout.state_blocks else ""
        padding = f" ({layout.padding:.1%} of a state's block is padding)" if layout.padding else ""
        print_text(
            f"layout    {layout.token_bytes:,} bytes a token on each card, {layout.block:,} tokens a block, "
            f"{layout.block_bytes:,} bytes a block{state}{padding}"
        )
        print_text(f"          computed from {budget.shape_from}")
    if computed is not None:
        print_text(f"computed  {_pool_line(computed)}")
        print_text(f"          {_memory_line(computed.memory)}")
    if budget.activation is not None:
        rest = budget.activation
        print_text(f"          budget.activation by that start: {rest.value / GIB:.2f}GiB, {rest.note}")
    if budget.deviation is not None and used is not None:
        print_text(f"          {budget.deviation:+.2%} against {used.value:,} ({used.source})")
    same = computed is not None and implied is not None and implied.blocks == computed.blocks
    if implied is not None and used is not None and not same:
        print_text(f"implied   {used.value:,} tokens are nearest to {_pool_line(implied)}")


def _memory_line(memory: Figure) -> str:
    error = f", give or take {memory.error / GIB:.2f} GiB" if memory.error else ""
    return f"memory {memory.source}: {memory.note} = {memory.value:,} bytes{error}"


def _pool_line(pool: Pool) -> str:
    error = f", give or take {pool.tokens.error:,}" if pool.tokens.error else ""
    return (
        f"{pool.tokens.value:,} tokens{error}: {pool.tokens.note}; {pool.memory.value / GIB:.2f} GiB a card; "
        f"{pool.concurrency:.2f} x {pool.context:,}"
    )


def _fit(budget: Budget) -> None:
    if budget.fit is None:
        print_text("fit       not known without the model's shape and the pool")
        return
    longest = budget.fit.context
    print_text(f"fit       longest context {longest.value:,}: {longest.because}")
    for length, most in budget.fit.sequences:
        print_text(f"          {most.value:,} at once of {length:,} tokens: {most.because}")


def _verdict(plan: Plan, rig: Rig) -> None:
    if plan.holds:
        print_text(f"holds: the channels of '{rig.name}' fit, even when nothing hits")
        return
    print_text(f"refused: the channels of '{rig.name}' do not fit")
    for sentence in plan.refusals:
        print_text(f"  - {sentence}")
    if not plan.changes:
        print_text("  -> no single number would make it hold; cut several, or give the engine more memory")
        return
    first, *others = plan.changes
    print_text(f"  -> the smallest change that would hold: {first}")
    for change in others[: MOST_CHANGES - 1]:
        print_text(f"     or {change}")
