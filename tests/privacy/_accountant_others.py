"""Random releases of the other mechanisms, with a delta at eps that a test of them attains, computed by itself.

Each is the worst pair that is known in closed form: Gaussian shifts that records within the bounds do make, linear
losses (whose minimisers and draws are Gaussian), Laplace and geometric noise, the largest of a random number of scores.
Sizes are in random units, up to 1e+-40.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import gammaincc, ndtr

from dplangevin.mechanisms.exponential.spec import ExponentialSpec, GibbsSpec
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec
from dplangevin.mechanisms.noisy_answers.spec import (
    MaxNormSpec,
    NoisyAnswersSpec,
    NoisyMaxSpec,
    NoisySumsSpec,
    SumGroup,
)
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec, OutputPerturbationSpec
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec
from dplangevin.mechanisms.repeated_selection.spec import MIN_POISSON_REPETITIONS, RepeatedSelectionSpec
from dplangevin.mechanisms.ridge_whitened.spec import RidgeWhitenedSpec
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec
from dplangevin.mechanisms.whitened.spec import WhitenedSpec
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec
from dplangevin.problem.constants import ADJACENCIES, Constants
from privacy import _accountant_draws as draws
from privacy._accountant_draws import Rng, _log, _pick
from privacy._accountant_sets import (
    SETS,
    exact_descent,
    iterated,
    rashomon_chains,
    rashomon_draws,
    sparse_vector,
)
from privacy._accountant_trials import Trial, Truth, gaussian_truth, tests_truth
from unit._perturbation import worst_logistic_ratio

_PRECISE = 1e-7


def _unit(rng: Rng) -> float:
    return 10.0 ** int(rng.integers(-40, 41)) if rng.random() < 0.4 else 1.0


def _gaussian(kind: str, mu: float, spec: Any, constants: Constants | None = None) -> Trial:
    return Trial(kind=kind, constants=constants, spec=spec, truth=gaussian_truth(mu), mu=mu)


def _sides(adjacency: str) -> int:
    return 2 if adjacency == "replace-one" else 1


def slack(rng: Rng) -> Trial:
    """A share of -unit that becomes one of +unit, or comes."""
    unit, mu, adjacency = _unit(rng), _log(rng, 0.01, 5.0), _pick(rng, *ADJACENCIES)
    scale = _sides(adjacency) * unit / mu
    answers = int(rng.integers(1, 5))
    spec = SlackSpec(unit=unit, scale=scale, answers=answers, adjacency=adjacency)
    return _gaussian("slack", mu, spec)


def sums(rng: Rng) -> Trial:
    """Contributions at right angles in every group; a single sum moves by one unit."""
    adjacency, groups, square = _pick(rng, *ADJACENCIES), [], 0.0
    for _ in range(int(rng.integers(1, 4))):
        unit, answers, scale = _unit(rng), int(rng.integers(1, 5)), _log(rng, 0.3, 50.0)
        groups.append(SumGroup(answers=answers, unit=unit, scale=scale * unit))
        square += (_sides(adjacency) if answers > 1 else 1) / scale**2
    spec = NoisySumsSpec(groups=tuple(groups), noise="gaussian", adjacency=adjacency)
    return _gaussian("sums", math.sqrt(square), spec)


def geometric_truth(moves: int, shift: int, scale: float) -> Truth:
    """`moves` counts that each move by `shift`, a two-sided geometric noise on each: all but far tails are summed."""
    reach = math.ceil(40 * scale) + shift
    place = np.arange(-reach, reach + shift + 1)
    first, second = (
        math.tanh(1 / (2 * scale)) * np.exp(-np.abs(place - at) / scale) for at in (0, shift)
    )  # (1 - a) / (1 + a), a = e^(-1/scale)
    if moves == 2:
        first, second = np.multiply.outer(first, second[::-1]), np.multiply.outer(second, first[::-1])

    def truth(eps: float) -> float:
        if eps > 690:
            return 0.0
        return float(np.maximum(first * (1 - 1e-12) - math.exp(eps) * second * (1 + 1e-12), 0.0).sum())

    return truth


def counts(rng: Rng) -> Trial:
    """Geometric noise: a record leaves one count, and enters another."""
    adjacency, unit, scale = _pick(rng, *ADJACENCIES), int(rng.integers(1, 4)), _log(rng, 0.3, 6.0)
    if rng.random() < 0.5:
        spec: Any = NoisySumsSpec(
            groups=(SumGroup(answers=3, unit=unit, scale=scale),), noise="geometric", adjacency=adjacency
        )
    else:
        spec = LearnedSchemaSpec(
            n_numbers=1, n_cells=4, n_categories=0, noise="geometric", scale=scale, adjacency=adjacency,
            rows_per_person=unit
        )  # fmt: skip
    truth = geometric_truth(_sides(adjacency), unit, scale)
    return Trial(kind="counts", constants=None, spec=spec, truth=truth)


def noisy_max(rng: Rng) -> Trial:
    """Two candidates whose lead moves by 2 units (1 under add-remove): the probability that the first one wins."""
    adjacency, unit, ratio = _pick(rng, *ADJACENCIES), _unit(rng), _log(rng, 0.05, 5.0)
    spec = NoisyMaxSpec(candidates=2, unit=unit, scale=unit / ratio, adjacency=adjacency)
    lead = np.linspace(-6, 6, 241) * ratio

    def wins(gap: Any) -> Any:  # of two exponentials; 1 - wins(gap) = wins(-gap)
        return np.where(gap > 0, 1 - np.exp(-np.abs(gap)) / 2, np.exp(-np.abs(gap)) / 2)

    after = lead + _sides(adjacency) * ratio
    power, size = (
        np.concatenate([wins(after), wins(-lead)]),
        np.concatenate([wins(lead), wins(-after)]),
    )
    truth = tests_truth(power * (1 - 1e-12), size * (1 + 1e-12))
    return Trial(kind="max", constants=None, spec=spec, truth=truth)


def answers(rng: Rng) -> Trial:
    """Generalised Gaussian noise: all moves for p = 2, one of them for other p."""
    p, shift, unit = (
        float(_pick(rng, 1.0, 2.0, 2.0, 3.0, p=(0.4, 0.3, 0.25, 0.05))),
        _log(rng, 0.02, 3.0),
        _unit(rng),
    )
    changed = int(rng.integers(1, 6)) if p == 2 else 1  # several moves of other noise take a second each
    spec = NoisyAnswersSpec(
        answers=changed + int(rng.integers(0, 3)), changed=changed, sensitivity=unit, p=p, sigma=unit / shift,
        adjacency=_pick(rng, *ADJACENCIES),
    )  # fmt: skip
    if p == 2:
        return _gaussian("answers", math.sqrt(2 * changed) * shift, spec)
    cuts = np.linspace(-8, 8 + shift, 801)
    above, below = (
        np.where(cuts > at, 0.5 * gammaincc(1 / p, np.abs(cuts - at) ** p), 0.0) for at in (shift, 0.0)
    )  # half-lines beyond both means
    kept = cuts > shift
    truth = tests_truth(above[kept] * (1 - 1e-11), below[kept] * (1 + 1e-11))
    return Trial(kind="answers", constants=None, spec=spec, truth=truth)


def largest_norm(rng: Rng) -> Trial:
    """All k answers move by the sensitivity s: that every one exceeds t >= s has probability e^(s - t) / 2^k."""
    k, shift, unit = int(rng.integers(1, 6)), _log(rng, 0.05, 6.0), _unit(rng)
    spec = MaxNormSpec(
        answers=k, changed=k, sensitivity=unit, scale=unit / shift, adjacency=_pick(rng, *ADJACENCIES)
    )
    if k == 1:
        truth: Truth = lambda eps: max(0.0, -math.expm1((eps - shift) / 2)) * (1 - 1e-12)  # noqa: E731
    else:
        truth = lambda eps: max(0.0, -math.expm1(eps - shift)) / 2**k * (1 - 1e-12)  # noqa: E731
    return Trial(kind="largest norm", constants=None, spec=spec, truth=truth)


def whitened(rng: Rng) -> Trial:
    """A row turned by a right angle, or turned round: moments move by sqrt 2 and gradients too, or gradients by 2."""
    add = rng.random() < 0.5
    n, row, slope = int(rng.integers(1, 10**6)), _unit(rng), _log(rng, 0.1, 10.0)
    looks, steps = int(rng.integers(1, 3)), int(rng.integers(1, 80))
    moment, step = _log(rng, 0.01, 2.0), _log(rng, 0.001, 1.0)
    constants = Constants(
        n=n, lipschitz=slope * row, row_norm=row, adjacency="add-remove" if add else "replace-one"
    )
    spec = WhitenedSpec(
        moment_noise_std=1 / (n * moment), noise_std=slope / (n * step), n_steps=steps, step_size=1.0, coef_bound=1.0,
        n_moment_releases=looks,
    )  # fmt: skip
    steps, spec = _approached(rng, steps, spec)
    turned = looks * moment**2 + steps * step**2
    square = turned if add else max(2 * turned, 4 * steps * step**2)
    return _gaussian("whitened", math.sqrt(square), spec, constants)


def _approached(rng: Rng, steps: int, spec: WhitenedSpec) -> tuple[float, WhitenedSpec]:
    """Perhaps with an approach: how many steps of the stated noise cost as much as the run with any number of steps."""
    if steps < 2 or rng.random() < 0.5:
        return steps, spec
    first, ratio = int(rng.integers(1, steps)), _log(rng, 0.3, 3.0)
    changed = replace(
        spec,
        n_approach_steps=first,
        approach_noise_std=ratio * spec.noise_std,
        average_from=first,
        max_steps=100,
    )
    total = changed.choose_n_steps(float(rng.uniform(0, 9)))
    noises = np.array([changed.noise_at_step(t, total) for t in range(total)]) / spec.noise_std
    return float((1 / noises**2).sum()), changed


def ridge_whitened(rng: Rng) -> Trial:
    """The same two changes of a row; on every branch the releases after the first moment cost one gradient's mu."""
    add = rng.random() < 0.5
    n, row, slope = int(rng.integers(1, 10**6)), _unit(rng), _log(rng, 0.1, 10.0)
    looks, counted = int(rng.integers(0, 4)), rng.random() < 0.5
    moment, rest, count = _log(rng, 0.01, 2.0), _log(rng, 0.01, 2.0), _log(rng, 0.01, 2.0)
    sides, part = (1 if add else 2), 0.2
    constants = Constants(
        n=n, lipschitz=slope * row, row_norm=row, adjacency="add-remove" if add else "replace-one"
    )
    further = math.sqrt(sides) / (n * math.sqrt(part) * sides * rest) * (1 + 1e-9)
    spec = RidgeWhitenedSpec(
        moment_noise_std=1 / (n * moment), noise_std=slope / (n * rest), step_cap=1.0, max_moment_releases=looks,
        further_noise_std=further, further_fraction=part, count_noise_std=1 / (n * count) if counted else None,
    )  # fmt: skip
    turned = (looks > 0) * moment**2 + rest**2
    square = turned if add else max(2 * turned, 4 * rest**2)
    square += counted * sides * count**2  # the row's label changes too
    return _gaussian("ridge whitened", math.sqrt(square) * (1 - 1e-9), spec, constants)


