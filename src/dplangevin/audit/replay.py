"""Replay a run on a neighbouring table: what noise would have given the same releases, and how unlikely is it?

A first run on one table records every release, that is every sum of something exact and noise. A second run on the
neighbour is handed the same releases in the same order, so that it takes the same path; at each of them the exact
values of both tables are compared, in units of the noise that was really added. For Gaussian noise the squared lengths
add up to the mu^2 of this pair along this path, for pure noise the norms add up to epsilon: neither may exceed the
claim. All that the two runs return is compared bit by bit: whatever differs reached the output by a way that no noise
covers.

The noise is recognised, not declared. The generator hands out arrays that remember which linear function of which draws
they are; adding one to an ordinary array is a release. Draws that go through anything but linear arithmetic count as
ordinary numbers (and are the same in both runs), so that a mechanism that cannot be followed shows up as outputs that
differ, never as one that holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dplangevin.audit._compare import differences
from dplangevin.audit._traced_noise import PURE_LAWS, NoiseTape, NoisyRelease, trace_noise
from dplangevin.privacy import compose
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure

D = TypeVar("D")
_SLACK = 1 + 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayResult:
    """What a replay shows about one pair of tables.

    Parameters
    ----------
    releases : each with the exact values of both tables, the noise and what the shift between them costs.
    differences : parts of the outputs that differ although all releases were equal, and other faults: each is a leak.
    guarantee : the claim, where one was given.
    outputs : what the two runs returned.
    """

    releases: tuple[NoisyRelease, ...]
    differences: tuple[str, ...]
    guarantee: Guarantee | None = None
    outputs: tuple[Any, Any] = (None, None)

    @property
    def mu(self) -> float:
        """Of all Gaussian releases."""
        return math.sqrt(sum(each.cost for each in self.releases if each.law == "gaussian"))

    @property
    def epsilon(self) -> float:
        """Of all pure releases."""
        return float(sum(each.cost for each in self.releases if each.law in PURE_LAWS))

    @property
    def refuted(self) -> str | None:
        """Why the claim is false, or None: no replay proves a claim, it can only fail to refute it."""
        if self.differences:
            return "; ".join(self.differences)
        if self.guarantee is None:
            return None
        if not (math.isfinite(self.mu) and math.isfinite(self.epsilon)):
            return "a release moves in a direction that its noise does not reach"
        parts = self.guarantee.parts
        if all(isinstance(part, Gaussian | Pure) for part in parts):
            mu = math.sqrt(sum(part.count * part.mu**2 for part in parts if isinstance(part, Gaussian)))
            epsilon = float(sum(part.count * part.value for part in parts if isinstance(part, Pure)))
            if self.mu <= mu * _SLACK and self.epsilon <= epsilon * _SLACK:
                return None
            return (
                f"the releases attain mu = {self.mu:.6g} and epsilon = {self.epsilon:.6g}, the claim has mu = {mu:.6g} "
                f"and epsilon = {epsilon:.6g}"
            )
        delta = self.guarantee.at_delta or 0.0
        claimed, attained = self.guarantee.epsilon(delta), compose.epsilon(self._attained(), delta)
        if attained <= claimed * _SLACK:
            return None
        return (
            f"the releases attain epsilon = {attained:.6g} at delta = {delta:g}, the claim is {claimed:.6g}"
        )

    @property
    def attained_fraction(self) -> float:
        """The attained epsilon at the claim's delta over the claimed one."""
        assert self.guarantee is not None
        delta = self.guarantee.at_delta or 0.0
        return compose.epsilon(self._attained(), delta) / self.guarantee.epsilon(delta)

    def _attained(self) -> tuple[Part, ...]:
        gaussian = (Gaussian(mu=self.mu),) if self.mu > 0 else ()
        return (*gaussian, *((Pure(value=self.epsilon),) if self.epsilon > 0 else ()))


def replay(
    release: Callable[[D, np.random.Generator], Any],
    data: D,
    neighbour: D,
    *,
    guarantee: Guarantee | None = None,
    seed: int = 0,
    ignore: tuple[str, ...] = (),
) -> ReplayResult:
    """Run `release(data, rng)`, then the same releases on the neighbour, and compare noise and outputs.

    Parameters
    ----------
    release : the whole mechanism; its noise comes from the generator it is handed, or from the exact samplers.
    data, neighbour : what it reads, differing in one record.
    guarantee : the claim to compare with; without one only outputs are compared.
    ignore : names of attributes that need not be equal (a token, a time).

    Examples
    --------
    >>> import numpy as np
    >>> def noisy_sum(x, rng):
    ...     return x.sum() + 2.0 * rng.standard_normal(1)
    >>> result = replay(noisy_sum, np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    >>> result.mu, result.refuted is None
    (0.5, True)
    >>> replay(lambda x, rng: (noisy_sum(x, rng), float(x.max())), np.array([1.0, 0.0]), np.array([0.0, 0.0])).refuted
    'output[1]: 1.0 against 0.0'
    """
    tape = NoiseTape()
    with trace_noise(tape, seed) as rng:
        first = release(data, rng)
    tape.position = 0
    tape.drawn.clear()
    with trace_noise(tape, seed) as rng:
        second = release(neighbour, rng)
    faults = list(tape.faults)
    if tape.position < len(tape.releases):
        faults.append(f"the second run makes {tape.position} releases, the first one {len(tape.releases)}")
    faults += differences(first, second, ignore=ignore)
    return ReplayResult(
        releases=tuple(tape.releases), differences=tuple(faults), guarantee=guarantee, outputs=(first, second)
    )
