"""The accountant's page: parameters of a run to the account that `dplangevin account` gives, and a curve over steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dplangevin.errors import InvalidParameter
from dplangevin.report.plots import Line, Plot

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