def whitened_objective(rng: Rng) -> Trial:
    """One column: the noise of the moment is Laplace, and so is that of the minimiser of a linear loss. A record of
    norm 1 that comes, or a row of 0 that becomes one; below both means the ratio is e^(eps_1 + eps_2)."""
    adjacency, n, row = _pick(rng, *ADJACENCIES), int(rng.integers(1, 1000)), _unit(rng)
    moment, rest, slope = _log(rng, 0.1, 3.0), _log(rng, 0.05, 3.0), _log(rng, 0.1, 10.0)
    ridge, noise = _log(rng, 0.01, 1.0) * slope * row, slope * row / rest
    constants = Constants(
        n=n, lipschitz=slope * row, smoothness=1e-9 * ridge, row_norm=row, adjacency=adjacency, dimension=1,
        hessian_rank=1,
    )  # fmt: skip
    spec = WhitenedObjectiveSpec(
        moment_density_scale=1 / (n * moment), ridge=ridge, density_scale=noise, tolerance=_PRECISE * slope * row,
        release_density_scale=1e-3 * noise / (n * ridge),
    )  # fmt: skip
    shift = moment + rest
    return Trial(
        kind="whitened objective", constants=constants, spec=spec,
        truth=lambda eps: max(0.0, 1 - math.exp(eps - shift) * (1 + 1e-5)) / 4,
    )  # fmt: skip


