"""Everything that spends, small, as functions of records, a generator and an account."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from _public_grids import small_grids
from dplangevin import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPModelSearch,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
    private_score,
)
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.audit.replay import NoisyRelease
from dplangevin.mechanisms.exponential import sampler_plans
from dplangevin.queries import Marginals, column, count_file, count_queries, summarize_table
from dplangevin.rashomon import RashomonRegion
from dplangevin.rashomon.measures import private_counts
from dplangevin.schema import Schema

N, WIDTH = 24, 2
CLASSIFIERS = (DPLogisticRegression, DPLinearSVC, DPAdditiveClassifier)


def quick_and_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small grid of public settings, and no measured seconds in what a plan says."""
    small_grids(monkeypatch)
    monkeypatch.setattr(sampler_plans, "seconds_per_pass", lambda problem: 1e-5 * problem.n)


class ChargeRecorder:
    """An account without a limit that remembers what was charged, and what was noted of the release."""

    def __init__(self, rows_per_person: int = 1) -> None:
        self.max_rows_per_person = rows_per_person
        self.plans: list[Any] = []
        self.committed: list[str] = []

    def reserve(self, plan: Any) -> str:
        self.plans.append(plan)
        return str(len(self.plans))

    @property
    def charged(self) -> list[Guarantee]:
        """As a ledger does: the guarantee to its own people, grouped once."""
        return [plan.guarantee.group(self.max_rows_per_person) for plan in self.plans]

    def commit(self, token: str, release_hash: str) -> str:
        self.committed.append(release_hash)
        return f"head {token}"


@dataclass(frozen=True)
class Records:
    """Rows, targets and weights, and who owns each row."""

    X: Any
    y: Any
    weights: Any
    people: Any

    def frame(self) -> pd.DataFrame:
        columns = {f"x{j}": self.X[:, j] for j in range(WIDTH)}
        return pd.DataFrame({**columns, "y": self.y, "who": self.people})

    def without(self, last: int) -> Records:
        return Records(*(values[:-last] for values in vars(self).values()))


@dataclass(frozen=True, kw_only=True)
class Units:
    """What rows, targets and weights are measured in; what is stated about them is in the same unit.

    intercept : a column of ones, which has no unit, so that what depends on rows does not scale with them.
    """

    rows: float = 1.0
    targets: float = 1.0
    weights: float = 1.0
    intercept: bool = True


ONE = Units()


@dataclass(frozen=True, kw_only=True)
class SpendingCase:
    """One way to spend: call(records, random_state, account, state=None) -> everything that the caller gets.

    classes : labels are 0 ... classes - 1; else targets lie in [low, high].
    asked : the (epsilon, delta) that it may cost. owned : rows of the person who differs, where not all are used.
    heavy : a weight above any that is stated. resumes : whether it takes a `state`, with noise that can be repeated.
    adjacency : of the claim. additive : whether all of its noise can be followed.
    least : the fraction of the claim that the worst pair must attain: a charge without its noise would stay below.
    """

    name: str
    call: Callable[..., Any]
    classes: int = 0
    low: float = 0.0
    high: float = 1.0
    heavy: float = 9.0
    resumes: bool = True
    adjacency: str = "replace-one"
    norm: float = 8.0
    rows_per_person: int = 1
    owned: int = 0
    asked: tuple[float, float] = (1.0, 1e-3)
    least: float = 0.3
    ignore: tuple[str, ...] = field(default=())
    claim: Callable[[ChargeRecorder, tuple[NoisyRelease, ...]], Guarantee] = lambda account, _: (
        account.charged[0].composition or account.charged[0]
    )


def fit(model: Any, records: Records, random_state: Any, account: Any, **how: Any) -> Any:
    """A fitted clone."""
    model = clone(model).set_params(random_state=random_state, ledger=account, checkpoint=how.get("state"))
    if how.get("frame"):
        return model.fit(records.frame()[how["frame"]], "y")
    more = {"sample_weight": records.weights} if how.get("weighted") else {}
    return model.fit(records.X, records.y, **more)


