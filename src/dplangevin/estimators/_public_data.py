"""Fits that use public data: tune on the public sample, run once on the private one, describe the plan."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.plan import Plan
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._reading import Outline, OutOfMemoryData, TargetEncoder
from dplangevin.estimators.schema_encoder import SchemaEncoder, encoding_schema
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.mechanisms.mirror_descent.tuning import PublicTuner, TuningResult
from dplangevin.planner.fit_plan import AUTO, FitPlan, Request
from dplangevin.problem import Loss, Problem
from dplangevin.tables import as_column, as_matrix

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel

# Clipping bounds that the tuner tries; other models use that of their loss.
CLIP_CANDIDATES: dict[str, tuple[float | None, ...]] = {
    "ridge": (0.02, 0.05, 0.1, 0.25, 1.0),
    "logistic": (0.25, 0.5, 1.0),
    "multinomial": (0.5, None),
}


def fit_with_public_data(
    model: DPLinearModel,
    outline: Outline,
    encode: TargetEncoder,
    request: Request,
) -> tuple[Floats, Problem, Loss]:
    """Tune on the public sample, run once on the private one, and store what is released.

    Return theta, its problem, and the loss for which prediction is calibrated.
    """
    X = outline.X
    warn_about_shared_rows(model.public_data, X.original if isinstance(X, OutOfMemoryData) else X)
    tuner = _build_tuner(model, encode, request)
    tuned = tuner.tune(model.public_method)
    tuned_by_method = tuner.compare_methods() if model.compare else {}
    fit_plan = _describe_tuned_plan(tuned, tuned_by_method, request)
    if fit_plan.warning is not None:
        warnings.warn(fit_plan.warning, UserWarning, stacklevel=3)
    if model.verbose:
        print(fit_plan)
    plan, problem = tuned.plan, tuned.plan.problem
    model.check_group_privacy(plan.guarantee)
    data = model.reader(outline, problem, encode)
    release = PublicMirrorDescent(tuned.mirror).run(
        plan,
        data,
        model.random_state,
        ledger=model.ledger,
        checkpoint=model.checkpoint,
        rows_per_person=model.max_rows_per_person,
    )
    model.privacy_ = model.guarantee_of_fit(
        plan.guarantee,
        release.seeded,
        f"protected: the {problem.n} rows given to fit; not protected: the {tuned.n_public} rows of public_data",
    )
    model.plan_, model.n_iter_, model.ledger_head_ = fit_plan, release.n_steps, release.ledger_head
    model.__dict__.pop("public_comparison_", None)
    if tuned_by_method:
        model.public_comparison_ = {name: other.excess for name, other in tuned_by_method.items()}
    return np.array(release.value), problem, problem.loss.unclipped_if_bounded


def plan_with_public_data(
    model: DPLinearModel, encode: TargetEncoder, request: Request
) -> tuple[Plan, PublicMirrorDescent]:
    """Return the plan of a fit with public data, and the mechanism that runs it; no private record is read."""
    tuned = _build_tuner(model, encode, request).tune(model.public_method)
    return tuned.plan, PublicMirrorDescent(tuned.mirror)


def compare_public_methods(model: DPLinearModel, n_private: int) -> dict[str, float]:
    """Return the expected excess loss of each method on held-out public rows; no private record is read."""
    columns, encode = _public_features(model).shape[1], model.target_encoder(model.public_data[1])
    request = model.planning_request(_check.check_count("n_private", n_private), columns, encode.n_classes)
    return {
        name: tuned.excess for name, tuned in _build_tuner(model, encode, request).compare_methods().items()
    }


def _build_tuner(model: DPLinearModel, encode: TargetEncoder, request: Request) -> PublicTuner:
    """Return the tuner on the public sample; raise if its shape differs from the private one's."""
    _check_public_options(model, request)
    features, targets = _public_features(model), encode(as_column(model.public_data[1], "public y"))
    if features.shape[1] != request.n_features:
        raise InvalidParameter(
            f"public and private features differ: the public ones have {features.shape[1]} columns, the private ones "
            f"{request.n_features}; pass the same columns in the same order."
        )
    if len(features) != len(targets):
        raise InvalidParameter(f"public_data has {len(features)} rows but {len(targets)} targets.")
    resolved, _ = request.resolve_arithmetic(None)
    problems = [request.make_problem(bound, 0.0) for bound in CLIP_CANDIDATES.get(request.model, (None,))]
    return PublicTuner(
        features, targets, problems, epsilon=request.epsilon, delta=request.delta, secure=resolved.is_exact
    )