def underdamped(rng: Rng) -> Trial:
    """Linear losses: x_T moves by (u beta Delta / g^2) r and has variance (2 u / g^2) r, r = g T - 1 + e^(-g T)."""
    adjacency, n, loss = _pick(rng, *ADJACENCIES), int(rng.integers(1, 1000)), _unit(rng)
    gamma, u, beta = _log(rng, 0.1, 20.0), _log(rng, 0.1, 10.0), _log(rng, 0.1, 10.0)
    steps, eta = int(rng.integers(1, 200)), _log(rng, 0.01, 2.0)
    reach = gamma * steps * eta
    part = reach + math.expm1(-reach)
    mu = beta * _sides(adjacency) / n * math.sqrt(u / 2 * part) / gamma  # move / deviation
    return _gaussian(
        "underdamped",
        mu * (1 - 1e-9),
        UnderdampedSpec(
            inverse_temperature=beta / loss, friction=gamma, inverse_mass=u, step_size=eta, n_steps=steps
        ),
        Constants(n=n, lipschitz=loss, adjacency=adjacency),
    )


def learned(rng: Rng) -> Trial:
    """docs/theory/learned_schema.md, section 4: columns where the old label, the new one, both or none are rare."""
    adjacency, scale = _pick(rng, *ADJACENCIES), _log(rng, 0.5, 30.0)
    numbers, labels = int(rng.integers(0, 4)), int(rng.integers(1, 4))
    threshold = 1 + scale * rng.uniform(0.5, 6.0)
    spec = LearnedSchemaSpec(
        n_numbers=numbers, n_cells=8, n_categories=labels, noise="gaussian", scale=scale, threshold=threshold,
        adjacency=adjacency,
    )  # fmt: skip
    seen = float(ndtr((1 - threshold) / scale)) * (1 - 1e-12)
    sides = _sides(adjacency)
    rare = [int(rng.integers(0, labels + 1)) for _ in range(2)]  # columns whose old, or new, label is rare
    if sides == 1:
        rare[1 if rng.random() < 0.5 else 0] = 0
        common = labels - max(rare)
    else:
        common = 2 * labels - sum(rare)
    leaves, comes = (-math.expm1(count * math.log1p(-seen)) for count in rare)
    gaussian = gaussian_truth(math.sqrt(sides * numbers + common) / scale)

    def truth(eps: float) -> float:
        at = eps + math.log((1 - comes) / (1 - leaves))
        rest = gaussian(at) if numbers + common else max(0.0, -math.expm1(at))
        rest = rest if at >= 0 else max(0.0, -math.expm1(at))  # a test that accepts everything is one too
        return leaves + (1 - leaves) * rest * (1 - 1e-12)

    return Trial(kind="learned", constants=None, spec=spec, truth=truth)


