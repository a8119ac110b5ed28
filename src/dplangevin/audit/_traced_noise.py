"""Noise that can be followed: arrays that remember which linear function of which draws they are.

Adding one to an ordinary array is a release. A tape records the releases of a first run and answers a second one with
them. Draws that go through anything but linear arithmetic become ordinary numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._rng import noise_observer

_ROUNDING = 1e-9
"""A shift outside the span of the noise by less than this part of it is rounding."""
PURE_LAWS = ("laplace", "geometric", "norm", "nuclear")


class TracedNoise(np.ndarray):
    """An array that knows which linear function of which draws it is.

    law : "gaussian", "laplace" (density exp(-|x|)), "geometric" (one-sided, of whole numbers), "norm" (density
        exp(-|x|_2)), "nuclear" (log density Lipschitz in the nuclear norm).
    terms : draw -> coefficients [*shape, entries of the draw].
    """

    tape: NoiseTape
    law: str
    terms: dict[int, Floats]

    @classmethod
    def of(cls, values: Any, tape: NoiseTape, law: str, terms: dict[int, Floats]) -> Self:
        """Wrap plain values."""
        made = np.asarray(values).view(cls)
        made.tape, made.law, made.terms = tape, law, terms
        return made

    @property
    def plain(self) -> Any:
        """The numbers alone."""
        return self.view(np.ndarray)

    def _with(self, values: Any, change: Callable[[Floats], Floats]) -> TracedNoise:
        return TracedNoise.of(values, self.tape, self.law, {key: change(c) for key, c in self.terms.items()})

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """The same noise in another shape."""
        values = self.plain.reshape(*shape, **options)
        return self._with(values, lambda c: c.reshape(*values.shape, c.shape[-1]))

    def ravel(self, *arguments: Any, **options: Any) -> Any:
        """The same noise in one row."""
        return self.reshape(-1)

    @property
    def T(self) -> Any:
        """The transposed noise."""
        axes = tuple(reversed(range(self.ndim)))
        return self._with(self.plain.T, lambda c: c.transpose(*axes, self.ndim))

    def astype(self, dtype: Any, *arguments: Any, **options: Any) -> Any:
        """The same noise as other numbers."""
        return self._with(self.plain.astype(dtype), lambda c: c)

    def __getitem__(self, index: Any) -> Any:
        values = self.plain[index]
        if not isinstance(values, np.ndarray) or (isinstance(index, tuple) and Ellipsis in index):
            return values
        return self._with(values, lambda c: c[index])

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method == "__call__" and not options and len(inputs) <= 2:
            result = _linear(ufunc, *inputs)
            if result is not None:
                if out is None:
                    return result
                np.copyto(out[0], np.asarray(result))
                return out[0]
        plain = [value.plain if isinstance(value, TracedNoise) else value for value in inputs]
        target = None if out is None else tuple(_plain_of(each) for each in out)
        return getattr(ufunc, method)(*plain, **options, **({} if target is None else {"out": target}))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return function(*_strip_tracing(arguments), **_strip_tracing(options))


def _plain_of(value: Any) -> Any:
    return value.plain if isinstance(value, TracedNoise) else value


def _strip_tracing(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_strip_tracing(each) for each in value)
    if isinstance(value, dict):
        return {name: _strip_tracing(each) for name, each in value.items()}
    return _plain_of(value)


def _linear(ufunc: Any, *inputs: Any) -> Any:
    """The result of an operation that keeps noise linear, or makes a release of it; None for any other one."""
    first, second = inputs[0], inputs[-1]
    if ufunc is np.negative:
        return first._with(-first.plain, lambda c: -c)
    both = isinstance(first, TracedNoise) and isinstance(second, TracedNoise)
    if ufunc in (np.add, np.subtract):
        sign = 1 if ufunc is np.add else -1
        if both:
            return _combined(first, second, sign)
        if isinstance(first, TracedNoise):
            return first.tape.release(sign * np.asarray(second), first, 1)
        return second.tape.release(np.asarray(first), second, sign)
    if both:
        return None
    noise, other = (first, second) if isinstance(first, TracedNoise) else (second, first)
    if ufunc is np.multiply or (ufunc is np.true_divide and noise is first):
        factor = np.asarray(other, float)
        factor = factor if ufunc is np.multiply else 1 / factor
        values = ufunc(_plain_of(first), _plain_of(second))
        return noise._with(values, lambda c: _scale_coefficients(c, factor, values.shape))
    if ufunc is np.matmul and noise is second and np.ndim(other) == 2:
        return noise._with(other @ noise.plain, lambda c: np.tensordot(other, c, axes=(1, 0)))
    return None


def _scale_coefficients(coefficients: Floats, factor: Floats, shape: tuple[int, ...]) -> Floats:
    entries = coefficients.shape[-1]
    return np.broadcast_to(coefficients, (*shape, entries)) * np.broadcast_to(factor, shape)[..., None]


def _combined(first: TracedNoise, second: TracedNoise, sign: int) -> Any:
    if first.law != second.law or first.shape != second.shape:
        return None
    values = first.plain + sign * second.plain
    terms = dict(first.terms)
    for key, coefficients in second.terms.items():
        terms[key] = terms[key] + sign * coefficients if key in terms else sign * coefficients
    return TracedNoise.of(values, first.tape, first.law, terms)


@dataclass(kw_only=True, eq=False)
class NoisyRelease:
    """One release: exact values, what left, and the noise between them as [entries, draws] coefficients."""

    law: str
    exact: Floats
    released: Any
    spread: Floats
    other: Floats | None = None

    @property
    def noise_std(self) -> Floats:
        """Of each entry, for Gaussian noise; of other laws, the length of the entry's coefficients."""
        return np.asarray(np.sqrt((self.spread**2).sum(axis=1)))

    @property
    def cost(self) -> float:
        """mu^2 of the shift between the two tables for Gaussian noise, epsilon for pure noise."""
        if self.other is None:
            return math.inf
        shift = (np.asarray(self.other, float) - np.asarray(self.exact, float)).ravel()
        if not shift.any():
            return 0.0
        if not np.isfinite(shift).all():
            return math.inf
        if self.law == "nuclear":
            matrix = shift.reshape(np.shape(self.exact))
            return float(np.linalg.norm(matrix, "nuc") / self.spread[0, 0])
        draws, *_ = np.linalg.lstsq(self.spread, shift, rcond=1e-12)
        if np.linalg.norm(self.spread @ draws - shift) > _ROUNDING * np.linalg.norm(shift):
            return math.inf  # a direction that the noise does not reach
        if self.law == "gaussian":
            return float(draws @ draws)
        if self.law == "norm":
            return float(np.linalg.norm(draws))
        if (
            self.law == "geometric"
            and not ((self.spread > 0).any(axis=1) & (self.spread < 0).any(axis=1)).all()
        ):
            return math.inf  # one-sided noise: only a difference of two covers a shift
        return float(np.abs(draws).sum())


