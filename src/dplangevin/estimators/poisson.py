"""Differentially private Poisson regression (log link, clipped slope)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import Floats
from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.uncertainty import WithIntervals
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.spender import Spender


class DPPoissonRegressor(WithIntervals, DPLinearRegressor):
    """Differentially private Poisson regression (log link, clipped slope).

    Parameters
    ----------
    epsilon, delta : the promise; delta = 0 or None asks for pure epsilon-DP.
    data_norm : stated bound on the norm of a row of X (without the intercept); longer rows are scaled back.
    schema : instead of data_norm, a public schema that encodes a DataFrame (see SchemaEncoder).
    target_bounds : (0, high), the stated range of the counts; larger ones are clipped.
    radius : stated bound on the norm of the coefficients; None leaves the choice to the planner.
    alpha : ridge per sample, (1/n) sum loss + (alpha/2) |(w, intercept)|^2; None leaves it to the planner.
    fit_intercept : add a constant column inside the joint norm.
    adjacency : "replace-one" (a record is exchanged) or "add-remove".
    n : public divisor of the mean under add-remove, at least the number of rows; None is the number of rows, which is
        then public.
    mechanism : "auto" or one of "noisy-gd", "noisy-sgd", "output-perturbation", "objective-perturbation",
        "exponential", "gibbs", "iterated-exponential", "langevin".
    theorem : pin the accounting theorem by name.
    weight_bound : stated bound on sample weights; larger ones are clipped (None: 1, with a warning).
    bad_rows : a row with a cell that is no finite number is refused ("refuse"), or counts as the zero row ("zero");
        None is "zero" under a strict ledger, else "refuse". With a schema no cell is refused.
    max_rows_per_person : the promise covers all rows of a person who owns at most so many.
    intervals : True or a share of the budget (0.15) pays for the curvature that standard errors need.
    secure : exact noise on integers, safe against attacks on floating point (where: see docs/trust.md; delta > 0).
    public_data : (X_public, y_public), records that need no protection: start and geometry of the private steps.
    public_method : "mirror", "mirror-loss", "mix", or the baselines "warm-start" and "public-only".
    compare : also compare the methods on held-out public rows (public_comparison_; see compare_public).
    ledger : a Spender that is charged before the data is read.
    random_state : None draws from the operating system; a seed voids the promise against those who know it.
    state : path of a private file from which the same fit goes on after a crash, with its noise and its charge.
    verbose : print the plan before running.

    Attributes
    ----------
    coef_, intercept_ : the released model.
    plan_ : what was chosen, why, and the predicted excess risk. privacy_ : what was promised.
    standard_errors_, confidence_intervals(level) : with intervals, for coef_ and then the intercept.
    n_iter_ : number of steps. n_features_in_, feature_names_in_ : of the training table.

    References
    ----------
    McCullagh and Nelder (1989); the slope is clipped, which keeps the loss convex.

    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import DPPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = rng.poisson(np.exp(0.5 + X[:, 0]))
    >>> model = DPPoissonRegressor(epsilon=1.0, delta=1e-6, data_norm=3**0.5, target_bounds=(0, 20), random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.1), bool(model.privacy_.epsilon() <= 1.0)
    (True, True)
    """

    _model: ClassVar[str] = "poisson"

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = 1e-5,
        data_norm: float | None = None,
        schema: Any = None,
        target_bounds: Any = None,
        radius: float | None = None,
        alpha: float | None = None,
        fit_intercept: bool = True,
        adjacency: str = "replace-one",
        mechanism: str = "auto",
        theorem: str | None = None,
        weight_bound: float | None = None,
        bad_rows: str | None = None,
        n: int | None = None,
        max_rows_per_person: int = 1,
        intervals: bool | float = False,
        secure: bool = False,
        public_data: Any = None,
        public_method: str = "mirror",
        compare: bool = False,
        ledger: Spender | None = None,
        random_state: Any = None,
        state: StatePath = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.schema = schema
        self.target_bounds = target_bounds
        self.radius = radius
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.mechanism = mechanism
        self.theorem = theorem
        self.weight_bound = weight_bound
        self.bad_rows = bad_rows
        self.n = n
        self.max_rows_per_person = max_rows_per_person
        self.intervals = intervals
        self.secure = secure
        self.public_data = public_data
        self.public_method = public_method
        self.compare = compare
        self.ledger = ledger
        self.random_state = random_state
        self.state = state
        self.verbose = verbose

    def _bounds(self) -> tuple[float, float]:
        low, high = super()._bounds()
        if low < 0:
            raise InvalidParameter(
                f"counts are not negative: target_bounds must start at 0 or above, got {low!r}."
            )
        return low, high

    def _scale(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, 1.0

    def _model_options(self, low: float, high: float, half: float) -> dict[str, Any]:
        return {"target_bounds": (low, high)}

    def predict(self, X: Any) -> Floats:
        """Predicted counts."""
        return np.exp(np.minimum(super().predict(X), 700.0))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2, the share of Poisson deviance explained."""
        from sklearn.metrics import d2_tweedie_score  # a tenth of a second, for one method

        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
