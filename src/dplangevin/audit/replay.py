"""Replay a run on a neighbouring table: with the same releases, compare the noise needed with the noise claimed.

A first run on one table records every release, that is every sum of exact values and noise. A second run on the
neighbour receives the same releases in the same order, so that it takes the same path; at each of them the exact
values of both tables are compared, in units of the noise that was added. For Gaussian noise the squared norms sum to
mu^2 of this pair along this path, for pure noise the norms sum to epsilon: neither may exceed the claim. The outputs
of the two runs are compared bit by bit: any difference reached the output without noise.

The noise is recognised, not declared: traced arrays record which linear function of which random draws they are. Adding
traced noise to an ordinary array is a release; a tape keeps the releases of the first run and returns them in the
second. Draws that go through anything but linear arithmetic count as ordinary numbers (the same in both runs), so that
a mechanism that cannot be traced shows up as outputs that differ, never as one that satisfies its claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self, TypeVar

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._rng import noise_observer
from dplangevin.accounting import compose
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure

_ROUNDING_TOLERANCE = 1e-9
"""A relative part of the shift outside the span of the noise that is attributed to rounding."""
PURE_LAWS = ("laplace", "geometric", "norm", "nuclear", "choice")


class TracedNoise(np.ndarray):
    """An array that records which linear function of which draws it is.

    law : distribution of the draws: "gaussian", "laplace" (density exp(-|x|)), "geometric" (one-sided, of whole
        numbers), "norm" (density exp(-|x|_2)), "nuclear" (log density Lipschitz in the nuclear norm), "choice" (the
        largest of several totals with exponential noise, of which only the place is released).
    terms : draw -> coefficients [*shape, entries of the draw].
    """

    tape: NoiseTape
    law: str
    terms: dict[int, Floats]

    @classmethod
    def wrap(cls, values: Any, tape: NoiseTape, law: str, terms: dict[int, Floats]) -> Self:
        """Return plain values as traced noise."""
        traced = np.asarray(values).view(cls)
        traced.tape, traced.law, traced.terms = tape, law, terms
        return traced

    @property
    def plain_values(self) -> Any:
        """The values as an ordinary array."""
        return self.view(np.ndarray)

    def _with_coefficients(self, values: Any, change: Callable[[Floats], Floats]) -> TracedNoise:
        return TracedNoise.wrap(
            values, self.tape, self.law, {key: change(c) for key, c in self.terms.items()}
        )

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Return the same noise in another shape."""
        values = self.plain_values.reshape(*shape, **options)
        return self._with_coefficients(values, lambda c: c.reshape(*values.shape, c.shape[-1]))

    def ravel(self, *arguments: Any, **options: Any) -> Any:
        """Return the same noise in one dimension."""
        return self.reshape(-1)

    @property
    def T(self) -> Any:
        """The transposed noise."""
        axes = tuple(reversed(range(self.ndim)))
        return self._with_coefficients(self.plain_values.T, lambda c: c.transpose(*axes, self.ndim))

    def astype(self, dtype: Any, *arguments: Any, **options: Any) -> Any:
        """Return the same noise with another dtype."""
        return self._with_coefficients(self.plain_values.astype(dtype), lambda c: c)

    def __getitem__(self, index: Any) -> Any:
        values = self.plain_values[index]
        if not isinstance(values, np.ndarray) or (isinstance(index, tuple) and Ellipsis in index):
            return values
        return self._with_coefficients(values, lambda c: c[index])

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method == "__call__" and not options and len(inputs) <= 2:
            result = _apply_linear(ufunc, *inputs)
            if result is not None:
                if out is None:
                    return result
                np.copyto(out[0], np.asarray(result))
                return out[0]
        plain = [value.plain_values if isinstance(value, TracedNoise) else value for value in inputs]
        target = None if out is None else tuple(_strip_array(each) for each in out)
        return getattr(ufunc, method)(*plain, **options, **({} if target is None else {"out": target}))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return function(*_strip_tracing(arguments), **_strip_tracing(options))


def _strip_array(value: Any) -> Any:
    return value.plain_values if isinstance(value, TracedNoise) else value


def _strip_tracing(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_strip_tracing(each) for each in value)
    if isinstance(value, dict):
        return {name: _strip_tracing(each) for name, each in value.items()}
    return _strip_array(value)


def _apply_linear(ufunc: Any, *inputs: Any) -> Any:
    """Return the result of an operation that is linear in the noise or makes a release; None for any other."""
    first, second = inputs[0], inputs[-1]
    if ufunc is np.negative:
        return first._with_coefficients(-first.plain_values, lambda c: -c)
    both = isinstance(first, TracedNoise) and isinstance(second, TracedNoise)
    if ufunc in (np.add, np.subtract):
        sign = 1 if ufunc is np.add else -1
        if both:
            return _combine_traced(first, second, sign)
        if isinstance(first, TracedNoise):
            return first.tape.record_sum(sign * np.asarray(second), first, 1)
        return second.tape.record_sum(np.asarray(first), second, sign)
    if both:
        return None
    noise, other = (first, second) if isinstance(first, TracedNoise) else (second, first)
    if ufunc is np.multiply or (ufunc is np.true_divide and noise is first):
        factor = np.asarray(other, float)
        factor = factor if ufunc is np.multiply else 1 / factor
        values = ufunc(_strip_array(first), _strip_array(second))
        return noise._with_coefficients(values, lambda c: _scale_coefficients(c, factor, values.shape))
    if ufunc is np.matmul and noise is second and np.ndim(other) == 2:
        return noise._with_coefficients(
            other @ noise.plain_values, lambda c: np.tensordot(other, c, axes=(1, 0))
        )
    return None


