"""Request: the public side of a fit, and the problems it leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.registry import recipe_names
from dplangevin.problem import LOSSES, Ball, DataBounds, Loss, ModelDefaults, Problem, WholeSpace
from dplangevin.problem.constants import ADJACENCIES

AUTO = "auto"
"""The value of `mechanism` that leaves the choice to the planner."""
Objective = Literal["empirical", "population"]
OBJECTIVES: tuple[Objective, ...] = ("empirical", "population")


def model_losses() -> dict[str, type[Loss]]:
    """The loss of every model that can be asked for, by the name of the model."""
    return {loss.defaults.model: loss for loss in LOSSES.values() if loss.defaults is not None}


MODELS = tuple(model_losses())


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is stated of a fit before any record is read.

    Parameters
    ----------
    model : one of MODELS. n, n_features : public numbers of rows and of columns (without the intercept).
    epsilon, delta : the promise; delta = 0 asks for pure epsilon. adjacency : "replace-one" or "add-remove".
    data_norm : bound on a row. fit_intercept : add a constant-one column to it.
    target_bounds : range of the target as the problem sees it. Regressors scale their target to [-1, 1] first (the
        default here); Poisson counts are not scaled.
    n_classes : number of classes of a model of several.
    radius, alpha : stated bound on the coefficients and ridge per sample; None leaves them to the rules.
    mechanism : "auto" or the name of a recipe. theorem : pin a theorem. weight_bound : bound on sample weights.
    bad_rows : what becomes of a record that is not finite, "refuse" or "zero".
    transition : of the Huber loss, in units of the scaled target. quantile : of the pinball loss.
    secure : exact noise on integers, from the operating system.
    more_rows : under add-remove, the data may hold more rows than the divisor n.
    objective : "empirical" risk, or "population" risk: draws with a ridge chosen for new records.

    From these follow
    shape : what the rules know of the model. sides : s, records that differ between neighbours.
    columns : p, columns of the joint row. dimension : number of parameters.
    free : whether nothing is stated of how to fit: mechanism, theorem, ridge, radius or secure noise.
    """

    model: str
    n: int
    n_features: int
    epsilon: float
    delta: float
    adjacency: str
    data_norm: float
    fit_intercept: bool
    target_bounds: tuple[float, float] | None = None
    n_classes: int | None = None
    radius: float | None = None
    alpha: float | None = None
    mechanism: str = AUTO
    theorem: str | None = None
    weight_bound: float = 1.0
    bad_rows: str = "refuse"
    transition: float | None = None
    quantile: float | None = None
    secure: bool = False
    more_rows: bool = False
    objective: Objective = "empirical"
    shape: ModelDefaults = field(init=False, repr=False, compare=False)
    sides: int = field(init=False, repr=False, compare=False)
    columns: int = field(init=False, repr=False, compare=False)
    dimension: int = field(init=False, repr=False, compare=False)
    free: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.put(self, model=_check.choice("model", self.model, tuple(model_losses())))
        shape = model_losses()[self.model].defaults
        assert shape is not None
        several = shape.labels == "several classes"
        _check.put(self, objective=_check.choice("objective", self.objective, OBJECTIVES))
        _check.put(self, mechanism=_check.choice("mechanism", self.mechanism, (AUTO, *recipe_names())))
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        _check.put(self, n=_check.count("n", self.n), n_features=_check.count("n_features", self.n_features))
        _check.each(self, epsilon=_check.positive, weight_bound=_check.positive)
        if self.delta != 0:
            _check.each(self, delta=_check.open_unit)
        if self.radius is not None:
            _check.each(self, radius=_check.positive)
        if self.alpha is not None:
            _check.each(self, alpha=_check.nonnegative)
        if several:
            if self.n_classes is None:
                raise InvalidParameter(f"model={self.model!r} needs n_classes, the public number of classes.")
            _check.put(self, n_classes=_check.count("n_classes", self.n_classes, least=2))
        if shape.labels == "counts" and self.target_bounds is None:
            raise InvalidParameter(
                f"model={self.model!r} needs target_bounds=(0, high), the range of the counts."
            )
        columns = self.n_features + int(self.fit_intercept)
        stated = (self.theorem, self.alpha, self.radius)
        _check.put(
            self,
            shape=shape,
            sides=2 if self.adjacency == "replace-one" else 1,
            columns=columns,
            dimension=columns * (self.n_classes or 2 if several else 1),
            free=self.mechanism == AUTO and not self.secure and all(each is None for each in stated),
        )

    @property
    def mu(self) -> float:
        """The GDP parameter of (epsilon, delta)."""
        return cv.gdp_mu(self.epsilon, self.delta)

    def records(self, pure: bool) -> float:
        """n mu / s, or n epsilon / (s sqrt p) for a pure promise."""
        if pure:
            return self.n * self.epsilon / (self.sides * math.sqrt(self.dimension))
        return self.n * self.mu / self.sides

    def loss(self, bound: float | None, sharpness: float = 1.0) -> Loss:
        """The model's loss with this clip of the slope.

        sharpness : times the clip of a Poisson slope (at most the largest count), and over the width of a pinball loss:
            what large budgets allow, so that the bias of either vanishes.
        """
        return model_losses()[self.model].for_model(self, bound, sharpness)

    @property
    def needed_clip(self) -> float | None:
        """The clip of a slope that is unbounded without one (scaled targets lie within 1 of their middle)."""
        return 1.0 if math.isinf(self.loss(None).slope_bound) else None

    def problem(self, bound: float | None, ridge: float, sharpness: float = 1.0) -> Problem:
        """The problem with this clip and ridge; a stated alpha wins."""
        labels: dict[str, Any] = {"target": self.target_bounds or (-1.0, 1.0)}
        if self.shape.labels in ("two classes", "several classes"):
            labels = {"classes": self.n_classes or 2}
        return Problem(
            loss=self.loss(bound, sharpness),
            bounds=DataBounds(
                data_norm=self.data_norm, weight_bound=self.weight_bound, bad_rows=self.bad_rows, **labels
            ),
            n=self.n,
            n_features=self.n_features,
            constraint=WholeSpace() if self.radius is None else Ball(self.radius),
            ridge=ridge if self.alpha is None else self.alpha,
            fit_intercept=self.fit_intercept,
            adjacency=self.adjacency,  # type: ignore[arg-type]
            more_rows=self.more_rows,
        )


def clip_reason(problem: Problem, signal: float) -> str:
    """Why the slope is bounded as it is."""
    state = (
        "noise dominates"
        if signal < 30
        else "signal and noise are comparable"
        if signal < 100
        else "signal dominates"
    )
    return f"slopes are bounded by {problem.loss.slope_bound:.3g}: {state}"


def caution(request: Request, signal: float) -> str | None:
    """What n would lift the signal above the noise, when it is not."""
    if signal >= 1:
        return None
    rows = math.ceil(request.n / signal)
    return (
        f"n = {request.n} rows are few for {request.dimension} parameters at epsilon = {request.epsilon:g}: expect "
        f"little more than the intercept; about n = {rows} rows, or an epsilon {1 / signal:.2g} times larger, would do."
    )
