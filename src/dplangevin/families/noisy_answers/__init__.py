"""Numbers with noise: counts, sums, the largest score, the sparse vector."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member("NoisySumsSchedule", ("theorems.noisy_sums:NoisySumsTheorem",), "NoisySums"),
    Member("NoisyMaxSchedule", ("theorems.noisy_max:NoisyMaxTheorem",), "NoisyMax"),
    Member(
        "NoisyAnswersSchedule",
        ("theorems.counts:WorstShift",),
        "generalized_gaussian_mechanism:GeneralizedGaussianNoise",
        options=("counting",),
        knob=Knob("sigma"),
    ),
    Member(
        "LargestNormSchedule",
        ("theorems.counts:LargestNormTheorem",),
        "generalized_gaussian_mechanism:LargestNormNoise",
        options=("largest-norm",),
        knob=Knob("scale"),
    ),
    Member(
        "CorrectedAnswersSchedule",
        ("theorems.counts:CorrectedWorstShift",),
        "sparse_vector:SparseVector",
    ),
)
