"""Audits: lower bounds on epsilon by attacks, replays on neighbours, and checks that a pipeline is row by row."""

from dplangevin.audit.attacks import (
    AuditResult,
    Canary,
    gaussian_claim,
    make_canaries,
    many_run_attack,
    one_run_attack,
    one_run_epsilon,
    runs_needed,
)
from dplangevin.audit.auditor import audit
from dplangevin.audit.containers import ADVERSARIAL_CELLS
from dplangevin.audit.density import density_attack
from dplangevin.audit.pipeline_audit import Finding, PipelineAuditResult, audit_pipeline
from dplangevin.audit.replay import ReplayResult, replay

__all__ = [
    "ADVERSARIAL_CELLS",
    "AuditResult",
    "Canary",
    "Finding",
    "PipelineAuditResult",
    "ReplayResult",
    "audit",
    "audit_pipeline",
    "density_attack",
    "gaussian_claim",
    "make_canaries",
    "many_run_attack",
    "one_run_attack",
    "one_run_epsilon",
    "replay",
    "runs_needed",
]
