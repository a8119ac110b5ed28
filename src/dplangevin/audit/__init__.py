"""Attack a run and bound its epsilon from below: lower bounds, never guarantees."""

from dplangevin.audit.attack import attack, runs_needed
from dplangevin.audit.auditor import audit
from dplangevin.audit.canaries import Canary, canaries
from dplangevin.audit.claim import gaussian_claim
from dplangevin.audit.density import density_attack
from dplangevin.audit.one_run import one_run_attack, one_run_epsilon
from dplangevin.audit.result import AuditResult

__all__ = [
    "AuditResult",
    "Canary",
    "attack",
    "audit",
    "canaries",
    "density_attack",
    "gaussian_claim",
    "one_run_attack",
    "one_run_epsilon",
    "runs_needed",
]