def estimator(
    name: str, kind: type, *, norm: float = 8.0, units: Units = ONE, **options: Any
) -> SpendingCase:
    """A fit with the options of an estimator."""
    norm = norm * units.rows
    how = {key: options.pop(key) for key in ("weighted", "frame", "least", "owned") if key in options}
    adjacency = options.get("adjacency", "replace-one")
    stated: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-3, "bad_rows": "zero"}
    if "schema" not in options:
        stated |= {"data_norm": norm, "fit_intercept": units.intercept}
    classes = options.pop("n_classes", 2) if kind in CLASSIFIERS else 0
    high = options.pop("high", 1.0) * units.targets
    low = 0.0 if classes or kind is DPPoissonRegressor else -high
    if classes:
        stated["classes"] = list(range(classes))
    else:
        stated["target_bounds"] = (low, high)
    if adjacency == "add-remove":
        stated["n_public"] = N
    model = kind(**(stated | options))

    def call(records: Records, random_state: Any, account: ChargeRecorder, state: Any = None) -> Any:
        seed = None if options.get("secure") else random_state
        return fit(model, records, seed, account, state=state, **how)

    return SpendingCase(
        name=name, call=call, classes=classes, low=low, high=high, adjacency=adjacency, norm=norm,
        heavy=9.0 * units.weights, resumes=not options.get("secure"),
        rows_per_person=options.get("max_rows_per_person", 1), least=how.get("least", 0.3), owned=how.get("owned", 0),
        asked=(options.get("epsilon", 5.0), options.get("delta", 1e-3)),
        ignore=("random_state", "ledger"),
    )  # fmt: skip


COLUMNS = [*(f"x{j}" for j in range(WIDTH)), "y"]
CLASSES = {"name": "y", "classes": [0, 1]}
LEARNED = Schema.learn(dict.fromkeys(COLUMNS[:-1], "number"), target=CLASSES)
PUBLIC = np.random.default_rng(5).standard_normal((30, WIDTH)), np.arange(30) % 2


def stated_schema(units: Units, target: dict[str, Any]) -> Schema:
    """The columns are numbers in known ranges."""
    known = {"range": [-8 * units.rows, 8 * units.rows]}
    return Schema.from_dict({"version": 1, "columns": dict.fromkeys(COLUMNS[:-1], known), "target": target})


class FixedModel:
    """Decides by the sign of the first column, whatever the records are."""

    classes_ = np.array([0, 1])

    def predict(self, rows: Any) -> Any:
        return (np.asarray(rows)[:, 0] > 0).astype(int)

    def predict_proba(self, rows: Any) -> Any:
        sure = 0.999 * self.predict(rows)
        return np.column_stack([1 - sure, sure])


def score(records: Records, random_state: Any, account: Any, **options: Any) -> Any:
    return private_score(
        FixedModel(), records.X, records.y, epsilon=1.0, ledger=account, random_state=random_state, **options
    )


def count(records: Records, random_state: Any, account: Any, **options: Any) -> Any:
    stated = {"epsilon": 1.0, "delta": 1e-6, "ledger": account, "random_state": random_state}
    table = records.frame()
    return count_queries(table, [column("x0") > 0, column("x1") > 0, column("y") > 0], **(stated | options))


def count_in_file(records: Records, random_state: Any, account: Any, **options: Any) -> Any:
    """Marginals of a text file."""
    schema = stated_schema(ONE, CLASSES)
    stated = {"epsilon": 1.0, "delta": 1e-6, "ledger": account, "random_state": random_state}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/table.csv"
        records.frame()[COLUMNS].to_csv(path, index=False)
        return count_file(
            path, schema=schema, marginals=Marginals.from_schema(schema, bins=2), **(stated | options)
        )