@dataclass(eq=False)
class NoiseTape:
    """What a first run released, and how far a second one is along it."""

    releases: list[NoisyRelease] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    position: int | None = None
    faults: list[str] = field(default_factory=list)

    def draw(self, values: Any, law: str, scale: float = 1.0) -> TracedNoise:
        """Independent noise of a law, entry by entry, traced from here on."""
        key = len(self.drawn)
        self.drawn.append(law)
        size = int(np.size(values))
        coefficients = (scale * np.eye(size)).reshape(*np.shape(values), size)
        return TracedNoise.of(values, self, law, {key: coefficients})

    def release(self, exact: Any, noise: TracedNoise, sign: int) -> Any:
        """Something exact plus noise: recorded in the first run, answered from the record in the second."""
        shape = np.broadcast_shapes(np.shape(exact), noise.shape)
        spread = np.concatenate(
            [
                np.broadcast_to(c, (*shape, c.shape[-1])).reshape(-1, c.shape[-1])
                for c in noise.terms.values()
            ],
            axis=1,
        )
        released = np.asarray(exact) + sign * noise.plain
        return self.note(np.broadcast_to(np.asarray(exact), shape).copy(), released, noise.law, spread)

    def note(self, exact: Any, released: Any, law: str, spread: Floats) -> Any:
        """Record a release, or answer with the recorded one."""
        if self.position is None:
            self.releases.append(
                NoisyRelease(law=law, exact=exact, released=np.copy(released), spread=spread)
            )
            return released
        if self.position >= len(self.releases):
            self.faults.append("the second run makes a release that the first one does not")
            return released
        known = self.releases[self.position]
        self.position += 1
        if (
            known.law != law
            or np.shape(known.exact) != np.shape(exact)
            or not np.array_equal(known.spread, spread)
        ):
            self.faults.append(
                f"release {self.position} has other noise in the second run: {known.law}, {np.shape(known.exact)} "
                f"against {law}, {np.shape(exact)}, or another scale"
            )
            return released
        known.other = exact
        return np.copy(known.released)

    # what samplers that draw their own bytes report (see dplangevin._rng.noise_observer)
    def observe_noise(self, values: Any, law: str, scale: float) -> Any:
        """Noise that will be added to something exact."""
        return self.draw(values, law, scale)

    def observe_sum(self, exact: Any, released: Any, law: str, scale: float) -> Any:
        """A sampler that adds its noise itself."""
        return self.note(np.copy(exact), released, law, scale * np.eye(int(np.size(exact))))

    def observe_minimiser(
        self, tilt: Any, minimise: Callable[[Any], Any], gradient: Callable[[Any], Any]
    ) -> Any:
        """A perturbed minimiser: the gradient over the records at the released point is minus the tilt."""
        if not isinstance(tilt, TracedNoise):
            return minimise(tilt)
        spread = np.concatenate([c.reshape(tilt.size, -1) for c in tilt.terms.values()], axis=1)
        if self.position is None or self.position >= len(self.releases):
            point = minimise(tilt.plain)
        else:
            point = self.releases[self.position].released
        return self.note(gradient(point), point, tilt.law, spread)


