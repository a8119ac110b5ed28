"""The fit from a raw table: rows cut to persons, a schema learned, a model fitted; one plan, one charge."""

from __future__ import annotations

import copy
import hashlib
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dplangevin import _check
from dplangevin.data.dataset import check_size
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._interval_plan import interval_share
from dplangevin.estimators._raw_plan import People, RawPlan, raw_plan
from dplangevin.estimators._raw_records import RawRecords
from dplangevin.estimators._reading import UNBOUNDED_WEIGHTS, dataset_of
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.families.learned_schema.cells import as_entry, coarse_span, fine_span, octaves
from dplangevin.families.learned_schema.mechanism import Counts, LearnedCounts, counts_digest
from dplangevin.families.learned_schema.schedule import deviation
from dplangevin.families.mechanism import fingerprint, run
from dplangevin.families.release import Release
from dplangevin.families.run_state import RunState
from dplangevin.planner.choose import chosen
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request
from dplangevin.privacy.payment import pay
from dplangevin.privacy.plan import Price
from dplangevin.privacy.registry import recipes_with
from dplangevin.schema import CategoricalColumn, Column, Schema, SchemaToLearn
from dplangevin.schema.learned import LEARN, asks_to_learn, template
from dplangevin.tables import Files, is_path

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel


def raw_of(schema: Any) -> SchemaToLearn | None:
    """The schema when something of it is to be learned."""
    if isinstance(schema, SchemaToLearn):
        return schema
    return SchemaToLearn.from_dict(schema) if asks_to_learn(schema) else None


