"""Problem: the public description of what is minimized, over which convex set, and bounds on its objective there.

Two constants must not be confused. Sensitivities use L of one record's loss (`constants.lipschitz`): the ridge is the
same for neighbours and cancels. Bounds on F itself, regulariser included, use L_F = L + ridge * max |theta|: the
divergence of a uniform start, the slope of a ramp score, risk bounds in terms of values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import ADJACENCIES, Adjacency, Constants, DataBounds
from dplangevin.problem.losses import LOSSES, Clipped, Loss, RecordLoss

__all__ = ["CONSTRAINTS", "Ball", "Box", "ConstraintSet", "L1Ball", "Simplex", "WholeSpace"]


FloatArray = NDArray[np.float64]


class ConstraintSet(ABC):
    """A closed convex set of parameters; the accountant takes the diameter from here, not from the user."""

    name: ClassVar[str]

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the closest point of the set to theta[dimension], or to each column of theta[dimension, k]."""
        return self._project_columns(_as_columns(theta)).reshape(np.shape(theta))

    def contains(self, theta: FloatArray, tolerance: float = 0.0) -> bool:
        """Return whether theta (every column of it) satisfies the set's inequalities up to tolerance."""
        return bool(np.all(self._violation(_as_columns(theta)) <= tolerance))

    @abstractmethod
    def diameter(self, dimension: int) -> float:
        """Return the largest distance between two points of the set, infinity when unbounded."""

    @abstractmethod
    def _project_columns(self, theta: FloatArray) -> FloatArray:
        """Return the projection of each column."""

    @abstractmethod
    def _violation(self, theta: FloatArray) -> FloatArray:
        """Return by how much each column violates the set's inequalities; at most 0 inside, infinity for NaN."""


@dataclass(frozen=True)
class RadiusSet(ConstraintSet):
    """A set around 0 described by a radius, of Euclidean diameter twice the radius."""

    radius: float

    def __post_init__(self) -> None:
        _check.validate_fields(self, radius=_check.check_positive)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius


def _as_columns(theta: FloatArray) -> FloatArray:
    array = np.asarray(theta, np.float64)
    if array.ndim not in (1, 2):
        raise InvalidParameter(f"theta must be [dimension] or [dimension, k], got {array.ndim} dimensions.")
    return array.reshape(array.shape[0], -1)


