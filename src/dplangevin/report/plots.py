"""Plots of reports as data that draw themselves as SVG, curves over steps, and displays in scikit-learn's manner.

Every number is post-processing of what was released, or a public fact about the plan, so that drawing costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._templates import COLORS, DASHES, TOP_MARGIN, WIDTH, Drawing, RowAxis, round_ticks
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.registry import plain_composition_theorem, theorems_for
from dplangevin.errors import AssumptionFailed, DplangevinError, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.account import (
    Options,
    Plateau,
    account,
    find_plateau,
    has_varying_steps,
    steps_per_epoch,
    with_n_steps,
)
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.noisy_gradient import lower_bounds
from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec, read_descent_options
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.problem.constants import Constants

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = [
    "CurveRow",
    "Plateau",
    "composition_epsilon",
    "curve_row",
    "curve_rows",
    "describe_run",
    "epsilon_lower_bound",
    "find_plateau",
    "has_varying_steps",
    "step_grid",
    "with_n_steps",
]


_LEFT, _RIGHT, _TOP, _BOTTOM = 62, WIDTH - 22, 12, 262
_LEGEND_TOP, _LEGEND_HEIGHT = 312, 22


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a plot; `style` is an index of COLORS, so that a bound looks the same in every plot."""

    label: str
    points: Sequence[tuple[float, float]]
    style: int = 0
    marker: bool = False


@dataclass(frozen=True, kw_only=True)
class Band:
    """A shaded area, given by its outline."""

    label: str
    outline: Sequence[tuple[float, float]]
    style: int = 0


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Curves over common axes; points that are not finite (or not positive on a logarithmic axis) are left out."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    description: str
    log: bool = False
    bands: Sequence[Band] = ()

    def to_svg(self) -> Markup | str:
        """Return the plot as inline SVG, readable without colour; a sentence where there is nothing to draw."""
        drawn = [(line, [p for p in line.points if _is_drawable(p, self.log)]) for line in self.lines]
        drawn = [(line, points) for line, points in drawn if points]
        if not drawn:
            return f"{self.description}: there is nothing to draw."
        x_axis = _Axis.from_values([x for _, points in drawn for x, _ in points], _LEFT, _RIGHT, self.log)
        y_axis = _Axis.from_values([y for _, points in drawn for _, y in points], _BOTTOM, _TOP, self.log)
        n_labels = len(drawn) + len(self.bands)
        drawing = Drawing(height=_LEGEND_TOP + _LEGEND_HEIGHT * n_labels, description=self.description)
        self._draw_axes(drawing, x_axis, y_axis)
        y = _LEGEND_TOP + 4.0
        for band in self.bands:
            outline = [(x_axis.position(x), y_axis.position(value)) for x, value in band.outline]
            area = {"fill": COLORS[band.style % len(COLORS)], "fill_opacity": 0.18}
            drawing.add("polygon", points=outline, **area)
            key_y = y + _LEGEND_HEIGHT * len(drawn)
            drawing.add("rect", x=4, y=key_y - 7, width=32, height=14, **area)
            drawing.add_text(band.label, 44, key_y + 5)
            y += _LEGEND_HEIGHT
        for index, (line, points) in enumerate(drawn):
            color, dashes = COLORS[line.style % len(COLORS)], DASHES[line.style % len(COLORS)]
            stroke = {"fill": "none", "stroke": color, "stroke_width": 2.5, "stroke_dasharray": dashes}
            places = [(x_axis.position(x), y_axis.position(value)) for x, value in points]
            key_y = _LEGEND_TOP + 4.0 + _LEGEND_HEIGHT * index
            if len(places) > 1:
                drawing.add("polyline", points=places, **stroke)
                drawing.add_line(4, key_y, 36, key_y, **stroke)
            else:
                drawing.add("circle", cx=20, cy=key_y, r=5.5, fill=color)
            if line.marker or len(places) == 1:
                drawing.add("circle", cx=places[-1][0], cy=places[-1][1], r=5.5, fill=color, stroke="#fff")
            drawing.add_text(line.label, 44, key_y + 5)
        return drawing.to_svg()

    def describe(self) -> list[str]:
        """Return a line of points for each curve."""
        lines = []
        for line in self.lines:
            every = math.ceil(len(line.points) / 10) or 1
            lines.append(
                f"{line.label}: " + ", ".join(f"({x:.4g}, {y:.4g})" for x, y in line.points[::every])
            )
        return lines

    def _draw_axes(self, drawing: Drawing, x_axis: _Axis, y_axis: _Axis) -> None:
        for value in x_axis.tick_values():
            drawing.add_line(x_axis.position(value), _TOP, x_axis.position(value), _BOTTOM)
            drawing.add_text(_format_tick(value), x_axis.position(value), _BOTTOM + 19, "middle")
        for value in y_axis.tick_values():
            drawing.add_line(_LEFT, y_axis.position(value), _RIGHT, y_axis.position(value))
            drawing.add_text(_format_tick(value), _LEFT - 7, y_axis.position(value) + 5, "end")
        drawing.add("path", d=f"M{_LEFT},{_TOP}V{_BOTTOM}H{_RIGHT}", fill="none", stroke="currentColor")
        middle = (_TOP + _BOTTOM) / 2
        drawing.add_text(self.x_label, (_LEFT + _RIGHT) / 2, _BOTTOM + 38, "middle")
        drawing.add_text(self.y_label, 14, middle, "middle", transform=f"rotate(-90 14 {middle})")


