"""Problem: the public description of what is minimized, and bounds on its objective over the constraint set.

Two constants must not be confused. Sensitivities use L of one record's loss (`constants.lipschitz`): the ridge is the
same for neighbours and cancels. Bounds on F itself, regulariser included, use L_F = L + ridge * max |theta|: the
divergence of a uniform start, the slope of a ramp score, risk bounds in terms of values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import ADJACENCIES, Adjacency, Constants, DataBounds
from dplangevin.problem.constraints import CONSTRAINTS, Ball, Box, ConstraintSet, WholeSpace
from dplangevin.problem.losses import LOSSES, Clipped, Loss, RecordLoss


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
