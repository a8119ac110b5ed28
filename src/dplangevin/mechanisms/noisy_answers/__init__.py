"""Noisy answers: counts, sums, report noisy max, and sparse-vector corrections."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry("NoisySumsSpec", ("NoisySumsTheorem",), "NoisySums"),
    MechanismEntry("NoisyMaxSpec", ("NoisyMaxTheorem",), "NoisyMax"),
    MechanismEntry(
        "NoisyAnswersSpec",
        ("WorstShift",),
        "GeneralizedGaussianNoise",
        options=("counting",),
        calibration_target=CalibrationTarget("sigma"),
    ),
    MechanismEntry(
        "MaxNormSpec",
        ("MaxNormTheorem",),
        "MaxNormNoise",
        options=("largest-norm",),
        calibration_target=CalibrationTarget("scale"),
    ),
    MechanismEntry(
        "CorrectedAnswersSpec",
        ("CorrectedWorstShift",),
        "SparseVector",
    ),
)
