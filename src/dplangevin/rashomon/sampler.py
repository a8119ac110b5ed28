"""RashomonSampler: many equally good models under one stated guarantee."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin.errors import NotPrivateError
from dplangevin.estimators.adapter import Outline, TargetEncoder, WithCallContext
from dplangevin.families.mechanism import run
from dplangevin.families.rashomon.advice import WORTHWHILE
from dplangevin.families.rashomon.recipe import RashomonRecipe, plan_rashomon
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.spender import Spender
from dplangevin.rashomon.multiplicity import Multiplicity
from dplangevin.rashomon.template import Template


def _refused(why: str, words: str) -> Callable[..., NoReturn]:
    """A method that is asked for and never answers."""

    def method(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise NotPrivateError(words)

    method.__doc__ = f"Refused: {why}"
    return method


@dataclass(eq=False, repr=False)
class RashomonSampler(WithCallContext, BaseEstimator):  # type: ignore[misc]
    """K models drawn privately from the set of models whose objective is within `threshold` of the best.

    Parameters
    ----------
    estimator : an unfitted estimator of this library; its model, data_norm or schema, classes or target_bounds, radius,
        alpha, fit_intercept, adjacency and weight_bound are used. Its epsilon, delta and mechanism are not.
    threshold : psi, on the objective (1/n) sum loss + (alpha/2) |theta|^2 of the scaled problem.
    n_models : K. epsilon, delta : the promise for ALL models together; delta = 0 asks for a pure one.
    radius : largest norm of the coefficients; default the estimator's.
    route : "pure", "ramp" or "trajectory"; tier : "auto", "exact", "pure", "certified" or "process"; ramp, n_steps :
        see `plan_rashomon`.
    ledger : a Spender that is charged before the data is read.
    random_state : None draws from the operating system; a seed voids the promise against those who know it.
    state : path of a private file from which the same fit goes on after a crash, with its noise and its charge.
    verbose : print the plan before running.

    Attributes
    ----------
    models_ : K fitted estimators, each released. hit_probability_ : bound on the chance that a model is in the set.
    privacy_ : the promise for all models. plan_ : what was chosen, and what would be worth running. ledger_head_ : of
        the ledger's chain after the charge, or None.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023); Semenova, Rudin and Parr (2022) for Rashomon sets.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)) / 2**0.5
    >>> y = X[:, 0] + 0.3 * rng.standard_normal(4000) > 0
    >>> model = DPLogisticRegression(data_norm=1.0, classes=[False, True], radius=3.0, fit_intercept=False)
    >>> sampler = RashomonSampler(model, threshold=0.1, n_models=4, epsilon=2.0, random_state=0).fit(X, y)
    >>> len(sampler.models_), round(sampler.privacy_.epsilon(), 2), sampler.hit_probability_ > 0.5
    (4, 2.0, True)
    >>> bool(sampler.multiplicity(X[:100]).ambiguity < 0.5)  # X[:100] is public here
    True
    """

    estimator: Any = None
    _: KW_ONLY
    threshold: float = 0.05
    n_models: int = 10
    epsilon: float = 1.0
    delta: float = 0.0
    radius: float | None = None
    route: str = "pure"
    tier: str = "auto"
    ramp: float | None = None
    n_steps: int | None = None
    ledger: Spender | None = None
    random_state: Any = None
    state: StatePath = None
    verbose: bool = False

    def plan(self, n: int, n_features: int, n_classes: int = 2) -> RashomonRecipe:
        """What fit would do on n rows of n_features encoded columns; no data is needed."""
        template = self._template()
        return self._recipe(template.problem(n, n_features, n_classes))

    def recipe(self, X: Any, y: Any) -> RashomonRecipe:
        """What fit would do on these records, of which only their number and their columns count."""
        return self._outlined(self._template(), X, y)[0]

    def _outlined(self, template: Template, X: Any, y: Any) -> tuple[RashomonRecipe, Outline, TargetEncoder]:
        outline, encode = template.outline(X, y)
        divisor = template.estimator.divisor(outline.shape[0])
        problem = template.problem(divisor, outline.shape[1], encode.n_classes)
        return self._recipe(problem), outline, encode

    def fit(self, X: Any, y: Any) -> RashomonSampler:
        """Draw the models. The guarantee covers all of them, and nothing else is kept of the data."""
        template = self._template()
        recipe, outline, encode = self._outlined(template, X, y)
        problem = recipe.plan.problem
        if recipe.hit_probability < WORTHWHILE:
            told = [recipe.caution(), recipe.sentence(), str(recipe.advice)]
            warnings.warn(" ".join(filter(None, told)), UserWarning, stacklevel=2)
        if self.verbose:
            print(recipe)
        data = template.estimator.reader(outline, problem, encode)
        release = run(
            recipe.plan, data, self.random_state, ledger=self.ledger, state=self.state, rows_per_person=1
        )
        self.plan_, self.ledger_head_ = recipe, release.ledger_head
        promise = template.promise(recipe.plan.guarantee, release.seeded)
        self.privacy_ = replace(promise, at_delta=recipe.plan.delta)
        self.hit_probability_ = recipe.hit_probability
        self.parameters_ = np.array(release.value)
        self.models_ = [
            template.model(theta, problem, self.privacy_, recipe, head=release.ledger_head)
            for theta in self.parameters_.T
        ]
        self.feature_names_ = tuple(map(str, self.models_[0].get_feature_names_out()))
        self.n_features_in_ = template.estimator.n_features_in_
        if hasattr(template.estimator, "classes_"):
            self.classes_ = template.estimator.classes_
        return self

    def multiplicity(self, X: Any, y: Any = None, **options: Any) -> Multiplicity:
        """What the models disagree on, for PUBLIC inputs X (and labels y): post-processing, at no cost in privacy.

        Options are those of `Multiplicity.of`. X must not be the training data.
        """
        check_is_fitted(self, "models_")
        return Multiplicity.of(self.models_, X, y, sentence=self.plan_.sentence(), **options)

    def _template(self) -> Template:
        return Template(self.estimator, self.radius, self.threshold, ledger=self.ledger, owner=self)

    def _recipe(self, problem: Any) -> RashomonRecipe:
        return plan_rashomon(
            problem,
            threshold=self.threshold,
            n_models=self.n_models,
            epsilon=self.epsilon,
            delta=self.delta,
            route=self.route,
            tier=self.tier,
            ramp=self.ramp,
            n_steps=self.n_steps,
        )

    filter_members = _refused(
        "keeping only the draws inside the set reveals where the set is.",
        "membership is not released: the set depends on every record, so keeping only the draws inside it would "
        "condition on the data. Use hit_probability_, which holds for every data set.",
    )
    training_loss = _refused(
        "the loss on the private records is a statistic of them.",
        "the training loss of a draw is not released: it is a statistic of the private records. Buy it with "
        "private_score(model, X, y, epsilon=...), or measure it on public records.",
    )
    acceptance = _refused(
        "how many proposals a draw took depends on the data.",
        "acceptance rates and proposal counts are not kept: they depend on the private records and are not covered "
        "by the guarantee.",
    )
    redraw_until_member = _refused(
        "retrying until a draw is inside is filtering with more steps, and every try costs budget.",
        "drawing again until a model is in the set conditions on the data, and every try costs epsilon. Raise the "
        "threshold or the budget until hit_probability_ is what you need.",
    )
