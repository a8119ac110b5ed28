"""Replay a run on a neighbouring table: with the same releases, compare the noise needed with the noise claimed.

A first run on one table records every release, that is every sum of exact values and noise. A second run on the
neighbour receives the same releases in the same order, so that it takes the same path; at each of them the exact
values of both tables are compared, in units of the noise that was added. For Gaussian noise the squared norms sum to
mu^2 of this pair along this path, for pure noise the norms sum to epsilon: neither may exceed the claim. The outputs
of the two runs are compared bit by bit: any difference reached the output without noise.

The noise is recognised, not declared: see `_traced_noise`. Draws that go through anything but linear arithmetic count
as ordinary numbers (the same in both runs), so that a mechanism that cannot be traced shows up as outputs that differ,
never as one that satisfies its claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from dplangevin.accounting import compose
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure
from dplangevin.audit._traced_noise import PURE_LAWS, NoiseTape, NoisyRelease, trace_noise

_MAX_SHOWN = 8
_MAX_DEPTH = 12


def find_differences(first: Any, second: Any, *, ignore: tuple[str, ...] = ()) -> list[str]:
    """Return the first few paths and values that differ; generators and callables are not compared."""
    return [
        text
        for text, _ in zip(
            _compare_values("output", first, second, ignore, 0), range(_MAX_SHOWN), strict=False
        )
    ]


def _compare_values(path: str, a: Any, b: Any, ignore: tuple[str, ...], depth: int) -> Iterator[str]:
    if a is b or depth > _MAX_DEPTH:
        return
    if type(a) is not type(b):
        yield f"{path}: {type(a).__name__} against {type(b).__name__}"
    elif isinstance(a, np.ndarray):
        yield from _compare_arrays(path, a, b)
    elif isinstance(a, (bool, int, str, bytes, np.generic)) or a is None:
        same = a == b or (isinstance(a, np.floating) and np.isnan(a) and np.isnan(b))
        if not same:
            yield f"{path}: {_short_repr(a)} against {_short_repr(b)}"
    elif isinstance(a, float):
        if not (a == b or (math.isnan(a) and math.isnan(b))):
            yield f"{path}: {a!r} against {b!r}"
    elif isinstance(a, dict):
        if list(a) != list(b):
            yield f"{path}: keys differ"
            return
        for key in a:
            if key not in ignore:
                yield from _compare_values(f"{path}[{key!r}]", a[key], b[key], ignore, depth + 1)
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            yield f"{path}: {len(a)} against {len(b)} entries"
            return
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _compare_values(f"{path}[{index}]", left, right, ignore, depth + 1)
    elif not (callable(a) or isinstance(a, (np.random.Generator, np.random.BitGenerator))):
        yield from _compare_objects(path, a, b, ignore, depth)


def _compare_arrays(path: str, a: Any, b: Any) -> Iterator[str]:
    if a.shape != b.shape or a.dtype != b.dtype:
        yield f"{path}: {a.dtype}{a.shape} against {b.dtype}{b.shape}"
    elif a.dtype == object:
        yield from _compare_values(path, a.tolist(), b.tolist(), (), 0)
    elif not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        index = int(np.flatnonzero((a != b).ravel())[0]) if a.size else 0
        yield f"{path}: entry {index} is {a.ravel()[index]!r} against {b.ravel()[index]!r}"


def _compare_objects(path: str, a: Any, b: Any, ignore: tuple[str, ...], depth: int) -> Iterator[str]:
    names = set(getattr(a, "__dict__", {})) | set(getattr(b, "__dict__", {}))
    if is_dataclass(a) and not isinstance(a, type):
        names |= {each.name for each in fields(a)}
    if not names:
        if type(a).__repr__ is not object.__repr__ and repr(a) != repr(b):  # type: ignore[comparison-overlap]
            yield f"{path}: {_short_repr(a)} against {_short_repr(b)}"
        return
    missing = object()
    for name in sorted(names - set(ignore)):
        left, right = getattr(a, name, missing), getattr(b, name, missing)
        yield from _compare_values(f"{path}.{name}", left, right, ignore, depth + 1)


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


D = TypeVar("D")
_RELATIVE_SLACK = 1 + 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayResult:
    """The result of a replay on one pair of tables.

    Parameters
    ----------
    releases : each with the exact values of both tables, the noise and the cost of the shift between them.
    differences : parts of the outputs that differ although all releases were equal, and other faults; each is a leak.
    guarantee : the claim, where one was given.
    outputs : what the two runs returned.
    """

    releases: tuple[NoisyRelease, ...]
    differences: tuple[str, ...]
    guarantee: Guarantee | None = None
    outputs: tuple[Any, Any] = (None, None)

    @property
    def mu(self) -> float:
        """Composed mu of all Gaussian releases."""
        return math.sqrt(sum(each.cost for each in self.releases if each.law == "gaussian"))

    @property
    def epsilon(self) -> float:
        """Composed epsilon of all pure releases."""
        return float(sum(each.cost for each in self.releases if each.law in PURE_LAWS))

    @property
    def refutation(self) -> str | None:
        """Reason why the claim is false, or None; a replay never proves a claim, it only fails to refute it."""
        if self.differences:
            return "; ".join(self.differences)
        if self.guarantee is None:
            return None
        if not (math.isfinite(self.mu) and math.isfinite(self.epsilon)):
            return "a release changes in a direction in which it has no noise"
        parts = self.guarantee.parts
        if all(isinstance(part, Gaussian | Pure) for part in parts):
            mu = math.sqrt(sum(part.count * part.mu**2 for part in parts if isinstance(part, Gaussian)))
            epsilon = float(sum(part.count * part.value for part in parts if isinstance(part, Pure)))
            if self.mu <= mu * _RELATIVE_SLACK and self.epsilon <= epsilon * _RELATIVE_SLACK:
                return None
            return (
                f"the releases attain mu = {self.mu:.6g} and epsilon = {self.epsilon:.6g}, the claim has mu = {mu:.6g} "
                f"and epsilon = {epsilon:.6g}"
            )
        delta = self.guarantee.at_delta or 0.0
        claimed, attained = (
            self.guarantee.epsilon(delta),
            compose.compose_epsilon(self._attained_parts(), delta),
        )
        if attained <= claimed * _RELATIVE_SLACK:
            return None
        return (
            f"the releases attain epsilon = {attained:.6g} at delta = {delta:g}, the claim is {claimed:.6g}"
        )

    @property
    def attained_fraction(self) -> float:
        """Attained epsilon at the claim's delta, divided by the claimed epsilon."""
        assert self.guarantee is not None
        delta = self.guarantee.at_delta or 0.0
        return compose.compose_epsilon(self._attained_parts(), delta) / self.guarantee.epsilon(delta)

    def _attained_parts(self) -> tuple[PrivacyPart, ...]:
        gaussian = (Gaussian(mu=self.mu),) if self.mu > 0 else ()
        return (*gaussian, *((Pure(value=self.epsilon),) if self.epsilon > 0 else ()))