def _names_of(X: Any, y: Any) -> list[str]:
    """The names of the columns of a table, without the target, where it has names."""
    if is_path(X):
        names: Any = Files(X).names
    else:
        names = next(
            (getattr(X, word) for word in ("columns", "column_names", "names") if hasattr(X, word)), ()
        )
    return [str(name) for name in names if not (isinstance(y, str) and str(name) == y)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RawRelease:
    """The model, the recipe that ran and the schema it is for; released, and charged, together."""

    release: Release
    recipe: Recipe
    twin: DPLinearModel
    schema: Schema | None
    ledger_head: str | None = field(default=None, repr=False)

    def digest(self) -> str:
        """A hash of both, for the ledger."""
        learned = "" if self.schema is None else repr(self.schema.to_dict())
        return hashlib.sha256((self.release.digest() + learned).encode()).hexdigest()


def fit_raw(model: DPLinearModel, X: Any, y: Any, weights: Any) -> Any:
    """Plan from public statements, charge once, choose rows, learn, fit, and keep only what may be seen."""
    if isinstance(model.schema, str) and model.schema == LEARN:
        raise template(_names_of(X, y))
    raw = raw_of(model.schema)
    _refuse(model, raw)
    records = RawRecords.of(X, y, weights, None if raw is None else raw.names)
    twin = _twin(model, raw, records)
    people = People(
        rows=_check.count("max_rows_per_person", model.max_rows_per_person),
        adjacency=_check.choice("adjacency", model.adjacency, ("replace-one", "add-remove")),
        by_rows=model.person is not None,
    )
    encode = twin.encoder()
    request = twin.request(model.divisor(len(records)), _width(twin, records, model), encode.n_classes)
    plan = raw_plan(request, raw, people, _check.positive("epsilon", model.epsilon))
    if not people.by_rows:  # else their number is private
        check_size((len(records), request.n_features), plan.recipe.plan.problem)
    if plan.recipe.caution is not None:
        warnings.warn(plan.recipe.caution, UserWarning, stacklevel=3)
    if records.weights is not None and model.weight_bound is None:
        warnings.warn(UNBOUNDED_WEIGHTS, UserWarning, stacklevel=3)
    if model.verbose:
        print(plan.recipe)
    fitting = Fitting(model=model, twin=twin, raw=raw, records=records, plan=plan, request=request)
    saved = RunState.of_fit(
        model.state,
        plan.recipe.plan,
        plan.learning,
        people,
        model.person,
        None if raw is None else raw.to_dict(),
        ledger=model.ledger,
    )

    def release(rng: np.random.Generator, seeded: bool) -> RawRelease:
        return fitting.released(rng, seeded, saved)

    made = pay(
        plan, release, model.random_state, ledger=model.ledger, saved=saved, rows_per_person=people.rows
    )
    return _keep(model, plan, made)


def _refuse(model: DPLinearModel, raw: SchemaToLearn | None) -> None:
    """What a raw table cannot have, from public statements alone."""
    asked = {
        "public_data": model.public_data is not None,
        "intervals": bool(interval_share(model.intervals)),
        "secure=True": bool(model.secure),
    }
    for name in [name for name, wanted in asked.items() if wanted]:
        if raw is None:
            raise InvalidParameter(f"{name} does not go with person=; leave one of them out.")
        raise InvalidParameter(
            f"{name} does not go with a learned schema: learn it with one fit, and state the fitted model's schema_."
        )
    if raw is not None and model.data_norm is not None:
        raise InvalidParameter("data_norm and schema are both given; the schema states its own row_norm.")
    if (
        raw is not None
        and getattr(model, "_model", "") == "poisson"
        and any(c is raw.target for c in raw.numbers)
    ):
        raise InvalidParameter(
            "the range of counts cannot be learned: it is part of the Poisson loss. State target_bounds=(0, high)."
        )
    if model.person is None:
        return
    if not isinstance(model.person, str):
        raise InvalidParameter("person must be the name of a column of the table.")
    if model.mechanism in recipes_with("random_batches"):
        raise InvalidParameter(
            "person= takes full batches only: a random batch draws rows, not persons. Leave mechanism='auto'."
        )
    if model.n is None:
        raise InvalidParameter(
            "person= needs n=, the public divisor of the mean: how many rows are used depends on who is in the table. "
            "State about how many rows to expect."
        )


def _twin(model: DPLinearModel, raw: SchemaToLearn | None, records: RawRecords) -> DPLinearModel:
    """A copy that states the widest schema in place of what is to be learned; public mistakes are said here."""
    twin = copy.copy(model)
    twin.bad_rows, twin.ledger, twin.state = model._bad_rows(), None, None
    for name in [name for name in vars(twin) if name.endswith("_") and not name.startswith("_")]:
        del twin.__dict__[name]
    if raw is not None:
        twin.schema = raw.widest()
    names = records.features
    if model.person is not None:
        if model.person not in names:
            raise InvalidParameter(f"there is no column {model.person!r}; the table has {', '.join(names)}.")
        if not twin._total():
            raise InvalidParameter(
                "person= needs a schema or bad_rows='zero': a refused row would be told of after the charge."
            )
        if twin.schema is not None and model.person in as_schema(twin.schema).names:
            raise InvalidParameter(
                f"column {model.person!r} says whose a row is; it cannot be a feature as well."
            )
    if twin.schema is not None:
        as_schema(twin.schema).validate(names)
    twin.check_stated()
    if twin.stated_targets() is None:
        raise InvalidParameter(
            "state the public set of labels, classes=[...] or the schema's target: reading it from the table would "
            "make the promise conditional."
        )
    return twin


def _width(twin: DPLinearModel, records: RawRecords, model: DPLinearModel) -> int:
    if twin.schema is not None:
        return _columns(as_schema(twin.schema))
    return len([name for name in records.features if name != model.person])


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitting:
    """A planned fit; `released` reads the records."""

    model: DPLinearModel
    twin: DPLinearModel
    raw: SchemaToLearn | None
    records: RawRecords
    plan: RawPlan
    request: Request

    def released(self, rng: np.random.Generator, seeded: bool, saved: RunState | None) -> RawRelease:
        """Rows by person, ranges and lists, then the model."""
        records, rows = self.records, self.plan.people.rows
        if self.model.person is not None:
            records = records.of_people(self.model.person, rows, rng)
        twin, recipe = self.twin, self.plan.recipe
        schema: Schema | None = None
        seen: list[Counts] = []
        if self.raw is not None:
            schema, seen = self._learned(records, rng)
            recipe = self._recipe(_columns(schema))
            widened = recipe is self.plan.recipe
            twin.schema = self.raw.padded(schema) if widened else schema
        X, y, weights = twin.read(*records.given())
        problem, encode = recipe.plan.problem, twin.encoder(y)
        data = dataset_of(X, y, problem, encode, weights)
        if saved is not None:
            saved.check_records(
                lambda salt: "".join(counts_digest(one, salt) for one in seen) + fingerprint(data, salt)
            )
        release = replace(run(recipe.plan, data, rng), seeded=seeded)
        return RawRelease(release=release, recipe=recipe, twin=twin, schema=schema)

    def _recipe(self, columns: int) -> Recipe:
        """The plan for as many columns as were learned, where it promises as much as was charged."""
        if columns == self.request.n_features:
            return self.plan.recipe
        planned = self.plan.recipe.plan
        epsilon = planned.guarantee.epsilon(planned.delta)
        request = replace(
            self.request, n_features=columns, epsilon=epsilon, adjacency=planned.problem.adjacency,
            more_rows=planned.problem.more_rows,
        )  # fmt: skip
        try:
            recipe = chosen(request)
        except DplangevinError:  # no narrower plan: the one that was charged runs
            return self.plan.recipe
        if not self.plan.may_run(recipe):
            return self.plan.recipe
        return replace(recipe, reasons=(*self.plan.words, *recipe.reasons))

    def _learned(self, records: RawRecords, rng: np.random.Generator) -> tuple[Schema, list[Counts]]:
        """The schema, and the exact counts it rests on."""
        assert self.raw is not None
        raw, n, seen = self.raw, self.request.n, []
        place = {column.name: self._place(column.name) for column in raw.unknown}
        texts = {place[column.name]: column.text for column in raw.categories}
        edges = {place[column.name]: octaves(column.unit) for column in raw.numbers}

        def counts(price: Price, edges: Any, texts: Any, outer: bool) -> Any:
            exact = records.counts(edges, texts, outer=outer)
            seen.append(exact)
            return LearnedCounts().run(price, lambda: exact, rng)

        first = counts(self.plan.learning[0], edges, texts, True)
        found: dict[str, Column] = {
            column.name: column.column(_common(labels, column.most))
            for column, labels in zip(raw.categories, first.labels, strict=True)
        }
        if raw.numbers:
            noise = deviation(self.plan.learning[0].schedule)
            spans = [
                coarse_span(cells, column.unit, noise, n, _scale(column.transform))
                for column, cells in zip(raw.numbers, first.cells, strict=True)
            ]
            edges = {place[column.name]: span.edges for column, span in zip(raw.numbers, spans, strict=True)}
            second = counts(self.plan.learning[1], edges, {}, False)
            noise = deviation(self.plan.learning[1].schedule)
            for column, cells, span in zip(raw.numbers, second.cells, spans, strict=True):
                found[column.name] = column.column(as_entry(fine_span(cells, span, noise, n)))
        return raw.stated(found), seen

    def _place(self, name: str) -> str:
        """The column of the table: the target's is the one that y names."""
        target = None if self.raw is None else self.raw.target
        return self.records.y if target is not None and target.name == name else name


def _columns(schema: Schema) -> int:
    return len(SchemaEncoder(schema).get_feature_names_out())


def _places(learned: Schema, padded: Schema) -> list[int]:
    """Where the columns of the learned encoding are in the padded one, whose lists go on with empty categories."""
    places, first = [], 0
    for column, wide in zip(learned.columns, padded.columns, strict=True):
        width, whole = (_columns(replace(learned, columns=(one,), target=None)) - 1 for one in (column, wide))
        listed = len(column.categories) if isinstance(column, CategoricalColumn) else width
        places += [*range(first, first + listed), *range(first + whole - (width - listed), first + whole)]
        first += whole
    return [*places, first]  # and the constant


def _scale(transform: str | None) -> bool | None:
    return None if transform is None else transform == "log1p"


def _common(labels: Any, most: int) -> list[str]:
    """The most common labels, in the order of the labels."""
    kept = sorted(labels, key=lambda word: (-labels[word], word))[:most]
    return sorted(kept)


def _keep(model: DPLinearModel, plan: RawPlan, made: RawRelease) -> DPLinearModel:
    twin = made.twin
    problem = made.recipe.plan.problem
    theta = np.array(made.release.value)
    twin.from_theta(theta, problem)
    words = () if made.schema is None else (
        "ranges and categories were learned with the noise that the promise counts; they are part of what is released",
    )  # fmt: skip
    twin.privacy_ = twin.promise(plan.guarantee, made.release.seeded, *words)
    if made.schema is not None:
        twin.schema_ = made.schema
        twin.coef_ = np.ascontiguousarray(twin.coef_[..., _places(made.schema, as_schema(twin.schema))])
    twin.plan_, twin.n_iter_, twin.ledger_head_ = made.recipe, made.release.n_steps, made.ledger_head
    kept = {name: value for name, value in vars(twin).items() if name.endswith("_") and name[:1] != "_"}
    model.__dict__.update(kept)
    return model
