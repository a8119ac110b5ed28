"""Problem: what is solved, on the public side only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.bounds import DataBounds
from dplangevin.problem.constants import ADJACENCIES, Adjacency, Constants
from dplangevin.problem.constraints import CONSTRAINTS, ConstraintSet, WholeSpace
from dplangevin.problem.losses import Loss, RecordLoss, is_proved


@dataclass(frozen=True, kw_only=True)
class Problem:
    """minimise (1/n) sum_i weight_i loss(<theta, (x_i, 1)>; y_i) + (ridge / 2) |theta|^2 over a convex set.

    Everything privacy depends on follows from these public statements; no record is read.

    Parameters
    ----------
    loss : with a finite slope bound; wrap others in Clipped(loss, bound).
    bounds : stated bounds of one record.
    n : public number of records (replace-one), or public divisor that the number never exceeds (add-remove).
    more_rows : under add-remove, the number of records may exceed the divisor n.
    n_features : number of feature columns, without the intercept.
    constraint : the set every iterate is projected on; its diameter is the one that is accounted.
    ridge : penalty on the whole of theta, the intercept included; added once, outside any clipping.
    fit_intercept : append a constant-one column to the row, the last one; slopes multiply the joint row.
    adjacency : "replace-one" or "add-remove".

    From these follow
    n_columns : columns of the joint row, the features and the intercept. dimension : number of coordinates of theta.
    row_norm : largest norm of the joint row (x, 1). constants : L, M, m, diameter and sensitivity.

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
    more_rows: bool = False
    n_columns: int = field(init=False, repr=False, compare=False)
    dimension: int = field(init=False, repr=False, compare=False)
    row_norm: float = field(init=False, repr=False, compare=False)
    constants: Constants = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.each(self, n=_check.count, n_features=_check.count, ridge=_check.nonnegative)
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        if not isinstance(self.fit_intercept, bool):
            raise InvalidParameter(f"fit_intercept must be True or False, got {self.fit_intercept!r}.")
        # a class of one's own could clip less, or project elsewhere, than it says
        if type(self.bounds) is not DataBounds:
            raise InvalidParameter(
                f"bounds must be stated, e.g. DataBounds(data_norm=1.0, classes=2); got {self.bounds!r}."
            )
        if type(self.constraint) not in CONSTRAINTS.values():
            raise InvalidParameter(
                f"constraint must be one of this library's sets such as Ball(1.0), got {self.constraint!r}."
            )
        self._check_loss()
        columns = self.n_features + int(self.fit_intercept)
        norm = self.bounds.data_norm
        _check.put(
            self,
            n_columns=columns,
            dimension=columns * self.loss.score_dimension,
            row_norm=math.hypot(norm, 1.0) if self.fit_intercept else norm,
        )
        _check.put(self, constants=self._constants())

    def _check_loss(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidParameter(f"loss must be a Loss such as Logistic(), got {self.loss!r}.")
        if not isinstance(self.loss, RecordLoss) and not is_proved(self.loss):
            raise InvalidParameter(
                f"{type(self.loss).__name__} is no loss of this library: nothing proves its slope bound and its "
                "convexity. Subclass RecordLoss, whose gradients are clipped record by record."
            )
        if isinstance(self.loss, RecordLoss) and self.loss.score_dimension != 1:
            raise InvalidParameter("a loss of whole records has one parameter for each column of the row.")
        if math.isinf(self.loss.slope_bound):
            raise InvalidParameter(
                f"the {self.loss.name} loss has an unbounded slope: one record could move the answer without "
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

    def _constants(self) -> Constants:
        """A record's gradient is weight * slope (x, 1)^T, of (Frobenius) norm at most L = weight_bound
        slope_bound row_norm; its Hessian is at most weight_bound curvature_bound row_norm^2, of rank 1
        (softmax: K - 1, since slopes sum to 0). Only the ridge counts as strong convexity.

        Of a loss of whole records nothing but the clip is believed, except where this library proves more.
        """
        loss, weight, row = self.loss, self.bounds.weight_bound, self.row_norm
        if isinstance(loss, RecordLoss):
            convex, rank = loss.convex and is_proved(loss), None
            lipschitz = _check.positive("gradient_bound", loss.gradient_bound)
            smoothness = loss.curvature_bound if convex else math.inf
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
            assumptions=self._assumptions(math.isfinite(diameter)),
            more_rows=self.more_rows,
        )

    def _assumptions(self, projected: bool) -> tuple[str, ...]:
        bounds, words = self.bounds, []
        words.append(f"feature rows are clipped to Euclidean norm {bounds.data_norm:g}")
        if bounds.classes is not None:
            words.append(f"labels other than 0..{bounds.classes - 1} count as class 0")
        else:
            words.append(f"targets are clipped to [{bounds.label_range[0]:g}, {bounds.label_range[1]:g}]")
        words.append(
            f"sample weights are clipped to [0, {bounds.weight_bound:g}], never divided by their sum"
        )
        if self.adjacency == "replace-one":
            words.append(f"the number of records n = {self.n} is public")
        elif self.more_rows:
            words.append(f"the divisor n = {self.n} is public; the data may hold more or fewer records")
        else:
            words.append(f"the divisor n = {self.n} is public and the data never hold more records")
        if self.fit_intercept:
            words.append("the intercept is a constant-one column of the joint row, penalised like the rest")
        if self.ridge > 0:
            words.append("the ridge is added once per step, outside the clip")
        if projected:
            words.append(f"every iterate is projected on the {self.constraint.name}")
        return (*words, *self.loss.assumptions)
