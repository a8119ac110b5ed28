"""Where each theorem comes from: a paper as it stands, or a proof of this project (with the papers it builds on).

A `Theorem` says so itself, in its `proof`. Below are the statements that are functions or parts of a promise.
"""

from __future__ import annotations

from dataclasses import dataclass

PUBLISHED = "published"
PROVED_HERE = "proved here"
UNSTATED = "unstated"

_PROOFS: dict[str, str] = {
    "certified-sampler": "docs/theory/proximal_sampler.md",
    "sup-norm-certified-sampler": "docs/theory/proximal_sampler.md",
    "renyi-certified-sampler": "docs/theory/langevin_and_gibbs.md, section 6",
    "density-error": "docs/theory/langevin_and_gibbs.md, section 6",
    "gibbs-law-with-a-log-sobolev-inequality": "docs/theory/langevin_and_gibbs.md, section 3",
    "strongly-convex-gibbs-law": "",
    "langevin-trajectory": "",
    "langevin-last-iterate": "",
    "sgld-trajectory": "",
    "sgld-last-iterate": "",
}
"""Where the proof stands; "" for what is used as its paper has it, which the reference of the guarantee names."""


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
    names, known = [_key(name) for name in theorem.replace(" + ", ", ").split(", ")], _stated()
    if not all(name in known for name in names):
        from dplangevin.privacy.registry import load_theorems  # above this module: theorems make guarantees

        load_theorems()
        known = _stated()
    proofs = tuple(dict.fromkeys(known[name] for name in names if known.get(name)))
    if proofs:
        return Origin(PROVED_HERE, proofs)
    return Origin(PUBLISHED if all(name in known for name in names) else UNSTATED)


def _stated() -> dict[str, str]:
    """Where the proofs stand, of the theorems that are imported too. One name has one origin."""
    from dplangevin.privacy.theorem import Theorem

    known, left = dict(_PROOFS), Theorem.__subclasses__()
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if "name" in vars(kind) and known.setdefault(_key(kind.name), kind.proof) != kind.proof:
            raise TypeError(f"two theorems are called {kind.name!r} and come from different places.")
    return known


def _key(name: str) -> str:
    return name.strip().lower().replace(" ", "-")
