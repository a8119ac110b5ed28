"""Public mirror descent at 6000 dimensions."""

from __future__ import annotations

import resource
import time

from _measure import Row, asked

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import public_mirror_map
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec, calibrate_mirror_noise
from dplangevin.papers.gallery.public_mirror_descent import figure_problem, figure_sample

DIMENSION, STEPS = 6000, 20


def rows() -> list[Row]:
    """Measure one run with 10000 dense private and 9000 public rows: mirror map, start and 20 steps."""
    sample = figure_sample(DIMENSION, 0)
    problem = figure_problem(DIMENSION, 0.01)
    X, y = sample.private[0].toarray(), sample.private[1]
    noise = calibrate_mirror_noise(problem.constants, STEPS, epsilon=1.0, delta=1e-5)
    spec = PublicMirrorSpec(step_size=0.015, noise_std=noise, n_steps=STEPS)
    start = time.process_time()
    mirror = public_mirror_map(*sample.public, problem)
    plan = Plan(problem=problem, spec=spec, delta=1e-5)
    PublicMirrorDescent(mirror).run(plan, ArrayDataset(X, y, problem), 0)
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    what = f"k = {DIMENSION}, n = 10000, {STEPS} mirror steps, dense rows"
    return [
        asked(what, 300.0, spent),
        Row(
            what="the same, peak memory of the process",
            asked="< 4 GB",
            measured=f"{peak:.3g} GB",
            met=peak < 4,
        ),
    ]
