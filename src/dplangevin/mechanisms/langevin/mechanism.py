"""Langevin dynamics as a mechanism: full-batch gradient steps whose noise is that of the diffusion."""

from __future__ import annotations

from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent


class LangevinDynamics(NoisyGradientDescent):
    """Langevin steps theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)), with the plan's spec.

    Parameters
    ----------
    n_steps, stop : as in `NoisyGradientDescent`. With release="trajectory" `stop` may end the run at any time: the
        guarantee covers every iterate (Lemma C.1), so that a rule may look at all of them.

    Privacy
    -------
    The plan's guarantee covers the released iterates only (`spec.release`).

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), equations (1) and (2); Ganesh, Thakurta and Upadhyay (2023), Lemma 2.2.

    Examples
    --------
    >>> from dplangevin.accounting.plan import Plan
    >>> from dplangevin.data.dataset import ArrayDataset
    >>> from dplangevin.problem import DataBounds, Logistic, Problem
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=4, n_features=1)
    >>> spec = LangevinSpec(inverse_temperature=2.0, time=1.0, n_steps=8, release="trajectory")
    >>> plan = Plan(problem=problem, spec=spec, delta=1e-6)
    >>> data = ArrayDataset([[0.5], [1.0], [-1.0], [-0.5]], [1, 1, 0, 0], problem)
    >>> release = LangevinDynamics(stop=lambda step, theta: step == 3).run(plan, data)
    >>> release.n_steps, sorted(release.iterates)
    (3, [1, 2, 3])
    """

    spec_type = LangevinSpec
