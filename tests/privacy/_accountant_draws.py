"""Random trials: every sampling, release, start, adjacency, varying specs, and units from 1e-15 to 1e15."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants
from privacy._accountant_trials import (
    Floats,
    Moves,
    Trial,
    Truth,
    _Run,
    batch_mixture_truth,
    chain_truth,
    gaussian_truth,
    long_truth,
    shuffle_truth,
    varying_mixture_truth,
    walk_truth,
)

Rng = np.random.Generator


def _pick(rng: Rng, *options: Any, p: tuple[float, ...] | None = None) -> Any:
    return options[int(rng.choice(len(options), p=p))]


def _log(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _run(
    rng: Rng, sampling: str, steps: int, varying: bool, *, forward: bool = False, small: bool = False
) -> _Run:
    """Harmless units: step sizes and noises around 1, |1 - eta m| <= 1, a record moves 0.01 to 3 noises."""
    n = int(rng.integers(1, 13))
    size = n if sampling == "full" else int(rng.integers(1, n + 1))
    if sampling in ("without-replacement", "poisson"):
        n = int(rng.integers(2, 30))
        size = int(rng.integers(1, n))
    etas, noises = np.ones(steps), np.ones(steps)
    if varying:
        spread = _pick(rng, 0.3, 3.0, 20.0)
        which = _pick(rng, "noise", "steps", "both")
        noises = np.exp(rng.uniform(-spread, 0.0, steps)) if which != "steps" else noises
        etas = rng.uniform(0.2, 1.0, steps) if which != "noise" else etas
        if rng.random() < 0.3:  # blocks of equal noise
            noises = np.repeat(noises[::10], 10)[:steps]
        if rng.random() < 0.3:  # a cliff: loud, then quiet
            noises = np.where(np.arange(steps) < int(rng.integers(1, 3)), 1.0, math.exp(-rng.uniform(0, 20)))
    ridge = float(_pick(rng, 0.0, rng.uniform(0, 0.2), rng.uniform(0, 1.0 if forward else 1.9)))
    if small:
        ridge = min(ridge, 0.9)
    delta = size * _log(rng, 0.01, 3.0)
    return _Run(n=n, size=size, sampling=sampling, delta=delta, ridge=ridge, steps=etas, noises=noises)


def _dressed(
    rng: Rng,
    kind: str,
    run: _Run,
    truth: Truth,
    diameter: float = math.inf,
    steps: float | None = None,
    **more: Any,
) -> Trial:
    """The run in random units: parameters in units of 10^a, losses in units of 10^b."""
    parameter, loss = (10.0 ** int(rng.integers(-15, 16)) if rng.random() < 0.4 else 1.0 for _ in range(2))
    add_remove = more.pop("add_remove", False)
    length = run.ridge + float(_pick(rng, 0.0, 0.1, 1.0, 3.0))  # smoothness: 3 expands distances
    gradient = loss / parameter
    constants = Constants(
        n=run.n,
        lipschitz=run.delta * gradient / (1 if add_remove else 2),
        smoothness=max(length, run.ridge, 1e-9) * loss / parameter**2 * (1 + 1e-12),
        strong_convexity=run.ridge * loss / parameter**2,
        diameter=diameter * parameter,
        adjacency="add-remove" if add_remove else "replace-one",
        convex=bool(rng.random() < 0.9),
    )
    scale = parameter**2 / loss
    spec = NoisyGradientSpec(
        step_size=_per_step(run.steps * scale),
        noise_std=_per_step(run.noises * gradient),
        n_steps=len(run.steps) if steps is None else steps,
        batch_size=None if run.sampling == "full" else run.size,
        sampling=run.sampling,  # type: ignore[arg-type]
        **more,
    )
    return Trial(kind=kind, constants=constants, spec=spec, truth=truth)


def _per_step(values: Floats) -> float | tuple[float, ...]:
    return float(values[0]) if np.all(values == values[0]) else tuple(values.tolist())


def chain(rng: Rng) -> Trial:
    """No projection, full or cyclic batches, any release: a Gaussian path."""
    steps = int(_pick(rng, 1, 2, rng.integers(3, 12), rng.integers(12, 120)))
    run = _run(rng, _pick(rng, "full", "cyclic"), steps, rng.random() < 0.5)
    release = _pick(rng, "last-iterate", "checkpoints", "trajectory", "average", p=(0.4, 0.3, 0.15, 0.15))
    more: dict[str, Any] = {"release": release}
    if release == "checkpoints":
        count = int(rng.integers(1, steps + 1))
        more["checkpoints"] = tuple(sorted(int(i) + 1 for i in rng.choice(steps, count, replace=False)))
    if release == "average":
        more["average_from"] = int(rng.integers(0, steps))
    last = more["checkpoints"][-1] if release == "checkpoints" else steps
    plain = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=steps, **more)
    truth = chain_truth(run, plain, (last - 1) % run.length)
    if (
        release == "last-iterate"
        and np.all(run.steps == 1)
        and np.all(run.noises == 1)
        and rng.random() < 0.2
    ):
        return _dressed(rng, "chain", run, truth, steps=math.inf)
    add_remove = run.sampling == "full" and rng.random() < 0.4
    diameter = math.inf if rng.random() < 0.7 else 1e9 * steps  # a projection that is never felt
    return _dressed(rng, "chain", run, truth, diameter, add_remove=add_remove, **more)


def long_chain(rng: Rng) -> Trial:
    """Constant specs of up to 10^9 steps, with up to 300 checkpoints."""
    run = _run(rng, _pick(rng, "full", "cyclic"), 1, False)
    if run.ridge >= 1:
        run = _run(rng, run.sampling, 1, False, forward=True)
    releases = int(_pick(rng, 1, 1, rng.integers(2, 300)))
    gap = int(_log(rng, 10, 1e9 / releases)) if releases == 1 else int(_log(rng, 10, 1e5))
    gap = max(gap // run.length, 1) * run.length  # whole epochs: the record ends every segment
    if run.ridge == 1:
        return chain(rng)
    truth = long_truth(run, gap, releases)
    if releases == 1:
        return _dressed(rng, "long chain", run, truth, steps=_pick(rng, gap, gap + run.length, math.inf))
    places = tuple(range(gap, releases * gap + 1, gap))
    total = places[-1] + int(_pick(rng, 0, run.length * 10**6))
    return _dressed(rng, "long chain", run, truth, steps=total, release="checkpoints", checkpoints=places)


def walk(rng: Rng, *, plain: bool = False) -> Trial:
    """A projection that is felt: full or cyclic batches from a common or an unknown start.

    plain : full batches, equal steps, a common start, and the last iterate.
    """
    steps = int(_pick(rng, 1, 2, rng.integers(3, 12), rng.integers(12, 60)))
    varying = not plain and steps < 12 and rng.random() < 0.4
    sampling = "full" if plain else _pick(rng, "full", "cyclic")
    run = _run(rng, sampling, steps, varying, forward=True, small=True)
    run = replace(run, delta=run.delta * float(run.noises.min()))  # about the noise of the quietest step
    noises = run.steps * run.noises
    width = float(_pick(rng, noises.min(), noises[-1])) * _log(rng, 0.5, 12.0)
    unknown = not plain and rng.random() < 0.4
    starts = (width / 2, -width / 2) if unknown else (0.0, 0.0)
    add_remove = run.sampling == "full" and rng.random() < 0.4
    drift = (
        0.0
        if add_remove
        else float(_pick(rng, 0.0, rng.uniform(0, 0.5))) * float(run.shifts[-1]) * (1 - 1 / run.n)
    )
    moves: tuple[list[Moves], list[Moves]] = ([], [])
    for t in range(steps):
        acts = (steps - 1 - t) % run.length == 0
        high, low = (run.shifts[t], 0.0) if add_remove else (run.shifts[t] / 2, -run.shifts[t] / 2)
        for k, jump in enumerate((high, low)):
            moves[k].append(
                ((1.0, float(run.factors[t]), float(jump) * acts + drift * (run.sampling == "full")),)
            )
    truth = walk_truth(moves[0], moves[1], noises, width, starts)
    more: dict[str, Any] = {"start": "unknown"} if unknown else {}
    if not plain and rng.random() < 0.2:
        more |= {"release": "checkpoints", "checkpoints": (steps,)}
        return _dressed(rng, "walk", run, truth, width, steps + int(rng.integers(0, 50)) * (not varying),
                        add_remove=add_remove, **more)  # fmt: skip
    endless = not varying and rng.random() < 0.3
    return _dressed(
        rng, "walk", run, truth, width, math.inf if endless else None, add_remove=add_remove, **more
    )


def plain_walk(rng: Rng) -> Trial:
    """A projection that is felt, in the runs that the theorems about bounded sets are for."""
    return walk(rng, plain=True)


def random_batches(rng: Rng) -> Trial:
    """Fresh random batches without a projection: a mixture of Gaussians."""
    sampling = _pick(rng, "without-replacement", "poisson")
    run = _run(rng, sampling, 1, False, forward=True, small=True)
    steps = int(rng.integers(1, 60)) if run.ridge == 0 else int(rng.integers(1, 9))
    add_remove = (
        sampling == "poisson" and rng.random() < 0.6
    )  # Poisson batches under replace-one: opposite records
    truth = batch_mixture_truth(run, steps, (1.0, 0.0) if add_remove else (0.5, -0.5))
    return _dressed(rng, "random batches", run, truth, steps=steps, add_remove=add_remove)


def varying_batches(rng: Rng) -> Trial:
    """Fresh random batches, step sizes and noises that vary: a mixture of Gaussians, or a walk on an interval."""
    sampling = _pick(rng, "without-replacement", "poisson")
    run = _run(rng, sampling, int(rng.integers(2, 9)), True, forward=True, small=True)
    run = replace(run, delta=run.delta * float(run.noises.min()))  # about the noise of the quietest step
    add_remove = sampling == "poisson" and rng.random() < 0.6
    signs = (1.0, 0.0) if add_remove else (0.5, -0.5)
    if rng.random() < 0.6:
        return _dressed(rng, "varying batches", run, varying_mixture_truth(run, signs), add_remove=add_remove)
    noises, rate = run.steps * run.noises, run.size / run.n
    width = float(_pick(rng, noises.min(), noises[-1])) * _log(rng, 0.5, 12.0)
    pairs = list(zip(run.factors.tolist(), run.shifts.tolist(), strict=True))
    moves: list[list[Moves]] = [
        [((1 - rate, a, 0.0), (rate, a, sign * s)) for a, s in pairs] for sign in signs
    ]
    truth = walk_truth(moves[0], moves[1], noises, width, (0.0, 0.0))
    return _dressed(rng, "varying batches", run, truth, width, add_remove=add_remove)


def random_walk(rng: Rng) -> Trial:
    """Fresh random batches on an interval."""
    sampling = _pick(rng, "without-replacement", "poisson")
    run = _run(rng, sampling, 1, False, forward=True, small=True)
    steps, poisson = int(rng.integers(1, 40)), sampling == "poisson" and rng.random() < 0.8
    width, rate, factor, jump = (
        _log(rng, 0.5, 12.0),
        run.size / run.n,
        float(run.factors[0]),
        float(run.shifts[0]),
    )
    high, low = (jump, 0.0) if poisson else (jump / 2, -jump / 2)
    each: list[Moves] = [((1 - rate, factor, 0.0), (rate, factor, step)) for step in (high, low)]
    truth = walk_truth([each[0]] * steps, [each[1]] * steps, np.ones(steps), width, (0.0, 0.0))
    ends = math.inf if rng.random() < 0.3 else steps
    return _dressed(rng, "random walk", run, truth, width, ends, add_remove=poisson)


def shuffled(rng: Rng) -> Trial:
    """A fresh permutation every epoch, or one secret order: a mixture over the record's places."""
    run = _run(rng, "shuffle", 1, False, forward=True, small=True)
    cyclic = rng.random() < 0.4
    epochs = int(rng.integers(1, 4)) if run.length <= 6 else 1
    steps = run.length * epochs - int(_pick(rng, 0, rng.integers(0, run.length)))
    truth = shuffle_truth(run, steps, cyclic)
    if cyclic:
        run = replace(run, sampling="cyclic")
        return _dressed(rng, "secret order", run, truth, steps=steps, order="secret")
    diameter = math.inf if rng.random() < 0.7 else 1e9
    return _dressed(rng, "shuffled", run, truth, diameter, steps)


