"""Attack on the low-order bits of floating-point noise, and why exact noise is not affected.

Of two neighbouring data sets, one has a target of 1 where the other has 0. The plain generator adds a double to the
mean gradient, and the sum of two doubles is rounded: many outputs of one data set are impossible for the other,
whatever the noise. An attacker who sees such an output is certain of the data set, which contradicts epsilon.
(Mironov 2012; Haney, Desfontaines, Hartman, Shrestha and Hay 2022.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dplangevin import Plan, run_plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms import GeneralizedGaussianMechanism, NoisyGradientSpec
from dplangevin.problem import Clipped, DataBounds, Problem, Squared

RUNS = 2000
N = 4
problem = Problem(
    loss=Clipped(Squared(), 1.0),
    bounds=DataBounds(data_norm=1.0, target=(-1.0, 1.0)),
    n=N,
    n_features=1,
    fit_intercept=False,
)
rows = np.ones((N, 1)) * (1 - 2**-40)  # slightly below the stated norm, so that they are not clipped
with_record = ArrayDataset(rows, np.array([1.0, 0, 0, 0]), problem)
without_record = ArrayDataset(rows, np.zeros(N), problem)
gradients = [
    float(d.gradient_sum(problem.loss, np.zeros((1, 1)))[0, 0]) / N for d in (with_record, without_record)
]


def reachable(output: float, gradient: float) -> bool:
    """Whether the output is the rounded sum of this gradient and some double."""
    noise = output - gradient
    return any(gradient + z == output for z in (noise, np.nextafter(noise, -1e9), np.nextafter(noise, 1e9)))


def certain(outputs: list[float], truth: int) -> int:
    """Number of outputs that are impossible for the other data set: the attacker is certain, and right."""
    return sum(reachable(y, gradients[truth]) and not reachable(y, gradients[1 - truth]) for y in outputs)


exact_spec = NoisyGradientSpec(step_size=1.0, noise_std=0.5, n_steps=1, secure=True)
plain = Plan(problem=problem, spec=replace(exact_spec, secure=False), delta=1e-6, theorem="composition")
exact = Plan(problem=problem, spec=exact_spec, delta=1e-6)

caught = {}
for name, plan in (("plain", plain), ("exact", exact)):
    outputs = [
        [-float(run_plan(plan, data, secure=name == "exact").value[0]) for _ in range(RUNS)]
        for data in (with_record, without_record)
    ]
    if name == "plain":
        caught[name] = certain(outputs[1], truth=1)
        print(
            f"plain:  epsilon = {plan.guarantee.epsilon():.3f} at delta = 1e-6, but in {caught[name]} of {RUNS} runs"
        )
        print("        the last bits prove that the target was 0: one in", RUNS // max(caught[name], 1))
    else:
        # Every multiple of a public grid, here a millionth of the noise, is possible for both data sets: no output
        # proves anything. The grid is the largest power of two (in units of the integer sum) that all outputs share.
        distances = np.diff(np.unique(np.concatenate(outputs)))
        grid = float(distances.min())
        steps = [np.array(each) / grid for each in outputs]
        off = sum(int((np.abs(each - np.rint(each)) > 1e-3).sum()) for each in steps)
        parity = [float((np.rint(each) % 2).mean()) for each in steps]
        caught[name] = off
        print(
            f"exact:  epsilon = {plan.guarantee.epsilon():.3f} at delta = 1e-6, outputs off the public grid: {off}"
        )
        print(f"        share of odd multiples: {parity[0]:.3f} with the record, {parity[1]:.3f} without")
        assert abs(parity[0] - parity[1]) < 5 / np.sqrt(RUNS)

assert caught["plain"] > 50
assert caught["exact"] == 0


# The same attack on counts: 0 plus textbook Laplace noise is often a double that 1 plus noise cannot be.
textbook = np.random.default_rng().laplace(size=RUNS)
proved = sum(not reachable(float(y), 1.0) for y in textbook)
print(f"counts: textbook Laplace noise in doubles proves a count of 0 in {proved} of {RUNS} runs")
mechanism = GeneralizedGaussianMechanism(k=RUNS, epsilon=1.0, delta=0.0, changed_counts=1, secure=True)
released = mechanism.release(np.zeros(RUNS, int))
proved_secure = sum(not reachable(float(y), 1.0) for y in released)
print(f"        secure counts of the same epsilon: in {proved_secure}")
assert proved > 50
assert proved_secure == 0
