"""What a release would cost and bring, before it is made: from a draft and the ledger, or from parameters of a run.

Every number here is computed by the library, by the functions that the command line calls.
"""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter
from dplangevin.report.plots import Line, Plot
from dplangevin.ui.drafts import COUNTS, REGION, Draft

_PLANNING = threading.Lock()  # warnings are caught per process, so one plan at a time
_PERSON_NAME = re.compile(
    r"(^|[^a-z])(id|uid|uuid|ssn|person|patient|user|customer|client|member|household)([^a-z]|$)", re.I
)
_TPR_RATES = (0.001, 0.01, 0.05)


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """What a release would cost and bring.

    Parameters
    ----------
    plain : the plan as plain data, as `dplangevin plan --json` prints it.
    guarantee : of everything that is released.
    facts : rows of label, number, text and explanation.
    attacks : the largest TPR of any attack, by FPR.
    reasons, warnings : sentences.
    """

    plain: dict[str, Any]
    guarantee: Any
    facts: tuple[tuple[str, float | None, str, str], ...]
    attacks: dict[float, float]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BudgetView:
    """What is left in the ledger, before and after a release; `refusal` where it does not fit."""

    dataset: str
    remaining: Any
    after: Any = None
    refusal: str = ""


def plan_draft(draft: Draft, epsilon: float | None = None, delta: float | None = None) -> ReleasePlan:
    """Return the plan of a draft's release, at another epsilon or delta if stated."""
    changed = replace(
        draft,
        epsilon=draft.epsilon if epsilon is None else epsilon,
        delta=draft.delta if delta is None else delta,
        dataset="",
    )
    return _plan_cached(changed)


@lru_cache(maxsize=512)
def _plan_cached(draft: Draft) -> ReleasePlan:
    if draft.n is None:
        raise InvalidParameter("state the number of rows in the step about columns; the plan depends on it.")
    with _PLANNING, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            plan = {COUNTS: _plan_counts, REGION: _plan_region}.get(draft.model, _plan_model)(draft)
        except (ArithmeticError, OverflowError):
            raise InvalidParameter(
                "no plan can be computed for these numbers; choose epsilon, delta and the ranges closer to 1."
            ) from None
    stated = {" ".join(str(each.message).split()) for each in caught if each.category is UserWarning}
    return replace(plan, warnings=tuple(dict.fromkeys((*plan.warnings, *sorted(stated)))))


def _plan_model(draft: Draft) -> ReleasePlan:
    """Plan a fit, as `dplangevin plan --schema` does."""
    from dplangevin.estimators.fit_preview import preview_fit

    estimator = draft.build_estimator(draft.epsilon, draft.delta)
    preview = preview_fit(estimator, n=_n_rows(draft), names=draft.names, target=str(draft.target))
    plain = preview.to_dict()
    facts: list[tuple[str, float | None, str, str]] = [
        (
            "predicted excess loss",
            plain["predicted_excess_risk"],
            "{:.3g}",
            "how much worse than the best model, on average over rows; an estimate",
        )
    ]
    if plain["score_error"] is not None:
        facts.append(
            (
                "error bar of a prediction",
                plain["score_error"],
                "± {:.3g}",
                f"{_score_scale(draft)}, 95%, from the noise alone; an estimate",
            )
        )
    if plain["category_threshold"] is not None:
        facts.append(
            (
                "rows that a label needs",
                plain["category_threshold"],
                "about {:.0f}",
                "rarer labels of learned lists become “other”",
            )
        )
    return ReleasePlan(
        plain=plain,
        guarantee=preview.guarantee,
        facts=tuple(facts),
        attacks=preview.attack_powers(),
        reasons=preview.fit_plan.reasons,
        warnings=() if preview.fit_plan.warning is None else (preview.fit_plan.warning,),
    )