def selection(rng: Rng) -> Trial:
    """Scores N(0, 1) against N(mu, 1), the largest of K released: half-lines, by the generating function of K."""
    law, mu = _pick(rng, "poisson", "geometric", "logarithmic"), _log(rng, 0.01, 2.0)
    mean = _log(rng, MIN_POISSON_REPETITIONS if law == "poisson" else 1.1, 300.0)
    spec = RepeatedSelectionSpec(mu=mu, repetitions=mean, law=law, adjacency=_pick(rng, *ADJACENCIES))
    gamma = spec.gamma if law == "logarithmic" else 1 / mean

    def beyond(miss: Any) -> Any:  # Pr[some score is above the cut], each with probability `miss`
        if law == "poisson":
            return -np.expm1(-mean * miss)
        if law == "geometric":
            return miss / (gamma + (1 - gamma) * miss)
        return np.log1p((1 / gamma - 1) * miss) / math.log(1 / gamma)

    # scores rank x above `tops` first, then x below `cuts`, then the rest; the event is "x is below the cut"
    tops = np.append(np.linspace(-6, 6 + mu, 81), np.inf)[:, None]
    cuts = np.linspace(-9, 6 + mu, 241)[None, :]
    power, size = (
        np.where(
            tops >= cuts, beyond(ndtr(at - tops) + ndtr(cuts - at)) - beyond(ndtr(at - tops)), 0.0
        ).ravel()
        for at in (0.0, mu)
    )
    truth = tests_truth(power * (1 - 1e-9) - 1e-12, size * (1 + 1e-9) + 1e-12)
    return Trial(kind="selection", constants=None, spec=spec, truth=truth)