def _public_features(model: DPLinearModel) -> Any:
    """Return the public features as numbers, encoded by the schema where there is one."""
    try:
        table, _ = model.public_data
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"public_data must be (X_public, y_public), got {type(model.public_data).__name__}."
        ) from None
    if model.schema is not None:
        return SchemaEncoder(encoding_schema(model)).transform(table)
    return check_array(as_matrix(table), dtype=[np.float64, np.float32], input_name="public X")


def _check_public_options(model: DPLinearModel, request: Request) -> None:
    """Raise for options that do not go with public data, before anything is planned."""
    if request.delta == 0:
        raise InvalidParameter(
            "public_data needs delta > 0: its noise is Gaussian, which gives no pure guarantee; state a delta."
        )
    if model.intervals:
        raise InvalidParameter("intervals are not available with public_data; leave one of them out.")
    for name in ("mechanism", "theorem"):
        value = getattr(model, name)
        if value not in (AUTO, None, PublicMirrorSpec.mechanism):
            raise InvalidParameter(
                f"{name} = {value!r} does not use public_data; leave it out, or leave public_data out."
            )


def warn_about_shared_rows(public: Any, X: Any) -> None:
    """Warn when public and private rows lie in the same memory."""
    table = public[0] if isinstance(public, (tuple, list)) and public else None
    if have_shared_rows(table, X):
        warnings.warn(
            "public_data and X share rows of one array: a record in both is not protected at all, and the comparison "
            "on held-out rows is too optimistic. Pass disjoint rows.",
            UserWarning,
            stacklevel=4,
        )


def have_shared_rows(table: Any, X: Any) -> bool:
    """Whether rows of both lie in the same memory; values are not compared, which would read private records."""
    if table is None:
        return False
    if isinstance(table, np.ndarray) and isinstance(X, np.ndarray):
        return bool(np.may_share_memory(table, X)) and _have_shared_addresses(table, X)
    return table is X


def _have_shared_addresses(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Whether two rows start at the same address."""
    starts = [
        array.__array_interface__["data"][0] + array.strides[0] * np.arange(len(array))
        for array in (first, second)
    ]
    return bool(np.isin(*starts).any())


def _describe_tuned_plan(
    tuned: TuningResult, tuned_by_method: dict[str, TuningResult], request: Request
) -> FitPlan:
    """Return the fit plan with the reasons for the tuned parameters."""
    spec, problem = tuned.plan.spec, tuned.plan.problem
    assert isinstance(spec, PublicMirrorSpec)
    reasons = [
        f"protected: {problem.n} private rows; not protected: {tuned.n_public} public rows",
        f"start: the minimizer of the public loss with ridge {tuned.start_ridge:.3g}",
    ]
    if math.isfinite(tuned.n_public_enough):
        reasons.append(
            f"it is nearer than 0 from about {max(1, round(tuned.n_public_enough)):,} public rows of the same "
            "distribution on"
        )
    if spec.n_steps == 0:
        reasons.append("public-only: no private record is used and no budget is spent")
    else:
        geometry = f", map ridge {tuned.mirror.ridge:.3g}" if spec.mode == "mirror" else ""
        reasons.append(
            f"{tuned.method}: {spec.n_steps} steps of size {spec.step_size:.3g}, per-record gradients clipped at "
            f"{problem.loss.slope_bound:.3g} times the row norm{geometry}, {spec.release}; chosen by simulated "
            "private runs on held-out public rows"
        )
    reasons += [
        f"held-out public rows, {name}: excess loss {result.excess:.3g}"
        for name, result in tuned_by_method.items()
    ]
    warning = None
    start = tuned_by_method.get("public-only")
    if start is not None and spec.n_steps and not tuned.excess < start.excess:
        warning = (
            "on held-out public rows the private steps do not improve on public data alone at this budget."
        )
    return FitPlan(
        model=request.model,
        plan=tuned.plan,
        reasons=tuple(reasons),
        predicted_excess_risk=tuned.excess,
        warning=warning,
    )
