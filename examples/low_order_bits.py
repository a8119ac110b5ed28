"""Floating-point noise can give a record away in its last bits; secure mode does not.

Two neighbouring data sets: in one a single target is 1, in the other it is 0. The plain generator adds a double to the
mean gradient, and the sum of two doubles is rounded: many outputs of one data set are sums that the other data set
cannot give, whatever the noise. An attacker who finds one is certain, and epsilon promised that nobody would be.
(Mironov 2012; Haney, Desfontaines, Hartman, Shrestha and Hay 2022.)
"""

from __future__ import annotations

import numpy as np

from dplangevin import Plan, run
from dplangevin.data import ArrayDataset
from dplangevin.families import DiscreteGradientSchedule, GeneralizedGaussianMechanism
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
rows = np.ones((N, 1)) * (1 - 2**-40)  # a hair inside the stated norm, so that clipping leaves them alone
with_record = ArrayDataset(rows, np.array([1.0, 0, 0, 0]), problem)
without_record = ArrayDataset(rows, np.zeros(N), problem)
gradients = [
    float(d.gradient_sum(problem.loss, np.zeros((1, 1)))[0, 0]) / N for d in (with_record, without_record)
]


def reachable(output: float, gradient: float) -> bool:
    """Is the output the rounded sum of this gradient and any double whatever?"""
    noise = output - gradient
    return any(gradient + z == output for z in (noise, np.nextafter(noise, -1e9), np.nextafter(noise, 1e9)))


def certain(outputs: list[float], truth: int) -> int:
    """How often the attacker is certain, and right: the output cannot come from the other data set."""
    return sum(reachable(y, gradients[truth]) and not reachable(y, gradients[1 - truth]) for y in outputs)


secure_schedule = DiscreteGradientSchedule(step_size=1.0, noise_std=0.5, n_steps=1)
plain = Plan(problem=problem, schedule=secure_schedule.real(), delta=1e-6, theorem="composition")
secure = Plan(problem=problem, schedule=secure_schedule, delta=1e-6)

caught = {}
for name, plan in (("plain", plain), ("secure", secure)):
    outputs = [
        [-float(run(plan, data, secure=name == "secure").value[0]) for _ in range(RUNS)]
        for data in (with_record, without_record)
    ]
    if name == "plain":
        caught[name] = certain(outputs[1], truth=1)
        print(
            f"plain:  epsilon = {plan.guarantee.epsilon():.3f} at delta = 1e-6, but in {caught[name]} of {RUNS} runs"
        )
        print("        the last bits prove that the target was 0: one in", RUNS // max(caught[name], 1))
    else:
        # Every multiple of the public grid is an output of both data sets, so no output proves anything.
        grid = secure_schedule.output_grid
        off = sum(y / grid != round(y / grid) for each in outputs for y in each)
        parity = [sum(round(y / grid) % 2 for y in each) / RUNS for each in outputs]
        caught[name] = off
        print(
            f"secure: epsilon = {plan.guarantee.epsilon():.3f} at delta = 1e-6, outputs off the public grid: {off}"
        )
        print(f"        share of odd multiples: {parity[0]:.3f} with the record, {parity[1]:.3f} without")
        assert abs(parity[0] - parity[1]) < 5 / np.sqrt(RUNS)

assert caught["plain"] > 50
assert caught["secure"] == 0


# Counts are read in the same way: 0 plus textbook Laplace noise is often a double that 1 plus noise cannot give.
textbook = np.random.default_rng().laplace(size=RUNS)
proved = sum(not reachable(float(y), 1.0) for y in textbook)
print(f"counts: textbook Laplace noise in doubles proves a count of 0 in {proved} of {RUNS} runs")
mechanism = GeneralizedGaussianMechanism(k=RUNS, epsilon=1.0, delta=0.0, changed_counts=1, secure=True)
released = mechanism.release(np.zeros(RUNS, int))
proved_secure = sum(not reachable(float(y), 1.0) for y in released)
print(f"        secure counts of the same epsilon: in {proved_secure}")
assert proved > 50
assert proved_secure == 0