def column_norms(theta: FloatArray) -> FloatArray:
    """Return the Euclidean norm of each column, safe from overflow and underflow in the squares."""
    squares = np.einsum("ij,ij->j", theta, theta)
    if squares.size and squares.min() > 1e-200 and squares.max() < 1e200:  # no overflow or underflow
        return np.asarray(np.sqrt(squares))
    largest = np.abs(theta).max(axis=0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return np.asarray(scale * np.sqrt(((theta / scale) ** 2).sum(axis=0)), np.float64)


@final
@dataclass(frozen=True)
class WholeSpace(ConstraintSet):
    """All of R^d: projection does nothing and the diameter is infinite."""

    name: ClassVar[str] = "whole-space"

    def diameter(self, dimension: int) -> float:
        return math.inf

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        return theta.copy()

    def _violation(self, theta: FloatArray) -> FloatArray:
        return np.where(np.isfinite(theta).all(axis=0), 0.0, np.inf)


@final
@dataclass(frozen=True)
class Ball(RadiusSet):
    """The ball {theta : |theta| <= radius}, of diameter 2 radius; points outside are scaled back to the sphere.

    Projected points satisfy `contains` with tolerance 0: they are scaled to slightly less than the radius.

    Examples
    --------
    >>> Ball(5.0).project(np.array([6.0, 8.0])).round(12)
    array([3., 4.])
    """

    name: ClassVar[str] = "ball"

    def project(self, theta: FloatArray) -> FloatArray:
        if np.ndim(theta) == 1 and np.vdot(theta, theta) < 0.99 * self.radius**2:  # clearly inside
            return np.array(theta, np.float64)
        return super().project(theta)

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        norms = column_norms(theta)
        outside = norms > self.radius
        projected = theta.copy()
        if not outside.any():
            return projected
        rounding_slack = (theta.shape[0] + 8) * 2.0**-52
        projected[:, outside] = theta[:, outside] / norms[outside] * (self.radius * (1 - rounding_slack))
        return projected

    def _violation(self, theta: FloatArray) -> FloatArray:
        return np.nan_to_num(column_norms(theta) - self.radius, nan=np.inf)


@final
@dataclass(frozen=True)
class Box(ConstraintSet):
    """The box {theta : low <= theta <= high}, of diameter |high - low|. Projected points are exactly inside.

    Parameters
    ----------
    low, high : numbers (the same for every coordinate) or one number per coordinate; infinity is allowed.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    name: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            _check.set_frozen(self, **{side: _check_limits(side, getattr(self, side))})
        low, high = self._limits
        if np.ndim(low) and np.ndim(high) and low.shape != high.shape:
            raise InvalidParameter(
                f"low has {low.size} coordinates but high has {high.size}; state as many for both."
            )
        if not (np.all(low <= high) and np.any(low < high)):
            raise InvalidParameter(
                f"low must not exceed high, nor equal it everywhere; got {self.low!r} and {self.high!r}."
            )
        if np.any(low == np.inf) or np.any(high == -np.inf):
            raise InvalidParameter(f"the box is empty: low = {self.low!r}, high = {self.high!r}.")

    @cached_property
    def _limits(self) -> tuple[FloatArray, FloatArray]:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        return (low[:, None] if low.ndim else low), (high[:, None] if high.ndim else high)

    def diameter(self, dimension: int) -> float:
        self._check_dimension(dimension)
        low, high = self._limits
        return math.hypot(*np.broadcast_to((high - low).ravel(), (dimension,)).tolist())

    def _check_dimension(self, dimension: int) -> None:
        for side in self._limits:
            if side.ndim and side.size != dimension:
                raise InvalidParameter(
                    f"the box has {side.size} coordinates but theta has {dimension}; give one number, or one "
                    "per coordinate with the intercept last."
                )

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        self._check_dimension(theta.shape[0])
        return np.clip(theta, *self._limits)

    def _violation(self, theta: FloatArray) -> FloatArray:
        self._check_dimension(theta.shape[0])
        low, high = self._limits
        outside = np.where(np.isnan(theta), np.inf, np.maximum(low - theta, theta - high))
        return np.asarray(outside.max(axis=0), np.float64)


def _check_limits(name: str, value: Any) -> float | tuple[float, ...]:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be a number or a sequence of numbers, got {value!r}.") from None
    if array.ndim > 1 or array.size == 0 or np.isnan(array).any():
        raise InvalidParameter(f"{name} must be a number or a non-empty sequence of numbers, got {value!r}.")
    return float(array) if array.ndim == 0 else tuple(array.tolist())


@final
@dataclass(frozen=True)
class Simplex(ConstraintSet):
    """The simplex {theta >= 0, sum theta = mass}, of diameter mass sqrt 2 in dimension 2 and more.

    Projected points are exactly non-negative; their sum is the mass up to rounding, so `contains` holds with
    tolerance dimension * 2^-52 * mass.

    References
    ----------
    Held, Wolfe and Crowder (1974), Validation of subgradient optimization (sort and threshold).
    """

    mass: float = 1.0
    name: ClassVar[str] = "simplex"

    def __post_init__(self) -> None:
        _check.validate_fields(self, mass=_check.check_positive)

    def diameter(self, dimension: int) -> float:
        if dimension < 2:
            raise InvalidParameter(f"a simplex in dimension {dimension} is one point; it needs 2 or more.")
        return self.mass * math.sqrt(2)

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        return project_on_simplex(theta, self.mass)

    def _violation(self, theta: FloatArray) -> FloatArray:
        excess = np.maximum(np.abs(theta.sum(axis=0) - self.mass), -theta.min(axis=0))
        return np.asarray(np.nan_to_num(excess, nan=np.inf), np.float64)


def project_on_simplex(theta: FloatArray, mass: float) -> FloatArray:
    """Return max(theta - tau, 0) for each column, with tau such that it sums to mass.

    The projection is invariant to adding a constant, so the largest entry is shifted to 0; entries below -mass
    project to 0 and are raised to -mass. Both prevent cancellation in sums of huge entries.
    """
    shifted = np.maximum(theta - theta.max(axis=0), -mass)
    ordered = -np.sort(-shifted, axis=0)
    candidates = (np.cumsum(ordered, axis=0) - mass) / np.arange(1, theta.shape[0] + 1)[:, None]
    active = np.maximum((ordered > candidates).sum(axis=0), 1)
    threshold = np.take_along_axis(candidates, active[None, :] - 1, axis=0)
    projected = np.maximum(shifted - threshold, 0.0)
    return np.asarray(projected * (mass / projected.sum(axis=0)), np.float64)


@final
@dataclass(frozen=True)
class L1Ball(RadiusSet):
    """The L1 ball {theta : sum |theta_j| <= radius}, of Euclidean diameter 2 radius.

    Projected points satisfy `contains` with tolerance 0: they are scaled to slightly less than the radius.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra (2008), Efficient projections onto the l1-ball.
    """

    name: ClassVar[str] = "l1-ball"

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        outside = self._violation(theta) > 0
        rounding_slack = (theta.shape[0] + 8) * 2.0**-52
        projected = theta.copy()
        far = theta[:, outside]
        projected[:, outside] = (
            np.sign(far) * project_on_simplex(np.abs(far), self.radius) * (1 - rounding_slack)
        )
        return projected

    def _violation(self, theta: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            mass = np.abs(theta).sum(axis=0)
        return np.asarray(np.nan_to_num(mass - self.radius, nan=np.inf), np.float64)


CONSTRAINTS: dict[str, type[ConstraintSet]] = {
    constraint.name: constraint for constraint in (Ball, Box, Simplex, L1Ball, WholeSpace)
}


def is_proved(loss: Loss) -> bool:
    """Return whether the loss is one of this library itself, clipped or not, and not of a subclass."""
    while type(loss) is Clipped:
        loss = loss.loss
    return type(loss) in LOSSES.values()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Minimize (1/n) sum_i weight_i loss(<theta, (x_i, 1)>; y_i) + (ridge / 2) |theta|^2 over a convex set.

    Everything that privacy depends on follows from these public parameters; no record is read.

    Parameters
    ----------
    loss : a loss with a finite slope bound; wrap others in Clipped(loss, bound).
    bounds : stated bounds of one record.
    n : public number of records (replace-one), or public divisor that the number never exceeds (add-remove).
    allow_more_rows : under add-remove, the number of records may exceed the divisor n.
    n_features : number of feature columns, without the intercept.
    constraint : the set onto which every iterate is projected; the accountant uses its diameter.
    ridge : penalty on the whole of theta, intercept included; added once, outside any clipping.
    fit_intercept : append a constant-one column to the row, the last one; slopes multiply the joint row.
    adjacency : "replace-one" or "add-remove".
    constant_feature : the value of the last feature column where it is the same in every row (a schema's constant);
        None where there is none. Starting points depend on it, no sensitivity does.

    Attributes
    ----------
    n_columns : columns of the joint row, the features and the intercept. dimension : number of coordinates of theta.
    row_norm : largest norm of the joint row (x, 1). constants : L, M, m, diameter and sensitivity.
    constant : the value of the last column of the joint row where it is the same in every row, else None.

    Notes
    -----
    For a loss of K scores theta holds K coefficients per column, entry (column j, class c) at j K + c.

    Examples
    --------
    >>> from dplangevin.problem import Ball, DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1000, n_features=3,
    ...                   constraint=Ball(2.0), ridge=0.01, fit_intercept=False)
    >>> problem.constants.lipschitz, problem.constants.smoothness, problem.constants.diameter
    (1.0, 0.26, 4.0)
    """

    loss: Loss
    bounds: DataBounds
    n: int
    n_features: int
    constraint: ConstraintSet = field(default_factory=WholeSpace)
    ridge: float = 0.0
    fit_intercept: bool = True
    adjacency: Adjacency = "replace-one"
    allow_more_rows: bool = False
    constant_feature: float | None = None
    n_columns: int = field(init=False, repr=False, compare=False)
    dimension: int = field(init=False, repr=False, compare=False)
    row_norm: float = field(init=False, repr=False, compare=False)
    constants: Constants = field(init=False, repr=False, compare=False)
    constant: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.validate_fields(
            self, n=_check.check_count, n_features=_check.check_count, ridge=_check.check_nonnegative
        )
        _check.set_frozen(self, adjacency=_check.check_choice("adjacency", self.adjacency, ADJACENCIES))
        if not isinstance(self.fit_intercept, bool):
            raise InvalidParameter(f"fit_intercept must be True or False, got {self.fit_intercept!r}.")
        # a user's class could clip less, or project elsewhere, than it states
        if type(self.bounds) is not DataBounds:
            raise InvalidParameter(
                f"bounds must be stated, e.g. DataBounds(data_norm=1.0, classes=2); got {self.bounds!r}."
            )
        if type(self.constraint) not in CONSTRAINTS.values():
            raise InvalidParameter(
                f"constraint must be one of this library's sets such as Ball(1.0), got {self.constraint!r}."
            )
        if self.constant_feature is not None:
            _check.validate_fields(self, constant_feature=_check.check_positive)
        self._check_loss()
        columns = self.n_features + int(self.fit_intercept)
        norm = self.bounds.data_norm
        _check.set_frozen(
            self,
            n_columns=columns,
            dimension=columns * self.loss.score_dimension,
            row_norm=math.hypot(norm, 1.0) if self.fit_intercept else norm,
            constant=1.0 if self.fit_intercept else self.constant_feature,
        )
        _check.set_frozen(self, constants=self._derive_constants())

    def _check_loss(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidParameter(f"loss must be a Loss such as Logistic(), got {self.loss!r}.")
        if not isinstance(self.loss, RecordLoss) and not is_proved(self.loss):
            raise InvalidParameter(
                f"{type(self.loss).__name__} is not a loss of this library: nothing proves its slope bound and its "
                "convexity. Subclass RecordLoss, whose per-record gradients are clipped."
            )
        if isinstance(self.loss, RecordLoss) and self.loss.score_dimension != 1:
            raise InvalidParameter("a loss of whole records has one parameter for each column of the row.")
        if math.isinf(self.loss.slope_bound):
            raise InvalidParameter(
                f"the {self.loss.name} loss has an unbounded slope: one record could change the result without "
                f"limit. Wrap it: Clipped({self.loss!r}, bound)."
            )
        if self.loss.curvature_bound == 0 and self.ridge == 0:
            raise InvalidParameter(
                f"the {self.loss.name} loss is linear and needs a ridge; with ridge=1.0 its minimiser is the mean."
            )
        classes = self.loss.label_classes
        if classes is not None and self.bounds.classes != classes:
            raise InvalidParameter(
                f"the {self.loss.name} loss needs DataBounds(classes={classes}), "
                f"got classes={self.bounds.classes!r}."
            )
        (low, high), (least, most) = self.bounds.label_range, self.loss.label_range
        if low < least or high > most:
            raise InvalidParameter(
                f"the {self.loss.name} loss takes labels in [{least:g}, {most:g}], but the bounds allow "
                f"[{low:g}, {high:g}]; state a range inside it."
            )

    def _derive_constants(self) -> Constants:
        """Return the constants that the public parameters imply.

        A record's gradient is weight * slope (x, 1)^T, of (Frobenius) norm at most L = weight_bound slope_bound
        row_norm; its Hessian is at most weight_bound curvature_bound row_norm^2, of rank 1 (softmax: K - 1, since
        slopes sum to 0). Only the ridge counts as strong convexity. For a loss of whole records only the clip is
        trusted, except where this library proves more.
        """
        loss, weight, row, oscillation = self.loss, self.bounds.weight_bound, self.row_norm, None
        if isinstance(loss, RecordLoss):
            convex, rank = loss.convex and is_proved(loss), None
            lipschitz = _check.check_positive("gradient_bound", loss.gradient_bound)
            smoothness = loss.curvature_bound if convex else math.inf
            if (
                loss.value_range is not None
            ):  # each of the two records contributes a term in [0, weight * width]
                width = _check.check_positive(
                    "value_range[1] - value_range[0]", -np.subtract(*loss.value_range)
                )
                oscillation = (2 if self.adjacency == "replace-one" else 1) * weight * width
        else:
            convex, rank = loss.convex, max(loss.score_dimension - 1, 1) if loss.convex else None
            lipschitz, smoothness = loss.slope_bound * row, loss.curvature_bound * row * row
        diameter = self.constraint.diameter(self.dimension)
        return Constants(
            n=self.n,
            lipschitz=weight * lipschitz,
            smoothness=weight * smoothness + self.ridge,
            strong_convexity=self.ridge,
            diameter=diameter,
            adjacency=self.adjacency,
            convex=convex,
            dimension=self.dimension,
            hessian_rank=rank,
            row_norm=row,
            label_bound=max(abs(label) for label in self.bounds.label_range),
            weight_bound=weight,
            assumptions=self._list_assumptions(math.isfinite(diameter)),
            allow_more_rows=self.allow_more_rows,
            value_oscillation=oscillation,
            logistic_slope_bound=loss.logistic_slope_bound,
        )

    def _list_assumptions(self, projected: bool) -> tuple[str, ...]:
        bounds, assumptions = self.bounds, []
        assumptions.append(f"feature rows are clipped to Euclidean norm {bounds.data_norm:g}")
        if bounds.classes is not None:
            assumptions.append(f"labels other than 0..{bounds.classes - 1} count as class 0")
        else:
            assumptions.append(
                f"targets are clipped to [{bounds.label_range[0]:g}, {bounds.label_range[1]:g}]"
            )
        assumptions.append(
            f"sample weights are clipped to [0, {bounds.weight_bound:g}], never divided by their sum"
        )
        if self.adjacency == "replace-one":
            assumptions.append(f"the number of records n = {self.n} is public")
        elif self.allow_more_rows:
            assumptions.append(f"the divisor n = {self.n} is public; the data may hold more or fewer records")
        else:
            assumptions.append(f"the divisor n = {self.n} is public and the data never hold more records")
        if self.fit_intercept:
            assumptions.append(
                "the intercept is a constant-one column of the joint row, penalised like the rest"
            )
        if self.ridge > 0:
            assumptions.append("the ridge is added once per step, outside the clip")
        if projected:
            assumptions.append(f"every iterate is projected on the {self.constraint.name}")
        return (*assumptions, *self.loss.assumptions)


def max_norm(constraint: ConstraintSet, dimension: int) -> float:
    """Return an upper bound on |theta| over the set (attained for balls and boxes); infinity when it is unbounded."""
    if isinstance(constraint, Ball):
        return constraint.radius
    if isinstance(constraint, Box):
        sides = np.maximum(np.abs(np.asarray(constraint.low)), np.abs(np.asarray(constraint.high)))
        return math.hypot(*np.broadcast_to(sides, (dimension,)).tolist())
    nearest = float(np.linalg.norm(constraint.project(np.zeros(dimension))))
    return nearest + constraint.diameter(dimension)


def full_lipschitz(problem: Problem) -> float:
    """Return L_F, the Lipschitz constant of F = (1/n) sum of losses + (ridge/2) |theta|^2 on the set.

    Examples
    --------
    >>> from dplangevin.problem import DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1000, n_features=3,
    ...                   constraint=Ball(2.0), ridge=0.5, fit_intercept=False)
    >>> problem.constants.lipschitz, full_lipschitz(problem)
    (1.0, 2.0)
    """
    if problem.allow_more_rows:  # the ratio of the number of records to n is unbounded
        return math.inf
    if problem.ridge == 0:
        return problem.constants.lipschitz
    return problem.constants.lipschitz + problem.ridge * max_norm(problem.constraint, problem.dimension)


def max_excess(problem: Problem) -> float:
    """Return a bound on sup F - inf F over the set: L diameter + (ridge / 2) max |theta|^2.

    Examples
    --------
    >>> from dplangevin.problem import Ball, DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1000, n_features=3,
    ...                   constraint=Ball(2.0), ridge=0.5, fit_intercept=False)
    >>> round(max_excess(problem), 6)
    5.0
    """
    constants = problem.constants
    if math.isinf(constants.diameter) or problem.allow_more_rows:
        return math.inf
    penalty = problem.ridge / 2 * max_norm(problem.constraint, problem.dimension) ** 2
    if constants.value_oscillation is not None:
        return (constants.value_oscillation + penalty) * (1 + 1e-12)
    return (constants.lipschitz * constants.diameter + penalty) * (1 + 1e-12)


def has_interior_minimizers(problem: Problem) -> bool:
    """Return whether every data set's minimiser is a zero of the gradient: |theta*| <= L / ridge stays inside.

    At the unconstrained minimiser the ridge's gradient ridge theta* equals minus a mean of record gradients, of norm
    at most L; a minimiser on the sphere |theta| = L / ridge is still a zero of the gradient. Known for balls around 0
    and for the whole space, with a ridge.
    """
    if problem.ridge <= 0 or not problem.constants.convex or problem.allow_more_rows:
        return False
    if isinstance(problem.constraint, WholeSpace):
        return True
    needed = problem.constants.lipschitz / problem.ridge
    return isinstance(problem.constraint, Ball) and problem.constraint.radius >= needed