def minimiser(rng: Rng) -> Trial:
    """Linear losses and a ridge m: the minimiser moves by Delta / (n m)."""
    adjacency, n, loss = _pick(rng, *ADJACENCIES), int(rng.integers(1, 1000)), _unit(rng)
    ridge, mu = _log(rng, 0.01, 1.0) * loss, _log(rng, 0.02, 4.0)
    constants = Constants(
        n=n, lipschitz=loss, smoothness=2 * ridge, strong_convexity=ridge, adjacency=adjacency, dimension=1,
        hessian_rank=1,
    )  # fmt: skip
    sides = _sides(adjacency)
    if rng.random() < 0.5:
        spec: Any = OutputPerturbationSpec(
            density_scale=sides * loss / (n * ridge * mu), tolerance=_PRECISE * loss, noise="gaussian"
        )
        return _gaussian("minimiser", mu, spec, constants)
    # the sum of losses is tilted by N(0, noise^2); the release noise is far below and blurs a little
    noise = sides * loss / mu
    spec = ObjectivePerturbationSpec(
        density_scale=noise,
        tolerance=_PRECISE * loss,
        release_density_scale=1e-3 * noise / (n * ridge),
        noise="gaussian",
    )
    return _gaussian("minimiser", mu * 0.999, spec, constants)


def logistic_minimiser(rng: Rng) -> Trial:
    """Logistic losses in two columns: the densities of the minimisers of many far records, in closed form.

    Their ratio at one point says where delta is positive, since both are continuous there; not how large it is.
    """
    adjacency, ridge, scale = _pick(rng, *ADJACENCIES), _log(rng, 0.1, 5.0), _log(rng, 0.5, 10.0)
    slope, unit = (1.0 if rng.random() < 0.5 else rng.uniform(0.6, 1.0)), _unit(rng) ** 0.5
    n = int(rng.integers(1, 1000))
    constants = Constants(
        n=n, lipschitz=slope * unit, smoothness=unit**2 * (0.25 + ridge / n), strong_convexity=unit**2 * ridge / n,
        adjacency=adjacency, dimension=2, hessian_rank=1, logistic_slope_bound=slope,
    )  # fmt: skip
    spec = ObjectivePerturbationSpec(density_scale=scale * unit, tolerance=1e-9 * unit, secure=True)
    attained = worst_logistic_ratio(ridge, scale, slope, adjacency, 200.0, 40) * (1 - 1e-6)
    return Trial(
        kind="logistic minimiser",
        constants=constants,
        spec=spec,
        truth=lambda eps: 1e-12 * (eps < attained),
    )


def moments(rng: Rng) -> Trial:
    """Rows at every angle: |x x' - y y'|_F^2 = 2 (1 - s^2), |x + y|^2 = 2 (1 + s) for labels of opposite sign."""
    adjacency, row, label, weight = (
        _pick(rng, *ADJACENCIES),
        _unit(rng) ** 0.5,
        _log(rng, 0.1, 10.0),
        _log(rng, 0.1, 9.0),
    )
    constants = Constants(
        n=50, lipschitz=1.0, row_norm=row, label_bound=label, weight_bound=weight, adjacency=adjacency
    )
    gram, cross = _log(rng, 0.01, 3.0), _log(rng, 0.01, 3.0)
    spec = SufficientStatisticsSpec(
        gram_noise_std=weight * row**2 / gram,
        cross_noise_std=weight * row * label / cross,
        eigenvalue_floor=1.0,
    )
    s = np.linspace(0, 1, 101)
    square = gram**2 + cross**2
    if adjacency == "replace-one":
        square = float(np.max(2 * gram**2 * (1 - s**2) + 2 * cross**2 * (1 + s)))
    return _gaussian("moments", math.sqrt(square), spec, constants)


def mirror(rng: Rng) -> Trial:
    """Every step a Gaussian mechanism, with noise of its own."""
    adjacency, n, loss, steps = (
        _pick(rng, *ADJACENCIES),
        int(rng.integers(1, 1000)),
        _unit(rng),
        int(rng.integers(1, 30)),
    )
    each = np.exp(rng.uniform(-5, 0, steps))
    spec = PublicMirrorSpec(
        step_size=1.0, noise_std=tuple((_sides(adjacency) * loss / (n * each)).tolist()), n_steps=steps
    )
    constants = Constants(n=n, lipschitz=loss, adjacency=adjacency)
    return _gaussian("mirror", float(np.linalg.norm(each)) * (1 - 1e-13), spec, constants)


