"""The account of one run with its comparisons (composition, lower bound, plateau), as text, as JSON and as a plot."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dplangevin import _check, _files
from dplangevin._plain import replace_infinities
from dplangevin._templates import render_template
from dplangevin._version import __version__
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, explain_refusals, format_refusals
from dplangevin.accounting.registry import accountable_mechanisms, option_reader_for, theorems_for
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.account import account, calibrate, read_run_options
from dplangevin.mechanisms.noisy_gradient.spec import (
    DP_SGD_OPTIONS,
    NoisyGradientSpec,
    check_dp_sgd_options,
    noise_multiplier_of,
    translate_dp_sgd_options,
)
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.report.plots import (
    CurveRow,
    Plateau,
    composition_epsilon,
    curve_row,
    describe_run,
    epsilon_lower_bound,
    find_plateau,
    has_varying_steps,
    step_grid,
    with_n_steps,
)

Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AccountAnswer:
    """The account of one run: its guarantee, bounds to compare it with, and why sharper theorems do not apply."""

    guarantee: Guarantee
    epsilon: float
    delta: float
    noise_std: float | None = None
    steps: float | None = None
    calibrated: bool = False
    calibrated_parameter: tuple[str, float] | None = None
    """Name and value of the calibrated parameter: noise_std, density_scale, sigma, scale or inverse_temperature."""
    rdp: tuple[tuple[float, float], ...] = ()
    """(order, Renyi divergence) at the requested orders."""
    composition_epsilon: float | None = None
    composition_noise_std: float | None = None
    lower_bound_epsilon: float | None = None
    plateau: Plateau | None = None
    refusals: tuple[str, ...] = ()


def answer_account(
    options: Options, *, reasons: bool, with_lower_bound: bool, orders: Sequence[float] = ()
) -> AccountAnswer:
    """Account for a run; `reasons` adds the plateau and the refused theorems, which take longer."""
    check_dp_sgd_options(options)
    options = translate_dp_sgd_options(options)
    guarantee = account(**options)
    delta = guarantee.at_delta or 0.0
    requested_epsilon = options.get("epsilon")
    epsilon = guarantee.epsilon(delta) if requested_epsilon is None else float(requested_epsilon)
    if options.get("mechanism") in accountable_mechanisms():
        return AccountAnswer(
            guarantee=guarantee, epsilon=epsilon, delta=delta, rdp=_renyi_at(guarantee, orders, options)
        )
    return AccountAnswer(
        guarantee=guarantee,
        epsilon=epsilon,
        delta=delta,
        rdp=_renyi_at(guarantee, orders, options),
        steps=options["n_steps"],
        composition_epsilon=composition_epsilon(guarantee, options["n_steps"], delta),
        lower_bound_epsilon=epsilon_lower_bound(options, delta) if with_lower_bound else None,
        **(_explain_bound(options, guarantee, delta) if reasons else {}),
    )


def _renyi_at(
    guarantee: Guarantee, orders: Sequence[float], options: Options | None = None
) -> tuple[tuple[float, float], ...]:
    """Return (order, divergence): the smallest bound at each order that a theorem about the run proves.

    The theorem with the smallest epsilon may prove no Renyi divergence at all. A pinned theorem is the only one.
    """
    values = guarantee.rdp(np.asarray(orders)) if orders else np.empty(0)
    if orders and options is not None and options.get("theorem") is None:
        constants, spec = read_run_options(
            {name: value for name, value in options.items() if name not in ("delta", "epsilon", "theorem")}
        )
        for theorem in theorems_for(type(spec)).values():
            with suppress(DplangevinError):
                values = np.minimum(values, theorem.certify(constants, spec).rdp(np.asarray(orders)))
    return tuple((float(order), float(value)) for order, value in zip(orders, values, strict=True))


def answer_calibration(
    options: Options, *, reasons: bool, with_lower_bound: bool, orders: Sequence[float] = ()
) -> AccountAnswer:
    """Find the noise (or the number of steps) that meets a guarantee, and account for that run."""
    is_dp_sgd = any(options.get(name) is not None for name in DP_SGD_OPTIONS)
    options = translate_dp_sgd_options(options)
    plan = calibrate(**options)
    delta = plan.guarantee.at_delta or 0.0
    if options.get("mechanism") in accountable_mechanisms():
        return AccountAnswer(
            guarantee=plan.guarantee,
            epsilon=plan.guarantee.epsilon(delta),
            delta=delta,
            rdp=_renyi_at(plan.guarantee, orders),
            calibrated_parameter=_calibrated_parameter(plan, options["mechanism"]),
            calibrated=True,
        )
    noise_std, steps = _public_parameters(plan)
    run = {**options, "noise_std": noise_std, "n_steps": steps}
    return AccountAnswer(
        guarantee=plan.guarantee,
        epsilon=plan.guarantee.epsilon(delta),
        delta=delta,
        noise_std=noise_std,
        steps=steps,
        calibrated_parameter=(
            ("noise_multiplier", noise_multiplier_of(options, noise_std))
            if is_dp_sgd
            else ("noise_std", noise_std)
        ),
        rdp=_renyi_at(plan.guarantee, orders),
        composition_epsilon=composition_epsilon(plan.guarantee, steps, delta),
        lower_bound_epsilon=epsilon_lower_bound(run, delta) if with_lower_bound else None,
        composition_noise_std=_composition_noise({**options, "n_steps": steps})
        if reasons and plan.guarantee.theorem != Composition.name
        else None,
        **(_explain_bound(run, plan.guarantee, delta) if reasons else {}),
        calibrated=True,
    )


def _calibrated_parameter(plan: CertifiedSpec, mechanism: str) -> tuple[str, float]:
    _, target = option_reader_for(mechanism)
    # temperatures that rise are stated by the highest
    return target.name, float(np.max(getattr(plan.spec, target.name)))


def _public_parameters(plan: CertifiedSpec) -> tuple[float, float]:
    """Return the noise and number of steps of a plan; calibration gives one noise, not one per step."""
    spec = plan.spec
    assert isinstance(spec, NoisyGradientSpec)
    assert isinstance(spec.noise_std, float)
    return spec.noise_std, spec.n_steps


def _composition_noise(options: Options) -> float | None:
    targets = {name: value for name, value in options.items() if name != "noise_std"}
    try:
        return _public_parameters(calibrate(**{**targets, "theorem": Composition.name}))[0]
    except DplangevinError:
        return None


def _explain_bound(options: Options, guarantee: Guarantee, delta: float) -> dict[str, Any]:
    """Return the plateau, and why sharper theorems do not apply: to this run, or to one of any number of steps."""
    level = find_plateau(options, delta)
    is_this_run = guarantee.theorem == Composition.name or has_varying_steps(options)
    run = options if is_this_run else with_n_steps(options, math.inf, delta)
    if options.get("theorem") is not None or (level is not None and run is not options):
        return {"plateau": level}
    reasons = explain_refusals(*describe_run(run))
    return {
        "plateau": level,
        "refusals": format_refusals({name: reasons[name] for name in reasons if name != Composition.name}),
    }


def format_header(kind: str, version: int) -> dict[str, Any]:
    """Return the first fields of a document's plain data: its format, and which version wrote it when."""
    return {
        "format": f"dplangevin-{kind}",
        "version": version,
        "library": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def answer_to_dict(answer: AccountAnswer) -> dict[str, Any]:
    """Return plain data: the keys of a Guarantee's JSON, and the bounds to compare it with.

    An infinite number is None beside `<name>_infinite: True`, so that the JSON is strictly valid.
    """
    guarantee = answer.guarantee
    plain: dict[str, Any] = {
        "epsilon": answer.epsilon,
        "delta": answer.delta,
        "mu": guarantee.mu,
        "kind": guarantee.kind,
        "theorem": guarantee.theorem,
        "reference": guarantee.reference,
        "origin": guarantee.origin.kind,
        "proofs": list(guarantee.origin.proofs),
        "composition_epsilon": answer.composition_epsilon,
        "lower_bound_epsilon": answer.lower_bound_epsilon,
        "adjacency": guarantee.adjacency,
        "release": guarantee.release,
        "conditions": [condition.to_dict() for condition in guarantee.conditions],
        "assumptions": list(guarantee.assumptions),
        "arithmetic": guarantee.arithmetic,
        "extra_delta": guarantee.extra_delta,
    }
    if answer.rdp:
        plain["rdp"] = [
            {"order": order, "divergence": value if math.isfinite(value) else None}
            for order, value in answer.rdp
        ]
    if answer.calibrated:
        plain.update([answer.calibrated_parameter] if answer.calibrated_parameter else ())
        if answer.steps is not None:
            plain["steps"] = answer.steps
    return dict(replace_infinities(plain))


def answer_to_json(answer: AccountAnswer) -> str:
    """Return JSON text; raise rather than write a number that JSON cannot express."""
    return json.dumps(answer_to_dict(answer), indent=2, allow_nan=False)


def format_number(value: float | None, missing: str = "-", *, down: bool = False) -> str:
    """Return a number with four digits, rounded up as an upper bound, or (down) rounded down as a lower bound."""
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


def format_steps(steps: float) -> str:
    """Return 1000000 as 1,000,000, and infinity as "any number of"."""
    return "any number of" if math.isinf(steps) else f"{int(steps):,}"


def print_answer(answer: AccountAnswer, console: Console | None = None) -> None:
    """Print an answer as a table, sentences and lists."""
    out = console or Console(highlight=False)
    out.print(_answer_table(answer))
    for sentence in answer_sentences(answer):
        out.print(escape(sentence))
    if answer.refusals:
        out.print("\n[bold]Why no sharper theorem applies[/bold]")
        out.print(_bullet_table(answer.refusals))
    out.print("\n[bold]Holds when[/bold]")
    out.print(_bullet_table(answer.guarantee.hypotheses))


def answer_sentences(answer: AccountAnswer) -> list[str]:
    """Return sentences that compare the run with composition and with runs of more steps."""
    sentences = []
    if (
        answer.composition_noise_std is not None
        and answer.noise_std is not None
        and answer.composition_noise_std > 1.005 * answer.noise_std
    ):
        ratio = answer.composition_noise_std / answer.noise_std
        needed = format_number(answer.composition_noise_std)
        sentences.append(f"Plain composition would need noise {needed}, {ratio:.1f} times as much.")
    if answer.plateau is not None and answer.steps is not None:
        sentences.append(plateau_sentence(answer.plateau, answer.steps))
    elif answer.refusals:
        sentences.append("More steps keep costing privacy: no bound holds for every number of steps.")
    elif answer.guarantee.release not in ("last-iterate", "last-state") and answer.steps is not None:
        sentences.append(f"More steps keep costing privacy: the release is {answer.guarantee.release}.")
    return sentences


def plateau_sentence(plateau: Plateau, steps: float) -> str:
    """Return a sentence on the number of steps from which more steps cost no privacy."""
    value = format_number(plateau.epsilon)
    if plateau.n_steps is None:
        return f"Epsilon never exceeds {value}, however many steps are run."
    if steps >= plateau.n_steps:
        return f"After about {plateau.n_steps:,} steps more steps cost nothing: epsilon stays at {value}."
    return f"Epsilon still grows at this point; from about {plateau.n_steps:,} steps on it stays at {value}."


def steps_table(title: str, rows: Sequence[CurveRow]) -> Table:
    """Return a table of epsilon against the number of steps."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=box.SIMPLE)
    for heading in ("steps", "plain composition", "our bound", "lower bound"):
        table.add_column(heading, justify="right")
    table.add_column("theorem")
    for row in rows:
        table.add_row(
            "any number" if math.isinf(row.steps) else f"{int(row.steps):,}",
            format_number(row.composition, "infinite" if math.isinf(row.steps) else "-"),
            format_number(row.bound),
            format_number(row.lower, down=True),
            row.theorem,
        )
    return table


def _bullet_table(items: Iterable[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    for item in items:
        table.add_row(" -", escape(item))
    return table


def _answer_table(answer: AccountAnswer) -> Table:
    guarantee = answer.guarantee
    table = Table(show_header=False, box=box.SIMPLE, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    if answer.calibrated and answer.calibrated_parameter:
        name, value = answer.calibrated_parameter
        table.add_row(name.replace("_", " "), repr(value))
    if answer.steps is None:
        table.add_row("epsilon", format_number(answer.epsilon))
    else:
        table.add_row("steps", format_steps(answer.steps).removesuffix(" of"))
        table.add_row("epsilon, our bound", format_number(answer.epsilon))
        table.add_row("epsilon, plain composition", format_number(answer.composition_epsilon, "not computed"))
        table.add_row(
            "epsilon, lower bound", format_number(answer.lower_bound_epsilon, "not computed", down=True)
        )
    table.add_row("delta", format_number(answer.delta))
    if guarantee.mu is not None:
        table.add_row("mu (Gaussian DP)", format_number(guarantee.mu))
    for order, value in answer.rdp:
        table.add_row(f"Renyi divergence, order {order:g}", format_number(value))
    table.add_row("theorem", escape(guarantee.theorem))
    table.add_row("reference", escape(guarantee.reference))
    table.add_row("origin", escape(str(guarantee.origin)))
    table.add_row("adjacency", guarantee.adjacency)
    table.add_row("release", guarantee.release)
    return table


SUFFIXES = (".png", ".svg", ".html")
_N_POINTS, _N_LOWER_POINTS = 31, 11
# Okabe and Ito's colours survive the common kinds of colour blindness; dashes tell the lines apart as well.
_LINES = (
    ("composition", "plain composition", "#D55E00", (0, (5, 2))),
    ("bound", "our bound", "#0072B2", "solid"),
    ("lower", "lower bound", "#000000", (0, (1, 1.5))),
)


def check_plot_options(path: Path, options: Mapping[str, Any]) -> None:
    """Raise before anything is computed if the plot cannot be drawn or written."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"plot must end in .png, .svg or .html, got {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise InvalidParameter(f"plot: the directory of {str(path)!r} does not exist; create it first.")
    if options.get("release") == "checkpoints":
        raise InvalidParameter(
            "plot draws epsilon against the number of steps; leave out --release checkpoints."
        )
    if not all(isinstance(options.get(name), int | float) for name in ("step_size", "noise_std", "n_steps")):
        raise InvalidParameter("plot draws noisy gradient runs with one step_size and one noise_std.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InvalidParameter(
            "plot needs matplotlib; install it with: pip install 'dplangevin[plot]'."
        ) from None


def write_plot(path: Path, options: Mapping[str, Any]) -> None:
    """Plot the run described by the options of `account` to `path`; the suffix chooses the format."""
    check_plot_options(path, options)
    delta = _reported_delta(options)
    level = find_plateau(options, delta)
    rows = _plot_rows(options, delta, level)
    kind = path.suffix.lower()
    if kind == ".html":
        _files.write_text(path, _html_page(rows, level, options, delta))
    else:
        path.write_bytes(_draw_figure(rows, level, options, delta, kind.removeprefix(".")))


def _reported_delta(options: Mapping[str, Any]) -> float:
    delta = options.get("delta")
    if delta is None:
        delta = account(**options).at_delta
    return _check.check_open_unit("delta", delta)


def _plot_rows(options: Mapping[str, Any], delta: float, level: Plateau | None) -> list[CurveRow]:
    """Return upper bounds at every point, and lower bounds, which take longer to compute, at some."""
    last = options["n_steps"] if math.isfinite(options["n_steps"]) else 1_000
    marks = {int(options["n_steps"])} if math.isfinite(options["n_steps"]) else set()
    if level is not None and level.n_steps is not None:
        last = max(last, 30 * level.n_steps)
        marks.add(level.n_steps)
    coarse = set(step_grid(options, last, _N_LOWER_POINTS))
    fine = sorted(coarse | marks | set(step_grid(options, last, _N_POINTS)))
    return [curve_row(options, steps, delta, lower=steps in coarse, level=level) for steps in fine]


def _draw_figure(
    rows: Sequence[CurveRow],
    level: Plateau | None,
    options: Mapping[str, Any],
    delta: float,
    kind: str,
    *,
    titled: bool = True,
) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "dplangevin", "svg.fonttype": "path", "font.size": 10}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        _draw_lines(axes, rows, options["n_steps"])
        if level is not None and level.n_steps is not None:
            _draw_plateau(axes, level.n_steps)
        axes.set(xscale="log", yscale="log", xlabel="number of steps")
        axes.set_ylabel(f"epsilon at delta = {delta:.3g}")
        if titled:
            axes.set_title(_plot_title(options), loc="left", fontsize=10.5)
        axes.grid(True, which="major", color="0.9", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left")
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _draw_lines(axes: Any, rows: Sequence[CurveRow], steps: float) -> None:
    for name, label, colour, dashes in _LINES:
        points = [(row.steps, getattr(row, name)) for row in rows if getattr(row, name)]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, linewidth=2, label=label)
    this_run = [(row.steps, row.bound) for row in rows if row.steps == steps and row.bound]
    if this_run:
        axes.plot(*this_run[0], "o", color=_LINES[1][2], markersize=7, label="this run")


def _draw_plateau(axes: Any, steps: int) -> None:
    axes.axvline(steps, color="0.6", linewidth=0.8)
    axes.annotate(
        f"more steps\ncost nothing\n(about {steps:,})",
        (steps, 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0),
        textcoords="offset points",
        fontsize=8.5,
        color="0.35",
    )


def _plot_title(options: Mapping[str, Any]) -> str:
    sampling = options.get("sampling", "full")
    mechanism = "Noisy gradient descent" if sampling == "full" else f"Noisy SGD, {sampling} batches"
    facts = [
        f"n = {int(options['n']):,}",
        f"step size {options['step_size']:g}",
        f"noise {options['noise_std']:g}",
    ]
    if options.get("strong_convexity"):
        facts.append(f"ridge {options['strong_convexity']:g}")
    if math.isfinite(options.get("diameter", math.inf)):
        facts.append(f"diameter {options['diameter']:g}")
    return (
        f"{mechanism}: privacy of the {options.get('release', 'last-iterate').replace('-', ' ')}\n"
        + ", ".join(facts)
    )


def _html_page(
    rows: Sequence[CurveRow], level: Plateau | None, options: Mapping[str, Any], delta: float
) -> str:
    svg = _draw_figure(rows, level, options, delta, "svg", titled=False).decode()  # the page has a title
    facts = [
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in options.items()
        if value not in ((), False)
    ]
    sentence = "More steps keep costing privacy."
    return str(
        render_template(
            "plot_page.html",
            title=_plot_title(options).replace("\n", ", "),
            svg=svg[svg.index("<svg") :],
            sentence=plateau_sentence(level, options["n_steps"]) if level else sentence,
            facts=", ".join(facts),
            delta=f"{delta:.6g}",
            rows=[row for row in rows if row.lower is not None] or rows,
            number=format_number,
        )
    )
