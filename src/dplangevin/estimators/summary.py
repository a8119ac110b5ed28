"""The table that statisticians expect of a fitted model, tests of groups, and intervals of predictions.

Everything here is post-processing of what `fit(intervals=...)` released: it costs no privacy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, gammaincc

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._intervals import half_width, two_sided
from dplangevin.estimators._names import INTERCEPT

if TYPE_CHECKING:
    from dplangevin.estimators.uncertainty import Uncertainty

HEADERS = ("released", "estimate", "std. error", "z", "p-value", "low", "high", "privacy share")


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """One coefficient.

    Parameters
    ----------
    released : what predictions use. estimate : without the ridge's bias, the middle of the interval.
    error, z, p_value, low, high : of the estimate, privacy noise included.
    privacy : share of the squared error that is privacy noise. note : why an interval is infinite, and what would do.
    """

    name: str
    released: float
    estimate: float
    error: float
    z: float
    p_value: float
    low: float
    high: float
    privacy: float
    note: str = ""

    @property
    def numbers(self) -> tuple[float, ...]:
        """In the order of the table's headers."""
        return (
            self.released, self.estimate, self.error, self.z, self.p_value, self.low, self.high, self.privacy,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary:
    """Rows by coefficient; printed as text, shown as a table in notebooks."""

    title: str
    level: float
    rows: tuple[SummaryRow, ...]

    def __repr__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [self.title, " " * width + "".join(f"{word:>14}" for word in HEADERS)]
        lines += [
            row.name.ljust(width) + "".join(f"{_short(x):>14}" for x in row.numbers) for row in self.rows
        ]
        lines.append(f"Intervals of level {self.level:g} count sampling and privacy noise.")
        return "\n".join(lines + [f"{row.name}: {row.note}" for row in self.rows if row.note])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: null where a number is infinite."""
        fields = ("released", "estimate", "error", "z", "p_value", "low", "high", "privacy_share")
        rows = [
            {"name": row.name, **{name: _finite(x) for name, x in zip(fields, row.numbers, strict=True)}}
            | ({"note": row.note} if row.note else {})
            for row in self.rows
        ]
        return {"title": self.title, "level": self.level, "coefficients": rows}

    def to_json(self) -> str:
        """Strict JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row per coefficient."""
        import pandas as pd

        return pd.DataFrame(
            [row.numbers for row in self.rows], columns=list(HEADERS), index=[row.name for row in self.rows]
        )

    def to_html(self) -> str:
        """A table."""
        head = "".join(f'<th scope="col">{escape(word)}</th>' for word in ("", *HEADERS))
        body = "".join(
            f'<tr><th scope="row">{escape(row.name)}</th>{"".join(f"<td>{_short(x)}</td>" for x in row.numbers)}</tr>'
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    _repr_html_ = to_html


@dataclass(frozen=True, kw_only=True)
class WaldTest:
    """Whether the coefficients of a group are all 0: statistic, its degrees of freedom and the p-value."""

    names: tuple[str, ...]
    statistic: float
    degrees: int
    p_value: float


class WithSummary:
    """The methods of an estimator that was fitted with `intervals`."""

    uncertainty_: Uncertainty
    coef_: Any
    intercept_: Any

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients with standard errors, z, p-values and intervals, privacy noise counted; see `Summary`."""
        known, model = self._known(), _any(self)
        names = [*map(str, model.get_feature_names_out())]
        released = np.atleast_2d(self.coef_)
        if known.centre.shape[-1] > len(names):
            names.append(INTERCEPT)
            released = np.column_stack([released, np.ravel(self.intercept_)])
        several = known.centre.ndim > 1
        labels = [f"{label}: " for label in model.classes_] if several else [""]
        rows = tuple(
            row
            for place, label in enumerate(labels)
            for row in _rows(model, known, place if several else ..., [label + name for name in names],
                             released[place], level)
        )  # fmt: skip
        return Summary(title=_title(model), level=_check.open_unit("level", level), rows=rows)

    def wald_test(self, *names: str) -> WaldTest:
        """Test that all coefficients of these columns (or single coefficients) are 0.

        A column of the schema stands for all its coefficients. The law of the statistic is chi-squared, as if privacy
        noise were normal; of a pure promise with few coefficients it is not quite.
        """
        known = self._known()
        if known.covariances is None:
            raise InvalidParameter("tests of groups are offered for two classes and for numbers.")
        every = [*map(str, _any(self).get_feature_names_out()), INTERCEPT]
        chosen = [place for place in range(len(known.centre)) if _belongs(every[place], names)]
        if not chosen:
            raise InvalidParameter(
                f"no coefficient belongs to {', '.join(names) or 'nothing'}; name columns, or coefficients as in "
                "get_feature_names_out()."
            )
        told = _told(known.flat, chosen)
        covariance = told.T @ known.covariances.sum(axis=0)[np.ix_(chosen, chosen)] @ told
        centre = told.T @ known.centre[chosen]
        statistic = float(centre @ np.linalg.solve(covariance, centre))
        return WaldTest(
            names=tuple(every[place] for place in chosen),
            statistic=statistic,
            degrees=len(centre),
            p_value=float(gammaincc(len(centre) / 2, statistic / 2)),
        )

    def predict_interval(self, X: Any, level: float = 0.95, *, new: bool = False) -> Floats:
        """[low, high] for each row: of the mean target, or of the second class's probability.

        new : of a new target itself (least squares only), whose spread was released with the curvature.
        """
        known, model = self._known(), _any(self)
        if known.covariances is None:
            raise InvalidParameter("intervals of predictions are offered for two classes and for numbers.")
        rows = model._encoded(X, reset=False)
        shift = 0.0
        if known.centre.shape[-1] > rows.shape[1]:
            rows = np.column_stack([rows, np.ones(len(rows))])
        elif np.ndim(self.intercept_) == 0:
            shift = float(self.intercept_)
        middle = rows @ known.centre + shift
        own, noise, prior = (np.einsum("ij,jk,ik->i", rows, part, rows) for part in known.covariances)
        own = own + prior
        if known.flat is not None and known.prior_scale is not None:  # rows with cells that no list names
            own = own + known.prior_scale**2 * ((rows @ known.flat) ** 2).sum(axis=1)
        if new:
            if known.dispersion is None or hasattr(model, "classes_"):
                raise InvalidParameter(
                    "new=True needs a model of numbers whose spread was released; see DPRidge."
                )
            own = own + known.dispersion
        width = half_width(level, np.sqrt(own), np.sqrt(noise), known.dimension)
        both: Floats = np.column_stack([middle - width, middle + width])
        if hasattr(model, "predict_proba"):
            return np.asarray(expit(both))
        return np.exp(both) if type(model)._model == "poisson" else both

    def _known(self) -> Uncertainty:
        if not hasattr(self, "uncertainty_"):
            raise without_intervals("a summary with standard errors needs")
        return self.uncertainty_


def without_intervals(needing: str) -> InvalidParameter:
    """The error of a fit that released nothing to tell errors from."""
    return InvalidParameter(
        f"{needing} a fit with intervals=True (or a share of the budget): what they rest on is released, and paid for, "
        "by fit."
    )


def _rows(
    model: Any, known: Uncertainty, place: Any, names: list[str], released: Floats, level: float
) -> list[SummaryRow]:
    centre, noise, errors = known.centre[place], known.noise[place], known.standard_errors[place]
    own = known.sampling[place] if known.prior is None else np.hypot(known.sampling, known.prior)[place]
    values = two_sided(centre, own, noise, known.dimension)
    intervals = known.intervals(level)[place]
    scores = np.where(np.isfinite(errors), centre / errors, math.nan)
    notes = _notes(model, known, errors) if place is ... else [""] * len(names)
    with np.errstate(invalid="ignore"):
        shares = np.where(np.isfinite(errors), noise**2 / np.where(errors > 0, errors, 1.0) ** 2, np.nan)
    return [
        SummaryRow(
            name=names[j], released=float(released[j]), estimate=float(centre[j]), error=float(errors[j]),
            z=float(scores[j]), p_value=float(values[j]), low=float(intervals[j, 0]),
            high=float(intervals[j, 1]), privacy=float(shares[j]), note=notes[j],
        )
        for j in range(len(names))
    ]  # fmt: skip


def _notes(model: Any, known: Uncertainty, errors: Floats) -> list[str]:
    """Why an interval is infinite, and about which epsilon or n would give one."""
    notes = [""] * len(errors)
    if known.covariances is None or known.prior_scale is None:
        return notes
    scale, left = known.prior_scale**2, np.diag(known.covariances.sum(axis=0))
    for j in np.flatnonzero(np.isinf(errors)):
        told = 1 / left[j] - 1 / scale
        factor = math.sqrt(2 / (scale * told)) if told > 1e-4 / scale else math.inf
        if known.seen is not None and known.seen[j] < 1:
            factor = 1 / known.seen[j] if known.seen[j] > 0.05 else math.inf
        why = "the records' curvature in this direction is lost in its own noise"
        if not factor < 100:
            notes[j] = (
                f"{why}: it nearly repeats other columns, or nearly nobody has it, or far more records are needed."
            )
            continue
        problem = getattr(getattr(getattr(model, "plan_", None), "plan", None), "problem", None)
        many = "" if problem is None else f" (n = {_round_up(factor * problem.n)})"
        notes[j] = (
            f"{why}; about {max(factor, 1.1):.2g} times the records{many}, or epsilon = "
            f"{max(factor, 1.1) * model.epsilon:.2g}, would give an interval."
        )
    return notes


def _told(flat: Floats | None, chosen: list[int]) -> Floats:
    """Directions of the chosen coefficients that can be tested: not those that only trade with the constant.

    All indicators of a column moved together are the constant: their common part says nothing of the column.
    """
    unit = np.eye(len(chosen))
    if flat is None or not flat.shape[1]:
        return unit
    others = [place for place in range(len(flat) - 1) if place not in chosen]
    _, sizes, turn = np.linalg.svd(flat[others]) if others else (None, np.zeros(0), np.eye(flat.shape[1]))
    sizes = np.concatenate([sizes, np.zeros(flat.shape[1] - len(sizes))])
    inside = flat[chosen] @ turn[sizes < 1e-9].T
    if not inside.size:
        return unit
    left, sizes, _ = np.linalg.svd(inside)
    rank = int((sizes > 1e-9).sum())
    return np.asarray(left[:, rank:]) if rank < len(chosen) else unit


def _round_up(n: float) -> int:
    unit = 10 ** max(int(math.log10(n)) - 1, 0)
    return int(math.ceil(n / unit) * unit)


def _belongs(name: str, asked: tuple[str, ...]) -> bool:
    """Whether a coefficient is one of those asked for, or of a column that is."""
    ends = (" bend ", "=", " missing", " x ")
    return any(name == word or any(name.startswith(word + end) for end in ends) for word in asked)


def _title(model: Any) -> str:
    promise = model.privacy_
    delta = promise.at_delta or 0.0
    words = f"epsilon = {promise.epsilon(delta):.4g}" + (f", delta = {delta:.3g}" if delta else " (pure)")
    return f"{type(model).__name__}: {words}, {promise.adjacency}"


def _any(model: Any) -> Any:
    return model


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
