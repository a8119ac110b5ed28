"""Where each theorem comes from: a paper as it stands, or a proof of this project (with the papers it builds on)."""

from __future__ import annotations

from dataclasses import dataclass

PUBLISHED = "published"
PROVED_HERE = "proved here"
UNSTATED = "unstated"

_PROOFS: dict[str, str] = {
    "shuffled-shift": "docs/theory/noisy_sgd.md, section 3, B1",
    "secret-permutation": "docs/theory/noisy_sgd.md, section 3, B1",
    "block-recursion": "docs/theory/noisy_sgd.md, section 3, B3",
    "dobrushin": "docs/theory/noisy_sgd.md, section 3, B4",
    "hidden-state-sgd": "docs/theory/noisy_sgd.md, section 4, S1",
    "every-step-shift": "docs/theory/noisy_sgd.md, section 4, S2",
    "participation-start": "docs/theory/noisy_sgd.md, section 4, S3",
    "block-sgd": "docs/theory/noisy_sgd.md, section 4, S4",
    "objective-perturbation": "docs/theory/planner.md, section 1",
    "gaussian-objective-perturbation": "docs/theory/planner.md, section 2",
    "sufficient-statistics": "docs/theory/planner.md, section 4",
    "discrete-composition": "docs/theory/secure_noise.md",
    "rashomon-draws": "docs/theory/rashomon.md, section 1",
    "rashomon-chains": "docs/theory/rashomon.md, section 4",
    "noisy-slack": "docs/theory/rashomon_region.md, section 1",
    "worst-shift": "docs/theory/thesis.md, Worst shift",
    "certified-sampler": "docs/theory/proximal_sampler.md",
    "sup-norm-certified-sampler": "docs/theory/proximal_sampler.md",
    "renyi-certified-sampler": "docs/theory/langevin_and_gibbs.md, section 6",
    "density-error": "docs/theory/langevin_and_gibbs.md, section 6",
    "gibbs-law-with-a-log-sobolev-inequality": "docs/theory/langevin_and_gibbs.md, section 3",
}
"""Statements that no paper has in this form: corrected, extended or new."""

_PAPERS = {
    "composition",
    "optimal-shift",
    "cyclic-shift",
    "output-perturbation",
    "public-mirror-descent",
    "exponential-mechanism",
    "strongly-convex-gibbs",
    "strongly-convex-gibbs-law",
    "underdamped-trajectory",
    "iterated-exponential-mechanism",
    "langevin-trajectory",
    "langevin-last-iterate",
    "sgld-trajectory",
    "sgld-last-iterate",
    "noisy-sums",
    "report-noisy-max",
}
"""Statements that are used as their paper has them; the reference of the guarantee names it."""


@dataclass(frozen=True)
class Origin:
    """Whether a promise rests on published statements alone, and where the other proofs stand."""

    kind: str
    proofs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {'; '.join(self.proofs)}" if self.proofs else self.kind


def origin_of(theorem: str) -> Origin:
    """The origin of a theorem, or of several joined by " + " or ", " (composed or transferred promises).

    Examples
    --------
    >>> print(origin_of("optimal-shift")), print(origin_of("composition + dobrushin"))
    published
    proved here: docs/theory/noisy_sgd.md, section 3, B4
    (None, None)
    """
    joined = theorem.lower().replace(" + ", ", ").split(", ")
    names = [name.strip().replace(" ", "-") for name in joined]
    proofs = tuple(dict.fromkeys(_PROOFS[name] for name in names if name in _PROOFS))
    if proofs:
        return Origin(PROVED_HERE, proofs)
    return Origin(PUBLISHED if all(name in _PAPERS for name in names) else UNSTATED)
