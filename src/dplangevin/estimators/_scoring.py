"""A metric on private records: what is summed, under which noise, and how the noisy sums are read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._held_out import HeldOut, View
from dplangevin.estimators._intervals import half_width, proportion_interval
from dplangevin.estimators._metrics import (
    ReliabilityBin,
    area_under_curve,
    bin_edges,
    histogram,
    losses,
    reliability,
)
from dplangevin.estimators._pipeline import find_foreign_steps, learned_steps
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule, SumNoise
from dplangevin.families.noisy_answers.theorems.noisy_sums import calibrated_sums
from dplangevin.families.release import AnswersRelease
from dplangevin.privacy.conditions import Condition
from dplangevin.privacy.plan import Price
from dplangevin.problem.constants import ADJACENCIES, Adjacency
from dplangevin.tables import Cells

METRICS = ("accuracy", "log-loss", "squared-error", "auc", "calibration")
PER_RECORD = ("accuracy", "log-loss", "squared-error")
CAPPED = ("log-loss", "squared-error")
LOG_LOSS_CAP = 5.0
GRID = 2**16  # losses are whole multiples of cap / GRID, so that integer noise can be used
MOMENT_SHARE = 0.2  # of the budget, for the second moment of a loss


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A metric with its public settings."""

    metric: str
    adjacency: str
    cap: float | None = None
    bins: int | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _check.choice("metric", self.metric, METRICS)
        _check.choice("adjacency", self.adjacency, ADJACENCIES)
        _ = self.limit, self.edges  # fail here rather than at the first use

    @property
    def kind(self) -> Adjacency:
        """The adjacency, checked."""
        return _check.choice("adjacency", self.adjacency, ADJACENCIES)

    @property
    def unit(self) -> int:
        """What one record adds to a sum at most."""
        return GRID if self.metric in CAPPED else 1

    @property
    def limit(self) -> float:
        """The largest loss of a record."""
        if self.cap is not None:
            if self.metric not in CAPPED:
                raise InvalidParameter(f"cap has no meaning for metric={self.metric!r}; leave it out.")
            return _check.positive("cap", self.cap)
        if self.metric == "squared-error":
            raise InvalidParameter(
                "metric='squared-error' needs cap, a stated bound on one record's squared error, e.g. "
                "((high - low) / 4) ** 2: larger errors are cut off, and it is never measured from the data."
            )
        return LOG_LOSS_CAP if self.metric == "log-loss" else 1.0

    @property
    def stated_cap(self) -> float | None:
        """The cap where the metric has one."""
        return self.limit if self.metric in CAPPED else None

    @property
    def edges(self) -> Floats:
        """The edges of the bins."""
        return bin_edges((10 if self.metric == "calibration" else 32) if self.bins is None else self.bins)

    def check(self, model: Any) -> None:
        """Refuse a model that cannot be scored."""
        name = "predict_proba" if self.metric in ("log-loss", "calibration") else "predict"
        if not hasattr(model, name):
            raise InvalidParameter(
                f"metric={self.metric!r} needs a fitted model with {name}, got {type(model).__name__}."
            )
        if self.metric in ("auc", "calibration") and len(getattr(model, "classes_", ())) != 2:
            raise InvalidParameter(f"metric={self.metric!r} needs a fitted classifier of two classes.")

    @property
    def groups(self) -> list[tuple[int, float, float]]:
        """(answers, unit, share of the budget) of the sums."""
        pair = 1 if self.adjacency == "replace-one" else 2  # add-remove: wrong and right, since n is private
        if self.metric == "accuracy":
            return [(pair, self.unit, 1.0)]
        if self.metric in CAPPED:
            return [(pair, self.unit, 1 - MOMENT_SHARE), (1, self.unit, MOMENT_SHARE)]
        return [(2 * (len(self.edges) - 1), self.unit, 1.0)]

    def plan(
        self,
        epsilon: float,
        delta: float,
        rows: int,
        words: Sequence[str] = (),
        conditions: tuple[Condition, ...] = (),
        *,
        secure: bool = False,
    ) -> Price:
        """The noise that meets (epsilon, delta): of the two kinds, the smaller one."""
        noises: list[SumNoise] = ["geometric"] if delta == 0 else ["geometric", "gaussian"]
        offers = [
            calibrated_sums(
                self.groups,
                epsilon=epsilon,
                delta=delta,
                noise=noise,
                adjacency=self.kind,
                rows_per_person=rows,
                secure=secure,
            )
            for noise in noises
        ]
        best = min(offers, key=lambda offer: noise_law(offer)[0])
        return Price(schedule=best.with_assumptions(*words, conditions=conditions), delta=delta)

    def sums(self, model: Any, records: HeldOut) -> list[Floats]:
        """The exact sums, in whole numbers. This reads the records."""
        found = records.summed(partial(_part_sums, self, model))
        if found:
            return found  # else there is no record, which is private where their number is
        shapes = [
            answers if self.metric in PER_RECORD else (2, answers // 2) for answers, _, _ in self.groups
        ]
        return [np.zeros(shape) for shape in shapes]

    def totals(self, models: Sequence[Any], records: HeldOut) -> list[Floats]:
        """The sum of 1 - loss of each model, in whole units, which add up exactly. This reads the records.

        1 - loss >= 0: under add-remove a record moves every total upwards, which the proof of noisy max uses.
        """
        return records.summed(partial(_part_totals, self, tuple(models))) or [np.zeros(len(models))]

    def loss_sums(self, shares: Floats) -> list[Floats]:
        """Sums of losses in [0, 1], in whole units."""
        first = np.rint(self.unit * shares)
        sums = [np.array([first.sum(), (self.unit - first).sum()][: self.groups[0][0]])]
        if self.metric in CAPPED:
            sums.append(np.array([np.rint(self.unit * shares**2).sum()]))
        return sums

    def read(
        self, release: AnswersRelease, n: int, level: float
    ) -> tuple[float, tuple[float, float], tuple[ReliabilityBin, ...]]:
        """Value, interval and table; n is used only where it is public."""
        noise = release.plan.schedule
        assert isinstance(noise, NoisySumsSchedule)
        if self.metric in PER_RECORD:
            return (*self._mean(release.values, noise, n, level), ())
        if self.metric == "auc":
            return (*area_under_curve(release.values[0], *noise_law(noise), level), ())
        return reliability(release.values[0], self.edges, *noise_law(noise), level)

    def _mean(
        self, values: tuple[Floats, ...], schedule: NoisySumsSchedule, n: int, level: float
    ) -> tuple[float, tuple[float, float]]:
        """The noisy mean of the losses and its interval; accuracy is 1 - the share of wrong answers."""
        first = values[0] / self.unit
        size = float(n) if len(first) == 1 else max(float(first.sum()), 1.0)
        share = min(max(float(first[0]) / size, 0.0), 1.0)
        deviation, dimension = noise_law(schedule)
        noise = deviation / self.unit / size * (1.0 if len(first) == 1 else math.hypot(share, 1 - share))
        if self.metric == "accuracy":
            low, high = proportion_interval(share, size, noise, dimension, level)
            return 1 - share, (1 - high, 1 - low)
        doubt = noise_law(schedule, 1)[0] / self.unit / size
        second = float(values[1][0]) / self.unit / size + doubt  # rather too much than too little
        variance = min(max(second - share**2, doubt**2), share * (1 - share) + doubt)
        width = float(half_width(level, math.sqrt(variance / size), noise, dimension))
        low, high = max(share - width, 0.0), min(share + width, 1.0)
        return self.limit * share, (self.limit * low, self.limit * high)

    def words(self, model: Any) -> tuple[str, ...]:
        """What the guarantee assumes, and what it is silent about."""
        words = [
            "the model was given beforehand: what its own fitting revealed is not counted here",
            "the model's answer for a record depends on no other record scored",
        ]
        if self.adjacency == "replace-one":
            words.append("the number of records scored is public")
        if self.metric in CAPPED:
            words.append(f"the loss of one record is cut off at {self.limit:g}")
        learned = learned_steps(model)
        if learned:
            words.append(
                f"{', '.join(learned)} learned from data outside any guarantee: unless that data is public, "
                "nothing is promised about the model itself"
            )
        return tuple(words)


def scoring_conditions(model: Any) -> tuple[Condition, ...]:
    """What the guarantee of a score depends on because of the model that is scored."""
    conditions = []
    foreign = find_foreign_steps(model)
    if foreign:
        names = ", ".join(foreign)
        conditions.append(
            Condition(kind="upstream-steps", text=f"{names} of the pipeline reading each row by itself")
        )
    if not isinstance(model, DPLinearModel):  # ours answer for every record
        conditions.append(
            Condition(
                kind="record-errors",
                text="the model giving an answer for every record: a model that fails on one ends the run without a "
                "release, and that event is not covered",
            )
        )
    return tuple(conditions)


def noise_law(schedule: NoisySumsSchedule, group: int = 0) -> tuple[float, int | None]:
    """Standard deviation of the noise on one answer, and its law for `half_width`."""
    scale = schedule.groups[group].scale
    if schedule.noise == "gaussian":
        return scale, None
    half = 1 / (2 * scale)  # two-sided geometric, sd = 1 / (sqrt 2 sinh half), close to Laplace
    return math.sqrt(2) * math.exp(-half) / -math.expm1(-2 * half), 1


def _part_sums(scoring: Scoring, model: Any, view: View, labels: Cells) -> list[Floats]:
    with _told_nothing(model):
        rows = view(model)
        if scoring.metric in PER_RECORD:
            return scoring.loss_sums(losses(model, rows, labels, scoring.metric, scoring.limit))
        return [histogram(model, rows, labels, scoring.edges)]


def _part_totals(scoring: Scoring, models: Sequence[Any], view: View, labels: Cells) -> list[Floats]:
    totals = []
    for model in models:
        with _told_nothing(model):
            share = losses(model, view(model), labels, scoring.metric, scoring.limit)
        totals.append(np.rint(scoring.unit * (1 - share)).sum())
    return [np.array(totals)]


@contextmanager
def _told_nothing(model: Any) -> Iterator[None]:
    """Errors and warnings of a model may quote records, so their text is dropped."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except DplangevinError:
        raise
    except Exception as error:
        raise InvalidParameter(
            f"{type(model).__name__} could not score the records ({type(error).__name__}); its message may quote one "
            "and is not shown. What was charged stays charged, and nothing was released."
        ) from None