def langevin(rng: Rng) -> Trial:
    """SGLD in its own parameters: learning rate eta beta, noise sqrt(2 eta) on the iterate."""
    steps = int(_pick(rng, 1, 2, rng.integers(3, 12), rng.integers(12, 120)))
    release = _pick(rng, "last-iterate", "trajectory")
    etas = rng.uniform(0.2, 1.0, steps) if release == "trajectory" else np.full(steps, rng.uniform(0.2, 1.0))
    run = replace(_run(rng, "full", steps, False, forward=True), steps=etas, noises=np.sqrt(2 * etas) / etas)
    add_remove = rng.random() < 0.4
    plain = NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=steps, release=release)
    unit = 10.0 ** int(rng.integers(-15, 16))  # of the loss; the temperature undoes it
    constants = Constants(
        n=run.n,
        lipschitz=run.delta * unit / (1 if add_remove else 2),
        smoothness=(run.ridge + float(_pick(rng, 0.1, 1.0, 3.0))) * unit,
        strong_convexity=run.ridge * unit,
        adjacency="add-remove" if add_remove else "replace-one",
    )
    spec = LangevinSpec(
        inverse_temperature=1 / unit, time_step=_per_step(etas), n_steps=steps, release=release
    )
    return Trial(kind="langevin", constants=constants, spec=spec, truth=chain_truth(run, plain, 0))


