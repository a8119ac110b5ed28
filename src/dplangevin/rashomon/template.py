"""Between an estimator and its problem: how rows are read, what is stated, how a drawn theta becomes a model."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
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
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.spender import Spender
from dplangevin.problem import Loss, Problem

RIDGE_SHARE = 0.1
"""The default ridge adds at most half of this share of the threshold to the objective of any model in the ball."""


class Template:
    """One estimator of the library, used for everything but its own fitting.

    Parameters
    ----------
    estimator : unfitted; a copy of it is used. ledger : the one that pays; a strict one changes how rows are read.
    owner : whose fit this is for. radius, threshold : of the set. bounded : whether a radius must be stated.
    """

    def __init__(
        self,
        estimator: Any,
        radius: float | None,
        threshold: float,
        *,
        ledger: Spender | None,
        owner: Any,
        bounded: bool = True,
    ) -> None:
        if not isinstance(estimator, DPLinearModel):
            raise InvalidParameter(
                "estimator must be an unfitted estimator of this library, e.g. DPLogisticRegression(data_norm=1.0, "
                f"classes=[0, 1], radius=1.0); got {type(estimator).__name__}."
            )
        _refuse_unheard(estimator, ledger, bounded)
        if estimator.max_rows_per_person != 1:
            raise InvalidParameter(
                "max_rows_per_person must be 1 here: no group promise is proved for draws of a Rashomon set."
            )
        for name in ("person", "class_weight"):
            if getattr(estimator, name, None) is not None:
                raise InvalidParameter(f"{name} has no meaning here: nothing is proved for it; leave it out.")
        self.estimator: DPLinearModel = clone_for(owner, estimator).set_params(ledger=ledger)
        stated = estimator.radius if radius is None else radius
        if stated is None and bounded:
            raise InvalidParameter(
                "a Rashomon set needs a bounded set of models: state radius, the largest norm of the coefficients."
            )
        self.radius = None if stated is None else _check.positive("radius", stated)
        psi, alpha = _check.nonnegative("threshold", threshold), estimator.alpha
        if alpha is not None:
            self.alpha = _check.nonnegative("alpha", alpha)
        else:
            self.alpha = 0.0 if self.radius is None else RIDGE_SHARE * psi / self.radius**2

    def outline(self, X: Any, y: Any) -> tuple[Outline, TargetEncoder]:
        """What is public of the records, and what turns targets into what the problem sees."""
        found = self.estimator.outline(X, y)
        return found, self.estimator.encoder(found.labels)

    def read(self, X: Any, y: Any) -> tuple[Any, Any, TargetEncoder]:
        """Encoded rows, targets, and what turns targets into what the problem sees; large data stay away."""
        rows, targets, _ = self.estimator.read(X, y)
        return rows, targets, self.estimator.encoder(targets)

    def scale(self) -> tuple[float, float]:
        """(half, centre) with which scores become predictions: half * score + centre; (1, 0) for classifiers."""
        if not isinstance(self.estimator, DPLinearRegressor):
            return 1.0, 0.0
        encode = self.estimator.encoder()
        return encode.half, encode.centre

    def problem(self, n: int, n_features: int, n_classes: int | None = None) -> Problem:
        """The stated problem. No record is read."""
        request = replace(
            self.estimator.request(n, n_features, n_classes),
            radius=self.radius,
            alpha=self.alpha,
            mechanism="auto",
            theorem=None,
            epsilon=1.0,
            delta=0.0,
        )
        bound = None
        if request.needed_clip is not None and self.radius is not None:
            # inside the ball no residual of a squared loss exceeds this, so the clip changes nothing there
            norm = float(np.hypot(request.data_norm, 1.0)) if request.fit_intercept else request.data_norm
            bound = norm * self.radius + 1.0
        return request.problem(bound, self.alpha)

    def model(
        self,
        theta: Floats,
        problem: Problem,
        privacy: Guarantee,
        plan: Any,
        loss: Loss | None = None,
        *,
        head: str | None = None,
    ) -> DPLinearModel:
        """A fitted estimator with these parameters; `loss` where it is not the problem's; `head` of the ledger."""
        made = copy.copy(self.estimator).from_theta(theta, problem, loss)
        made.privacy_, made.plan_, made.n_iter_, made.ledger_head_ = privacy, plan, 1, head
        return made

    def promise(self, guarantee: Guarantee, seeded: bool) -> Guarantee:
        """The guarantee with what the estimator's own fitting would say."""
        return self.estimator.promise(guarantee, seeded, "the promise covers all released models together")


def _refuse_unheard(estimator: Any, ledger: Spender | None, drawn: bool) -> None:
    """What is stated in the estimator and would not happen: a charge, a learned bound, a projected model; draws have no
    form of some other options, which would be ignored."""
    if estimator.ledger is not None and estimator.ledger is not ledger:
        raise InvalidParameter(
            "the estimator's ledger would not be charged: give ledger to RashomonRegion or RashomonSampler, and leave "
            "it out of the estimator."
        )
    if estimator.learns() is not None:
        raise InvalidParameter(
            "a Rashomon set needs stated bounds: learn them with a fit of their own, and state its schema_ (or "
            "data_norm_) here."
        )
    directed = list(getattr(estimator, "monotone", None) or ())
    if estimator.schema is not None:
        directed = [*(column.name for column in monotone_columns(as_schema(estimator.schema))), *directed]
    if directed:
        raise InvalidParameter(
            f"column {directed[0]!r} is monotone: a model that is projected afterwards is not the one that was "
            "certified or drawn; leave 'monotone' out."
        )
    for name in ("secure", "intervals", "public_data"):
        if drawn and getattr(estimator, name, None) not in (None, False):
            raise InvalidParameter(
                f"{name} has no meaning for draws of a Rashomon set, whose noise is real-valued and whose spread is "
                "the models' own; leave it out of the estimator."
            )
