"""Projected noisy (stochastic) gradient descent, and the gate that shrinks its averaged iterates.

Windows are means of the iterates. A hypothesis fixes the size of the coefficients (rows of norm 1) and the curvatures
of the risk; given it, the windows are normal with a known covariance. All of this is post-processing of the noisy
gradients: it needs a guarantee for the whole path, and has no privacy cost of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dplangevin._arrays import Floats
from dplangevin._check import check_count
from dplangevin._progress import iterate_with_progress
from dplangevin.accounting.plan import public_noise_grid
from dplangevin.data.integer_grids import RowGrid
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exact_gradient import public_row_grid, release_gradient, round_records
from dplangevin.mechanisms.exact_minimizer import EnclosedGradient, check_enclosable
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.noisy_gradient.spec import STATE_GRADIENT_ERROR, NoisyGradientSpec
from dplangevin.mechanisms.run_state import Position
from dplangevin.mechanisms.whitened.postprocessing import (
    EXPECTED_COEF_SIZE,
    fit_window_weights,
    solve_regularized,
)
from dplangevin.mechanisms.whitened.spec import equal_noise_path as equal_noise_path, window_response
from dplangevin.problem import Ball, Box, Problem, WholeSpace
from dplangevin.sampling.exact_noise import (
    add_rounded_gaussian_noise,
    gaussian_density_scale,
    sample_poisson_batch,
    sample_subset,
)
from dplangevin.sampling.langevin import geometric_weights, running_average_weights

SPECTRUM_DECAYS = (0.0, 0.5, 1.0, 1.5)
HEAD_FRACTIONS = (0.0, 0.5)
"""Fraction of the trace that a single leading direction holds."""
SPECTRUM_TRACES = tuple(0.25 * 2.0**-i for i in range(5))
EFFECT_DEVIATIONS = 2.0 ** (np.arange(-6, 11) / 2)
MAX_WEAK_EFFECT = 3.0
"""Largest standard deviation of the coefficients at which effects count as weak."""
STATE_BITS = 64
"""Binary digits of a grid step in what a hidden state is before its noise."""
MIN_GATED_STEPS = 8
"""Fewest steps for which the windows hold enough information."""


class Gate(NamedTuple):
    """The weights of the three windows, and the shrinkage weight lambda; (0, 0, 1) is the mean of the tail."""

    weights: Floats
    shrinkage_weight: float


def compute_gate(means: Floats, step: float, noise: float, n_steps: int) -> Gate:
    """Return the weights lambda (sum P B)^-1 (sum P c) + (1 - lambda) (0, 0, 1), lambda = max(0, 2 P(weak) - 1).

    The sums are over the hypotheses of weak effects, with their posterior probabilities P.

    Parameters
    ----------
    means : [3, p], the means of the windows.
    step, noise : step size and noise for rows of norm 1 and a loss of curvature at most 1/4.
    """
    size = means.shape[1]
    logs, parts = [], []
    for curvatures in _candidate_spectra(size):
        windows = window_response(equal_noise_path(n_steps), step * curvatures)
        outer = windows.reached_fraction[:, :, None] * windows.reached_fraction[:, None, :]
        spread = (step * noise) ** 2 * windows.noise
        log, middle, right = fit_window_weights(
            means, curvatures, outer, spread, windows.reached_fraction, EFFECT_DEVIATIONS
        )
        logs.append(log - np.log(EFFECT_DEVIATIONS / EXPECTED_COEF_SIZE) ** 2 / 2)
        parts.append((middle, right))
    posterior = np.exp(np.array(logs) - logsumexp(logs))
    posterior[:, EFFECT_DEVIATIONS > MAX_WEAK_EFFECT] = 0.0
    shrinkage_weight = max(0.0, 2 * float(posterior.sum()) - 1)
    plain = np.array([0.0, 0.0, 1.0])
    if not shrinkage_weight > 0:
        return Gate(plain, 0.0)
    middle = np.einsum("kd,kdjl->jl", posterior, np.array([part[0] for part in parts]))
    right = np.einsum("kd,kdj->j", posterior, np.array([part[1] for part in parts]))
    return Gate(
        shrinkage_weight * solve_regularized(middle, right) + (1 - shrinkage_weight) * plain, shrinkage_weight
    )


@lru_cache(maxsize=16)
def _candidate_spectra(size: int) -> tuple[Floats, ...]:
    """Return curvatures of trace at most 1/4: power laws, with or without a direction that holds half of it."""
    spectra = []
    for decay in SPECTRUM_DECAYS:
        for head in HEAD_FRACTIONS:
            if head and size < 2:
                continue
            shape = np.arange(1.0, size + 1 - (head > 0)) ** -decay
            shape *= (1 - head) / shape.sum()
            spectrum = np.concatenate([[head], shape]) if head else shape
            spectra += [trace * spectrum for trace in SPECTRUM_TRACES]
    return tuple(spectra)


RowIndices = NDArray[np.intp]
StoppingRule = Callable[[int, Floats], bool]


class NoisyGradientDescent(FitMechanism[NoisyGradientSpec]):
    """Projected noisy gradient descent, theta <- project(theta - eta_t (G_t + Z_t)), with the plan's spec.

    Parameters
    ----------
    n_steps : needed only for a plan that covers every number of steps; a public choice.
    stop : stop(step, theta) is called with every iterate and may end the run early, for plans with
        release="trajectory", which are charged in full whenever they stop. A resumed run calls it for the remaining
        steps.

    Privacy
    -------
    The plan's guarantee covers the released iterates only (`spec.release`); composition covers every iterate.

    With `spec.secure` gradients are exact sums of integers, and the noise of every step is drawn exactly on a public
    grid; everything after it is post-processing. Batches whose secrecy amplifies privacy are drawn from the same
    source of bytes, with exact probabilities. Without a seed nothing of this is in a file: a resumed run continues
    from its position with fresh noise, and its last position is saved before the release. Hidden states ("last-state")
    are exact numbers plus noise, rounded together: what `optimal-shift` allows for.

    References
    ----------
    Altschuler and Talwar (2022), Algorithm 1; Chourasia, Ye and Shokri (2021), Algorithm 1; Ganesh, Thakurta and
    Upadhyay (2022), Lemma C.1 and section F (Langevin diffusion, discretised).

    Examples
    --------
    >>> from dplangevin.accounting.plan import Plan
    >>> from dplangevin.data.dataset import ArrayDataset
    >>> from dplangevin.problem import DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=4, n_features=1)
    >>> spec = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=3)
    >>> plan = Plan(problem=problem, spec=spec, delta=1e-6)
    >>> data = ArrayDataset([[0.5], [1.0], [-1.0], [-0.5]], [1, 1, 0, 0], problem)
    >>> release = NoisyGradientDescent().run(plan, data)
    >>> release.n_steps, len(release.value) == problem.dimension
    (3, True)
    """

    supported_record_losses = "all"

    def __init__(self, n_steps: int | None = None, *, stop: StoppingRule | None = None) -> None:
        self.n_steps, self.stop = n_steps, stop

    def check_problem(self, spec: NoisyGradientSpec, problem: Problem) -> None:
        """Check that the number of steps is known, and that a stopping rule uses only what the guarantee covers."""
        self._resolve_n_steps(spec, problem)
        if spec.secure:
            public_row_grid(problem)
        if spec.release == "last-state":
            check_states(problem)
        if self.stop is not None and spec.release != "trajectory":
            raise InvalidParameter(
                f"stop is called with every iterate, but the guarantee is for release={spec.release!r}; plan with "
                "release='trajectory'."
            )

    def _run_settings(self) -> tuple[object, ...]:
        return () if self.n_steps is None else (self.n_steps,)

    def _resolve_n_steps(self, spec: NoisyGradientSpec, problem: Problem) -> int:
        planned, n_steps = spec.n_steps, self.n_steps
        if math.isfinite(planned):
            if n_steps is not None and n_steps != planned:
                raise InvalidParameter(
                    f"n_steps = {n_steps} differs from the plan's {planned}; leave it out."
                )
            return int(planned)
        if n_steps is None:
            raise InvalidParameter(
                "the plan covers every number of steps; state how many to run: NoisyGradientDescent(n_steps=...)."
            )
        steps = check_count("n_steps", n_steps)
        epoch = math.ceil(problem.n / spec.divisor(problem.n))
        if spec.sampling == "shuffle" and steps % epoch:
            raise InvalidParameter(
                f"n_steps = {steps} stops inside an epoch of {epoch} steps, which this guarantee does not cover; "
                f"use a multiple of {epoch}."
            )
        return steps

    def row_grid(self, spec: NoisyGradientSpec, problem: Problem) -> RowGrid:
        return public_row_grid(problem)

    def execute(self, inputs: MechanismInput[NoisyGradientSpec]) -> MechanismOutput:
        """Run the descent; the release is the last iterate, the average, the checkpoints or the trajectory."""
        spec, data, run_state, rng = inputs.spec, inputs.data, inputs.run_state, inputs.rng
        problem = data.problem
        steps = self._resolve_n_steps(spec, problem)
        project, divisor = problem.constraint.project, spec.divisor(problem.n)
        etas = np.broadcast_to(np.asarray(spec.step_size, float), (steps,))
        noises = np.broadcast_to(np.asarray(spec.noise_std, float), (steps,))
        start = (
            project(spec.start_scale * rng.standard_normal(problem.dimension))
            if spec.start_scale
            else project(np.zeros(problem.dimension))
        )
        advance: GradientAt | None = None
        if spec.release == "last-state":
            advance = _state_steps(inputs, etas, noises)
            steps_of_run: tuple[GradientAt, Callable[[], object]] = _no_gradient, _redraw_nothing
        else:
            make_gradients = _exact_gradients if spec.secure else _float_gradients
            steps_of_run = make_gradients(inputs, noises, divisor)
        noisy_gradient, redraw_step = steps_of_run
        position = None if run_state is None else restore_position(inputs, redraw_step)

        def save_position(at: Position) -> None:
            if run_state is not None:
                run_state.save_if_due(at, rng, now=spec.secure and at.step == steps)

        averaging = averaging_weights(spec, problem.ridge, steps)
        value, iterates = run_descent(
            spec,
            steps,
            start,
            etas,
            noisy_gradient,
            project,
            position,
            save_position,
            averaging,
            self.stop,
            advance,
        )
        if spec.weights == "gated":
            value = _apply_gate(spec, problem, value)
        n_done = steps if self.stop is None else max(iterates)
        return MechanismOutput(value=value, n_steps=n_done, iterates=iterates)


GradientAt = Callable[[int, Floats], Floats]
"""The noisy mean gradient of a step at a point."""


def _float_gradients(
    inputs: MechanismInput[NoisyGradientSpec], noises: Floats, divisor: int
) -> tuple[GradientAt, Callable[[], object]]:
    """Return the noisy gradients of a run in floating point, and what redraws the random numbers of one step."""
    data, rng = inputs.data, inputs.rng
    problem = data.problem
    batches = sample_batches(inputs.spec, data.n_samples, divisor, problem.n, rng)

    def noisy_gradient(t: int, point: Floats) -> Floats:
        total: Floats = data.gradient_sum(problem.loss, point[:, None], next(batches))[:, 0] / divisor
        if problem.ridge:
            total += problem.ridge * point
        total += noises[t] * rng.standard_normal(problem.dimension)
        return total

    def redraw_step() -> None:
        next(batches)
        rng.standard_normal(problem.dimension)

    return noisy_gradient, redraw_step


def _exact_gradients(
    inputs: MechanismInput[NoisyGradientSpec], noises: Floats, divisor: int
) -> tuple[GradientAt, Callable[[], object]]:
    """Return the noisy gradients of an exact run, and what moves the order of batches on by one step.

    The accounting of cyclic and shuffled batches takes the worst order, so that their order is no secret and comes
    from a generator of its own, which a resumed run makes again. Other batches are independent from step to step.
    """
    problem, draws = inputs.data.problem, NoiseDraws.of(inputs)
    grid = public_row_grid(problem)
    data, row_norm = round_records(inputs.data, grid, in_place=inputs.owns_data), problem.row_norm
    order = np.random.default_rng(inputs.rng.integers(0, 2**32, size=8, dtype=np.uint32))
    batches = sample_batches(inputs.spec, data.n_samples, divisor, problem.n, order, draws)

    def noisy_gradient(t: int, point: Floats) -> Floats:
        theta, batch = point.reshape(problem.n_columns, -1), next(batches)
        noisy = release_gradient(
            data,
            grid,
            theta,
            noises[t] / row_norm,
            divisor=divisor,
            batch=None if batch is None else np.sort(batch),
            source=draws.source,
        )
        return row_norm * noisy.ravel() + problem.ridge * point

    def redraw_step() -> None:
        if inputs.spec.sampling in ("cyclic", "shuffle"):
            next(batches)

    return noisy_gradient, redraw_step


def _no_gradient(t: int, point: Floats) -> Floats:
    raise AssertionError("steps between states release no gradient")


def _redraw_nothing() -> None:
    """Full batches have no order to move on."""


def check_states(problem: Problem) -> None:
    """Refuse problems whose hidden states have no proved rounding."""
    check_enclosable(problem.loss)
    if not isinstance(problem.constraint, (WholeSpace, Ball, Box)):
        raise AssumptionFailed(
            f"the rounding of the projection on a {problem.constraint.name} is not bounded; use a ball or a box"
        )


def _state_steps(inputs: MechanismInput[NoisyGradientSpec], etas: Floats, noises: Floats) -> GradientAt:
    """Return the steps of an exact run of hidden states: theta -> round(theta - eta gradient + eta N), on a grid.

    What is rounded is a number that the last state determines, plus noise: mean gradients have a proved error below
    STATE_GRADIENT_ERROR, in decimals where doubles do not prove it. Entries are kept within 2^50 steps of the grid,
    which moves no two points apart, so that every state is a double.
    """
    problem, source = inputs.data.problem, NoiseDraws.of(inputs).source
    grid = public_row_grid(problem)
    records = round_records(inputs.data, grid, in_place=inputs.owns_data)
    sums = EnclosedGradient(data=records, grid=grid)
    allowed = Fraction(STATE_GRADIENT_ERROR) * Fraction(problem.constants.lipschitz) * problem.n
    digits = 0

    def advance(t: int, point: Floats) -> Floats:
        nonlocal digits
        eta, deviation = Fraction(float(etas[t])), float(etas[t] * noises[t])
        cell = public_noise_grid(gaussian_density_scale(deviation))
        unit = Fraction(cell) / (1 << STATE_BITS)
        theta = np.array([round(Fraction(v) / unit) for v in point.tolist()], object)
        shaped = theta.reshape(problem.n_columns, -1)
        total, total_unit, error = sums.sum_in_doubles(shaped, unit)
        while not error <= allowed:
            digits = max(2 * digits, 64)
            total, total_unit, error = sums.sum_in_decimals(shaped, unit, digits)
        kept, factor = 1 - eta * Fraction(problem.ridge), eta * total_unit / (problem.n * unit)
        most = 1 << (50 + STATE_BITS)
        moved = [
            min(max(math.floor(kept * v - factor * int(s)), -most), most)
            for v, s in zip(theta.tolist(), total.ravel().tolist(), strict=True)
        ]
        exponent = math.frexp(cell)[1] - 1 - STATE_BITS
        return add_rounded_gaussian_noise(
            np.array(moved, object), np.asarray(exponent), deviation, source
        ).reshape(point.shape)

    return advance


def _apply_gate(spec: NoisyGradientSpec, problem: Problem, means: Floats) -> Floats:
    """Return the gated average of the windows' means, in the units of the problem's rows and weights."""
    weight = problem.bounds.weight_bound
    step = float(np.asarray(spec.step_size)) * problem.row_norm**2 * weight
    noise = float(np.asarray(spec.noise_std)) / (problem.row_norm * weight)
    gate = compute_gate(problem.row_norm * means, step, noise, int(spec.n_steps))
    return means[-1] if gate.shrinkage_weight == 0 else np.asarray(gate.weights @ means)


def restore_position(
    inputs: MechanismInput[NoisyGradientSpec], redraw_step: Callable[[], object]
) -> Position | None:
    """Return the saved position, after redrawing the random numbers of its steps, which fix the order of batches."""
    assert inputs.run_state is not None
    fields = inputs.run_state.load_position()
    if fields is None:
        return None
    position = Position(**fields)
    for _ in range(position.step):
        redraw_step()
    if not inputs.spec.secure:
        inputs.run_state.check_generator(inputs.rng)
    elif inputs.seeded:
        inputs.run_state.restore_generator(inputs.rng)
    return position


def run_descent(
    spec: NoisyGradientSpec,
    steps: int,
    start: Floats,
    etas: Floats,
    noisy_gradient: Callable[[int, Floats], Floats],
    project: Callable[[Floats], Floats],
    position: Position | None = None,
    save_position: Callable[[Position], None] | None = None,
    averaging: Floats | None = None,
    stop: StoppingRule | None = None,
    advance: GradientAt | None = None,
) -> tuple[Floats, dict[int, Floats]]:
    """Run the descent on noisy gradients, and return the released value and the iterates that the guarantee covers.

    The descent resumes at `position` if one is given, and otherwise begins at `start`. `save_position` is called after
    every step, and `stop` may end the run early. The running total is an average of the iterates if `averaging` is
    given, and otherwise their sum. With gated weights the released value holds the means of the three windows, [3, p].
    `advance` gives the point before the projection where it is not that of a noisy gradient.
    """
    covered_steps = _covered_steps(spec, steps)
    window_weights = _window_weights(spec, steps)
    empty = (
        np.zeros_like(start) if window_weights is None else np.zeros((window_weights.shape[1], *start.shape))
    )
    state = position or Position(step=0, theta=start, previous=start, total=empty)
    for t in iterate_with_progress(range(state.step, steps), "noisy gradient descent"):
        point = state.theta + (t / (t + 3)) * (state.theta - state.previous) if spec.momentum else state.theta
        moved = point - etas[t] * noisy_gradient(t, point) if advance is None else advance(t, point)
        state.previous, state.theta = state.theta, project(moved)
        state.step = t + 1
        if window_weights is not None:
            state.total += window_weights[t][:, None] * state.theta
        elif averaging is not None:
            state.total += averaging[t] * (state.theta - state.total)
        elif t >= spec.average_from:
            state.total += state.theta
        if state.step in covered_steps:
            state.iterates[state.step] = state.theta
        if stop is not None and stop(state.step, state.theta.copy()):
            break
        if save_position is not None:
            save_position(state)
    value = state.theta
    if window_weights is not None:
        value = state.total / window_weights.sum(axis=0)[:, None]
    elif spec.release == "average":
        value = state.total if averaging is not None else state.total / (steps - spec.average_from)
    elif spec.release == "checkpoints":
        value = state.iterates[spec.checkpoints[-1]]
    return value, state.iterates


def _window_weights(spec: NoisyGradientSpec, steps: int) -> Floats | None:
    """Return 1 where an iterate belongs to a window, else 0, [steps, windows]; None unless weights are gated."""
    if spec.weights != "gated":
        return None
    *early, last = equal_noise_path(steps).windows
    windows = (*early, last._replace(first=spec.average_from))
    return np.array([[float(w.first <= t < w.last) for w in windows] for t in range(steps)])


def averaging_weights(spec: NoisyGradientSpec, ridge: float, steps: int) -> Floats | None:
    """Return each step's weight in the running average of the iterates that steps lead to; None for sums."""
    if spec.weights in ("uniform", "gated"):
        return None
    return running_average_weights(geometric_weights(spec.step_size, ridge, steps), steps)


