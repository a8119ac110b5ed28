"""Draws from exp(-V) on a convex body. Samplers never mint guarantees."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.samplers.bodies import (
        BallBody as BallBody,
        Body as Body,
        BoxBody as BoxBody,
        WholeSpaceBody as WholeSpaceBody,
        body_of as body_of,
    )
    from dplangevin.samplers.hit_and_run_chain import hit_and_run as hit_and_run
    from dplangevin.samplers.lens import LensBody as LensBody
    from dplangevin.samplers.mala_chain import mala as mala
    from dplangevin.samplers.overdamped_chain import overdamped as overdamped
    from dplangevin.samplers.potential import (
        Draws as Draws,
        FunctionPotential as FunctionPotential,
        Potential as Potential,
    )
    from dplangevin.samplers.problem_potential import ProblemPotential as ProblemPotential
    from dplangevin.samplers.proximal_chain import proximal as proximal
    from dplangevin.samplers.starts import WarmStart as WarmStart, warm_start as warm_start
    from dplangevin.samplers.truncated_gaussian import (
        isotropic_gaussian as isotropic_gaussian,
        quadratic_gaussian as quadratic_gaussian,
    )
    from dplangevin.samplers.underdamped_chain import underdamped as underdamped

__getattr__, __dir__, __all__ = attach(__name__)
