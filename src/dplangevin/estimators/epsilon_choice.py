"""Which epsilon? Simulated private fits on public rows, or on a generated twin of the schema; no record is read."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression, Ridge

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._begin import clone_for
from dplangevin.estimators.logistic import DPLogisticRegression
from dplangevin.estimators.ridge import DPRidge
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.privacy import conversions as cv
from dplangevin.schema import CategoricalColumn, Schema

EPSILONS = (0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MOST_ROWS = 10_000  # more rows are simulated with as much noise as they would have
STRENGTHS = {"weak": 0.5, "usual": 1.5, "strong": 4.0}  # deviation of the twin's scores
TEST_ROWS = 10_000


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """What fits at this epsilon reach: the mean, and the 10% and 90% quantiles of single fits."""

    epsilon: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class EpsilonChoice:
    """The smallest epsilon that reaches a goal in simulation, the curve it was read off, and what n would do.

    Parameters
    ----------
    epsilon, goal, metric : the answer and the question. curve : of the metric, with bands of single fits.
    best : what a fit without noise reaches. twins : the answer on weaker and stronger twins (infinity where none is);
        empty for public rows.
    """

    epsilon: float
    goal: float
    metric: str
    n: int
    delta: float
    best: float
    curve: tuple[CurvePoint, ...]
    twins: dict[str, float]

    def rows_for(self, epsilon: float) -> int:
        """About how many rows reach the goal at another epsilon: the noise is as large where n mu is the same."""
        return math.ceil(self.n * cv.gdp_mu(self.epsilon, self.delta) / cv.gdp_mu(epsilon, self.delta))

    def __str__(self) -> str:
        lines = [
            f"epsilon = {self.epsilon:.3g} reaches {self.metric} = {self.goal:g} with n = {self.n} rows at delta = "
            f"{self.delta:g} (without noise: {self.best:.4g}); epsilon = {self.epsilon / 2:.3g} would take about "
            f"{self.rows_for(self.epsilon / 2)} rows",
            *(
                f"  epsilon {point.epsilon:<5g} {self.metric} {point.value:.4g}  (single fits {point.low:.4g} to "
                f"{point.high:.4g})"
                for point in self.curve
            ),
        ]
        if self.twins:
            told = ", ".join(f"{name} {value:.3g}" for name, value in self.twins.items())
            lines.append(f"  how far the twin decides: with signals of other strengths the answer is {told}")
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """A picture of the curve with its bands."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4))
        axes = figure.subplots()
        xs = [point.epsilon for point in self.curve]
        axes.plot(xs, [point.value for point in self.curve], marker="o")
        axes.fill_between(xs, [p.low for p in self.curve], [p.high for p in self.curve], alpha=0.2)
        axes.axhline(self.goal, linestyle="--", color="grey")
        axes.axvline(self.epsilon, linestyle=":", color="grey")
        axes.set(xscale="log", xlabel="epsilon", ylabel=self.metric, title=f"n = {self.n}, simulated")
        figure.savefig(os.fspath(path))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Public rows to fit and to score, encoded, with what a fit without noise reaches there."""

    train: Floats
    labels: Floats
    test: Floats
    test_labels: Floats
    classes: bool

    def measured(self, score: Floats, metric: str) -> float:
        """The metric of scores on the test rows."""
        if not self.classes:
            return float(np.mean((score - self.test_labels) ** 2))
        yes = self.test_labels > 0
        if metric == "accuracy":
            return float(np.mean((score > 0.5) == yes))
        kept = np.clip(score, 1e-12, 1 - 1e-12)
        return float(-np.mean(np.where(yes, np.log(kept), np.log1p(-kept))))

    def without_noise(self, metric: str) -> float:
        """The metric of a plain fit."""
        if self.classes:
            plain = LogisticRegression(C=1e3, fit_intercept=False, max_iter=500).fit(self.train, self.labels)
            return self.measured(plain.predict_proba(self.test)[:, 1], metric)
        plain = Ridge(alpha=1e-3, fit_intercept=False).fit(self.train, self.labels)
        return self.measured(plain.predict(self.test), metric)


def epsilon_for(
    model: Any = "logistic",
    schema: Any = None,
    *,
    p: int | None = None,
    n: int,
    accuracy: float | None = None,
    log_loss: float | None = None,
    excess: float | None = None,
    delta: float = 1e-6,
    public_data: tuple[Any, Any] | None = None,
    seeds: int = 6,
    random_state: int = 0,
) -> EpsilonChoice:
    """The smallest epsilon whose fits reach a goal, by simulation on public rows or on a generated twin.

    No private record is read. The twin has the schema's columns (or p columns), values spread over their ranges, and a
    linear signal of usual strength; the answer for weaker and stronger signals is told beside. Goals on the excess over
    a fit without noise depend little on the twin, goals on accuracy or log-loss much.

    Parameters
    ----------
    model : "logistic", "ridge", or such an unfitted estimator. schema or p : what is public of the table. n : its rows.
    accuracy, log_loss, excess : the goal, one of them; excess is of the log-loss (or of the mean squared error of the
        target scaled to [-1, 1]) over that of a fit without noise.
    public_data : (X, y), rows to simulate on instead of a twin. seeds : fits at each epsilon.

    Examples
    --------
    >>> found = epsilon_for("logistic", p=5, n=20_000, excess=0.01, seeds=2)
    >>> 0.02 < found.epsilon < 2 and len(found.curve) == 8
    True
    """
    metric, goal = _asked(accuracy=accuracy, log_loss=log_loss, excess=excess)
    estimator = _estimator(model)
    if metric != "excess" and not is_classifier(estimator):
        raise InvalidParameter("accuracy and log_loss are for classifiers; state excess= for regressors.")
    if (schema is None) == (p is None):
        raise InvalidParameter("state the schema of the table, or p, the number of its columns.")
    rows, fits = _check.count("n", n), _check.count("seeds", seeds)
    _check.open_unit("delta", delta)
    stated = None if schema is None else as_schema(schema)
    make = _maker(estimator, stated, p, public_data, min(rows, MOST_ROWS), random_state)
    curve, best = _curve(make("usual"), estimator, metric, rows, delta, fits)
    found = _crossing(curve, goal, metric)
    if math.isinf(found):
        top = curve[-1].value
        raise DplangevinError(
            f"no epsilon up to {EPSILONS[-1]:g} reaches {metric} = {goal:g} with {rows} rows: the best is {top:.4g} "
            f"(without noise {best:.4g}). Ask for less, or for more rows."
        )
    twins = {}
    if public_data is None:
        for name in ("weak", "strong"):
            twins[name] = _crossing(_curve(make(name), estimator, metric, rows, delta, 2)[0], goal, metric)
    return EpsilonChoice(
        epsilon=found, goal=goal, metric=metric, n=rows, delta=delta, best=best, curve=curve, twins=twins
    )


def _asked(**goals: float | None) -> tuple[str, float]:
    """The one goal that is stated."""
    asked = {name: goal for name, goal in goals.items() if goal is not None}
    if len(asked) != 1:
        raise InvalidParameter("state one goal: accuracy=, log_loss= or excess=.")
    metric, goal = next(iter(asked.items()))
    return metric, _check.positive(metric, goal)


def _estimator(model: Any) -> DPLinearModel:
    known: dict[str, Any] = {"logistic": DPLogisticRegression, "ridge": DPRidge}
    if isinstance(model, str):
        return known[_check.choice("model", model, tuple(known))]()  # type: ignore[no-any-return]
    if not isinstance(model, DPLogisticRegression | DPRidge):
        raise InvalidParameter(
            "epsilon_for simulates DPLogisticRegression and DPRidge, of two classes or numbers."
        )
    return clone_for(None, model)


def _maker(
    estimator: DPLinearModel, schema: Schema | None, p: int | None, public: Any, n: int, seed: int
) -> Callable[[str], _Rows]:
    classes = is_classifier(estimator)
    if public is not None:
        X, y = public
        rows = SchemaEncoder(schema).transform(X) if schema is not None else _unit(np.asarray(X, float))
        labels = _public_labels(np.asarray(y), classes)
        order = np.random.default_rng(seed).permutation(len(rows))
        cut = max(2 * len(rows) // 3, 1)
        use, held = order[:cut], order[cut:]
        drawn = np.random.default_rng(seed).choice(use, n)
        return lambda _: _Rows(rows[drawn], labels[drawn], rows[held], labels[held], classes)

    def twin(strength: str) -> _Rows:
        rng = np.random.default_rng(seed)
        size = n + TEST_ROWS
        rows = (
            _encoded(schema, size, rng) if schema is not None else _unit(rng.standard_normal((size, p or 1)))
        )
        score = rows @ rng.standard_normal(rows.shape[1])
        score = STRENGTHS[strength] * (score - score.mean()) / (score.std() + 1e-12)
        if classes:
            labels = np.where(rng.random(size) < 1 / (1 + np.exp(1 - score)), 1.0, 0.0)
        else:
            labels = np.clip(score / 6 + 0.2 * rng.standard_normal(size), -1, 1)
        return _Rows(rows[:n], labels[:n], rows[n:], labels[n:], classes)

    return twin


def _public_labels(y: NDArray[Any], classes: bool) -> Floats:
    if classes:
        names = np.unique(y)
        if len(names) != 2:
            raise InvalidParameter("public_data must hold two classes.")
        return np.asarray(y == names[1], float)
    low, high = float(np.min(y)), float(np.max(y))
    return np.asarray(2 * (np.asarray(y, float) - low) / max(high - low, 1e-300) - 1, float)


def _unit(rows: Floats) -> Floats:
    full = np.column_stack([rows, np.ones(len(rows))])
    return np.asarray(full / np.linalg.norm(full, axis=1, keepdims=True))


def _encoded(schema: Schema, size: int, rng: np.random.Generator) -> Floats:
    """Rows of a twin: numbers in the middle of their range, near its low end or at its two ends, by turns; the k-th
    category with weight 1 / k."""
    columns: dict[str, Any] = {}
    spreads = (rng.beta(2, 3, size), rng.beta(1, 6, size), 1.0 * (rng.random(size) < 0.2))
    for place, column in enumerate(schema.columns):
        if isinstance(column, CategoricalColumn):
            weights = 1 / np.arange(1.0, len(column.categories) + 1)
            places = rng.choice(len(column.categories), size, p=weights / weights.sum())
            columns[column.name] = np.array(column.categories, dtype=object)[places]
        else:
            low, high, spread = column.low, column.high, rng.permutation(spreads[place % len(spreads)])
            if column.transform == "log1p":
                columns[column.name] = np.expm1(np.log1p(low) + spread * (np.log1p(high) - np.log1p(low)))
            else:
                columns[column.name] = low + spread * (high - low)
    from dplangevin.tables import Table, cells_of

    table = Table({name: cells_of(values, name) for name, values in columns.items()}, size)
    encoded: Floats = SchemaEncoder(schema).transform(table)
    return encoded


def _curve(
    rows: _Rows, estimator: DPLinearModel, metric: str, n: int, delta: float, seeds: int
) -> tuple[tuple[CurvePoint, ...], float]:
    best = rows.without_noise("accuracy" if metric == "accuracy" else "log_loss")
    floor = best if metric == "excess" else 0.0
    points = []
    for epsilon in EPSILONS:
        found = [_fitted(rows, estimator, epsilon, n, delta, seed) for seed in range(seeds)]
        values = np.array([rows.measured(score, metric) - floor for score in found])
        points.append(
            CurvePoint(
                epsilon=epsilon,
                value=float(values.mean()),
                low=float(np.quantile(values, 0.1)),
                high=float(np.quantile(values, 0.9)),
            )
        )
    return tuple(points), 0.0 if metric == "excess" else best


def _fitted(rows: _Rows, estimator: DPLinearModel, epsilon: float, n: int, delta: float, seed: int) -> Floats:
    """Scores of a simulated fit. Fewer rows than n get as much noise as n rows would: n mu is the same."""
    mu = cv.gdp_mu(epsilon, delta) * n / len(rows.train)
    stated: dict[str, Any] = {
        "epsilon": cv.gdp_epsilon(mu, delta), "delta": delta, "data_norm": 1.0, "schema": None, "fit_intercept": False,
        "random_state": seed, "ledger": None, "state": None, "verbose": False, "n": None, "person": None,
    }  # fmt: skip
    stated |= {"classes": [0, 1]} if rows.classes else {"target_bounds": (-1.0, 1.0)}
    model: Any = clone_for(None, estimator).set_params(**stated)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows.train, rows.labels.astype(int) if rows.classes else rows.labels)
    return np.asarray(model.predict_proba(rows.test)[:, 1] if rows.classes else model.predict(rows.test))


def _crossing(curve: tuple[CurvePoint, ...], goal: float, metric: str) -> float:
    """The epsilon at which the curve, made monotone, meets the goal; infinity when it never does."""
    sign = -1.0 if metric == "accuracy" else 1.0
    values = np.minimum.accumulate([sign * point.value for point in curve])
    target, logs = sign * goal, np.log([point.epsilon for point in curve])
    if values[-1] > target:
        return math.inf
    place = int(np.argmax(values <= target))
    if place == 0:
        return float(curve[0].epsilon)
    high, low = values[place - 1], values[place]
    if metric == "accuracy" or low <= 0 or target <= 0:
        share = (high - target) / max(high - low, 1e-300)
    else:
        share = math.log(high / target) / max(math.log(high / low), 1e-300)
    return float(np.exp(logs[place - 1] + share * (logs[place] - logs[place - 1])))
