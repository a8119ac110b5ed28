"""Samplers of exp(-V) on a convex support, and noise samplers. None of them issues a privacy guarantee."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.sampling.langevin import (
        WarmStart as WarmStart,
        make_warm_start as make_warm_start,
        run_hit_and_run as run_hit_and_run,
        run_mala as run_mala,
        run_overdamped as run_overdamped,
        run_underdamped as run_underdamped,
    )
    from dplangevin.sampling.potential import (
        FunctionPotential as FunctionPotential,
        Potential as Potential,
        ProblemPotential as ProblemPotential,
        SamplerOutput as SamplerOutput,
    )
    from dplangevin.sampling.rejection import (
        run_proximal_chain as run_proximal_chain,
        sample_isotropic_gaussian as sample_isotropic_gaussian,
        sample_quadratic_gaussian as sample_quadratic_gaussian,
    )
    from dplangevin.sampling.supports import (
        BallSupport as BallSupport,
        BoxSupport as BoxSupport,
        ConvexSupport as ConvexSupport,
        LensSupport as LensSupport,
        WholeSpaceSupport as WholeSpaceSupport,
        support_of as support_of,
    )

__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
