"""account: what a run costs, by the tightest theorem whose hypotheses hold."""

from __future__ import annotations

from collections.abc import Mapping

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.options import MECHANISMS, described
from dplangevin.families.other_runs import described_other
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.option_names import TARGETS
from dplangevin.privacy.plan import certify
from dplangevin.privacy.registry import option_names
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants


def account(
    *, delta: float | None = None, epsilon: float | None = None, theorem: str | None = None, **options: object
) -> Guarantee:
    """What a run costs: the tightest proved guarantee.

    Options are those of `dplangevin account`, with underscores. Noisy gradient runs: n, lipschitz, noise_std,
    step_size (numbers, one per step, or formulas such as "0.5/sqrt(t)"), steps (a number or infinity), mechanism,
    batch_size, sampling, smoothness, strong_convexity, diameter, adjacency, release, checkpoints, momentum. Other
    mechanisms, see their `options.py`: objective-perturbation, output-perturbation, exponential, gibbs, underdamped,
    rashomon, counting and largest-norm. Exactly one of delta and epsilon; theorem to pin one.

    Examples
    --------
    >>> from dplangevin import account
    >>> options = dict(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                noise_std=0.012, delta=1e-6)
    >>> short, long = account(steps=1000, **options), account(steps=float("inf"), **options)
    >>> f"{short.epsilon():.4f} {long.epsilon():.4f} {short.composition.epsilon():.4f}"
    '0.9927 0.9928 2.3885'
    """
    for name in TARGETS:
        if options.get(name) is not None:
            raise InvalidParameter(f"{name} is what calibrate meets, not an option of account; leave it out.")
    return certify(*described_run(options), delta=delta, epsilon=epsilon, theorem=theorem)


def described_run(options: Mapping[str, object]) -> tuple[Constants | None, Schedule]:
    """The public values of a run, by its mechanism."""
    others = option_names()
    _check.choice("mechanism", options.get("mechanism") or MECHANISMS[0], (*MECHANISMS, *others))
    if options.get("mechanism") in others:
        return described_other(options)
    return described(options)
