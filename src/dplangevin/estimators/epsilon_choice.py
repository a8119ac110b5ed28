"""Choice of epsilon by simulated private fits on public rows, or on synthetic data generated from the schema."""

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
from dplangevin.accounting import conversions as cv
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators.call_context import clone_for
from dplangevin.estimators.linear_models import DPLogisticRegression, DPRidge
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encode_cells, row_scale
from dplangevin.schema import CategoricalColumn, Schema
from dplangevin.tables import as_column

EPSILON_GRID = (0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MAX_SIMULATED_ROWS = 10_000  # larger n are simulated with this many rows, with the noise of the larger n
SIGNAL_STRENGTHS = {"weak": 0.5, "usual": 1.5, "strong": 4.0}  # standard deviation of the synthetic scores
TEST_ROWS = 10_000


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Metric of simulated fits at one epsilon.

    Parameters
    ----------
    value : mean over the simulated fits. low, high : 10% and 90% quantiles of single fits.
    interval : 90% confidence interval of the value of a single fit on new rows: the spread of single fits, and the
        error of the metric on the rows it was evaluated on, and of the fit on the rows it was trained on.
    """

    epsilon: float
    value: float
    low: float
    high: float
    interval: tuple[float, float] = (-math.inf, math.inf)


@dataclass(frozen=True, kw_only=True)
class EpsilonChoice:
    """Smallest epsilon that reaches a goal in simulation, with the simulated curve.

    Parameters
    ----------
    epsilon : smallest epsilon that reaches the goal.
    goal, metric : the target value, and of which metric.
    n, delta : for which the fits were simulated.
    value_without_noise : metric of a fit without noise.
    curve : metric by epsilon, with quantiles of single fits.
    epsilon_by_strength : the epsilon for weaker and stronger synthetic signals (infinity where none reaches the
        goal); empty for public rows.
    """

    epsilon: float
    goal: float
    metric: str
    n: int
    delta: float
    value_without_noise: float
    curve: tuple[CurvePoint, ...]
    epsilon_by_strength: dict[str, float]

    @property
    def interval(self) -> tuple[float, float]:
        """90% confidence interval of the value of a single fit at `epsilon` on new rows; infinite without public rows.

        Ends are interpolated between the points of the curve, in the logarithm of epsilon.
        """
        logs = np.log([point.epsilon for point in self.curve])
        ends = np.array([point.interval for point in self.curve])
        if not np.isfinite(ends).all():
            return (-math.inf, math.inf)
        low, high = (float(np.interp(math.log(self.epsilon), logs, end)) for end in ends.T)
        return low, high

    def rows_needed(self, epsilon: float) -> int:
        """Return about how many rows reach the goal at another epsilon: the relative noise depends on n mu."""
        relative = cv.gdp_mu(self.epsilon, self.delta) / cv.gdp_mu(epsilon, self.delta)
        return math.ceil(self.n * relative * (1 - 1e-9))  # rounding alone must not add a row

    def __str__(self) -> str:
        lines = [
            f"epsilon = {self.epsilon:.3g} reaches {self.metric} = {self.goal:g} with n = {self.n} rows at delta = "
            f"{self.delta:g} (without noise: {self.value_without_noise:.4g}); epsilon = {self.epsilon / 2:.3g} would "
            f"take about {self.rows_needed(self.epsilon / 2)} rows",
            *(
                [
                    f"  90% interval of one fit at this epsilon: {self.interval[0]:.4g} to {self.interval[1]:.4g}"
                ]
                if math.isfinite(self.interval[0])
                else []
            ),
            *(
                f"  epsilon {point.epsilon:<5g} {self.metric} {point.value:.4g}  (single fits {point.low:.4g} to "
                f"{point.high:.4g}"
                + (
                    f"; 90% interval with the error of the public rows {point.interval[0]:.4g} to "
                    f"{point.interval[1]:.4g})"
                    if math.isfinite(point.interval[0])
                    else ")"
                )
                for point in self.curve
            ),
        ]
        if self.epsilon_by_strength:
            epsilons_text = ", ".join(
                f"{name} {value:.3g}" for name, value in self.epsilon_by_strength.items()
            )
            lines.append(
                f"  sensitivity to the synthetic data: with signals of other strengths epsilon is {epsilons_text}"
            )
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Save a plot of the curve with its bands."""
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
class _SimulationRows:
    """Encoded public or synthetic rows, to fit and to score.

    Parameters
    ----------
    train, test : rows without a constant, of norm at most data_norm. Fits add the constant, as fits of the private
        table have one, so that they count the classes and return to the constant model in the same way.
    n_distinct : different public rows among those of `train`; 0 for synthetic rows.
    """

    train: Floats
    labels: Floats
    test: Floats
    test_labels: Floats
    is_classification: bool
    data_norm: float
    n_distinct: int = 0

    def evaluate_metric(self, score: Floats, metric: str) -> float:
        """Return the metric of scores on the test rows."""
        if not self.is_classification:
            return float(np.mean((score - self.test_labels) ** 2))
        yes = self.test_labels > 0
        if metric == "accuracy":
            return float(np.mean((score > 0.5) == yes))
        probabilities = np.clip(score, 1e-12, 1 - 1e-12)
        return float(-np.mean(np.where(yes, np.log(probabilities), np.log1p(-probabilities))))

    def metric_error(self, score: Floats, metric: str) -> float:
        """Return the standard error of the metric on the test rows, and of the rows that the fit was trained on.

        A fit to N rows with p parameters has an excess of about p / (2 N) over the best one; the rows are drawn from
        `n_distinct` ones.
        """
        if not self.is_classification:
            values = (score - self.test_labels) ** 2
        else:
            yes = self.test_labels > 0
            probabilities = np.clip(score, 1e-12, 1 - 1e-12)
            hits = (score > 0.5) == yes
            logs = -np.where(yes, np.log(probabilities), np.log1p(-probabilities))
            values = hits.astype(float) if metric == "accuracy" else logs
        of_test = float(values.std()) / math.sqrt(max(len(values), 1))
        return math.hypot(of_test, (self.train.shape[1] + 1) / (2 * max(self.n_distinct, 1)))

    def metric_without_noise(self, metric: str) -> float:
        """Return the metric of a fit without noise."""
        if self.is_classification:
            plain = LogisticRegression(C=1e3 / (1 + self.data_norm**2), max_iter=500)
            plain.fit(self.train, self.labels)
            return self.evaluate_metric(plain.predict_proba(self.test)[:, 1], metric)
        plain = Ridge(alpha=1e-3).fit(self.train, self.labels)
        return self.evaluate_metric(plain.predict(self.test), metric)


def choose_epsilon(
    model: Any = "logistic",
    schema: Any = None,
    *,
    n_features: int | None = None,
    n: int,
    accuracy: float | None = None,
    log_loss: float | None = None,
    excess: float | None = None,
    delta: float = 1e-6,
    public_data: tuple[Any, Any] | None = None,
    n_repeats: int = 6,
    random_state: int = 0,
) -> EpsilonChoice:
    """Return the smallest epsilon whose fits reach a goal, by simulation on public rows or on synthetic data.

    No private record is read. Synthetic data are generated from the schema (or have `n_features` columns), with
    values spread over the ranges and a linear signal of usual strength; the epsilon for weaker and stronger signals
    is reported too. Goals on the excess over a fit without noise depend little on the synthetic data. Goals on accuracy
    or log-loss depend on how well the features predict the target, so they need public rows, whose number limits how
    well the value is known: the interval of each point says so.

    Parameters
    ----------
    model : "logistic", "ridge", or such an unfitted estimator.
    schema : of the table; or `n_features`, the number of its columns.
    n : number of private rows.
    accuracy, log_loss, excess : the goal, exactly one of them; excess is of the log-loss (or of the mean squared
        error of the target scaled to [-1, 1]) over that of a fit without noise.
    delta : of the fits.
    public_data : (X, y), public rows to simulate on instead of synthetic data.
    n_repeats : simulated fits at each epsilon.
    random_state : seed of the simulation.

    Privacy
    -------
    Nothing private is read or released, so nothing is charged.

    Examples
    --------
    >>> choice = choose_epsilon("logistic", n_features=5, n=20_000, excess=0.01, n_repeats=2)
    >>> 0.02 < choice.epsilon < 2 and len(choice.curve) == 8
    True
    """
    metric, goal = _stated_goal(accuracy=accuracy, log_loss=log_loss, excess=excess)
    estimator = _resolve_estimator(model)
    if metric != "excess" and not is_classifier(estimator):
        raise InvalidParameter("accuracy and log_loss are for classifiers; state excess= for regressors.")
    if metric != "excess" and public_data is None:
        raise InvalidParameter(
            f"{metric} depends on how well the features predict the target, which nothing public tells here: with "
            "invented data the answer could be off by several points. State excess= over the fit without noise, which "
            "depends on n, epsilon and the columns alone, or public_data=(X, y)."
        )
    if (schema is None) == (n_features is None):
        raise InvalidParameter("state the schema of the table, or n_features, the number of its columns.")
    rows, fits = _check.check_count("n", n), _check.check_count("n_repeats", n_repeats)
    _check.check_open_unit("delta", delta)
    stated = None if schema is None else as_schema(schema)
    make_rows = _rows_factory(
        estimator, stated, n_features, public_data, min(rows, MAX_SIMULATED_ROWS), random_state
    )
    curve, best = _simulate_curve(make_rows("usual"), estimator, metric, rows, delta, fits)
    epsilon = _epsilon_at_goal(curve, goal, metric)
    if math.isinf(epsilon):
        top = curve[-1].value
        raise DplangevinError(
            f"no epsilon up to {EPSILON_GRID[-1]:g} reaches {metric} = {goal:g} with {rows} rows: the best is "
            f"{top:.4g} (without noise {best:.4g}). Relax the goal, or plan for more rows."
        )
    epsilon_by_strength = {}
    if public_data is None:
        for name in ("weak", "strong"):
            epsilon_by_strength[name] = _epsilon_at_goal(
                _simulate_curve(make_rows(name), estimator, metric, rows, delta, 2)[0], goal, metric
            )
    return EpsilonChoice(
        epsilon=epsilon,
        goal=goal,
        metric=metric,
        n=rows,
        delta=delta,
        value_without_noise=best,
        curve=curve,
        epsilon_by_strength=epsilon_by_strength,
    )


def _stated_goal(**goals: float | None) -> tuple[str, float]:
    """Return the one goal that is stated, as (metric, value)."""
    stated_goals = {name: goal for name, goal in goals.items() if goal is not None}
    if len(stated_goals) != 1:
        raise InvalidParameter("state one goal: accuracy=, log_loss= or excess=.")
    metric, goal = next(iter(stated_goals.items()))
    return metric, _check.check_positive(metric, goal)


def _resolve_estimator(model: Any) -> DPLinearModel:
    known: dict[str, Any] = {"logistic": DPLogisticRegression, "ridge": DPRidge}
    if isinstance(model, str):
        return known[_check.check_choice("model", model, tuple(known))]()  # type: ignore[no-any-return]
    if not isinstance(model, DPLogisticRegression | DPRidge):
        raise InvalidParameter(
            "choose_epsilon simulates DPLogisticRegression (two classes) and DPRidge only."
        )
    return clone_for(None, model)


def _rows_factory(
    estimator: DPLinearModel,
    schema: Schema | None,
    n_features: int | None,
    public_data: Any,
    n: int,
    random_state: int,
) -> Callable[[str], _SimulationRows]:
    """Return the function from a signal strength to rows: public rows, or synthetic ones."""
    classes = is_classifier(estimator)
    if public_data is not None:
        X, y = public_data
        if schema is not None:
            rows, data_norm = _split_constant(SchemaEncoder(schema).transform(X), schema)
        else:
            rows, data_norm = _clip_to_norm(np.asarray(X, float), estimator.data_norm)
        labels = _encode_public_targets(np.asarray(y), classes)
        order = np.random.default_rng(random_state).permutation(len(rows))
        cut = max(2 * len(rows) // 3, 1)
        train, test = order[:cut], order[cut:]
        drawn = np.random.default_rng(random_state).choice(train, n)
        return lambda _: _SimulationRows(
            rows[drawn], labels[drawn], rows[test], labels[test], classes, data_norm, n_distinct=cut
        )

    def synthetic_rows(strength: str) -> _SimulationRows:
        rng = np.random.default_rng(random_state)
        size = n + TEST_ROWS
        if schema is not None:
            rows, data_norm = _split_constant(_synthetic_encoded_rows(schema, size, rng), schema)
        else:
            columns = n_features or 1
            rows = rng.standard_normal((size, columns))
            rows *= math.sqrt(columns) / np.linalg.norm(rows, axis=1, keepdims=True)
            rows, data_norm = _clip_to_norm(rows, math.sqrt(columns))
        score = rows @ rng.standard_normal(rows.shape[1])
        score = SIGNAL_STRENGTHS[strength] * (score - score.mean()) / (score.std() + 1e-12)
        if classes:
            labels = np.where(rng.random(size) < 1 / (1 + np.exp(1 - score)), 1.0, 0.0)
        else:
            labels = np.clip(score / 6 + 0.2 * rng.standard_normal(size), -1, 1)
        return _SimulationRows(rows[:n], labels[:n], rows[n:], labels[n:], classes, data_norm)

    return synthetic_rows


def _split_constant(encoded: Floats, schema: Schema) -> tuple[Floats, float]:
    """Return encoded rows in units of their constant, without it, and the bound on their norm."""
    scale = row_scale(schema)
    return encoded[:, :-1] / scale, math.sqrt(max((schema.row_norm / scale) ** 2 - 1, 1e-300))


def _clip_to_norm(rows: Floats, data_norm: float | None) -> tuple[Floats, float]:
    """Return the rows, scaled back to data_norm where they are longer, and that norm; None: the largest one."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bound = max(float(norms.max(initial=0.0)), 1e-300) if data_norm is None else float(data_norm)
    return np.asarray(rows / np.maximum(norms / bound, 1.0)), bound


def _encode_public_targets(y: NDArray[Any], classes: bool) -> Floats:
    if classes:
        names = np.unique(y)
        if len(names) != 2:
            raise InvalidParameter("public_data must hold two classes.")
        return np.asarray(y == names[1], float)
    low, high = float(np.min(y)), float(np.max(y))
    return np.asarray(2 * (np.asarray(y, float) - low) / max(high - low, 1e-300) - 1, float)


def _synthetic_encoded_rows(schema: Schema, size: int, rng: np.random.Generator) -> Floats:
    """Return encoded synthetic rows of the schema.

    The values of a numeric column lie in the middle of its range, near its low end, or at its two ends, by turns; the
    k-th category of a column has weight 1 / k.
    """
    cells: dict[str, Any] = {}
    spreads = (rng.beta(2, 3, size), rng.beta(1, 6, size), 1.0 * (rng.random(size) < 0.2))
    for index, feature in enumerate(schema.features):
        column = feature.column
        if isinstance(column, CategoricalColumn):
            weights = 1 / np.arange(1.0, len(column.categories) + 1)
            codes = rng.choice(len(column.categories), size, p=weights / weights.sum())
            values: Any = np.array(column.categories, dtype=object)[codes]
        else:
            low, high, spread = column.low, column.high, rng.permutation(spreads[index % len(spreads)])
            if column.transform == "log1p":
                values = np.expm1(np.log1p(low) + spread * (np.log1p(high) - np.log1p(low)))
            else:
                values = low + spread * (high - low)
        cells[column.name] = as_column(values, column.name)
    return encode_cells(schema, lambda feature: cells[feature.column.name], size)


def _simulate_curve(
    rows: _SimulationRows, estimator: DPLinearModel, metric: str, n: int, delta: float, n_repeats: int
) -> tuple[tuple[CurvePoint, ...], float]:
    """Return the metric at each epsilon of the grid, and that of a fit without noise."""
    best = rows.metric_without_noise("accuracy" if metric == "accuracy" else "log_loss")
    floor = best if metric == "excess" else 0.0
    points = []
    for epsilon in EPSILON_GRID:
        simulated_scores = [
            _simulate_fit(rows, estimator, epsilon, n, delta, seed) for seed in range(n_repeats)
        ]
        values = np.array([rows.evaluate_metric(score, metric) - floor for score in simulated_scores])
        half = 1.645 * math.hypot(
            float(values.std()), 0.0 if metric == "excess" else rows.metric_error(simulated_scores[0], metric)
        )
        middle = float(values.mean())
        points.append(
            CurvePoint(
                epsilon=epsilon,
                value=float(values.mean()),
                low=float(np.quantile(values, 0.1)),
                high=float(np.quantile(values, 0.9)),
                interval=(middle - half, middle + half) if rows.n_distinct else (-math.inf, math.inf),
            )
        )
    return tuple(points), 0.0 if metric == "excess" else best


def _simulate_fit(
    rows: _SimulationRows, estimator: DPLinearModel, epsilon: float, n: int, delta: float, seed: int
) -> Floats:
    """Return the scores of a simulated fit; fewer rows than n get the noise of n rows, since n mu is the same."""
    mu = cv.gdp_mu(epsilon, delta) * n / len(rows.train)
    stated: dict[str, Any] = {
        "epsilon": cv.gdp_epsilon(mu, delta), "delta": delta, "data_norm": rows.data_norm, "schema": None,
        "fit_intercept": True, "random_state": seed, "ledger": None, "checkpoint": None, "verbose": False,
        "n_public": None, "person": None, "secure": False,
    }  # fmt: skip
    stated |= {"classes": [0, 1]} if rows.is_classification else {"target_bounds": (-1.0, 1.0)}
    model: Any = clone_for(None, estimator).set_params(**stated)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows.train, rows.labels.astype(int) if rows.is_classification else rows.labels)
    return np.asarray(
        model.predict_proba(rows.test)[:, 1] if rows.is_classification else model.predict(rows.test)
    )


def _epsilon_at_goal(curve: tuple[CurvePoint, ...], goal: float, metric: str) -> float:
    """Return the epsilon at which the curve, made monotone, meets the goal; infinity when it never does."""
    sign = -1.0 if metric == "accuracy" else 1.0
    values = np.minimum.accumulate([sign * point.value for point in curve])
    target, logs = sign * goal, np.log([point.epsilon for point in curve])
    if values[-1] > target:
        return math.inf
    index = int(np.argmax(values <= target))
    if index == 0:
        return float(curve[0].epsilon)
    high, low = values[index - 1], values[index]
    if metric == "accuracy" or low <= 0 or target <= 0:
        weight = (high - target) / max(high - low, 1e-300)
    else:
        weight = math.log(high / target) / max(math.log(high / low), 1e-300)
    return float(np.exp(logs[index - 1] + weight * (logs[index] - logs[index - 1])))
