"""The public request of a fit, and the problems that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dplangevin import _check
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.registry import plannable_mechanisms
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem import LOSSES, Ball, DataBounds, Loss, ModelDefaults, Problem, WholeSpace
from dplangevin.problem.constants import ADJACENCIES, MAX_EXACT_COLUMNS

AUTO = "auto"
"""The value of `mechanism` that leaves the choice to the planner."""
RiskObjective = Literal["empirical", "population"]
EXACT_EXPLANATION = (
    "exact: sums over records are integers, noise is drawn exactly, of the size that floating point would need, and "
    "what is released lies on public grids"
)
RISK_OBJECTIVES: tuple[RiskObjective, ...] = ("empirical", "population")


def model_losses() -> dict[str, type[Loss]]:
    """Return the loss of every model that can be requested, by the name of the model."""
    return {loss.defaults.model: loss for loss in LOSSES.values() if loss.defaults is not None}


MODELS = tuple(model_losses())


@dataclass(frozen=True, kw_only=True)
class Request:
    """The public parameters of a fit, stated before any record is read.

    Parameters
    ----------
    model : one of MODELS. n, n_features : public numbers of rows and of columns (without the intercept).
    epsilon, delta : the guarantee; delta = 0 requests pure epsilon. adjacency : "replace-one" or "add-remove".
    data_norm : bound on the norm of a row. fit_intercept : append a constant-one column to it.
    constant_feature : the value of the last column where it is the same in every row (a schema's constant), or None.
    target_bounds : range of the target in the problem. Regressors scale their target to [-1, 1] first (the default
        here); Poisson counts are not scaled.
    n_classes : number of classes of a multiclass model.
    radius, alpha : stated bound on the coefficients and ridge per record; None leaves them to the rules.
    mechanism : "auto" or the name of a mechanism. theorem : the theorem to certify with, None for the best.
    weight_bound : bound on sample weights.
    bad_rows : how a record that is not finite is treated, "refuse" or "zero".
    transition : of the Huber loss, in units of the scaled target. quantile : of the pinball loss.
    secure : None makes sums and noise exact wherever that is proved, and gives the reason where it is not; True
        refuses those cases; False computes in floating point.
    allow_more_rows : under add-remove, the data may hold more rows than the divisor n.
    curvature_fraction : fraction of the budget (in mu^2) for a release of the curvature, which intervals need.
    objective : "empirical" risk, or "population" risk: draws with a ridge chosen for new records.
    mechanism_options : for mechanism="langevin": a mapping with any of inverse_temperature, time and n_steps, which are
        then not chosen.

    Attributes
    ----------
    defaults : the planner's rules for the model. n_changed_records : s, records that differ between neighbours.
    n_columns : p, columns of the joint row. dimension : number of parameters.
    uses_defaults : whether mechanism, theorem, ridge and radius are all left to the planner.
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
    secure: bool | None = None
    allow_more_rows: bool = False
    objective: RiskObjective = "empirical"
    constant_feature: float | None = None
    curvature_fraction: float = 0.0
    mechanism_options: Mapping[str, float] | None = field(default=None, hash=False)
    defaults: ModelDefaults = field(init=False, repr=False, compare=False)
    n_changed_records: int = field(init=False, repr=False, compare=False)
    n_columns: int = field(init=False, repr=False, compare=False)
    dimension: int = field(init=False, repr=False, compare=False)
    uses_defaults: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.set_frozen(self, model=_check.check_choice("model", self.model, tuple(model_losses())))
        defaults = model_losses()[self.model].defaults
        assert defaults is not None
        is_multiclass = defaults.labels == "several classes"
        _check.set_frozen(self, objective=_check.check_choice("objective", self.objective, RISK_OBJECTIVES))
        _check.set_frozen(
            self, mechanism=_check.check_choice("mechanism", self.mechanism, (AUTO, *plannable_mechanisms()))
        )
        _check.set_frozen(self, adjacency=_check.check_choice("adjacency", self.adjacency, ADJACENCIES))
        _check.set_frozen(
            self,
            n=_check.check_count("n", self.n),
            n_features=_check.check_count("n_features", self.n_features),
        )
        _check.validate_fields(self, epsilon=_check.check_positive, weight_bound=_check.check_positive)
        if self.delta != 0:
            _check.validate_fields(self, delta=_check.check_open_unit)
        if self.curvature_fraction != 0:
            _check.validate_fields(self, curvature_fraction=_check.check_open_unit)
        if self.radius is not None:
            _check.validate_fields(self, radius=_check.check_positive)
        if self.alpha is not None:
            _check.validate_fields(self, alpha=_check.check_nonnegative)
        if is_multiclass:
            if self.n_classes is None:
                raise InvalidParameter(f"model={self.model!r} needs n_classes, the public number of classes.")
            _check.set_frozen(self, n_classes=_check.check_count("n_classes", self.n_classes, minimum=2))
        if defaults.labels == "counts" and self.target_bounds is None:
            raise InvalidParameter(
                f"model={self.model!r} needs target_bounds=(0, high), the range of the counts."
            )
        columns = self.n_features + int(self.fit_intercept)
        stated = (self.theorem, self.alpha, self.radius)
        _check.set_frozen(
            self,
            defaults=defaults,
            n_changed_records=2 if self.adjacency == "replace-one" else 1,
            n_columns=columns,
            dimension=columns * (self.n_classes or 2 if is_multiclass else 1),
            uses_defaults=self.mechanism == AUTO and all(value is None for value in stated),
        )

    @property
    def has_constant(self) -> bool:
        """Whether a column of the joint row is the same public number in every row."""
        return self.fit_intercept or self.constant_feature is not None

    @property
    def is_exact(self) -> bool:
        """Whether sums and noise are exact, once `resolve_arithmetic` has decided it."""
        return bool(self.secure)

    def resolve_arithmetic(self, obstacle: str | None) -> tuple[Request, str]:
        """Return the request with its arithmetic decided, and the reason; `obstacle` is why exact noise has no proof.

        Raises AssumptionFailed where exact noise is demanded and cannot be had.
        """
        if obstacle is None and not (self.n_columns <= MAX_EXACT_COLUMNS and 1e-60 < self.data_norm < 1e60):
            obstacle = (
                f"exact sums are for at most {MAX_EXACT_COLUMNS} columns, and row norms from 1e-60 to 1e60"
            )
        if self.secure and obstacle is not None:
            raise AssumptionFailed(f"secure=True has no proof here: {obstacle}.")
        if self.secure is False:
            return self, "floating point, as requested: no guarantee covers the low-order bits of its noise"
        if obstacle is not None:
            return replace(self, secure=False), (
                f"floating point, and no guarantee covers the low-order bits of its noise: {obstacle}"
            )
        return replace(self, secure=True), EXACT_EXPLANATION

    @property
    def mu(self) -> float:
        """The GDP parameter of (epsilon, delta)."""
        return cv.gdp_mu(self.epsilon, self.delta)

    def effective_n(self, pure: bool) -> float:
        """Return n mu / s, or n epsilon / (s sqrt p) for a pure guarantee."""
        if pure:
            return self.n * self.epsilon / (self.n_changed_records * math.sqrt(self.dimension))
        return self.n * self.mu / self.n_changed_records

    def make_loss(self, bound: float | None, sharpness: float = 1.0) -> Loss:
        """Return the model's loss with its slope clipped at `bound` (None: as the model requires).

        sharpness : multiplies the clip of a Poisson slope (at most the largest count) and divides the width of a
        pinball loss; large budgets allow more of it, so that the bias of either vanishes.
        """
        return model_losses()[self.model].for_model(self, bound, sharpness)

    @property
    def needed_clip(self) -> float | None:
        """The clip that an unbounded slope requires, else None (scaled targets lie within 1 of their centre)."""
        return 1.0 if math.isinf(self.make_loss(None).slope_bound) else None

    def make_problem(self, bound: float | None, ridge: float, sharpness: float = 1.0) -> Problem:
        """Return the problem with this clip and ridge; a stated alpha takes precedence over `ridge`."""
        labels: dict[str, Any] = {"target": self.target_bounds or (-1.0, 1.0)}
        if self.defaults.labels in ("two classes", "several classes"):
            labels = {"classes": self.n_classes or 2}
        return Problem(
            loss=self.make_loss(bound, sharpness),
            bounds=DataBounds(
                data_norm=self.data_norm, weight_bound=self.weight_bound, bad_rows=self.bad_rows, **labels
            ),
            n=self.n,
            n_features=self.n_features,
            constraint=WholeSpace() if self.radius is None else Ball(self.radius),
            ridge=ridge if self.alpha is None else self.alpha,
            fit_intercept=self.fit_intercept,
            constant_feature=self.constant_feature,
            adjacency=self.adjacency,  # type: ignore[arg-type]
            allow_more_rows=self.allow_more_rows,
        )


def explain_clip(problem: Problem, signal_to_noise: float) -> str:
    """Return a sentence with the clip of per-record gradients and the reason for it."""
    state = (
        "noise dominates"
        if signal_to_noise < 30
        else "signal and noise are comparable"
        if signal_to_noise < 100
        else "signal dominates"
    )
    return f"per-record gradients are clipped at {problem.loss.slope_bound:.3g} times the row norm: {state}"


def explain_counts(fraction: float) -> tuple[str, ...]:
    """Return a sentence on the counts of the classes that have this fraction of the budget; none without counts."""
    if not fraction:
        return ()
    return (
        f"{fraction:.0%} of the privacy budget is spent on the counts of the classes, or on the mean target: the fit "
        "starts at the model that predicts them for every row, and returns to it as far as noise hides what features "
        "add",
    )


def low_signal_warning(request: Request, signal_to_noise: float) -> str | None:
    """Return which n or epsilon would bring the signal above the noise; None when it is above already."""
    if signal_to_noise >= 1:
        return None
    rows = math.ceil(request.n / signal_to_noise)
    return (
        f"n = {request.n} rows are few for {request.dimension} parameters at epsilon = {request.epsilon:g}: expect "
        f"little more than the intercept; about n = {rows} rows, or an epsilon {1 / signal_to_noise:.2g} times larger, "
        "would suffice."
    )
