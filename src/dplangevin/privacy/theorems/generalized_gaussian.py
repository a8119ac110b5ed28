"""The promise of generalised Gaussian noise on bounded answers, minted from the certified accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.privacy.generalized_gaussian_part import CorrectedNoise, GeneralizedGaussian
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part
from dplangevin.problem.constants import ADJACENCIES, Adjacency

NAME = "worst-shift"
REFERENCE = "Ganesh (2022), chapter 2; Dong, Roth and Su (2022), tensor products of trade-off functions"
LARGEST_POWER = 50.0


@dataclass(frozen=True, kw_only=True)
class NoisyAnswers:
    """answers + GGauss(p, sigma): the public parameters that are accounted and executed.

    Parameters
    ----------
    answers : k, the number of answers.
    changed : how many of them may differ between neighbouring data sets.
    sensitivity : by how much each may differ.
    p, sigma : density proportional to exp(-(|x|_p / sigma)^p).
    """

    answers: int
    changed: int
    sensitivity: float
    p: float
    sigma: float
    adjacency: Adjacency = "replace-one"

    def __post_init__(self) -> None:
        _check.put(self, answers=_check.count("answers", self.answers))
        _check.put(self, changed=_check.count("changed", self.changed))
        _check.put(self, sensitivity=_check.positive("sensitivity", self.sensitivity))
        _check.put(self, p=checked_power(self.p))
        _check.put(self, sigma=_check.positive("sigma", self.sigma))
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        if self.changed > self.answers:
            raise InvalidParameter(
                f"changed = {self.changed} exceeds the number of answers, {self.answers}; it is at most that."
            )

    def part(self) -> Part:
        """The currency spent: exact GDP for p = 2, a certified loss distribution otherwise."""
        shift = self.sensitivity / self.sigma
        if self.p == 2:
            return Gaussian(mu=math.sqrt(2 * self.changed) * shift * (1 + 1e-14))
        return GeneralizedGaussian(p=self.p, shift=shift, changed=self.changed, answers=self.answers)


def checked_power(p: float) -> float:
    """p, when the proof (log-concave noise) and the sampler cover it."""
    value = _check.positive("p", p)
    if not 1 <= value <= LARGEST_POWER:
        raise InvalidParameter(
            f"p must be between 1 and {LARGEST_POWER:g}, got {p!r}: below 1 the noise is not log-concave and nothing "
            "is proved, above it the sampler underflows. Use p = 1 (Laplace), p = 2 (Gaussian), or leave p out."
        )
    return value


def certify(noise: NoisyAnswers, *, delta: float) -> Guarantee:
    """The promise of this noise, reported at delta."""
    if delta == 0 and noise.p > 1:
        raise AssumptionFailed(
            f"{NAME} gives no pure promise: p = {noise.p} > 1 has an unbounded privacy loss. Use p = 1, or delta > 0."
        )
    return _minted(noise, noise.part(), delta)


def certify_corrected(
    noise: NoisyAnswers, *, hits: int, search_epsilon: float, answer_epsilon: float, delta: float
) -> Guarantee:
    """The promise of the noise with `hits` sparse-vector corrections, all in one sum of losses."""
    single = GeneralizedGaussian(
        p=noise.p, shift=noise.sensitivity / noise.sigma, changed=noise.changed, answers=noise.answers
    )
    part = CorrectedNoise(
        noise=single,
        hits=_check.count("hits", hits),
        search_epsilon=_check.positive("search_epsilon", search_epsilon),
        answer_epsilon=_check.positive("answer_epsilon", answer_epsilon),
    )
    words = "the threshold, the number of corrections and the order of the answers do not depend on the data"
    return _minted(noise, part, delta, words)


def _minted(noise: NoisyAnswers, part: Part, delta: float, *words: str) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=noise.adjacency,
        release="noisy-answers",
        theorem=NAME,
        reference=REFERENCE,
        assumptions=(
            f"neighbouring data sets change at most {noise.changed} of {noise.answers} answers, "
            f"each by at most {noise.sensitivity:g}",
            "noise is ideal real-valued noise from a secret seed",
            "the queries, p and sigma are public and not chosen from the private data",
            *words,
        ),
        at_delta=delta,
    )
