"""The spec of whitened objective perturbation, and its privacy: a pure second moment, then a pure minimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Pure
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_up
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.spec import CenterScales, check_center_scales
from dplangevin.mechanisms.perturbation.spec import (
    ObjectivePerturbationSpec,
    ObjectivePerturbationTheorem,
    minimizer_assumptions,
)
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class WhitenedObjectiveSpec(Spec):
    """A noisy second moment of the rows, then objective perturbation in whitened coordinates, both with pure DP.

        moment     mean x x' / row_norm^2 + moment_density_scale (V - W), V and W of density exp(-tr)
        minimiser  argmin_q sum_i weight_i w(x_i) loss_i(T q) + (n ridge / 2) |q|^2 + <b, q>, plus a little noise

    T is a function of the released moment, and w(x) = min(1, (row_norm / |T' x|)^2) a weight of x alone, so that
    the constants of the problem hold in q. Released is theta = T q. With count_density_scale, noisy counts of the
    classes come first, and the ridge draws q towards the constant model they give.

    Parameters
    ----------
    moment_density_scale : scale of the noise on the mean, for rows in units of the largest norm.
    ridge : per sample, on q.
    density_scale : s of the density of b, proportional to exp(-|b| / s), on the SUM of losses.
    tolerance, release_density_scale, n_iterations, coef_bound : of the minimiser q, as in ObjectivePerturbationSpec.
    count_density_scale : scale of the noise on the means of weight x indicator of the classes, of density exp(-|z| /
        scale); None releases no counts.
    center_scale, spread_scale : scales of the exponential noise, in records of the largest weight, with which a center
        of the targets and their spread are chosen in place of counts; None chooses none. A narrower loss
        may then be minimised, with b in proportion to the bound on its slopes and the ridge to its curvature.
    secure : rows, moments and counts are whole numbers, noise is drawn exactly, and the ideal minimiser is rounded to a
        public grid; release_density_scale is then 0.
    recount_density_scale : the same for a second count, which may take the place of the minimiser where noise would
        hide what it adds to the constant model; it costs no more. None never counts again.
    """

    mechanism: ClassVar[str] = "whitened-objective"
    capabilities: ClassVar[Capabilities] = Capabilities(
        pure=True, secure=True, holds_beyond_n=True, ridge_and_radius=False
    )
    moment_density_scale: float
    ridge: float
    density_scale: float
    tolerance: float
    release_density_scale: float = 0.0
    release: Literal["noisy-answers"] = "noisy-answers"
    n_iterations: int | None = None
    coef_bound: float = math.inf
    count_density_scale: float | None = None
    recount_density_scale: float | None = None
    secure: bool = False
    center_scale: float | None = None
    spread_scale: float | None = None

    def __post_init__(self) -> None:
        if (self.center_scale, self.spread_scale) != (None, None):
            check_center_scales(self)
        if self.center_scale is not None and self.count_density_scale is not None:
            raise InvalidParameter("a center of the targets takes the place of counts.")
        for name in ("count_density_scale", "recount_density_scale"):
            if getattr(self, name) is not None:
                _check.set_frozen(self, **{name: _check.check_scale(name, getattr(self, name))})
        if self.recount_density_scale is not None and self.count_density_scale is None:
            raise InvalidParameter("a second count needs a first one, which decides on it.")
        _check.set_frozen(
            self, moment_density_scale=_check.check_scale("moment_density_scale", self.moment_density_scale)
        )
        _check.set_frozen(self, ridge=_check.check_scale("ridge", self.ridge))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("noisy-answers",)))
        checked = self.objective_spec
        for name in (
            "density_scale", "tolerance", "release_density_scale", "n_iterations", "coef_bound", "secure"
        ):  # fmt: skip
            _check.set_frozen(self, **{name: getattr(checked, name)})

    @property
    def center_scales(self) -> CenterScales | None:
        """Both scales of the choice of a center and a spread, or None."""
        if self.center_scale is None or self.spread_scale is None:
            return None
        return CenterScales(self.center_scale, self.spread_scale)

    @property
    def objective_spec(self) -> ObjectivePerturbationSpec:
        """The second release: objective perturbation, in q."""
        return ObjectivePerturbationSpec(
            density_scale=self.density_scale,
            tolerance=self.tolerance,
            release_density_scale=self.release_density_scale,
            n_iterations=self.n_iterations,
            coef_bound=self.coef_bound,
            secure=self.secure,
        )


class WhitenedObjectiveTheorem(
    Theorem[WhitenedObjectiveSpec],
    name="whitened-objective-perturbation",
    proof="docs/theory/converging_fits.md, section 6",
):
    """Pure composition: s / (n moment_density_scale) for the moment, plus the cost of objective perturbation.

    Counts of the classes, if the spec asks for them: a record adds its weight to one class, so the vector of means of
    weight x indicator moves by at most weight_bound / n (add-remove), a replaced record by sqrt(2) weight_bound / n, in
    the Euclidean norm, and the log density of the noise is Lipschitz in it with 1 / count_density_scale. Given the
    counts the center of the ridge is fixed, and losses at center + q have the same constants.

    Moment: the log density of the noise is Lipschitz in the nuclear norm with the constant 1 / moment_density_scale.
    A row of norm at most 1 moves the mean by |x x'|_* / n <= 1 / n (add-remove), a replaced one by
    |x x' - y y'|_* / n <= 2 / n.

    Minimiser: given the moment, T is fixed, and a record's loss in q has the gradient weight w r T' x, of norm at
    most weight_bound slope_bound row_norm, and a Hessian of norm at most weight_bound curvature_bound row_norm^2: the
    weights keep w |T' x|^2 <= row_norm^2. So the theorem of objective perturbation holds with the lipschitz and
    data_smoothness of the problem, and with the ridge that the spec puts on q.

    A center and a spread of the targets, if the spec asks for them, are 2 / scale differentially private each:
    a record changes the scores of their candidates by at most 1. Given them, the loss that is minimised is fixed. The
    cost of the minimiser depends on the slope bound over density_scale, on the curvature bound over n ridge, and on
    the tolerance over n ridge times release_density_scale: none of them is larger than stated.

    A second count, with recount_density_scale, takes the place of the minimiser where the counts and the moment decide
    so. It costs at most what the minimiser does.

    An exact run makes the same releases from whole rows, limits and counts, each rounded to a public grid: the weights
    are m / M with m |T' x|^2 <= M row_norm^2, checked in whole numbers (docs/theory/exact_sums.md, section 11).

    Composition: pure costs add up; the scales are public. T and theta = T q are post-processing.
    """

    holds_for_rounded_noise = True
    secure_holds_beyond_n = True
    reference = "Chaudhuri, Monteleoni and Sarwate (2011), Theorem 9, after a pure second moment; proved here"
    holds_beyond_n = "both releases are about sums over records, with a public divisor and a public ridge"

    def derive_guarantee(self, constants: Constants, spec: WhitenedObjectiveSpec) -> Guarantee:
        self.row_norm(constants)
        if constants.strong_convexity > 0 or math.isfinite(constants.diameter):
            raise self.refuse(
                "whitened coordinates would change a ridge or a radius of the problem",
                "Leave alpha and radius out, or perturb the objective without whitening.",
            )
        n_changed_records = 2.0 if constants.adjacency == "replace-one" else 1.0
        moment = round_up(n_changed_records / (constants.n * spec.moment_density_scale))
        second = ObjectivePerturbationTheorem().certify(
            whitened_constants(constants, spec.ridge), spec.objective_spec
        )
        parts = (Pure(value=moment), *second.parts)
        if spec.count_density_scale is not None:
            changed = (math.sqrt(2) if n_changed_records == 2 else 1.0) * constants.weight_bound / constants.n
            parts = (Pure(value=round_up(changed / spec.count_density_scale)), *parts)
            recount = spec.recount_density_scale
            if recount is not None and not round_up(changed / recount) <= second.epsilon(0.0):
                raise self.refuse(
                    "the second count of the classes costs more than the minimiser it takes the place of",
                    "Raise recount_density_scale.",
                )
        if spec.center_scales is not None:
            parts = (*(Pure(value=round_up(cost)) for cost in spec.center_scales.costs), *parts)
        return self.guarantee(
            constants,
            spec,
            parts,
            (
                "the second moment is of rows alone: neither labels nor sample weights enter it",
                *minimizer_assumptions(spec.objective_spec),
            ),
            conditions=second.conditions,
        )


def whitened_constants(constants: Constants, ridge: float) -> Constants:
    """Return the constants of the objective in q."""
    return replace(constants, smoothness=constants.data_smoothness + ridge, strong_convexity=ridge)
