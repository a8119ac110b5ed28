"""The audit table in short: honest runs stand, broken ones fall, and nothing is left out."""

from __future__ import annotations

import pytest

from _registered import MECHANISMS
from dplangevin import estimators
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants
from privacy._case import TIGHT, Case, attained
from privacy.audit_table import CASES

DEAR = {  # others of the same law, or tests of their own, run before each change; these in `make test-all`
    "20 counts, best p", "20 counts, p = 4", "20 counts, p = 3.65, secure", "one model, ramp 0.5, 8 steps",
    "two stages, the last draw", "one model, threshold 0.05", "full batch, 12 steps, last iterate",
    "full batch, average of the iterates (claim by composition)", "50 counts, p = 3, 3 touched",
    "20 counts, p = inf, 3 touched, replaced", "add-remove, data_norm 10", "replace-one, data_norm 100",
    "add-remove, data_norm 100", "accuracy, the released value", "logistic, pure, coefficient only",
    "full batch, strongly convex", "replace-one, two moments and two steps", "two records on an interval",
    "replace-one, moment fixed", "replace-one, data_norm 10, secure", "add-remove, moment fixed",
    "add-remove, moments fixed, twelve steps instead of two", "add-remove, secure", "20 counts, p = 2.5, sensitivity 5",
}  # fmt: skip
LIKE_LOGISTIC = {  # output perturbation, as in the row of DPLogisticRegression
    "DPRidge", "DPHuberRegressor", "DPPoissonRegressor", "DPLinearSVC", "DPQuantileRegressor",
    "output perturbation, Gaussian",
}  # fmt: skip
ROWS = [
    pytest.param(
        case,
        id=f"{case.name}, {case.configuration}",
        marks=[pytest.mark.slow] * (case.slow or case.configuration in DEAR or case.name in LIKE_LOGISTIC),
    )
    for case in CASES
]


@pytest.mark.parametrize("case", ROWS)
def test_row(case: Case) -> None:
    honest = case.audit(case.honest, case.seed, 1)
    assert not honest.refuted
    for word, draw in case.broken_variants.items():
        assert case.audit(draw, case.seed + 1, 1).refuted, word
    assert (case.exact_ratio is None) == bool(case.loose)
    if case.exact_ratio is not None:
        assert TIGHT <= case.exact_ratio <= 1 + 1e-6
    if case.claim.mu is not None and case.exact_ratio is not None:  # the attack has power
        assert attained(case, honest) > 0.4 * case.exact_ratio


def test_every_mechanism_and_estimator_has_a_row() -> None:
    covered = {name for case in CASES for name in case.covers}
    mechanisms = {type(mechanism).__name__ for mechanism in MECHANISMS.values()}
    models = {name for name in estimators.__all__ if name.startswith("DP")}
    assert mechanisms | models <= covered


def test_bounded_sets_have_no_tight_configuration() -> None:
    """Without strong convexity the exact walk is far below every proved bound as T grows: an open gap, said openly."""
    constants = Constants(n=1, lipschitz=0.5, smoothness=1e-9, diameter=4.0, gradient_sensitivity=0.1)
    spec = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=2000)
    plan = CertifiedSpec(constants=constants, spec=spec, delta=1e-5)
    lower = lower_bound_epsilon(constants, spec, 1e-5)
    assert lower is not None
    assert 0 < lower < TIGHT * plan.guarantee.epsilon()
