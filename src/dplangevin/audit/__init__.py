"""Attack a run and bound its epsilon from below: lower bounds, never guarantees."""

from dplangevin.audit.attack import AuditResult, attack

__all__ = ["AuditResult", "attack"]
