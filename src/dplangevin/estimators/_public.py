"""Fits that use a public sample: what is tuned on it, what runs, and what is said of it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._reading import LargeData, Outline, TargetEncoder
from dplangevin.estimators.schema_encoder import SchemaEncoder, schema_of
from dplangevin.families.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.families.mirror_descent.public_tuner import PublicTuner, Tuned
from dplangevin.families.mirror_descent.schedule import PublicMirrorSchedule
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import AUTO, Request
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Loss, Problem
from dplangevin.tables import cells_of, matrix_of

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel

BASELINES = ("public-only", "warm-start", "mirror")
# Bounds on the slope that the tuner tries; other models have the one their loss comes with.
CLIPS: dict[str, tuple[float | None, ...]] = {
    "ridge": (0.02, 0.05, 0.1, 0.25, 1.0),
    "logistic": (0.25, 0.5, 1.0),
    "multinomial": (0.5, None),
}


def fit_public(
    model: DPLinearModel,
    outline: Outline,
    encode: TargetEncoder,
    request: Request,
) -> tuple[Floats, Problem, Loss]:
    """Tune on the public sample, run once on the private one, and store what may be seen.

    Returns theta, its problem, and the loss that prediction is calibrated for.
    """
    X = outline.X
    warn_shared(model.public_data, X.given if isinstance(X, LargeData) else X)
    tuner = _tuner(model, encode, request)
    tuned = tuner.tune(model.public_method)
    others = tuner.compare() if model.compare else {}
    recipe = _recipe(tuned, others, request)
    if recipe.caution is not None:
        warnings.warn(recipe.caution, UserWarning, stacklevel=3)
    if model.verbose:
        print(recipe)
    plan, problem = tuned.plan, tuned.plan.problem
    model.check_person(plan.guarantee)
    data = model.reader(outline, problem, encode)
    release = PublicMirrorDescent(tuned.mirror).run(
        plan,
        data,
        model.random_state,
        ledger=model.ledger,
        state=model.state,
        rows_per_person=model.max_rows_per_person,
    )
    model.privacy_ = model.promise(
        plan.guarantee,
        release.seeded,
        f"protected: the {problem.n} rows given to fit; not protected: the {tuned.n_public} rows of public_data",
    )
    model.plan_, model.n_iter_, model.ledger_head_ = recipe, release.n_steps, release.ledger_head
    model.__dict__.pop("public_comparison_", None)
    if others:
        model.public_comparison_ = {name: other.excess for name, other in others.items()}
    return np.array(release.value), problem, problem.loss.unclipped


def tuned_plan(
    model: DPLinearModel, encode: TargetEncoder, request: Request
) -> tuple[Plan, PublicMirrorDescent]:
    """The plan of a fit with public data, and the mechanism that runs it; no private record is read."""
    tuned = _tuner(model, encode, request).tune(model.public_method)
    return tuned.plan, PublicMirrorDescent(tuned.mirror)


def compare_public(model: DPLinearModel, n: int) -> dict[str, float]:
    """Expected excess loss of each method on held-out public rows, for n private rows; no private row is needed."""
    columns, encode = _features(model).shape[1], model.encoder(model.public_data[1])
    request = model.request(_check.count("n", n), columns, encode.n_classes)
    return {name: tuned.excess for name, tuned in _tuner(model, encode, request).compare().items()}


def _tuner(model: DPLinearModel, encode: TargetEncoder, request: Request) -> PublicTuner:
    _refuse(model, request)
    features, targets = _features(model), encode(cells_of(model.public_data[1], "public y"))
    if features.shape[1] != request.n_features:
        raise InvalidParameter(
            f"public and private features differ: the public ones have {features.shape[1]} columns, the private ones "
            f"{request.n_features}; give the same columns in the same order."
        )
    if len(features) != len(targets):
        raise InvalidParameter(f"public_data has {len(features)} rows but {len(targets)} targets.")
    problems = [request.problem(bound, 0.0) for bound in CLIPS.get(request.model, (None,))]
    return PublicTuner(
        features, targets, problems, epsilon=request.epsilon, delta=request.delta, secure=request.secure
    )


def _features(model: DPLinearModel) -> Any:
    """The public features as numbers, encoded by the schema where there is one."""
    try:
        table, _ = model.public_data
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"public_data must be (X_public, y_public), got {type(model.public_data).__name__}."
        ) from None
    if model.schema is not None:
        return SchemaEncoder(schema_of(model)).transform(table)
    return check_array(matrix_of(table), dtype=[np.float64, np.float32], input_name="public X")


def _refuse(model: DPLinearModel, request: Request) -> None:
    """What a fit with public data cannot do, before anything is planned."""
    if request.delta == 0:
        raise InvalidParameter(
            "public_data needs delta > 0: its noise is Gaussian, which makes no pure promise; state a delta."
        )
    if model.intervals:
        raise InvalidParameter(
            "intervals have no form with public_data; leave them out, or leave public_data out."
        )
    for name in ("mechanism", "theorem"):
        value = getattr(model, name)
        if value not in (AUTO, None, PublicMirrorSchedule.mechanism):
            raise InvalidParameter(
                f"{name} = {value!r} does not use public_data; leave it out, or leave public_data out."
            )


def warn_shared(public: Any, X: Any) -> None:
    """Warn when public and private rows lie in the same memory."""
    table = public[0] if isinstance(public, (tuple, list)) and public else None
    if shares_rows(table, X):
        warnings.warn(
            "public_data and X share rows of one array: a record in both has no protection at all, and the comparison "
            "on held-out rows is too good. Give disjoint rows.",
            UserWarning,
            stacklevel=4,
        )


def shares_rows(table: Any, X: Any) -> bool:
    """Whether rows of both lie in the same memory. Values are not compared: that would read them."""
    if table is None:
        return False
    if isinstance(table, np.ndarray) and isinstance(X, np.ndarray):
        return bool(np.may_share_memory(table, X)) and _same_rows(table, X)
    return table is X


def _same_rows(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Whether any row starts at the same place in memory."""
    starts = [
        array.__array_interface__["data"][0] + array.strides[0] * np.arange(len(array))
        for array in (first, second)
    ]
    return bool(np.isin(*starts).any())


def _recipe(tuned: Tuned, others: dict[str, Tuned], request: Request) -> Recipe:
    schedule, problem = tuned.plan.schedule, tuned.plan.problem
    assert isinstance(schedule, PublicMirrorSchedule)
    reasons = [
        f"protected: {problem.n} private rows; not protected: {tuned.n_public} public rows",
        f"start: the minimiser of the public loss with ridge {tuned.start_ridge:.3g}",
    ]
    if schedule.n_steps == 0:
        reasons.append("public-only: no private record is used and nothing is spent")
    else:
        geometry = f", map ridge {tuned.mirror.ridge:.3g}" if schedule.mode == "mirror" else ""
        reasons.append(
            f"{tuned.method}: {schedule.n_steps} steps of size {schedule.step_size:.3g}, slopes bounded by "
            f"{problem.loss.slope_bound:.3g}{geometry}, {schedule.release}; chosen by simulated private runs on "
            "held-out public rows"
        )
    reasons += [f"held-out public rows, {name}: excess loss {one.excess:.3g}" for name, one in others.items()]
    caution = None
    start = others.get("public-only")
    if start is not None and schedule.n_steps and not tuned.excess < start.excess:
        caution = (
            "on held-out public rows the private steps gain nothing over public data alone at this budget."
        )
    return Recipe(
        model=request.model,
        plan=tuned.plan,
        reasons=tuple(reasons),
        predicted_excess_risk=tuned.excess,
        caution=caution,
    )