def draw(rng: Rng) -> Trial:
    """Linear losses: N(-g / m, 1 / (beta m)) with a ridge; without one, exponentials on an interval."""
    adjacency, n, loss, mu = (
        _pick(rng, *ADJACENCIES),
        int(rng.integers(1, 1000)),
        _unit(rng),
        _log(rng, 0.02, 4.0),
    )
    sides = _sides(adjacency)
    if rng.random() < 0.5:
        ridge = _log(rng, 0.01, 1.0) * loss
        constants = Constants(
            n=n,
            lipschitz=loss,
            smoothness=2 * ridge,
            strong_convexity=ridge,
            adjacency=adjacency,
            dimension=1,
        )
        beta = mu**2 * ridge * (n / (sides * loss)) ** 2
        return _gaussian("draw", mu * (1 - 1e-9), GibbsSpec(inverse_temperature=beta), constants)
    constants = Constants(
        n=n, lipschitz=loss, diameter=1.0, smoothness=loss, adjacency=adjacency, dimension=1
    )
    beta = n * mu / loss
    slopes = (mu, -mu if sides == 2 else 1e-9)
    cuts = np.linspace(0, 1, 201)[1:-1]
    here, there = (-np.expm1(-a * cuts) / -math.expm1(-a) for a in slopes)  # Pr[x < cut], density e^(-a x)
    truth = tests_truth(
        np.concatenate([here, 1 - there]) * (1 - 1e-9), np.concatenate([there, 1 - here]) * (1 + 1e-9) + 1e-12
    )
    return Trial(
        kind="draw", constants=constants, spec=ExponentialSpec(inverse_temperature=beta), truth=truth
    )


OTHERS: tuple[Callable[[Rng], Trial], ...] = (
    *SETS, slack, sums, counts, noisy_max, answers, largest_norm, whitened, ridge_whitened, whitened_objective,
    underdamped, learned, selection, minimiser, logistic_minimiser, moments, mirror, draw,
)  # fmt: skip

THEOREM_KINDS: dict[str, tuple[Callable[[Rng], Trial], ...]] = {
    "composition": (draws.chain, draws.long_chain, draws.walk, draws.shuffled, draws.random_batches, exact_descent),
    "optimal-shift": (draws.chain, draws.long_chain, draws.walk, draws.plain_walk, draws.langevin),
    "cyclic-shift": (draws.chain, draws.long_chain, draws.walk, draws.shuffled),
    "block-recursion": (draws.plain_walk,),
    "dobrushin": (draws.plain_walk,),
    "opposite-records": (draws.random_batches, draws.varying_batches),
    "hidden-state-sgd": (draws.random_batches, draws.varying_batches, draws.random_walk),
    "every-step-shift": (draws.random_batches, draws.random_walk),
    "participation-start": (draws.random_batches, draws.varying_batches, draws.random_walk),
    "block-sgd": (draws.random_walk,),
    "shuffled-shift": (draws.shuffled,),
    "secret-permutation": (draws.shuffled,),
    "diffusion-path": (draws.diffusion,),
    "diffusion-end": (draws.diffusion,),
    "log-sobolev": (draws.diffusion,),
    "rashomon-draws": (rashomon_draws,),
    "rashomon-local": (rashomon_draws,),
    "rashomon-chains": (rashomon_chains,),
    "iterated-exponential-mechanism": (iterated,),
    "worst-shift": (answers, answers, answers, answers, answers, answers, answers, answers, answers, sparse_vector),
    "noisy slack": (slack,),
    "noisy sums": (sums, counts),
    "learned schema": (counts, learned),
    "report noisy max": (noisy_max,),
    "norm noise": (largest_norm,),
    "whitened-composition": (whitened,),
    "ridge-whitened-composition": (ridge_whitened,),
    "whitened-objective-perturbation": (whitened_objective,),
    "underdamped-trajectory": (underdamped,),
    "repeat and select": (selection,),
    "output-perturbation": (minimiser,),
    "gaussian-objective-perturbation": (minimiser,),
    "objective-perturbation": (logistic_minimiser,),
    "sufficient-statistics": (moments,),
    "public-mirror-descent": (mirror,),
    "exponential-mechanism": (draw,),
    "strongly-convex-gibbs": (draw,),
}  # fmt: skip
"""The kinds of trials that attack each theorem of the registry, in turn."""
