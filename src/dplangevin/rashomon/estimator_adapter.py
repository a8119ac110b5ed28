"""EstimatorAdapter: an estimator as its problem, its records, and a fitted model for given parameters."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.adapter import (
    DPLinearModel,
    DPLinearRegressor,
    Outline,
    TargetEncoder,
    clone_for,
    monotone_columns,
)
from dplangevin.estimators.schema_encoder import as_schema
from dplangevin.problem import Loss, Problem

RIDGE_THRESHOLD_FRACTION = 0.1
"""The default ridge adds at most half of this fraction of the threshold to the objective of any model in the ball."""


class EstimatorAdapter:
    """An estimator of this library, used for reading records, stating the problem and building models.

    Parameters
    ----------
    estimator : unfitted estimator; a copy of it is used.
    radius, threshold : of the Rashomon set.
    ledger : budget to charge; a strict one changes how rows are read.
    owner : the object whose fit this is.
    needs_radius : whether a radius must be stated.
    """

    def __init__(
        self,
        estimator: Any,
        radius: float | None,
        threshold: float,
        *,
        ledger: BudgetAccount | None,
        owner: Any,
        needs_radius: bool = True,
    ) -> None:
        if not isinstance(estimator, DPLinearModel):
            raise InvalidParameter(
                "estimator must be an unfitted estimator of this library, e.g. DPLogisticRegression(data_norm=1.0, "
                f"classes=[0, 1], radius=1.0); got {type(estimator).__name__}."
            )
        _check_supported_options(estimator, ledger, needs_radius)
        if estimator.max_rows_per_person != 1:
            raise InvalidParameter(
                "max_rows_per_person must be 1 here: no group guarantee is proved for draws from a Rashomon set."
            )
        for name in ("person", "class_weight"):
            if getattr(estimator, name, None) is not None:
                raise InvalidParameter(
                    f"{name} is not supported here: no guarantee is proved for it; leave it out."
                )
        self.estimator: DPLinearModel = clone_for(owner, estimator).set_params(ledger=ledger)
        stated_radius = estimator.radius if radius is None else radius
        if stated_radius is None and needs_radius:
            raise InvalidParameter(
                "a Rashomon set needs a bounded set of models: state radius, the bound on the norm of the coefficients."
            )
        self.radius = None if stated_radius is None else _check.check_positive("radius", stated_radius)
        psi, alpha = _check.check_nonnegative("threshold", threshold), estimator.alpha
        self.chooses_ridge = isinstance(alpha, str) and alpha == "auto"
        if self.chooses_ridge:
            if not needs_radius:
                raise InvalidParameter(
                    "alpha='auto' is for draws of a Rashomon set; state the ridge of a region."
                )
            self.estimator.set_params(alpha=None)
        if alpha is not None and not self.chooses_ridge:
            self.alpha = _check.check_nonnegative("alpha", alpha)
        else:
            self.alpha = 0.0 if self.radius is None else RIDGE_THRESHOLD_FRACTION * psi / self.radius**2

    def outline(self, X: Any, y: Any) -> tuple[Outline, TargetEncoder]:
        """Return the public outline of the records, and the encoder of their targets."""
        outline = self.estimator.outline(X, y)
        return outline, self.estimator.target_encoder(outline.labels)

    def read_records(self, X: Any, y: Any) -> tuple[Any, Any, TargetEncoder]:
        """Return encoded rows, targets, and the encoder of targets; everything is read into memory."""
        rows, targets, _ = self.estimator.read_records(X, y)
        return rows, targets, self.estimator.target_encoder(targets)

    def prediction_scale(self) -> tuple[float, float]:
        """Return (half_range, center): a prediction is half_range * score + center; (1, 0) for classifiers."""
        if not isinstance(self.estimator, DPLinearRegressor):
            return 1.0, 0.0
        target_encoder = self.estimator.target_encoder()
        return target_encoder.half_range, target_encoder.center

    def build_problem(self, n: int, n_features: int, n_classes: int | None = None) -> Problem:
        """Return the problem for n rows of n_features encoded columns; no record is read."""
        request = replace(
            self.estimator.planning_request(n, n_features, n_classes),
            radius=self.radius,
            alpha=self.alpha,
            mechanism="auto",
            theorem=None,
            epsilon=1.0,
            delta=0.0,
        )
        bound = None
        if request.needed_clip is not None and self.radius is not None:
            # inside the ball no residual of a squared loss exceeds this, so clipping changes nothing there
            norm = float(np.hypot(request.data_norm, 1.0)) if request.fit_intercept else request.data_norm
            bound = norm * self.radius + 1.0
        return request.make_problem(bound, self.alpha)

    def build_model(
        self,
        theta: Floats,
        problem: Problem,
        privacy: Guarantee,
        plan: Any,
        loss: Loss | None = None,
        *,
        head: str | None = None,
    ) -> DPLinearModel:
        """Return a fitted estimator with these parameters.

        loss : None takes that of the problem. head : of the ledger's chain after the charge.
        """
        model = copy.copy(self.estimator).set_coefficients(theta, problem, loss)
        model.privacy_, model.plan_, model.n_iter_, model.ledger_head_ = privacy, plan, 1, head
        return model

    def guarantee_of_fit(self, guarantee: Guarantee, seeded: bool) -> Guarantee:
        """Return the guarantee with the assumptions that the estimator's own fit would add."""
        return self.estimator.guarantee_of_fit(
            guarantee, seeded, "the guarantee covers all released models together"
        )


def _check_supported_options(estimator: Any, ledger: BudgetAccount | None, draws_models: bool) -> None:
    """Refuse options of the estimator that would be ignored: a ledger, learned bounds, monotone columns, and others."""
    if estimator.ledger is not None and estimator.ledger is not ledger:
        raise InvalidParameter(
            "the estimator's ledger would not be charged: pass ledger to RashomonRegion or RashomonSampler, and leave "
            "it out of the estimator."
        )
    if estimator.learned_bounds() is not None:
        raise InvalidParameter(
            "a Rashomon set needs stated bounds: learn them in a separate fit, and state its schema_ (or data_norm_) "
            "here."
        )
    monotone = list(getattr(estimator, "monotone", None) or ())
    if estimator.schema is not None:
        monotone = [*(column.name for column in monotone_columns(as_schema(estimator.schema))), *monotone]
    if monotone:
        raise InvalidParameter(
            f"column {monotone[0]!r} is monotone: a model that is projected afterwards is not the one that was "
            "certified or drawn; leave 'monotone' out."
        )
    for name in ("secure", "intervals", "public_data"):
        if draws_models and getattr(estimator, name, None) not in (None, False):
            raise InvalidParameter(
                f"{name} is not supported for draws from a Rashomon set, whose noise is real-valued and whose "
                "spread is "
                "that of the models; leave it out of the estimator."
            )
