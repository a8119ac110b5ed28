"""What is promised: guarantees, the theorems that carry them, and calibration."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.privacy.conditions import Condition as Condition
    from dplangevin.privacy.conversions import (
        gdp_delta as gdp_delta,
        gdp_epsilon as gdp_epsilon,
        gdp_mu as gdp_mu,
        pure_delta as pure_delta,
        pure_epsilon as pure_epsilon,
        rdp_delta as rdp_delta,
        rdp_epsilon as rdp_epsilon,
        zcdp_delta as zcdp_delta,
        zcdp_epsilon as zcdp_epsilon,
    )
    from dplangevin.privacy.guarantee import Guarantee as Guarantee, NotPrivate as NotPrivate
    from dplangevin.privacy.origins import Origin as Origin, origin_of as origin_of
    from dplangevin.privacy.parts import (
        Approximate as Approximate,
        BoundedRange as BoundedRange,
        Concentrated as Concentrated,
        Gaussian as Gaussian,
        Part as Part,
        Pure as Pure,
        Renyi as Renyi,
    )
    from dplangevin.privacy.payment import Released as Released, pay as pay
    from dplangevin.privacy.plan import Plan as Plan, Price as Price, certify as certify, refusals as refusals
    from dplangevin.privacy.plan_file import load_plan as load_plan, save_plan as save_plan
    from dplangevin.privacy.proximal_certificate import (
        poincare_constant as poincare_constant,
        total_variation_steps as total_variation_steps,
    )
    from dplangevin.privacy.readouts import Advantage as Advantage, advantage as advantage
    from dplangevin.privacy.registry import Member as Member
    from dplangevin.privacy.schedule import Schedule as Schedule
    from dplangevin.privacy.serialize import from_plain as from_plain, to_plain as to_plain
    from dplangevin.privacy.spender import Spender as Spender
    from dplangevin.privacy.theorem import Theorem as Theorem

__getattr__, __dir__, __all__ = attach(__name__)
