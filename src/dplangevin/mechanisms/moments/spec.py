"""The spec of least squares from noisy moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec


@dataclass(frozen=True, kw_only=True)
class SufficientStatisticsSpec(Spec):
    """Least squares from noisy G = sum w x x^T and c = sum w y x: (G_floored + n ridge I) theta = c.

    Parameters
    ----------
    gram_noise_std : standard deviation of the noise on a diagonal entry of G. Off-diagonal entries get gram_noise_std
        / sqrt 2, so that the noise is isotropic in the Frobenius norm.
    cross_noise_std : standard deviation of the noise on an entry of c.
    eigenvalue_floor : eigenvalues of the noisy G below it are raised to it, so that the equations can always be
        solved. It affects accuracy only; no privacy depends on it.
    secure : whether records are rounded to integers, their moments summed exactly, and the noise drawn exactly.
    """

    mechanism: ClassVar[str] = "sufficient-statistics"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, holds_beyond_n=True)
    gram_noise_std: float
    cross_noise_std: float
    eigenvalue_floor: float
    secure: bool = False
    release: Literal["noisy-answers"] = "noisy-answers"

    def __post_init__(self) -> None:
        _check.validate_fields(self, gram_noise_std=_check.check_scale, cross_noise_std=_check.check_scale)
        _check.validate_fields(self, eigenvalue_floor=_check.check_positive, secure=_check.check_flag)
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("noisy-answers",)))
