"""One folder an algorithm: its schedule, theorems, mechanism and recipe. `privacy.registry` lists them."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.families.draws.diagnosed import diagnosed_draws as diagnosed_draws
    from dplangevin.families.draws.mechanism import (
        ExponentialMechanism as ExponentialMechanism,
        IteratedExponentialMechanism as IteratedExponentialMechanism,
    )
    from dplangevin.families.draws.plan_iterated import plan_iterated as plan_iterated
    from dplangevin.families.draws.plan_sampler import (
        SamplerPlan as SamplerPlan,
        plan_sampler as plan_sampler,
    )
    from dplangevin.families.draws.schedule import (
        ExponentialSchedule as ExponentialSchedule,
        GibbsSchedule as GibbsSchedule,
        IteratedExponentialSchedule as IteratedExponentialSchedule,
    )
    from dplangevin.families.draws.theorems.exponential_mechanism import (
        exponential_mechanism as exponential_mechanism,
        exponential_temperature as exponential_temperature,
    )
    from dplangevin.families.draws.theorems.gibbs import gibbs_strongly_convex as gibbs_strongly_convex
    from dplangevin.families.draws.theorems.iterated_exponential import iterated_schedule as iterated_schedule
    from dplangevin.families.mechanism import (
        AnswerMechanism as AnswerMechanism,
        Draw as Draw,
        FitMechanism as FitMechanism,
        Mechanism as Mechanism,
    )
    from dplangevin.families.mirror_descent.mechanism import PublicMirrorDescent as PublicMirrorDescent
    from dplangevin.families.mirror_descent.public_sample import public_map as public_map
    from dplangevin.families.mirror_descent.schedule import PublicMirrorSchedule as PublicMirrorSchedule
    from dplangevin.families.mirror_descent.theorem import mirror_noise as mirror_noise
    from dplangevin.families.moments.mechanism import SufficientStatistics as SufficientStatistics
    from dplangevin.families.moments.schedule import (
        SufficientStatisticsSchedule as SufficientStatisticsSchedule,
    )
    from dplangevin.families.noisy_answers.generalized_gaussian_mechanism import (
        GeneralizedGaussianMechanism as GeneralizedGaussianMechanism,
    )
    from dplangevin.families.noisy_answers.schedule import (
        AnswerSchedule as AnswerSchedule,
        CorrectedAnswersSchedule as CorrectedAnswersSchedule,
        LargestNormSchedule as LargestNormSchedule,
        NoisyAnswersSchedule as NoisyAnswersSchedule,
        NoisyMaxSchedule as NoisyMaxSchedule,
        NoisySumsSchedule as NoisySumsSchedule,
    )
    from dplangevin.families.noisy_gradient.discrete_mechanism import (
        DiscreteGradientDescent as DiscreteGradientDescent,
    )
    from dplangevin.families.noisy_gradient.discrete_schedule import (
        DiscreteGradientSchedule as DiscreteGradientSchedule,
    )
    from dplangevin.families.noisy_gradient.langevin_schedule import LangevinSchedule as LangevinSchedule
    from dplangevin.families.noisy_gradient.lower_bounds import lower_bound_epsilon as lower_bound_epsilon
    from dplangevin.families.noisy_gradient.mechanism import NoisyGradientDescent as NoisyGradientDescent
    from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule as NoisyGradientSchedule
    from dplangevin.families.perturbation.mechanism import (
        ObjectivePerturbation as ObjectivePerturbation,
        OutputPerturbation as OutputPerturbation,
    )
    from dplangevin.families.perturbation.schedule import (
        ObjectivePerturbationSchedule as ObjectivePerturbationSchedule,
        OutputPerturbationSchedule as OutputPerturbationSchedule,
    )
    from dplangevin.families.perturbation.theorems.objective import (
        calibrated_objective_perturbation as calibrated_objective_perturbation,
    )
    from dplangevin.families.perturbation.theorems.output import (
        calibrated_output_perturbation as calibrated_output_perturbation,
    )
    from dplangevin.families.rashomon.schedule import (
        RashomonChainSchedule as RashomonChainSchedule,
        RashomonSchedule as RashomonSchedule,
    )
    from dplangevin.families.release import AnswersRelease as AnswersRelease, Release as Release
    from dplangevin.families.underdamped.mechanism import UnderdampedLangevin as UnderdampedLangevin
    from dplangevin.families.underdamped.schedule import UnderdampedSchedule as UnderdampedSchedule

__getattr__, __dir__, __all__ = attach(__name__)