def summarize(records: Records, random_state: Any, account: Any, **options: Any) -> Any:
    """Mean, sum and median of a column."""
    schema = {"columns": {"x0": {"range": [-8, 8]}}}
    stated = {"epsilon": 1.0, "delta": 1e-6, "ledger": account, "random_state": random_state}
    return summarize_table(records.frame(), schema, quantiles=(0.5,), **(stated | options))


def counts_by_group(records: Records, random_state: Any, account: Any, **options: Any) -> Any:
    groups = (records.X[:, 1] > 0).astype(int)
    decisions = np.stack([records.X[:, 0] > 0, records.X[:, 0] > records.X[0, 0]])
    return private_counts(
        decisions,
        groups,
        [0, 1],
        records.y,
        epsilon=1.0,
        ledger=account,
        random_state=random_state,
        **options,
    )


def search(records: Records, random_state: Any, account: Any, *, adjacency: str, units: Units = ONE) -> Any:
    n = N if adjacency == "add-remove" else None
    model = DPLogisticRegression(
        data_norm=8.0 * units.rows, classes=[0, 1], adjacency=adjacency, n_public=n, fit_intercept=units.intercept,
        bad_rows="zero",
    )  # fmt: skip
    found = DPModelSearch(
        model,
        {"data_norm": [8.0 * units.rows, 4.0 * units.rows]},
        epsilon=30.0,
        delta=1e-3,
        repetitions=3,
        ledger=account,
    )
    return found.set_params(random_state=random_state).fit(records.X, records.y)


def claim_of_attempts(account: ChargeRecorder, releases: tuple[NoisyRelease, ...]) -> Guarantee:
    """All attempts of a search, which charges less than all of them: only the best one is released."""
    attempts = sum(release.exact.shape == (1,) for release in releases)
    (plan,) = account.plans
    return replace(plan.guarantee, parts=(Gaussian(mu=plan.mu).repeat(attempts),))


def region(records: Records, random_state: Any, account: Any, *, adjacency: str, **options: Any) -> Any:
    n = N if adjacency == "add-remove" else None
    radius, units = options.pop("radius", None), options.pop("units", ONE)
    model = DPLogisticRegression(
        data_norm=8.0 * units.rows, classes=[0, 1], adjacency=adjacency, n_public=n, fit_intercept=units.intercept,
        radius=None if radius is None else radius / units.rows, bad_rows="zero",
    )  # fmt: skip
    return RashomonRegion(
        model, epsilon=20.0, delta=1e-3, public_inputs=units.rows * PUBLIC[0][:5], n_models=2, ledger=account,
        random_state=random_state, **options,
    ).fit(records.X, records.y)  # fmt: skip


BOTH = ("replace-one", "add-remove")


def spenders(units: Units = ONE) -> list[SpendingCase]:
    """Every estimator and option, and everything else that charges."""
    return [*_fits(units), *_fits_of_tables(units), *_other_spenders(units)]


def resumable() -> list[SpendingCase]:
    """Those that go on from a file with the noise that is in it, for one adjacency: both run the same walk."""
    return [spender for spender in spenders() if spender.resumes and spender.adjacency == "replace-one"]