def _scale_coefficients(coefficients: Floats, factor: Floats, shape: tuple[int, ...]) -> Floats:
    entries = coefficients.shape[-1]
    return np.broadcast_to(coefficients, (*shape, entries)) * np.broadcast_to(factor, shape)[..., None]


def _combine_traced(first: TracedNoise, second: TracedNoise, sign: int) -> Any:
    if first.law != second.law or first.shape != second.shape:
        return None
    values = first.plain_values + sign * second.plain_values
    terms = dict(first.terms)
    for key, coefficients in second.terms.items():
        terms[key] = terms[key] + sign * coefficients if key in terms else sign * coefficients
    return TracedNoise.wrap(values, first.tape, first.law, terms)


@dataclass(kw_only=True, eq=False)
class NoisyRelease:
    """One release: exact values, released values, and the noise between them as [entries, draws] coefficients.

    neighbor_exact : exact values of the neighbouring table, once the second run has reached this release.
    """

    law: str
    exact: Floats
    released: Any
    spread: Floats
    neighbor_exact: Floats | None = None

    @property
    def noise_std(self) -> Floats:
        """Standard deviation of each entry for Gaussian noise; otherwise the norm of the entry's coefficients."""
        return np.asarray(np.sqrt((self.spread**2).sum(axis=1)))

    @property
    def cost(self) -> float:
        """mu^2 of the shift between the two tables for Gaussian noise, epsilon for pure noise."""
        if self.neighbor_exact is None:
            return math.inf
        shift = (np.asarray(self.neighbor_exact, float) - np.asarray(self.exact, float)).ravel()
        if not shift.any():
            return 0.0
        if not np.isfinite(shift).all():
            return math.inf
        if self.law == "choice":
            return float(np.ptp(shift) / self.spread[0, 0])
        if self.law == "nuclear":
            matrix = shift.reshape(np.shape(self.exact))
            return float(np.linalg.norm(matrix, "nuc") / self.spread[0, 0])
        draws, *_ = np.linalg.lstsq(self.spread, shift, rcond=1e-12)
        if np.linalg.norm(self.spread @ draws - shift) > _ROUNDING_TOLERANCE * np.linalg.norm(shift):
            return math.inf  # a direction without noise
        if self.law == "gaussian":
            return float(draws @ draws)
        if self.law == "norm":
            return float(np.linalg.norm(draws))
        if (
            self.law == "geometric"
            and not ((self.spread > 0).any(axis=1) & (self.spread < 0).any(axis=1)).all()
        ):
            return math.inf  # one-sided noise: only a difference of two draws hides a shift
        return float(np.abs(draws).sum())


@dataclass(eq=False)
class NoiseTape:
    """The releases of a first run, and the position of a second run among them."""

    releases: list[NoisyRelease] = field(default_factory=list)
    draw_laws: list[str] = field(default_factory=list)
    position: int | None = None
    faults: list[str] = field(default_factory=list)

    def trace_draw(self, values: Any, law: str, scale: float = 1.0) -> TracedNoise:
        """Return independent noise of a distribution as traced noise."""
        key = len(self.draw_laws)
        self.draw_laws.append(law)
        size = int(np.size(values))
        coefficients = (scale * np.eye(size)).reshape(*np.shape(values), size)
        return TracedNoise.wrap(values, self, law, {key: coefficients})

    def record_sum(self, exact: Any, noise: TracedNoise, sign: int) -> Any:
        """Record a sum of exact values and noise in the first run; return the recorded one in the second."""
        shape = np.broadcast_shapes(np.shape(exact), noise.shape)
        spread = np.concatenate(
            [
                np.broadcast_to(c, (*shape, c.shape[-1])).reshape(-1, c.shape[-1])
                for c in noise.terms.values()
            ],
            axis=1,
        )
        released = np.asarray(exact) + sign * noise.plain_values
        return self.record_release(
            np.broadcast_to(np.asarray(exact), shape).copy(), released, noise.law, spread
        )

    def record_release(self, exact: Any, released: Any, law: str, spread: Floats) -> Any:
        """Record a release in the first run; return the recorded one in the second."""
        if self.position is None:
            self.releases.append(
                NoisyRelease(law=law, exact=exact, released=np.copy(released), spread=spread)
            )
            return released
        if self.position >= len(self.releases):
            self.faults.append("the second run makes a release that the first run does not make")
            return released
        recorded = self.releases[self.position]
        self.position += 1
        if (
            recorded.law != law
            or np.shape(recorded.exact) != np.shape(exact)
            or not np.array_equal(recorded.spread, spread)
        ):
            self.faults.append(
                f"release {self.position} has other noise in the second run: {recorded.law}, "
                f"{np.shape(recorded.exact)} "
                f"against {law}, {np.shape(exact)}, or another scale"
            )
            return released
        recorded.neighbor_exact = exact
        return np.copy(recorded.released)

    # callbacks of samplers that draw their own bytes (see dplangevin._rng.noise_observer)
    def observe_noise(self, values: Any, law: str, scale: float) -> Any:
        """Trace noise that will be added to exact values."""
        return self.trace_draw(values, law, scale)

    def observe_sum(self, exact: Any, released: Any, law: str, scale: Any) -> Any:
        """Record the release of a sampler that adds its noise itself, of one scale or one for each entry."""
        return self.record_release(np.copy(exact), released, law, scale * np.eye(int(np.size(exact))))

    def observe_choice(self, totals: Any, index: int, scale: float) -> Any:
        """Record which of several totals was the largest with exponential noise of this scale."""
        return self.record_release(np.copy(totals), np.asarray(index), "choice", np.array([[scale]]))

    def observe_minimizer(
        self, tilt: Any, minimize: Callable[[Any], Any], gradient: Callable[[Any], Any]
    ) -> Any:
        """Record a perturbed minimiser: the gradient over the records at the released point is minus the tilt."""
        if not isinstance(tilt, TracedNoise):
            return minimize(tilt)
        spread = np.concatenate([c.reshape(tilt.size, -1) for c in tilt.terms.values()], axis=1)
        if self.position is None or self.position >= len(self.releases):
            point = minimize(tilt.plain_values)
        else:
            point = self.releases[self.position].released
        return self.record_release(gradient(point), point, tilt.law, spread)


