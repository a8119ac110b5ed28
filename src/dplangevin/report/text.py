"""The human face of an answer: a short table, what is assumed, and the plateau in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dplangevin.report.answer import Answer
from dplangevin.report.curve import CurveRow, Plateau


def number(value: float | None, missing: str = "-", *, down: bool = False) -> str:
    """Four digits: a promise is never printed smaller than it is, nor (down) a lower bound larger."""
    if value is None:
        return missing
    if not math.isfinite(value):
        return "infinite"
    if value == 0:
        return "0"
    if abs(value) < 1e-300:  # where a unit three digits below is no longer a number
        return repr(value)
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    digits = math.floor(value / unit * (1 + 1e-12)) if down else math.ceil(value / unit * (1 - 1e-12))
    return f"{digits * unit:#.4g}".rstrip(".")


def steps_word(steps: float) -> str:
    """1000000 -> 1,000,000; infinity -> any number of."""
    return "any number of" if math.isinf(steps) else f"{int(steps):,}"


def show(answer: Answer, console: Console | None = None) -> None:
    """Print an answer for a person."""
    out = console or Console(highlight=False)
    out.print(_table(answer))
    for sentence in sentences(answer):
        out.print(escape(sentence))
    if answer.refusals:
        out.print("\n[bold]Why no sharper theorem applies[/bold]")
        out.print(_bullets(answer.refusals))
    out.print("\n[bold]Holds when[/bold]")
    out.print(_bullets(answer.guarantee.hypotheses))


def sentences(answer: Answer) -> list[str]:
    """What the numbers mean, in words."""
    sentences = []
    if (
        answer.composition_noise_std is not None
        and answer.noise_std is not None
        and answer.composition_noise_std > 1.005 * answer.noise_std
    ):
        ratio = answer.composition_noise_std / answer.noise_std
        needed = number(answer.composition_noise_std)
        sentences.append(f"Plain composition would need noise {needed}, {ratio:.1f} times as much.")
    if answer.plateau is not None and answer.steps is not None:
        sentences.append(plateau_words(answer.plateau, answer.steps))
    elif answer.refusals:
        sentences.append("More steps keep costing privacy: no bound holds for every number of steps.")
    elif answer.guarantee.release != "last-iterate" and answer.steps is not None:
        sentences.append(f"More steps keep costing privacy: the release is {answer.guarantee.release}.")
    return sentences


def plateau_words(plateau: Plateau, steps: float) -> str:
    """Where more steps stop costing privacy."""
    value = number(plateau.epsilon)
    if plateau.steps is None:
        return f"Epsilon never exceeds {value}, however many steps are run."
    if steps >= plateau.steps:
        return f"After about {plateau.steps:,} steps more steps cost nothing: epsilon stays at {value}."
    return f"Epsilon still grows at this point; from about {plateau.steps:,} steps on it stays at {value}."


def steps_table(title: str, rows: Sequence[CurveRow]) -> Table:
    """Epsilon against the number of steps."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=box.SIMPLE)
    for heading in ("steps", "plain composition", "our bound", "lower bound"):
        table.add_column(heading, justify="right")
    table.add_column("theorem")
    for row in rows:
        table.add_row(
            "any number" if math.isinf(row.steps) else f"{int(row.steps):,}",
            number(row.composition, "infinite" if math.isinf(row.steps) else "-"),
            number(row.bound),
            number(row.lower, down=True),
            row.theorem,
        )
    return table


def _bullets(items: Iterable[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    for item in items:
        table.add_row(" -", escape(item))
    return table


def _table(answer: Answer) -> Table:
    guarantee = answer.guarantee
    table = Table(show_header=False, box=box.SIMPLE, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    if answer.calibrated and answer.knob:
        table.add_row(answer.knob[0].replace("_", " "), repr(answer.knob[1]))
    if answer.steps is None:
        table.add_row("epsilon", number(answer.epsilon))
    else:
        table.add_row("steps", steps_word(answer.steps).removesuffix(" of"))
        table.add_row("epsilon, our bound", number(answer.epsilon))
        table.add_row("epsilon, plain composition", number(answer.composition_epsilon, "not computed"))
        table.add_row("epsilon, lower bound", number(answer.lower_bound_epsilon, "not computed", down=True))
    table.add_row("delta", number(answer.delta))
    if guarantee.mu is not None:
        table.add_row("mu (Gaussian DP)", number(guarantee.mu))
    for order, value in answer.rdp:
        table.add_row(f"Renyi divergence, order {order:g}", number(value))
    table.add_row("theorem", escape(guarantee.theorem))
    table.add_row("reference", escape(guarantee.reference))
    table.add_row("origin", escape(str(guarantee.origin)))
    table.add_row("adjacency", guarantee.adjacency)
    table.add_row("release", guarantee.release)
    return table