def _fits(units: Units) -> Iterator[SpendingCase]:
    for adjacency in BOTH:
        for kind in (
            DPLogisticRegression,
            DPLinearSVC,
            DPRidge,
            DPHuberRegressor,
            DPQuantileRegressor,
            DPPoissonRegressor,
        ):
            high = 5.0 if kind is DPPoissonRegressor else 1.0
            norm = 8.0 if adjacency == "replace-one" else 1 / 8
            name = f"{kind.__name__}, {adjacency}"
            yield estimator(name, kind, adjacency=adjacency, norm=norm, high=high, units=units)
        options: dict[str, Any] = {"adjacency": adjacency, "units": units}
        more = [
            ("multinomial", {"n_classes": 3}),
            ("weights", {"weighted": True, "weight_bound": 2.0 * units.weights}),
            ("class weights", {"class_weight": {0: 1.0, 1: 3.0}}),
            ("three rows a person", {"max_rows_per_person": 3, "least": 0.1}),
            ("noisy-gd", {"mechanism": "noisy-gd"}),
            ("output perturbation", {"mechanism": "output-perturbation", "least": 0.1}),
            ("objective perturbation", {"mechanism": "objective-perturbation", "delta": 0.0, "least": 0.1}),
            ("gaussian objective", {"mechanism": "objective-perturbation", "n_classes": 3, "least": 0.1}),
            ("pure", {"delta": 0.0, "epsilon": 30.0, "least": 0.1}),
            ("learned norm", {"data_norm": "learn", "least": 0.1}),
            ("intervals", {"intervals": True, "least": 0.1}),
            ("pure intervals", {"intervals": True, "delta": 0.0, "epsilon": 30.0, "least": 0.02}),
        ]
        if adjacency == "add-remove":
            learned = {"n_public": "learn", "least": 0.1}
            more += [
                ("learned number of rows", learned),
                ("secure learned number of rows", learned | {"secure": True}),
            ]
            more += [("learned number of rows, pure", learned | {"delta": 0.0, "epsilon": 30.0})]
        if adjacency == "replace-one":  # proved for at most n records, so not with add-remove and a stated n
            secure = {"mechanism": "output-perturbation", "secure": True, "least": 0.1}
            more += [("langevin", {"mechanism": "langevin", "least": 0.1}), ("secure", {"secure": True})]
            more += [("secure noisy-gd", {"mechanism": "noisy-gd", "secure": True})]
            more += [("secure output perturbation", secure)]
        whitened = {"mechanism": "whitened-gd", "secure": True}
        weighted = {"weighted": True, "weight_bound": 2.0 * units.weights}
        more += [
            ("secure whitened", whitened),
            ("secure whitened, two moments", whitened | {"epsilon": 60.0}),
            ("secure whitened, three classes", whitened | {"n_classes": 3}),
            ("secure whitened, weights", whitened | weighted),
            ("secure whitened, class weights", whitened | {"class_weight": {0: 1.0, 1: 3.0}}),
            ("secure whitened, three rows a person", whitened | {"max_rows_per_person": 3, "least": 0.1}),
        ]
        floored = {"mechanism": "ridge-whitened-gd", "secure": True}
        more += [
            ("secure ridge-whitened", floored),
            ("secure ridge-whitened, more moments", floored | {"epsilon": 200.0}),
            ("secure ridge-whitened, three classes", floored | {"n_classes": 3}),
            ("secure ridge-whitened, weights", floored | weighted),
        ]
        for name, extra in more:
            yield estimator(f"logistic, {name}, {adjacency}", DPLogisticRegression, **(options | extra))
        for kind in (DPRidge, DPPoissonRegressor, DPQuantileRegressor, DPLinearSVC):
            high = 5.0 if kind is DPPoissonRegressor else 1.0
            yield estimator(
                f"secure whitened {kind.__name__}, {adjacency}", kind, high=high, **(options | whitened)
            )
        centers = [
            ("pure", {"delta": 0.0, "epsilon": 30.0}),
            ("gaussian", {"epsilon": 300.0}),
            ("weighted", weighted),
        ]
        centers += [
            ("secure", {"secure": True}),
            ("secure pure", {"secure": True, "delta": 0.0, "epsilon": 30.0}),
        ]
        for name, extra in centers:
            for kind in (DPHuberRegressor, DPQuantileRegressor):
                stated = options | extra | {"least": 0.02}
                yield estimator(f"{kind.__name__}, {name} center, {adjacency}", kind, **stated)
        statistics = options | {"mechanism": "sufficient-statistics"}
        yield estimator(f"sufficient statistics, {adjacency}", DPRidge, **statistics)
        yield estimator(f"weighted statistics, {adjacency}", DPRidge, **(statistics | weighted))
        # where records differ in every sum that is released: both scalars, and the matrix of squared slopes
        sums = options | {"intervals": True, "epsilon": 30.0, "least": 0.1}
        # squared slopes are raised to their noise, which must be small for them to be seen
        yield estimator(f"poisson, intervals, {adjacency}", DPPoissonRegressor, **(sums | {"epsilon": 300.0}))
        yield estimator(f"hinge, intervals, {adjacency}", DPLinearSVC, **sums)
        for kind in (DPPoissonRegressor, DPLogisticRegression):
            yield estimator(f"secure {kind.__name__} with curvature, {adjacency}", kind, **(sums | whitened))


