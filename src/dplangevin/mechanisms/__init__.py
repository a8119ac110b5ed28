"""Mechanisms, one package each: spec, theorems, mechanism and planner. `accounting.registry` lists them."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.mechanisms.exponential.mechanism import (
        ExponentialMechanism as ExponentialMechanism,
        IteratedExponentialMechanism as IteratedExponentialMechanism,
        run_uncertified_chains as run_uncertified_chains,
    )
    from dplangevin.mechanisms.exponential.sampler_plans import (
        SamplerPlan as SamplerPlan,
        plan_iterated as plan_iterated,
        plan_sampler as plan_sampler,
    )
    from dplangevin.mechanisms.exponential.spec import (
        ExponentialSpec as ExponentialSpec,
        GibbsSpec as GibbsSpec,
        IteratedExponentialSpec as IteratedExponentialSpec,
        exponential_guarantee as exponential_guarantee,
        exponential_temperature as exponential_temperature,
        gibbs_guarantee as gibbs_guarantee,
    )
    from dplangevin.mechanisms.exponential.tiers import plan_stages as plan_stages
    from dplangevin.mechanisms.langevin.mechanism import LangevinDynamics as LangevinDynamics
    from dplangevin.mechanisms.langevin.spec import (
        DiffusionSpec as DiffusionSpec,
        LangevinSpec as LangevinSpec,
    )
    from dplangevin.mechanisms.langevin.temperatures import (
        LangevinChoice as LangevinChoice,
        choose_langevin_run as choose_langevin_run,
    )
    from dplangevin.mechanisms.mechanism import (
        AnswerMechanism as AnswerMechanism,
        AnswersRelease as AnswersRelease,
        FitMechanism as FitMechanism,
        Mechanism as Mechanism,
        MechanismOutput as MechanismOutput,
        Release as Release,
    )
    from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent as PublicMirrorDescent
    from dplangevin.mechanisms.mirror_descent.mirror_map import public_mirror_map as public_mirror_map
    from dplangevin.mechanisms.mirror_descent.spec import (
        PublicMirrorSpec as PublicMirrorSpec,
        calibrate_mirror_noise as calibrate_mirror_noise,
    )
    from dplangevin.mechanisms.moments.mechanism import SufficientStatistics as SufficientStatistics
    from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec as SufficientStatisticsSpec
    from dplangevin.mechanisms.noisy_answers.mechanism import (
        GeneralizedGaussianMechanism as GeneralizedGaussianMechanism,
    )
    from dplangevin.mechanisms.noisy_answers.spec import (
        AnswerSpec as AnswerSpec,
        CorrectedAnswersSpec as CorrectedAnswersSpec,
        MaxNormSpec as MaxNormSpec,
        NoisyAnswersSpec as NoisyAnswersSpec,
        NoisyMaxSpec as NoisyMaxSpec,
        NoisySumsSpec as NoisySumsSpec,
    )
    from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon as lower_bound_epsilon
    from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent as NoisyGradientDescent
    from dplangevin.mechanisms.noisy_gradient.spec import (
        NoisyGradientSpec as NoisyGradientSpec,
    )
    from dplangevin.mechanisms.perturbation.mechanism import (
        ObjectivePerturbation as ObjectivePerturbation,
        OutputPerturbation as OutputPerturbation,
    )
    from dplangevin.mechanisms.perturbation.spec import (
        ObjectivePerturbationSpec as ObjectivePerturbationSpec,
        OutputPerturbationSpec as OutputPerturbationSpec,
        calibrate_objective_perturbation as calibrate_objective_perturbation,
        calibrate_output_perturbation as calibrate_output_perturbation,
    )
    from dplangevin.mechanisms.rashomon.spec import (
        LocalRange as LocalRange,
        RashomonChainSpec as RashomonChainSpec,
        RashomonSpec as RashomonSpec,
    )
    from dplangevin.mechanisms.underdamped.mechanism import UnderdampedLangevin as UnderdampedLangevin
    from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec as UnderdampedSpec

__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
