"""Noisy answers: counts, sums, report noisy max, and sparse-vector corrections."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry("NoisySumsSpec", ("theorem:NoisySumsTheorem",), "NoisySums"),
    MechanismEntry("NoisyMaxSpec", ("theorem:NoisyMaxTheorem",), "NoisyMax"),
    MechanismEntry(
        "NoisyAnswersSpec",
        ("theorem:WorstShift",),
        "noisy_counts:GeneralizedGaussianNoise",
        options=("counting",),
        calibration_target=CalibrationTarget("sigma"),
    ),
    MechanismEntry(
        "MaxNormSpec",
        ("theorem:MaxNormTheorem",),
        "noisy_counts:MaxNormNoise",
        options=("largest-norm",),
        calibration_target=CalibrationTarget("scale"),
    ),
    MechanismEntry(
        "CorrectedAnswersSpec",
        ("theorem:CorrectedWorstShift",),
        "sparse_vector:SparseVector",
    ),
)
