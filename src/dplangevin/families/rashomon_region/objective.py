"""The objective whose good models are asked for, with its majorant and the bounds that privacy rests on.

F(theta) = (1/n) sum l(x_i' theta; y_i) + (m/2) |theta|^2 with the PLAIN loss l of the model (a clipped one only where
the plain one has no bound) and a stated ridge m. For every score t and every step d,

    l(t + d) <= l(t) + l'(t) d + a(t) d^2 / 2,

so that F lies below a quadratic with the matrix A = (1/n) sum a(x_i'c) x_i x_i' + m I around any centre c.
Proofs: docs/theory/rashomon_region.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem import Loss, Problem
from dplangevin.problem.constants import Adjacency

_HAIR = 1 + 1e-12


def majorant(loss: Loss, scores: Floats, labels: Floats) -> Floats:
    """a(t) of each score, within its bound whatever the record is."""
    largest = loss.majorant_bound
    weights = loss.majorant(scores, labels)
    return np.asarray(np.clip(np.nan_to_num(weights, nan=largest), 0.0, largest), np.float64)


@dataclass(frozen=True, kw_only=True)
class RegionObjective:
    """F with its public bounds.

    Parameters
    ----------
    loss : convex in the score. ridge : m. n : the public divisor.
    n_columns : of the joint row, the intercept inside. row_norm : B, of the joint row. label_bound : Y.
    adjacency : "replace-one" or "add-remove".
    """

    loss: Loss
    ridge: float
    n: int
    n_columns: int
    row_norm: float
    label_bound: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        if not self.loss.convex:
            raise AssumptionFailed(
                f"the {self.loss.name} loss is not convex, so nothing is certified between two models; choose a model "
                "with a convex loss."
            )
        if math.isinf(self.loss.curvature_bound) or math.isinf(self.loss.slope_bound_within(1.0, 1.0)):
            raise AssumptionFailed(
                f"the {self.loss.name} loss has no bounded slope or curvature; wrap it in Clipped(loss, bound)."
            )

    @classmethod
    def of(cls, problem: Problem, loss: Loss, ridge: float) -> RegionObjective:
        """The objective on the records of a problem (its bounds and its divisor), with this loss and ridge."""
        if problem.bounds.weight_bound != 1:
            raise InvalidParameter(
                "a region is offered for equally weighted records; leave weight_bound and sample_weight out."
            )
        return cls(
            loss=loss,
            ridge=ridge,
            n=problem.n,
            n_columns=problem.n_columns,
            row_norm=problem.row_norm,
            label_bound=max(map(abs, problem.bounds.label_range)),
            adjacency=problem.adjacency,
        )

    def __str__(self) -> str:
        ridge = f" + {self.ridge / 2:g} |theta|^2" if self.ridge else ""
        return f"mean {self.loss.name} loss of the records, clipped to their bounds{ridge}"

    @property
    def classes(self) -> int:
        """K, the scores of a record."""
        return self.loss.score_dimension

    @property
    def dimension(self) -> int:
        """Coordinates of theta."""
        return self.n_columns * self.classes

    @property
    def sides(self) -> int:
        """s: how many shares differ between neighbours."""
        return 2 if self.adjacency == "replace-one" else 1

    @property
    def curvature_unit(self) -> float:
        """Largest Frobenius length of one record's a x x'."""
        return self.loss.majorant_bound * self.row_norm**2 * _HAIR

    @property
    def smoothness(self) -> float:
        """Largest eigenvalue of the Hessian of F."""
        return self.loss.curvature_bound * self.row_norm**2 + self.ridge

    @property
    def curvature_noise_factor(self) -> float:
        """The noise on the matrix A over that on the released sum."""
        return self.loss.majorant_noise_factor

    def limits(self, centre: Floats, points: Floats) -> Floats:
        """Lam_v >= |l(x'v; y) - l(x'c; y)| for every record within the bounds; points[dimension, k]."""
        away = self.row_norm * np.sqrt(np.square(points - centre[:, None]).sum(axis=0))
        both = self.row_norm * np.sqrt(np.square(points + centre[:, None]).sum(axis=0))
        return np.asarray(self.loss.difference_bound(away, both, self.label_bound) * _HAIR)

    def steepest(self, centre: Floats) -> float:
        """Bound on the slope of one record's loss at the centre."""
        score = self.row_norm * float(np.linalg.norm(centre)) * _HAIR
        return self.loss.slope_bound_within(score, self.label_bound)

    def penalty(self, centre: Floats, points: Floats) -> Floats:
        """(m/2) (|v|^2 - |c|^2), which is public once the centre is."""
        step = points - centre[:, None]
        return np.asarray(self.ridge / 2 * (step * (points + centre[:, None])).sum(axis=0))
