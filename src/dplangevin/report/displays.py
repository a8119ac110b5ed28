"""Displays in scikit-learn's manner: `SomeDisplay.from_estimator(model, ax=ax)` draws on your axes; needs matplotlib.

Every number is post-processing of what was released, or a public fact about the plan, so that drawing costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter

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