def _covered_steps(spec: NoisyGradientSpec, steps: int) -> frozenset[int]:
    """Return the steps whose iterates the guarantee covers."""
    if spec.release == "trajectory":
        return frozenset(range(1, steps + 1))
    if spec.release == "checkpoints":
        return frozenset(spec.checkpoints)
    return frozenset({steps}) if spec.release in ("last-iterate", "last-state") else frozenset()


def sample_batches(
    spec: NoisyGradientSpec,
    n_rows: int,
    size: int,
    n: int,
    rng: np.random.Generator,
    exact: NoiseDraws | None = None,
) -> Iterator[RowIndices | None]:
    """Generate batches with exactly the distribution that the accountant assumes; None is the whole data set.

    With `exact` the batches whose secrecy the accounting uses are drawn from its bytes, with exact probabilities.
    """
    if spec.sampling == "full":
        while True:
            yield None
    elif spec.sampling == "without-replacement":
        while True:
            if exact is not None:
                yield sample_subset(n_rows, size, exact.source)
            else:
                yield rng.choice(n_rows, size, replace=False, shuffle=False)
    elif spec.sampling == "poisson":
        while True:
            if exact is not None:
                yield sample_poisson_batch(n_rows, Fraction(size, n), exact.source)
            else:
                yield sample_poisson_rows(n_rows, size / n, rng)
    order = rng.permutation(n_rows) if spec.order == "secret" else np.arange(n_rows)
    while True:
        if spec.sampling == "shuffle":
            order = rng.permutation(n_rows)
        for first in range(0, n_rows, size):
            yield order[first : first + size]


def sample_poisson_rows(n_rows: int, rate: float, rng: np.random.Generator) -> RowIndices:
    """Sample each row independently with this probability, a million at a time to bound the memory."""
    parts = [
        first + np.flatnonzero(rng.random(min(1 << 20, n_rows - first)) < rate)
        for first in range(0, n_rows, 1 << 20)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.intp)