class TracingGenerator(np.random.Generator):
    """A generator whose normal, Laplace and geometric numbers are traced; every other draw is an ordinary number.

    Each call draws from a separate stream, so that a call that takes more numbers (say, for one row more) does not
    change later calls.
    """

    def __init__(self, seed: tuple[int, ...], tape: NoiseTape | None = None) -> None:
        super().__init__(np.random.PCG64(seed))
        self._seed, self._calls, self._tape = seed, 0, tape or NoiseTape()

    def _next_stream(self) -> None:
        self._calls += 1
        self.bit_generator.state = np.random.PCG64((*self._seed, self._calls)).state

    def standard_normal(self, size: Any = None, *arguments: Any, **options: Any) -> Any:
        self._next_stream()
        values = super().standard_normal(size, *arguments, **options)
        return self._tape.trace_draw(values, "gaussian") if size is not None else values

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        noise = scale * self.standard_normal(np.shape(scale) if size is None else size)
        return noise if np.ndim(loc) == 0 and loc == 0 else loc + noise

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        self._next_stream()
        if size is None:
            return super().laplace(loc, scale)
        noise = scale * self._tape.trace_draw(super().laplace(0.0, 1.0, size), "laplace")
        return noise if np.ndim(loc) == 0 and loc == 0 else loc + noise

    def geometric(self, p: Any, size: Any = None) -> Any:
        self._next_stream()
        values = super().geometric(p, size)
        return (
            values if size is None else self._tape.trace_draw(values, "geometric", -1 / math.log1p(-float(p)))
        )

    def spawn(self, n_children: int) -> Any:
        self._next_stream()
        return [
            TracingGenerator((*self._seed, self._calls, child), self._tape) for child in range(n_children)
        ]


def _untraced_method(name: str) -> Callable[..., Any]:
    def method(self: TracingGenerator, *arguments: Any, **options: Any) -> Any:
        self._next_stream()
        return getattr(np.random.Generator, name)(self, *arguments, **options)

    return method


for _name in (
    "random", "integers", "choice", "permutation", "permuted", "shuffle", "bytes", "uniform", "beta", "binomial",
    "exponential", "gamma", "gumbel", "logseries", "lognormal", "poisson", "standard_exponential", "standard_gamma",
):  # fmt: skip
    setattr(TracingGenerator, _name, _untraced_method(_name))


@contextmanager
def trace_noise(tape: NoiseTape, seed: int) -> Iterator[TracingGenerator]:
    """Yield a generator that records on the tape; samplers that draw their own bytes record on it too."""
    token = noise_observer.set(tape)
    try:
        yield TracingGenerator((seed,), tape)
    finally:
        noise_observer.reset(token)


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
            attained_mu, attained = self.mu, self.epsilon
            if epsilon == 0:  # of choices, which a claim may count as Gaussian: sqrt(pi / 2) epsilon
                choices = [each.cost for each in self.releases if each.law == "choice"]
                attained_mu = math.sqrt(attained_mu**2 + math.pi / 2 * sum(cost**2 for cost in choices))
                attained -= sum(choices)
            if attained_mu <= mu * _RELATIVE_SLACK and attained <= epsilon + 1e-9 * self.epsilon:
                return None
            return (
                f"the releases attain mu = {attained_mu:.6g} and epsilon = {attained:.6g}, the claim has mu = {mu:.6g} "
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
