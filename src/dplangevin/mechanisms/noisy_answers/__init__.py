"""Noisy answers: counts, sums, report noisy max, and sparse-vector corrections."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry("NoisySumsSpec", ("NoisySumsTheorem",), "NoisySums"),
    MechanismEntry("NoisyMaxSpec", ("NoisyMaxTheorem",), "NoisyMax"),
    MechanismEntry(
        "NoisyAnswersSpec",
        ("WorstShift",),
        "noisy_counts:GeneralizedGaussianNoise",
        options=("counting",),
        calibration_target=CalibrationTarget("sigma"),
    ),
    MechanismEntry(
        "MaxNormSpec",
        ("MaxNormTheorem",),
        "noisy_counts:MaxNormNoise",
        options=("largest-norm",),
        calibration_target=CalibrationTarget("scale"),
    ),
    MechanismEntry(
        "CorrectedAnswersSpec",
        ("CorrectedWorstShift",),
        "sparse_vector:SparseVector",
    ),
)