def replay(
    release: Callable[[D, np.random.Generator], Any],
    data: D,
    neighbor: D,
    *,
    guarantee: Guarantee | None = None,
    seed: int = 0,
    ignore: tuple[str, ...] = (),
) -> ReplayResult:
    """Run `release(data, rng)`, replay its releases on the neighbour, and compare noise and outputs.

    Parameters
    ----------
    release : the whole mechanism; its noise comes from the generator that it receives, or from the exact samplers.
    data, neighbor : its inputs, differing in one record.
    guarantee : the claim to compare with; without one only outputs are compared.
    seed : of the generator.
    ignore : names of attributes that need not be equal (a token, a time).

    Examples
    --------
    >>> import numpy as np
    >>> def noisy_sum(x, rng):
    ...     return x.sum() + 2.0 * rng.standard_normal(1)
    >>> result = replay(noisy_sum, np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    >>> result.mu, result.refutation is None
    (0.5, True)
    >>> leaky_sum = lambda x, rng: (noisy_sum(x, rng), float(x.max()))
    >>> replay(leaky_sum, np.array([1.0, 0.0]), np.array([0.0, 0.0])).refutation
    'output[1]: 1.0 against 0.0'
    """
    tape = NoiseTape()
    with trace_noise(tape, seed) as rng:
        first = release(data, rng)
    tape.position = 0
    tape.draw_laws.clear()
    with trace_noise(tape, seed) as rng:
        second = release(neighbor, rng)
    faults = list(tape.faults)
    if tape.position < len(tape.releases):
        faults.append(f"the second run makes {tape.position} releases, the first one {len(tape.releases)}")
    faults += find_differences(first, second, ignore=ignore)
    return ReplayResult(
        releases=tuple(tape.releases), differences=tuple(faults), guarantee=guarantee, outputs=(first, second)
    )
