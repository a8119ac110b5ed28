"""data_norm="learn": the length that rows are clipped to, learned inside the promise of the fit.

Rows are divided by the learned length, so that the fit is planned for rows of norm 1 before anything is read;
coefficients are divided by it afterwards.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._interval_plan import interval_share
from dplangevin.estimators._raw_plan import People, RawPlan, raw_plan
from dplangevin.estimators._reading import LargeData, dataset_of
from dplangevin.families.learned_schema.cells import Span, coarse_span, counted, fine_span, octaves
from dplangevin.families.learned_schema.mechanism import Counts, LearnedCounts
from dplangevin.families.learned_schema.schedule import deviation
from dplangevin.families.mechanism import fingerprint, run
from dplangevin.families.release import Release
from dplangevin.families.run_state import RunState
from dplangevin.privacy.payment import pay
from dplangevin.privacy.plan import Price
from dplangevin.problem.constants import ADJACENCIES
from dplangevin.schema import Schema
from dplangevin.schema.learned import LEARN
from dplangevin.tables import Table, cells_of

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel

ONE_NUMBER = Schema.learn(norm="number")


@dataclass(frozen=True, kw_only=True, eq=False)
class NormRelease:
    """The model of the scaled rows, and the length they were divided by."""

    release: Release
    norm: float
    ledger_head: str | None = field(default=None, repr=False)

    def digest(self) -> str:
        """A hash of both, for the ledger."""
        return hashlib.sha256(f"{self.release.digest()} {self.norm!r}".encode()).hexdigest()


def fit_with_learned_norm(model: DPLinearModel, X: Any, y: Any, weights: Any) -> Any:
    """Plan for rows of norm 1, charge once, learn the length, fit the scaled rows."""
    _refuse(model)
    twin = copy.copy(model)
    # what a strict ledger asks of targets and of the reading is settled before it is left out
    twin.data_norm = 1.0
    twin.check_stated()
    twin.bad_rows, twin.ledger, twin.state = model._bad_rows(), None, None
    outline = twin.outline(X, y, weights)
    if isinstance(outline.X, LargeData):
        raise InvalidParameter("data_norm='learn' is for arrays in memory; state data_norm, or a schema.")
    encode = twin.encoder(outline.labels)
    people = People(
        rows=_check.count("max_rows_per_person", model.max_rows_per_person),
        adjacency=_check.choice("adjacency", model.adjacency, ADJACENCIES),
        by_rows=False,
    )
    request = twin.request(model.divisor(outline.shape[0]), outline.shape[1], encode.n_classes)
    plan = raw_plan(request, ONE_NUMBER, people, _check.positive("epsilon", model.epsilon))
    if plan.recipe.caution is not None:
        warnings.warn(plan.recipe.caution, UserWarning, stacklevel=3)
    outline.check(plan.recipe.plan.problem, encode)
    saved = RunState.of_fit(model.state, plan.recipe.plan, plan.learning, people, LEARN, ledger=model.ledger)

    def release(rng: np.random.Generator, seeded: bool) -> NormRelease:
        rows, targets, loads = twin.read_cells(outline)
        norm, seen = _norm(np.asarray(rows, np.float64), plan, request.n, rng)
        with np.errstate(over="ignore"):  # a row as long as that is scaled back, like any other
            scaled = np.nan_to_num(rows / norm)
        data = dataset_of(scaled, targets, plan.recipe.plan.problem, encode, loads)
        if saved is not None:
            saved.check_records(lambda salt: _digest(seen, salt) + fingerprint(data, salt))
        made = replace(run(plan.recipe.plan, data, rng), seeded=seeded)
        return NormRelease(release=made, norm=norm)

    made = pay(
        plan, release, model.random_state, ledger=model.ledger, saved=saved, rows_per_person=people.rows
    )
    twin.from_theta(np.array(made.release.value), plan.recipe.plan.problem)
    twin.coef_ = twin.coef_ / made.norm
    words = f"rows were divided by the learned length {made.norm:.6g}, which is part of what is released"
    twin.privacy_ = twin.promise(plan.guarantee, made.release.seeded, words)
    twin.data_norm_, twin.plan_ = made.norm, plan.recipe
    twin.n_iter_, twin.ledger_head_ = made.release.n_steps, made.ledger_head
    model.__dict__.update({name: value for name, value in vars(twin).items() if name.endswith("_")})
    return model


def _refuse(model: DPLinearModel) -> None:
    asked = {
        "schema": model.schema is not None,
        "person": model.person is not None,
        "radius": model.radius is not None,
        "alpha": model.alpha is not None,
        "public_data": model.public_data is not None,
        "intervals": bool(interval_share(model.intervals)),
        "secure": bool(model.secure),
    }
    for name in [name for name, wanted in asked.items() if wanted]:
        raise InvalidParameter(
            f"{name} does not go with data_norm='learn'; state data_norm, or leave {name} out."
        )


def _norm(rows: Floats, plan: RawPlan, n: int, rng: np.random.Generator) -> tuple[float, list[Counts]]:
    """The end of the learned range of the rows' lengths, and the exact counts it rests on."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(rows, axis=1)
    table = Table({"norm": cells_of(lengths, "norm")}, len(rows))
    seen: list[Counts] = []

    def noisy(price: Price, edges: Floats, outer: bool) -> Floats:
        exact = counted(table, {"norm": edges}, {}, outer=outer)
        seen.append(exact)
        return np.asarray(LearnedCounts().run(price, lambda: exact, rng).cells[0])

    first, second = plan.learning
    span: Span = coarse_span(noisy(first, octaves(1.0), True), 1.0, deviation(first.schedule), n, False)
    span = fine_span(noisy(second, span.edges, False), span, deviation(second.schedule), n)
    return (span.high if span.high > 0 else 1.0), seen


def _digest(seen: list[Counts], salt: str) -> str:
    from dplangevin.families.learned_schema.mechanism import counts_digest

    return "".join(counts_digest(one, salt) for one in seen)