def _fits_of_tables(units: Units) -> Iterator[SpendingCase]:
    classes = {"schema": stated_schema(units, CLASSES), "frame": COLUMNS, "units": units}
    high = units.targets
    ranges = {"schema": stated_schema(units, {"name": "y", "range": [-high, high]}), "frame": COLUMNS}
    public = {"public_data": (units.rows * PUBLIC[0], PUBLIC[1]), "units": units, "least": 0.1}
    yield estimator("stated schema", DPLogisticRegression, **classes)
    yield estimator("learned schema", DPLogisticRegression, **(classes | {"schema": LEARNED, "least": 0.1}))
    learned = classes | {"schema": LEARNED, "least": 0.02}
    yield estimator(
        "learned schema, pure", DPLogisticRegression, **(learned | {"delta": 0.0, "epsilon": 30.0})
    )
    yield estimator(
        "learned schema, one minimiser",
        DPLogisticRegression,
        **(learned | {"mechanism": "objective-perturbation"}),
    )
    person = {
        "person": "who",
        "max_rows_per_person": 2,
        "owned": 4,
        "frame": [*COLUMNS, "who"],
        "n_public": N,
    }
    for adjacency in BOTH:
        options = classes | person | {"adjacency": adjacency, "least": 0.1}
        yield estimator(f"persons, {adjacency}", DPLogisticRegression, **options)
    yield estimator("additive classifier", DPAdditiveClassifier, least=0.1, **classes)
    yield estimator("additive regressor", DPAdditiveRegressor, least=0.1, units=units, **ranges)
    yield estimator("secure ridge", DPRidge, secure=True, units=units)
    statistics = {"mechanism": "sufficient-statistics", "secure": True, "units": units}
    yield estimator("secure statistics", DPRidge, **statistics)
    yield estimator("huber, intervals", DPHuberRegressor, intervals=True, units=units, least=0.1)
    yield estimator("public data", DPLogisticRegression, **public)
    yield estimator("secure public data", DPLogisticRegression, secure=True, **public)


def _other_spenders(units: Units) -> Iterator[SpendingCase]:
    def other(
        name: str, function: Callable[..., Any], adjacency: str, least: float, **options: Any
    ) -> SpendingCase:
        return _other(f"{name}, {adjacency}", function, adjacency, least, 8.0 * units.rows, **options)

    for adjacency in BOTH:
        yield other("counts by group", counts_by_group, adjacency, 0.3)
        yield other("three rows a person, groups", counts_by_group, adjacency, 0.3, max_rows_per_person=3)
        yield other("score", score, adjacency, 0.3)
        yield other("gaussian score", score, adjacency, 0.3, metric="log-loss", delta=1e-3)
        yield other("secure score", score, adjacency, 0.3, secure=True)
        gaussian = {"metric": "log-loss", "delta": 1e-3, "secure": True}
        yield other("secure gaussian score", score, adjacency, 0.3, **gaussian)
        yield other("gaussian counts", count, adjacency, 0.3, p=2.0)
        yield other("secure gaussian counts", count, adjacency, 0.3, p=2.0, secure=True)
        yield other("pure counts", count, adjacency, 0.3, p=1.0, delta=0.0)
        yield other("three rows a person, counts", count, adjacency, 0.3, p=2.0, max_rows_per_person=3)
        yield other("one query a row, counts", count, adjacency, 0.3, p=2.0, touched_counts=1)
        yield other("counts in a file", count_in_file, adjacency, 0.3, p=2.0)
        yield other("three rows a person, file", count_in_file, adjacency, 0.3, p=2.0, max_rows_per_person=3)
        yield other("summaries", summarize, adjacency, 0.3)
        yield other("pure summaries", summarize, adjacency, 0.3, delta=0.0)
        yield other("three rows a person, summaries", summarize, adjacency, 0.3, max_rows_per_person=3)
        yield other("region", region, adjacency, 0.02, units=units)
        yield other("search", search, adjacency, 0.1, claim=claim_of_attempts, units=units, resumes=False)
    asked = {"reference": "best", "outer": True, "flip_shares": [0.2], "radius": 0.25, "thresholds": 50.0}
    yield other("whole region", region, "replace-one", 0.02, units=units, **asked)


