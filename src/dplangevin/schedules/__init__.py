"""The public parameters of a run: one frozen record per algorithm family."""

from dplangevin.schedules.base import Schedule
from dplangevin.schedules.noisy_gradient import (
    RELEASE_MODES,
    SAMPLINGS,
    NoisyGradientSchedule,
    ReleaseMode,
    Sampling,
)
from dplangevin.schedules.objective_perturbation import ObjectivePerturbationSchedule
from dplangevin.schedules.output_perturbation import OutputPerturbationSchedule
from dplangevin.schedules.sufficient_statistics import SufficientStatisticsSchedule

__all__ = [
    "RELEASE_MODES",
    "SAMPLINGS",
    "NoisyGradientSchedule",
    "ObjectivePerturbationSchedule",
    "OutputPerturbationSchedule",
    "ReleaseMode",
    "Sampling",
    "Schedule",
    "SufficientStatisticsSchedule",
]
