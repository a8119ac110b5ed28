"""`dplangevin papers`, `demo` and `reproduce`: the papers' statements and figures, and private models to look at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dplangevin.errors import InvalidParameter

app = typer.Typer(help="The papers behind the library: list, search, show a statement, take the tour.")


@app.callback(invoke_without_command=True)
def list_papers(context: typer.Context) -> None:
    """List the papers, with the number of their statements."""
    if context.invoked_subcommand is not None:
        return
    from dplangevin.papers.concordance import PAPERS, ROWS

    for paper in PAPERS:
        count = sum(row.paper == paper.key for row in ROWS)
        typer.echo(f"{paper.authors} ({paper.year})\n  {paper.title}\n  {paper.link}, {count} statements")
    typer.echo(
        'Try: dplangevin papers search Rashomon; dplangevin papers show "Theorem F.1"; dplangevin papers tour'
    )


@app.command("search")
def search_statements(
    words: Annotated[list[str], typer.Argument(help="An author, a number or words of a statement.")],
) -> None:
    """Find the statements that have all of these words in author, title, number or text."""
    for row in _find_rows(" ".join(words), everywhere=True):
        typer.echo(f"{_source(row)}, {row.number} [{row.use}]: {row.says}")


@app.command("show")
def show_statement(
    number: Annotated[str, typer.Argument(help='A number such as "Theorem 3.1".')],
    paper: Annotated[str, typer.Option("--paper", help="An author, a year or a word of the title.")] = "",
) -> None:
    """Print a statement: what it says, what was corrected, where it is, and a line to run."""
    for row in _find_rows(number, everywhere=False):
        if paper.lower() not in _source_text(row):
            continue
        lines = [
            f"{_source(row)}, {row.number}",
            f"  says       {row.says}",
            f"  corrected  {row.corrected}" if row.corrected else "",
            f"  use        {row.use}" + (f": {row.note}" if row.note else ""),
            f"  where      {', '.join(place.replace(':', '.') for place in row.where)}",
            f"  try        {row.command}",
        ]
        typer.echo("\n".join(line for line in lines if line))


@app.command("tour")
def print_tour() -> None:
    """Walk along the clock of Langevin diffusion: privacy, risk and measured runs, in a few seconds."""
    from dplangevin.papers.gallery.langevin import render_tour

    typer.echo(render_tour())


def _paper_of(row: Any) -> Any:
    from dplangevin.papers.concordance import PAPERS

    return next(paper for paper in PAPERS if paper.key == row.paper)


def _source(row: Any) -> str:
    return str(_paper_of(row).heading.split(":")[0])


def _source_text(row: Any) -> str:
    paper = _paper_of(row)
    return f"{paper.authors} {paper.title} {paper.year} {paper.key}".lower()


def _find_rows(text: str, *, everywhere: bool) -> list[Any]:
    """Return the statements whose number holds this text, or, everywhere, whose paper or sentence does."""
    from dplangevin.papers.concordance import ROWS

    wanted = text.lower().split()
    rows = [
        row
        for row in ROWS
        if " ".join(wanted) in row.number.lower()
        or (
            everywhere
            and all(
                word in f"{row.number} {row.says} {row.corrected} {row.note} {_source_text(row)}".lower()
                for word in wanted
            )
        )
    ]
    if not rows:
        raise InvalidParameter(
            f"no statement matches {text!r}; `dplangevin papers search WORD` finds them by words."
        )
    return rows


STEP_COUNTS = (10, 100, 1_000, 10_000, 100_000, 1_000_000, math.inf)
DELTA = 1e-6
ESTIMATOR_OPTIONS: dict[str, Any] = {"data_norm": 1.0, "fit_intercept": False, "classes": ["<=50K", ">50K"]}
SHARED_CONSTANTS: dict[str, Any] = {"n": 10_000, "lipschitz": 1.0, "step_size": 1.0}
PROBLEMS: dict[str, dict[str, Any]] = {
    "Logistic regression with a ridge of 0.01: strongly convex; noise 0.012": {
        **SHARED_CONSTANTS, "smoothness": 0.26, "strong_convexity": 0.01, "noise_std": 0.012,
    },
    "The same without the ridge, projected on a ball of radius 1: convex; noise 0.04": {
        **SHARED_CONSTANTS, "smoothness": 0.25, "diameter": 2.0, "noise_std": 0.04,
    },
}  # fmt: skip
MODEL_TEXT = """\
1. A private model. Who of 30,000 synthetic adults earns more than 50K? The schema (ranges and categories) is
public; mechanism, steps and noise follow from n, the number of features and epsilon, so nothing is tuned.
"""
STEPS_TEXT = f"""\
2. Epsilon against the number of steps. Noisy gradient descent on 10,000 records. If every iterate is
released, each step costs privacy (plain composition). If only the last iterate is released, epsilon
stays bounded: from some number of steps on, further steps cost nothing.
The lower bound is a loss of privacy that some run with these parameters attains.