def _plan_region(draft: Draft) -> ReleasePlan:
    """Plan a Rashomon region, as `dplangevin rashomon --plan` does."""
    from dplangevin.cli.rashomon import count_classes
    from dplangevin.estimators import SchemaEncoder
    from dplangevin.rashomon import RashomonRegion

    if draft.adjacency != "replace-one" or draft.person is not None:
        raise InvalidParameter("a Rashomon region needs a public number of rows, and no column of persons.")
    if draft.max_rows_per_person != 1:
        raise InvalidParameter("a Rashomon region protects one row of a person; state 1.")
    estimator = draft.build_estimator(draft.epsilon, draft.delta)
    region = RashomonRegion(
        estimator,
        thresholds=draft.parsed_thresholds(),
        n_models=100,
        epsilon=draft.epsilon,
        delta=draft.delta,
    )
    width = len(SchemaEncoder(estimator.schema).get_feature_names_out())
    plan = region.plan(_n_rows(draft), width, count_classes(estimator))
    facts = (
        (
            "smallest useful psi",
            plan.min_threshold,
            "{:.3g}",
            "below it noise hides most of the equally good models",
        ),
    )
    return _describe_release(
        plan.guarantee, draft, facts, str(plan).splitlines()[1:], {"min_threshold": plan.min_threshold}
    )


def _plan_counts(draft: Draft) -> ReleasePlan:
    """Plan tables of counts, as `dplangevin count` does before it reads the file."""
    from dplangevin.queries import Marginals
    from dplangevin.queries.count import plan_counts

    if draft.person is not None:
        raise InvalidParameter(
            "counts take no column of persons; leave it out, and state how many rows a person may own."
        )
    tables = Marginals.from_schema(draft.build_schema(), ways=draft.ways, columns=None, bins=draft.bins)
    mechanism = plan_counts(
        block_sizes=tables.sizes(),
        rows_per_person=draft.max_rows_per_person,
        epsilon=draft.epsilon,
        delta=draft.delta,
        adjacency=draft.adjacency,  # type: ignore[arg-type]
    )
    facts = (
        ("cells that are counted", float(mechanism.k), "{:.0f}", f"all tables of {draft.ways} columns"),
        ("error bar of a count", mechanism.margin(0.95), "± {:.3g}", "rows, 95%"),
        (
            "largest error of all counts",
            mechanism.maximum_error_quantile(0.05),
            "± {:.3g}",
            "rows, 95%, for all cells together",
        ),
    )
    return _describe_release(
        mechanism.guarantee, draft, facts, [mechanism.describe()], {"mechanism": mechanism.to_dict()}
    )


def _describe_release(
    guarantee: Any, draft: Draft, facts: Any, reasons: list[str], plain: dict[str, Any]
) -> ReleasePlan:
    import numpy as np

    misses = guarantee.tradeoff(np.asarray(_TPR_RATES))
    attacks = {rate: 1 - float(miss) for rate, miss in zip(_TPR_RATES, misses, strict=True)}
    return ReleasePlan(
        plain={
            **plain,
            "tpr_at_fpr": {str(rate): power for rate, power in attacks.items()},
            "guarantee": guarantee.to_dict(draft.delta),
        },
        guarantee=guarantee,
        facts=tuple(facts),
        attacks=attacks,
        reasons=tuple(line.strip() for line in reasons if line.strip()),
        warnings=(),
    )


def _n_rows(draft: Draft) -> int:
    assert draft.n is not None
    return draft.n


def _score_scale(draft: Draft) -> str:
    if draft.is_classifier:
        return "in log-odds"
    return "in logarithms of the rate" if draft.model == "poisson" else "in halves of the target's range"


def view_budget(ledger: str, dataset: str, plan: ReleasePlan | None) -> BudgetView:
    """Return what is left of a data set's budget now, and after the planned release; nothing is charged."""
    from dplangevin.ledger import Ledger

    budget = Ledger.open(ledger).dataset(dataset)
    remaining = budget.remaining()
    if plan is None:
        return BudgetView(dataset=budget.name, remaining=remaining)
    try:
        return BudgetView(
            dataset=budget.name, remaining=remaining, after=budget.remaining_after(plan.guarantee)
        )
    except (BudgetExceeded, InvalidParameter) as error:
        return BudgetView(dataset=budget.name, remaining=remaining, refusal=str(error))


def list_budgets(ledger: str) -> dict[str, Any]:
    """Return what is left by data set, as `dplangevin ledger show --json` prints it."""
    from dplangevin.ledger import Ledger

    opened = Ledger.open(ledger)
    return {name: opened.dataset(name).remaining() for name in opened.dataset_names()}