def diffusion(rng: Rng) -> Trial:
    """The continuous process for linear losses (whole path) and for quadratic ones, an Ornstein-Uhlenbeck process."""
    add_remove, path = rng.random() < 0.5, rng.random() < 0.4
    n, unit = int(rng.integers(1, 1000)), 10.0 ** int(rng.integers(-15, 16))
    strength, time = _log(rng, 0.01, 3.0), _log(rng, 1e-3, 1e3)  # beta Delta sqrt(T / 2), T
    beta = strength * math.sqrt(2 / time) * n / ((1 if add_remove else 2) * unit)
    rate = 0.0 if path else float(_pick(rng, 0.0, _log(rng, 0.01, 30.0))) / time  # beta times the curvature
    stated: Any = {"adjacency": "add-remove" if add_remove else "replace-one"}
    if rate and rng.random() < 0.5:
        stated["log_sobolev"] = rate  # of the normal law to which it tends; the laws on the way are narrower
    elif rate:
        stated["strong_convexity"] = rate / beta
    constants = Constants(n=n, lipschitz=unit, smoothness=max(rate / beta, 1e-30) * (1 + 1e-12), **stated)
    exponent = float(_pick(rng, 0.0, rng.uniform(0, 2))) if path else 0.0
    if path:
        mu = strength / math.sqrt(2 * exponent + 1)
    elif rate:
        mean, variance = -math.expm1(-rate * time) / rate, -math.expm1(-2 * rate * time) / rate
        mu = strength * math.sqrt(2 / time) * mean / math.sqrt(variance)
    else:
        mu = strength
    spec = DiffusionSpec(
        inverse_temperature=beta,
        time=time,
        exponent=exponent,
        release="trajectory" if path else "last-iterate",
    )
    return Trial(kind="diffusion", constants=constants, spec=spec, truth=gaussian_truth(mu * (1 - 1e-9)))


KINDS = (
    langevin,
    diffusion,
    chain,
    long_chain,
    walk,
    plain_walk,
    shuffled,
    random_batches,
    varying_batches,
    random_walk,
)
