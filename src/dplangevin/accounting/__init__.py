"""Privacy accounting: guarantees, the theorems that prove them, composition, plans, and charging a budget."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.accounting.charge import (
        Releasable as Releasable,
        charge_then_release as charge_then_release,
    )
    from dplangevin.accounting.compose import (
        AttackAdvantage as AttackAdvantage,
        attack_advantage as attack_advantage,
    )
    from dplangevin.accounting.conversions import (
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
    from dplangevin.accounting.delivery import BudgetAccount as BudgetAccount
    from dplangevin.accounting.dp_events import guarantee_from_event as guarantee_from_event
    from dplangevin.accounting.guarantee import (
        Condition as Condition,
        Guarantee as Guarantee,
        NotPrivate as NotPrivate,
        Origin as Origin,
        origin_of as origin_of,
    )
    from dplangevin.accounting.parts import (
        Approximate as Approximate,
        BoundedRange as BoundedRange,
        Concentrated as Concentrated,
        Gaussian as Gaussian,
        PrivacyPart as PrivacyPart,
        Pure as Pure,
        RenyiCurve as RenyiCurve,
    )
    from dplangevin.accounting.plan import (
        CertifiedSpec as CertifiedSpec,
        Plan as Plan,
        Spec as Spec,
        Theorem as Theorem,
        certify_plan as certify_plan,
        explain_refusals as explain_refusals,
        load_plan as load_plan,
        save_plan as save_plan,
    )
    from dplangevin.accounting.proximal_certificate import (
        poincare_constant as poincare_constant,
        total_variation_steps as total_variation_steps,
    )
    from dplangevin.accounting.registry import MechanismEntry as MechanismEntry
    from dplangevin.accounting.serialize import (
        guarantee_from_plain as guarantee_from_plain,
        guarantee_to_plain as guarantee_to_plain,
    )

__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