@dataclass(frozen=True, kw_only=True)
class _Axis:
    low: float
    high: float
    first: float
    last: float
    log: bool

    @classmethod
    def from_values(cls, values: Sequence[float], first: float, last: float, log: bool) -> _Axis:
        low, high = min(values), max(values)
        if log:
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            high = high if high > low else 10 * low
        else:
            low, high = min(low, 0.0), high if high > min(low, 0.0) else low + 1.0
        return cls(low=low, high=high, first=first, last=last, log=log)

    def position(self, value: float) -> float:
        low, high, x = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.first + (x - low) / (high - low) * (self.last - self.first)

    def tick_values(self) -> list[float]:
        if not self.log:
            return round_ticks(self.low, self.high)
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / 5)))]


def _is_drawable(point: tuple[float, float], log: bool) -> bool:
    return all(math.isfinite(v) and (v > 0 or not log) for v in point)


def _format_tick(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class RangeRow:
    """A named range with a mark at `middle`; `crosses_border` highlights it."""

    name: str
    low: float
    middle: float
    high: float
    crosses_border: bool = False


@dataclass(frozen=True, kw_only=True)
class RangePlot:
    """Ranges as horizontal bars over a common axis, with an optional border line.

    description : text for readers who cannot see the plot. limits : of the axis; None takes those of the rows.
    """

    rows: Sequence[RangeRow]
    x_label: str
    description: str
    border: float | None = None
    limits: tuple[float, float] | None = None

    def to_svg(self) -> Markup | str:
        """Return the plot as inline SVG; rows that are not finite are left out."""
        rows = [row for row in self.rows if all(map(math.isfinite, (row.low, row.middle, row.high)))]
        if not rows:
            return f"{self.description}: there is nothing to draw."
        low, high = self.limits or (min(row.low for row in rows), max(row.high for row in rows))
        if self.border is not None:
            low, high = min(low, self.border), max(high, self.border)
        axis = RowAxis(rows=len(rows), low=low, high=high)
        drawing = axis.start_drawing([row.name for row in rows], self.description, self.x_label)
        if self.border is not None:
            x = axis.x_of(self.border)
            drawing.add_line(x, TOP_MARGIN, x, axis.bottom_y, stroke="currentColor", stroke_dasharray="3 3")
        for index, row in enumerate(rows):
            y, left, right = axis.row_center_y(index), axis.x_of(row.low), axis.x_of(row.high)
            color, width = (COLORS[1], 8) if row.crosses_border else (COLORS[0], 5)
            drawing.add_line(left, y, max(right, left + 1), y, stroke=color, stroke_width=width)
            mark = axis.x_of(row.middle)
            drawing.add("circle", cx=mark, cy=y, r=5, fill="#fff", stroke="#111", stroke_width=1.5)
        return drawing.to_svg()

    def describe(self) -> list[str]:
        """Return a line for each range."""
        return [f"{row.name}: {row.low:.4g} to {row.high:.4g}, {row.middle:.4g}" for row in self.rows]


_MAX_WALK_STEPS = 10**7  # the exact distribution of an unbounded random walk is summed step by step


@dataclass(frozen=True, kw_only=True)
class CurveRow:
    """Epsilon after `steps` steps by composition, theorem and lower bound; None where one does not apply."""

    steps: float
    composition: float | None = None
    bound: float | None = None
    lower: float | None = None
    theorem: str = ""


def describe_run(options: Options) -> tuple[Constants, NoisyGradientSpec]:
    """Return the constants and the spec of a run, from the options of `account`."""
    return read_descent_options(options)


def composition_epsilon(guarantee: Guarantee, steps: float, delta: float) -> float | None:
    """Return epsilon by plain composition of the same run: infinite for infinitely many steps, None if unknown."""
    if math.isinf(steps):
        return math.inf
    composition = guarantee if guarantee.theorem == Composition.name else guarantee.composition
    return composition.epsilon(delta) if composition is not None and 0 < delta < 1 else None


def epsilon_lower_bound(options: Options, delta: float) -> float | None:
    """Return an epsilon that some run with these public parameters attains; None where no exact bound is known."""
    if not 0 < delta < 1 or _MAX_WALK_STEPS < options["n_steps"] < math.inf:
        return None
    return lower_bounds.lower_bound_epsilon(*describe_run(options), delta)


def curve_row(
    options: Options, steps: float, delta: float, *, lower: bool = True, level: Plateau | None = None
) -> CurveRow:
    """Return the three epsilons of a run of `steps` steps.

    Past a known plateau its epsilon holds for every number of steps, and only composition is computed again.
    """
    run = with_n_steps(options, steps, delta)
    floor = epsilon_lower_bound(run, delta) if lower else None
    past_plateau = level is not None and level.n_steps is not None and steps >= level.n_steps
    try:
        guarantee = account(**({**run, "theorem": Composition.name} if past_plateau else run))
    except (AssumptionFailed, NotPrivateError):
        return CurveRow(steps=steps, lower=floor)
    composition = composition_epsilon(guarantee, steps, delta)
    bound, theorem = guarantee.epsilon(delta), guarantee.theorem
    if past_plateau and level is not None and level.epsilon < bound:
        bound, theorem = level.epsilon, level.theorem
    return CurveRow(
        steps=steps,
        composition=_finite_or_none(composition),
        bound=_finite_or_none(bound),
        lower=floor,
        theorem=theorem,
    )


def curve_rows(options: Options, steps: Iterable[float], delta: float) -> list[CurveRow]:
    """Return one row per number of steps."""
    return [curve_row(options, count, delta) for count in steps]


def step_grid(options: Options, last: float, points: int) -> tuple[int, ...]:
    """Return increasing numbers of steps, evenly spaced on a log axis; whole epochs for cyclic or shuffled batches."""
    epoch = steps_per_epoch(options)
    ratio = math.ceil(last / epoch) ** (1 / max(points - 1, 1))
    return tuple(sorted({epoch * round(ratio**i) for i in range(points)}))


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_N_POINTS, _N_LOWER_POINTS, _STEPS_FOR_INFINITE_RUNS, _MAX_STEPS = 17, 5, 1000, 10**5


def steps_rows(plan: CertifiedSpec, delta: float, rows_per_person: int = 1) -> list[CurveRow]:
    """Return rows for up to three times the plan's number of steps.

    None for plans without steps, and for those whose first steps set the noise of the others, so that any number of
    them costs the same.
    """
    spec: Any = plan.spec
    steps = getattr(spec, "n_steps", None)
    if steps is None or not 0 < delta < 1 or getattr(spec, "checkpoints", None):
        return []
    if getattr(spec, "n_approach_steps", 0):
        return []
    varying = isinstance(spec.step_size, tuple) or isinstance(spec.noise_std, tuple)
    last = _STEPS_FOR_INFINITE_RUNS if math.isinf(steps) else int(steps) * (1 if varying else 3)
    epoch = 1
    if getattr(spec, "sampling", "full") in ("cyclic", "shuffle"):
        epoch = math.ceil(plan.constants.n / spec.divisor(plan.constants.n))
        epoch = 1 if epoch > last else epoch
    ratio = (last / epoch) ** (1 / (_N_POINTS - 1))
    grid = {epoch * max(1, round(ratio**i)) for i in range(_N_POINTS)}
    if math.isfinite(steps):
        grid.add(int(steps))
    counts = sorted(count for count in grid if count <= last)
    lower = set(counts[:: max(1, len(counts) // _N_LOWER_POINTS)]) | {
        int(steps) if math.isfinite(steps) else 0
    }
    return [_steps_row(plan, count, delta, rows_per_person, lower=count in lower) for count in counts]


def plan_with_steps(plan: CertifiedSpec, steps: float) -> Any:
    """Return the plan's spec with another number of steps."""
    spec: Any = plan.spec.to_descent() if isinstance(plan.spec, LangevinSpec) else plan.spec
    changes: dict[str, Any] = {"n_steps": steps}
    for name in ("step_size", "noise_std"):
        if isinstance(getattr(spec, name), tuple):
            changes[name] = getattr(spec, name)[: int(steps)]
    if getattr(spec, "average_from", 0):
        changes["average_from"] = min(spec.average_from, int(steps) - 1)
    return replace(spec, **changes)


def plan_lower_bound(plan: CertifiedSpec, steps: float, delta: float) -> float | None:
    """Return an epsilon that some run with these public parameters attains; None where no exact bound is known."""
    if not isinstance(plan.spec, NoisyGradientSpec) or not 0 < delta < 1 or _MAX_STEPS < steps < math.inf:
        return None
    try:
        return lower_bound_epsilon(plan.constants, plan_with_steps(plan, steps), delta)
    except DplangevinError:
        return None


def _steps_row(
    plan: CertifiedSpec, steps: int, delta: float, rows_per_person: int, *, lower: bool
) -> CurveRow:
    epsilons: dict[str, float | None] = {}
    composition = plain_composition_theorem(type(plan.spec))
    for key, name in (("bound", plan.theorem), ("composition", composition)):
        epsilons[key] = None
        if name is None:
            continue
        try:
            theorem = theorems_for(type(plan.spec))[name]
            guarantee: Guarantee = theorem.certify(plan.constants, plan_with_steps(plan, steps))
            value = guarantee.group(rows_per_person).epsilon(delta)
        except DplangevinError:
            continue
        epsilons[key] = value if math.isfinite(value) else None
    floor = plan_lower_bound(plan, steps, delta) if lower and rows_per_person == 1 else None
    return CurveRow(steps=steps, lower=floor, theorem=plan.theorem or "", **epsilons)


_OURS, _BAND, _REFERENCE = "#00796b", "#9cd1ca", "#777777"


def _new_axes(ax: Any) -> Any:
    """Return the axes that were given, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise InvalidParameter(
            "a display needs matplotlib; install it with: pip install 'dplangevin[plot]'."
        ) from None
    return plt.subplots()[1]


@dataclass(kw_only=True, eq=False)
class ShapeDisplay:
    """Contribution of one column of an additive model to its score.

    Parameters
    ----------
    shape : see `dplangevin.estimators.shapes.ColumnShape`.
    labels : names of the curves, one for each class of a model of several classes.

    Attributes
    ----------
    ax_, figure_ : what was drawn on.
    """

    shape: Any
    labels: Sequence[str] = ("contribution",)
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(cls, model: Any, column: str, *, level: float = 0.95, ax: Any = None) -> ShapeDisplay:
        """Draw the shape of a column, with its band if the fit had intervals."""
        shape = model.partial_effect(column, level=level)
        several = np.ndim(shape.values) == 2 and shape.kind != "grid"
        labels = tuple(map(str, model.classes_)) if several else ("contribution",)
        return cls(shape=shape, labels=labels).plot(ax)

    def plot(self, ax: Any = None, **style: Any) -> ShapeDisplay:
        """Draw on the axes, or on new ones; `style` goes to matplotlib."""
        if self.shape.kind == "grid":
            raise InvalidParameter(
                f"the display draws single columns, and {self.shape.name!r} is a product; use plot_shapes."
            )
        self.ax_ = _new_axes(ax)
        self.figure_ = self.ax_.figure
        points, curves = self.shape.points, np.atleast_2d(self.shape.values)
        if self.shape.kind == "bars":
            self._plot_bars(curves, style)
        else:
            for label, values in zip(self.labels, curves, strict=True):
                self.ax_.plot(points, values, **({"label": label, "lw": 2} | style))
            if self.shape.low is not None and np.isfinite(self.shape.low).any():
                low, high = (np.ma.masked_invalid(end) for end in (self.shape.low, self.shape.high))
                self.ax_.fill_between(points, low, high, color=_BAND, alpha=0.6, label="95% band", zorder=0)
        is_horizontal = self.shape.kind == "bars"
        (self.ax_.axvline if is_horizontal else self.ax_.axhline)(0, color=_REFERENCE, lw=0.8)
        names = (self.shape.name, "contribution to the score")
        self.ax_.set(
            **dict(zip(("ylabel", "xlabel") if is_horizontal else ("xlabel", "ylabel"), names, strict=True))
        )
        if len(self.labels) > 1:
            self.ax_.legend()
        return self

    def _plot_bars(self, curves: Floats, style: dict[str, Any]) -> None:
        positions, width = np.arange(len(self.shape.points)), 0.8 / len(curves)
        for k, (label, values) in enumerate(zip(self.labels, curves, strict=True)):
            shifted = positions + (k - (len(curves) - 1) / 2) * width
            self.ax_.barh(shifted, values, width, **({"label": label} | style))
        if self.shape.low is not None and len(curves) == 1:
            middle, low = np.asarray(self.shape.center), np.asarray(self.shape.low)
            finite = np.isfinite(low)
            self.ax_.errorbar(
                middle[finite],
                positions[finite],
                xerr=(middle - low)[finite],
                fmt="none",
                ecolor="#333",
                capsize=3,
            )
        self.ax_.set_yticks(positions, [str(point) for point in self.shape.points])
        self.ax_.invert_yaxis()


@dataclass(kw_only=True, eq=False)
class TradeoffDisplay:
    """The best membership test that the guarantee leaves possible: its TPR at each FPR, and guessing.

    Parameters
    ----------
    fpr, tpr : the curve; no attack is above it.
    label : of the curve.
    """

    fpr: Floats
    tpr: Floats
    label: str
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None) -> TradeoffDisplay:
        """Draw the curve of a fitted model, release or plan (anything with `privacy_` or `guarantee`)."""
        guarantee = getattr(model, "privacy_", getattr(model, "guarantee", None))
        if guarantee is None:
            raise InvalidParameter(f"the {type(model).__name__} has no guarantee yet; fit it first.")
        return cls.from_guarantee(guarantee, ax=ax)

    @classmethod
    def from_guarantee(cls, guarantee: Guarantee, *, ax: Any = None) -> TradeoffDisplay:
        """Draw the curve of a guarantee."""
        fpr = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 200)])
        tpr = 1 - np.asarray(guarantee.tradeoff(fpr))
        return cls(fpr=fpr, tpr=tpr, label=guarantee.summary_line.partition(", theorem")[0]).plot(ax)

    def plot(self, ax: Any = None, **style: Any) -> TradeoffDisplay:
        """Draw on the axes, or on new ones; `style` goes to matplotlib."""
        self.ax_ = _new_axes(ax)
        self.figure_ = self.ax_.figure
        self.ax_.plot(self.fpr, self.tpr, **({"label": self.label, "color": _OURS, "lw": 2} | style))
        self.ax_.plot([0, 1], [0, 1], color=_REFERENCE, ls="--", lw=1, label="guessing")
        self.ax_.set(
            xlabel="false positive rate of an attack", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1)
        )
        self.ax_.legend(loc="lower right")
        return self


@dataclass(kw_only=True, eq=False)
class BudgetDisplay:
    """What still fits into the budget of a data set, as bars beside the budget.

    Parameters
    ----------
    names, epsilons : the budget, and the largest releases that still fit.
    title : of the plot.
    """

    names: Sequence[str]
    epsilons: Sequence[float]
    title: str
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None) -> BudgetDisplay:
        """Draw the budget that the estimator is charged to."""
        ledger = getattr(model, "ledger", None)
        if ledger is None or not hasattr(ledger, "remaining"):
            raise InvalidParameter("the estimator has no ledger whose budget could be shown; state ledger=.")
        return cls.from_budget(ledger, ax=ax)

    @classmethod
    def from_budget(cls, budget: Any, *, ax: Any = None) -> BudgetDisplay:
        """Draw the budget of a data set of a ledger."""
        left = budget.remaining()
        fitting = {
            "budget": left.epsilon,
            "one more fit": left.gaussian_epsilon,
            "one more pure release": left.pure_epsilon,
        }
        known = {name: float(value) for name, value in fitting.items() if value is not None}
        title = f"{budget.name}: charges {left.entries}, delta = {left.delta:g}, {left.adjacency}"
        return cls(names=tuple(known), epsilons=tuple(known.values()), title=title).plot(ax)

    def plot(self, ax: Any = None, **style: Any) -> BudgetDisplay:
        """Draw on the axes, or on new ones; `style` goes to matplotlib."""
        self.ax_ = _new_axes(ax)
        self.figure_ = self.ax_.figure
        colors = [_REFERENCE, *[_OURS] * (len(self.names) - 1)]
        bars = self.ax_.barh(range(len(self.names)), self.epsilons, **({"color": colors} | style))
        self.ax_.bar_label(bars, fmt="%.3g", padding=3)
        self.ax_.set_yticks(range(len(self.names)), self.names)
        self.ax_.invert_yaxis()
        self.ax_.set(xlabel="epsilon", title=self.title)
        return self


@dataclass(kw_only=True, eq=False)
class StabilityDisplay:
    """How many decisions another fit would change: the share of rows by their probability of another decision.

    Parameters
    ----------
    probabilities : for each row, that a refit decides otherwise (see `flip_probability`).
    source : "noise" or "sample".
    """

    probabilities: Floats
    source: str = "noise"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(cls, model: Any, X: Any, *, source: str = "noise", ax: Any = None) -> StabilityDisplay:
        """Draw the stability of a classifier's decisions on rows that may be shown (public ones)."""
        return cls(probabilities=model.flip_probability(X, source), source=source).plot(ax)

    def plot(self, ax: Any = None, **style: Any) -> StabilityDisplay:
        """Draw on the axes, or on new ones; `style` goes to matplotlib."""
        self.ax_ = _new_axes(ax)
        self.figure_ = self.ax_.figure
        ordered = np.sort(self.probabilities)[::-1]
        shares = np.arange(1, len(ordered) + 1) / len(ordered)
        expected = float(ordered.mean()) if len(ordered) else 0.0
        label = f"{100 * expected:.3g}% of decisions change on average"
        self.ax_.plot(100 * shares, ordered, **({"label": label, "color": _OURS, "lw": 2} | style))
        what = "other noise" if self.source == "noise" else "another sample of people"
        self.ax_.set(
            xlabel="rows, %, the least stable first", ylabel=f"probability that {what} decides otherwise"
        )
        self.ax_.set_ylim(0, 0.52)
        self.ax_.legend()
        return self