Epsilon at delta = {DELTA:g} (a neighbour replaces one record):
"""
NEXT_COMMANDS_TEXT = """\
Try next
  dplangevin account --n 10000 --lipschitz 1 --smoothness 0.26 \\
      --strong-convexity 0.01 --step-size 1 --noise-std 0.012 \\
      --n-steps inf --delta 1e-6 --plot epsilon.html
  dplangevin calibrate --n 10000 --lipschitz 1 --smoothness 0.26 \\
      --strong-convexity 0.01 --step-size 1 --n-steps inf \\
      --epsilon 1 --delta 1e-6
  dplangevin plan --n 30000 --n-features 20 --epsilon 0.5
  dplangevin --help           and docs/tutorials/own_table.md
(in a source checkout the command is .venv/bin/dplangevin)
"""


def _print_models(out: Any) -> None:
    """Print the accuracy at several budgets and of scikit-learn without privacy, and explain the guarantee."""
    from rich.table import Table
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    from dplangevin import DPLogisticRegression
    from dplangevin.datasets import load_income
    from dplangevin.estimators import SchemaEncoder

    people, schema = load_income()
    rows, labels = SchemaEncoder(schema).transform(people), people["income"].to_numpy()
    models: list[tuple[str, Any]] = [
        (
            f"private, epsilon = {epsilon:g}",
            DPLogisticRegression(epsilon=epsilon, delta=DELTA, **ESTIMATOR_OPTIONS),
        )
        for epsilon in (0.1, 0.5, 1.0)
    ]
    models.append(
        ("private, pure epsilon = 1", DPLogisticRegression(epsilon=1.0, delta=0.0, **ESTIMATOR_OPTIONS))
    )
    models.append(
        ("not private (scikit-learn)", LogisticRegression(C=100.0, fit_intercept=False, max_iter=1000))
    )
    table = Table("model", "accuracy", "log-loss", title_justify="left")
    for name, model in models:
        model.fit(rows[:25_000], labels[:25_000])
        loss = log_loss(labels[25_000:], model.predict_proba(rows[25_000:]))
        table.add_row(name, f"{model.score(rows[25_000:], labels[25_000:]):.3f}", f"{loss:.3f}")
    out.print(table)
    guarantee = models[2][1].privacy_
    out.print(
        f"The guarantee at epsilon = 1: whoever sees the model, and knows everything about the other people, can tell "
        f"whether one person's record was replaced only as well as epsilon = {guarantee.epsilon():.3g}, delta = "
        f"{DELTA:g} allow ({guarantee.theorem}, {guarantee.adjacency}).\n",
        soft_wrap=True,
    )


def run_demo() -> None:
    """Compare private models with a plain one, then show how epsilon stops growing with the number of steps."""
    from rich.console import Console

    from dplangevin.report import answer, plots

    out = Console(highlight=False)
    out.print(MODEL_TEXT, soft_wrap=True)
    _print_models(out)
    out.print(STEPS_TEXT, soft_wrap=True)
    for title, problem in PROBLEMS.items():
        out.print(answer.steps_table(title, plots.curve_rows(problem, STEP_COUNTS, DELTA)))
        level = plots.find_plateau(problem, DELTA)
        out.print("" if level is None else answer.plateau_sentence(level, math.inf) + "\n")
    out.print(NEXT_COMMANDS_TEXT, soft_wrap=True, markup=False)


def reproduce_figures(
    name: Annotated[str, typer.Argument(help="A figure by name, 'list' to list them, or 'all'.")] = "list",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for picture, CSV and text.")
    ] = Path("gallery"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and repetitions.")] = False,
) -> None:
    """Redraw a figure or table of the papers: a picture, its numbers as CSV, and a comparison with the paper."""
    from dplangevin.cli import _io
    from dplangevin.papers import gallery

    if name.lower() == "list":
        width = max(len(word) for word in gallery.FIGURES)
        for figure_name in gallery.FIGURES:
            typer.echo(f"{figure_name:<{width}}  {gallery.find_figure(figure_name).title}")
        return
    figure_names = gallery.FIGURES if name.lower() == "all" else (name,)
    for figure_name in figure_names:
        gallery.find_figure(figure_name)  # an unknown name, before anything is drawn
    _io.prepare_folder("--output", output)
    for figure_name in figure_names:
        text = gallery.reproduce_figure(figure_name, output, quick=quick)
        typer.echo(
            f"{figure_name}: {gallery.find_figure(figure_name).title}\n{text.rstrip()}\nWrote "
            f"{output / figure_name}.*\n"
        )
