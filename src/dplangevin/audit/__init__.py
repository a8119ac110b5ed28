"""Attack a run and bound its epsilon from below, or find a record that changes how others are read."""

from dplangevin.audit.attack import attack, runs_needed
from dplangevin.audit.auditor import audit
from dplangevin.audit.canaries import Canary, canaries
from dplangevin.audit.claim import gaussian_claim
from dplangevin.audit.density import density_attack
from dplangevin.audit.neighbour_result import Finding, NeighbourResult
from dplangevin.audit.neighbours import neighbours
from dplangevin.audit.one_run import one_run_attack, one_run_epsilon
from dplangevin.audit.replay import ReplayResult, replay
from dplangevin.audit.result import AuditResult
from dplangevin.audit.troublemakers import TROUBLEMAKERS

__all__ = [
    "TROUBLEMAKERS",
    "AuditResult",
    "Canary",
    "Finding",
    "NeighbourResult",
    "ReplayResult",
    "attack",
    "audit",
    "canaries",
    "density_attack",
    "gaussian_claim",
    "neighbours",
    "one_run_attack",
    "one_run_epsilon",
    "replay",
    "runs_needed",
]
