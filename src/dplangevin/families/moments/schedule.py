"""The schedule of least squares from noisy moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.privacy.schedule import Capabilities, Schedule


@dataclass(frozen=True, kw_only=True)
class SufficientStatisticsSchedule(Schedule):
    """Noisy G = sum w x x^T and c = sum w y x, then (G_floored + n ridge I) theta = c.

    Parameters
    ----------
    gram_noise_std : standard deviation of the noise on a diagonal entry of G. Off-diagonal entries get gram_noise_std /
        sqrt 2, so that the noise is isotropic in the Frobenius norm.
    cross_noise_std : standard deviation of the noise on an entry of c.
    eigenvalue_floor : eigenvalues of the noisy G below it are raised to it, so that the equations can always be
        solved. It only shapes the answer; no privacy depends on it.
    secure : records are rounded to whole numbers, their moments are summed in integers, and the noise is drawn exactly.
    """

    mechanism: ClassVar[str] = "sufficient-statistics"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, holds_beyond_n=True)
    gram_noise_std: float
    cross_noise_std: float
    eigenvalue_floor: float
    secure: bool = False
    release: Literal["noisy-answers"] = "noisy-answers"

    def __post_init__(self) -> None:
        _check.each(self, gram_noise_std=_check.scale, cross_noise_std=_check.scale)
        _check.each(self, eigenvalue_floor=_check.positive, secure=_check.flag)
        _check.put(self, release=_check.choice("release", self.release, ("noisy-answers",)))