def budgets_to_plain(budgets: dict[str, Any]) -> dict[str, Any]:
    """Return the same as plain data."""
    return {name: asdict(each) for name, each in budgets.items()}


def advise_about_columns(draft: Draft) -> list[str]:
    """Return advice from the names of the columns alone."""
    advice = []
    looks_personal = [
        name for name, choice in draft.choices if _PERSON_NAME.search(name) and choice.role != "person"
    ]
    if looks_personal and draft.person is None:
        advice.append(
            f"{looks_personal[0][:60]!r} may identify a person. If a person can own several rows, mark it “identifies "
            "a person”: the guarantee then covers all of a person's rows. Otherwise leave it out: an identifier "
            "predicts nothing."
        )
    if draft.person is None and draft.max_rows_per_person == 1:
        advice.append(
            "The guarantee is for one row. If somebody may own several, mark the column that identifies persons."
        )
    return advice


def advise_about_budget(draft: Draft, plan: ReleasePlan | None) -> list[str]:
    """Return advice on epsilon, delta and rare labels, from public numbers alone."""
    advice = []
    if plan is not None and (threshold := plan.plain.get("category_threshold")) is not None:
        advice.append(
            f"A label in fewer than about {threshold:.0f} rows will be “other”. State the lists of columns whose rare "
            "labels matter: a stated list costs nothing and has no threshold."
        )
    if plan is not None and draft.is_classifier and (plan.plain.get("score_error") or 0.0) > 2:
        advice.append(
            "Noise may hide what the columns tell: an error of 2 in log-odds turns odds of 1 to 7 around. Raise "
            "epsilon, leave columns out, or state ranges and lists instead of learning them."
        )
    if draft.n is not None and draft.delta * draft.n > 0.1:
        advice.append(
            f"Delta should be far below one over the number of rows; {min(1e-6, 0.01 / draft.n):.0e} would be."
        )
    if draft.epsilon > 4:
        advice.append(
            "An epsilon above 4 protects little against an attacker who knows much; see the attack below."
        )
    return advice


def choose_epsilon_for_goal(draft: Draft, excess: float) -> Any:
    """Return the smallest epsilon whose simulated fits reach the goal, as `dplangevin choose-epsilon` does.

    Simulated on synthetic rows: nothing private is read.
    """
    from dplangevin.estimators.epsilon_choice import choose_epsilon

    if draft.model not in ("logistic", "ridge"):
        raise InvalidParameter("an epsilon from a goal is simulated for logistic and linear regression.")
    width = plan_draft(draft).plain["n_features"]
    return choose_epsilon(
        draft.model, n_features=width, n=_n_rows(draft), excess=excess, delta=draft.delta, n_repeats=4
    )


def read_column_names(path: str) -> tuple[str, ...]:
    """Return the names of the columns of a table; nothing else is read."""
    from dplangevin.tables import TableFiles

    try:
        return TableFiles(Path(path)).names
    except DplangevinError:
        raise
    except Exception:  # the parser's own message might show values of the table
        raise InvalidParameter(
            f"{Path(path).name!r} could not be read as a table; it must be .csv, .tsv, .parquet or .feather."
        ) from None


def count_rows(path: str) -> int:
    """Return the number of rows, which the user has stated to be public."""
    from dplangevin.tables import TableFiles

    try:
        return TableFiles(Path(path)).count_rows()
    except DplangevinError:
        raise
    except Exception:
        raise InvalidParameter("the rows of the file could not be counted; it may be damaged.") from None


def read_public_rows(path: str, limit: int = 5) -> list[list[str]]:
    """Return the first rows of a file that the user has marked as public."""
    from dplangevin.tables import TableFiles

    files = TableFiles(Path(path))
    for batch in files.batches(files.names):
        columns = [batch.slice(slice(0, limit)).column(name).plain_values() for name in files.names]
        return [["" if cell is None else str(cell) for cell in row] for row in zip(*columns, strict=True)]
    return []


