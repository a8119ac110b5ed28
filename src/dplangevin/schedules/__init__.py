"""The public parameters of a run: one frozen record per algorithm family."""

from dplangevin.schedules.base import Schedule
from dplangevin.schedules.discrete_gradient import DiscreteGradientSchedule
from dplangevin.schedules.draws import (
    DrawSchedule,
    ExponentialSchedule,
    GibbsSchedule,
    IteratedExponentialSchedule,
)
from dplangevin.schedules.langevin import LangevinSchedule
from dplangevin.schedules.noisy_answers import (
    AnswerSchedule,
    CorrectedAnswersSchedule,
    NoisyAnswersSchedule,
    NoisyMaxSchedule,
    NoisySumsSchedule,
    SumGroup,
)
from dplangevin.schedules.noisy_gradient import (
    RELEASE_MODES,
    SAMPLINGS,
    NoisyGradientSchedule,
    ReleaseMode,
    Sampling,
)
from dplangevin.schedules.objective_perturbation import ObjectivePerturbationSchedule
from dplangevin.schedules.output_perturbation import OutputPerturbationSchedule
from dplangevin.schedules.public_mirror_descent import PublicMirrorSchedule
from dplangevin.schedules.rashomon import RashomonChainSchedule, RashomonSchedule
from dplangevin.schedules.sufficient_statistics import SufficientStatisticsSchedule

__all__ = [
    "RELEASE_MODES",
    "SAMPLINGS",
    "AnswerSchedule",
    "CorrectedAnswersSchedule",
    "DiscreteGradientSchedule",
    "DrawSchedule",
    "ExponentialSchedule",
    "GibbsSchedule",
    "IteratedExponentialSchedule",
    "LangevinSchedule",
    "NoisyAnswersSchedule",
    "NoisyGradientSchedule",
    "NoisyMaxSchedule",
    "NoisySumsSchedule",
    "ObjectivePerturbationSchedule",
    "OutputPerturbationSchedule",
    "PublicMirrorSchedule",
    "RashomonChainSchedule",
    "RashomonSchedule",
    "ReleaseMode",
    "Sampling",
    "Schedule",
    "SufficientStatisticsSchedule",
    "SumGroup",
]