class TracingGenerator(np.random.Generator):
    """A generator whose normal, Laplace and geometric numbers are traced; every other draw is an ordinary number.

    Each call draws from a stream of its own, so that one call that takes more numbers (a coin for a row more) leaves
    the later ones as they are.
    """

    def __init__(self, seed: tuple[int, ...], tape: NoiseTape | None = None) -> None:
        super().__init__(np.random.PCG64(seed))
        self._seed, self._calls, self._tape = seed, 0, tape or NoiseTape()

    def _renew(self) -> None:
        self._calls += 1
        self.bit_generator.state = np.random.PCG64((*self._seed, self._calls)).state

    def standard_normal(self, size: Any = None, *arguments: Any, **options: Any) -> Any:
        self._renew()
        values = super().standard_normal(size, *arguments, **options)
        return self._tape.draw(values, "gaussian") if size is not None else values

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        noise = scale * self.standard_normal(np.shape(scale) if size is None else size)
        return noise if np.ndim(loc) == 0 and loc == 0 else loc + noise

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        self._renew()
        if size is None:
            return super().laplace(loc, scale)
        noise = scale * self._tape.draw(super().laplace(0.0, 1.0, size), "laplace")
        return noise if np.ndim(loc) == 0 and loc == 0 else loc + noise

    def geometric(self, p: Any, size: Any = None) -> Any:
        self._renew()
        values = super().geometric(p, size)
        return values if size is None else self._tape.draw(values, "geometric", -1 / math.log1p(-float(p)))

    def spawn(self, n_children: int) -> Any:
        self._renew()
        return [
            TracingGenerator((*self._seed, self._calls, child), self._tape) for child in range(n_children)
        ]


def _ordinary(name: str) -> Callable[..., Any]:
    def method(self: TracingGenerator, *arguments: Any, **options: Any) -> Any:
        self._renew()
        return getattr(np.random.Generator, name)(self, *arguments, **options)

    return method


for _name in (
    "random", "integers", "choice", "permutation", "permuted", "shuffle", "bytes", "uniform", "beta", "binomial",
    "exponential", "gamma", "gumbel", "logseries", "lognormal", "poisson", "standard_exponential", "standard_gamma",
):  # fmt: skip
    setattr(TracingGenerator, _name, _ordinary(_name))


@contextmanager
def trace_noise(tape: NoiseTape, seed: int) -> Iterator[TracingGenerator]:
    """A generator that writes on the tape; samplers that draw their own bytes write on it too."""
    token = noise_observer.set(tape)
    try:
        yield TracingGenerator((seed,), tape)
    finally:
        noise_observer.reset(token)