ACCOUNT_METHODS = {
    "sgd": "DP-SGD (random batches)",
    "descent": "Noisy gradient descent (Langevin), last iterate",
    "diffusion": "Langevin sampler, by temperature and time",
}
_ALL, _DESCENTS, _CONVEX = ("sgd", "descent", "diffusion"), ("sgd", "descent"), ("descent", "diffusion")
# name, label, default, explanation; the methods that have it
ACCOUNT_FIELDS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("n", "records", "10000", "public number of records", _ALL),
    ("lipschitz", "gradient bound", "1", "norm at which a record's gradient is clipped", _ALL),
    ("batch_size", "batch size", "100", "expected number of records in a batch", ("sgd",)),
    ("noise_std", "noise", "0.02", "standard deviation of the noise on the MEAN gradient", _DESCENTS),
    ("step_size", "step size", "1", "", _DESCENTS),
    ("smoothness", "smoothness", "0.26", "of each loss, ridge included", _CONVEX),
    ("strong_convexity", "strong convexity", "0.01", "of the ridge; 0 if there is none", _CONVEX),
    (
        "diameter",
        "diameter",
        "",
        "of the set that iterates are projected on; empty if there is none",
        _CONVEX,
    ),
    (
        "inverse_temperature",
        "inverse temperature",
        "2000",
        "larger: more accurate, less private",
        ("diffusion",),
    ),
    ("time", "time", "20", "of the diffusion", ("diffusion",)),
    ("n_steps", "steps", "1000", "", _ALL),
    ("delta", "delta", "1e-6", "at which epsilon is stated", _ALL),
)
_N_POINTS = 9


def read_account_options(method: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of `account` that the form states."""
    if method not in ACCOUNT_METHODS:
        raise InvalidParameter(f"the method must be one of {', '.join(ACCOUNT_METHODS)}.")
    options: dict[str, Any] = {}
    for name, label, _, _, methods in ACCOUNT_FIELDS:
        text = query.get(name, "").strip()
        if method not in methods or not text:
            continue
        try:
            options[name] = float(text)
        except ValueError:
            raise InvalidParameter(f"{label} must be a number; got {text[:40]!r}.") from None
    if method == "sgd":
        options["sampling"] = "poisson"
    if method == "diffusion":
        from dplangevin.mechanisms.langevin.spec import LangevinSpec

        options["mechanism"] = LangevinSpec.mechanism
    for name in ("n", "n_steps", "delta"):
        if name not in options:
            raise InvalidParameter(f"state {name.replace('_', ' ')}.")
    return options


def answer_form(
    method: str, query: Mapping[str, str], *, curve: bool = True
) -> tuple[Any, list[tuple[float, float]]]:
    """Return the account of a run, and epsilon against the number of steps."""
    from dplangevin.report.answer import answer_account

    options = read_account_options(method, query)
    answer = answer_account(options, reasons=False, with_lower_bound=True)
    rows: list[tuple[float, float]] = []
    if curve:
        rows = [*_smaller_runs(options), (float(options["n_steps"]), answer.epsilon)]
    return answer, rows


def _smaller_runs(options: dict[str, Any]) -> list[tuple[float, float]]:
    """Return epsilon of the same run with fewer steps, each accounted as the run itself is."""
    from dplangevin.mechanisms.account import account

    last = options["n_steps"]
    if not 1 < last < math.inf:
        return []
    steps = sorted({max(1, round(last ** (index / _N_POINTS))) for index in range(_N_POINTS)} - {last})
    rows = []
    for step in steps:
        changed = {**options, "n_steps": float(step)}
        if "time" in options:  # the step size stays, so the time is shorter
            changed["time"] = options["time"] * step / last
        rows.append((float(step), account(**changed).epsilon(options["delta"])))
    return rows


def draw_curve(rows: Sequence[tuple[float, float]]) -> Markup | str:
    """Return epsilon against the number of steps as an inline picture; the table beside it has the numbers."""
    if len(rows) < 2:
        return ""
    description = f"Epsilon against the number of steps, from {rows[0][1]:.3g} to {rows[-1][1]:.3g}"
    line = Line(label="this run, and shorter ones", points=rows)
    return Plot(lines=[line], x_label="steps", y_label="epsilon", description=description, log=True).to_svg()