def _other(
    name: str, function: Callable[..., Any], adjacency: str, least: float, norm: float, **options: Any
) -> SpendingCase:
    more = {key: options.pop(key) for key in ("claim", "resumes") if key in options}
    more |= {"rows_per_person": options.get("max_rows_per_person", 1)}
    budget = {region: (20.0, 1e-3), search: (30.0, 1e-3)}.get(function, (1.0, 0.0))
    budget = (1.0, 1e-6) if function in (count, count_in_file, summarize) else budget
    more |= {"asked": (budget[0], options.get("delta", budget[1]))}
    more.setdefault("resumes", not options.get("secure"))

    def call(records: Records, random_state: Any, account: ChargeRecorder, state: Any = None) -> Any:
        seed = None if options.get("secure") else random_state
        saving = {} if state is None else {"checkpoint": state}
        return function(records, seed, account, adjacency=adjacency, **options, **saving)

    return SpendingCase(
        name=name, call=call, classes=2, adjacency=adjacency, least=least, norm=norm,
        ignore=("ledger", "random_state"), **more,
    )  # fmt: skip


def neighbours(spender: SpendingCase, seed: int = 0) -> list[tuple[Records, Records]]:
    """Pairs that differ in the rows of one person: long rows at right angles or opposite, a flipped label, a long row
    and a short one; all of them heavy."""
    rng = np.random.default_rng(seed)
    norm, low, own = spender.norm, spender.low, spender.owned or spender.rows_per_person
    X = rng.standard_normal((N, WIDTH)) * norm / 3
    top = spender.classes - 1 if spender.classes else spender.high
    y = rng.integers(0, spender.classes, N) if spender.classes else rng.uniform(low, top, N)
    people = np.minimum(np.arange(N), N - own)
    base = Records(X, y, rng.uniform(0.5, 2.0, N) * (spender.heavy / 9), people)
    pairs = []
    beyond = (
        0.0 if spender.classes else 50 * (top - low)
    )  # a target outside its range is clipped, as a long row is
    for first, second, outside in (
        ((norm, 0.0), (0.0, -norm), 0.0),
        ((50 * norm, 0.0), (-50 * norm, 0.0), beyond),
        ((0.7 * norm, 0.7 * norm), (0.7 * norm, 0.7 * norm), 0.0),
        ((50 * norm, 0.0), (0.0, 0.01 * norm), beyond),
    ):
        both = []
        for row, label in ((first, low - outside), (second, top + outside)):
            rows, targets, weights = X.copy(), y.copy(), base.weights.copy()
            rows[-own:], targets[-own:], weights[-own:] = row, label, spender.heavy
            both.append(Records(rows, targets, weights, base.people))
        pairs.append((both[0], both[1] if spender.adjacency == "replace-one" else both[0].without(own)))
    return pairs
