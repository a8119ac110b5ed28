"""Mechanism: one way to run every schedule, so that nothing is released without its checks and its charge."""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.data.reader import RecordReader, read_records
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.families.noisy_answers.schedule import AnswerSchedule
from dplangevin.families.release import AnswersRelease, Release
from dplangevin.families.run_state import SAVE_EVERY, RunState, StatePath
from dplangevin.privacy.payment import Released, pay
from dplangevin.privacy.plan import Plan, Price
from dplangevin.privacy.registry import mechanism_for
from dplangevin.privacy.schedule import Schedule
from dplangevin.privacy.spender import Spender
from dplangevin.problem import Problem, RecordLoss

Answers = Callable[[], Sequence[ArrayLike]]
"""Reads the records, once it is called, and gives the exact answers, an array for each of the schedule's sizes."""
S = TypeVar("S", bound=Schedule)
A = TypeVar("A", bound=AnswerSchedule)
D = TypeVar("D")
R = TypeVar("R", bound=Released)


class Mechanism(ABC, Generic[S, D, R]):
    """One algorithm: it runs the schedules of one family. What an algorithm needs besides is given to its constructor.

    Subclasses execute; they are handed a generator and data that are paid for.
    """

    family: ClassVar[type[Schedule]]
    """Of its schedules: the first argument of the base class."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for base in vars(cls).get("__orig_bases__", ()):
            first = next(iter(get_args(base)), None)
            if isinstance(first, type) and issubclass(first, Schedule):
                cls.family = first

    @final
    def run(
        self,
        plan: Price,
        data: D,
        random_state: object = None,
        *,
        ledger: Spender | None = None,
        state: StatePath = None,
        save_every: float = SAVE_EVERY,
        rows_per_person: int | None = None,
    ) -> R:
        """Check, charge, read the records, release what the plan covers, and note it in the ledger.

        Parameters
        ----------
        state : a private file. The run is saved there every so many seconds, and a run that finds its file goes on:
            with the same noise (random_state is not asked again) and the same charge.
        rows_per_person : to whom the request promises, where it says so; the ledger must say the same.
        """
        if not isinstance(plan.schedule, self.family):
            raise InvalidParameter(
                f"this plan is for {plan.schedule.mechanism}, not for {self.family.mechanism}."
            )
        self._refuse(plan, data)
        secure = plan.guarantee.arithmetic == "discrete-grid"
        if secure:
            self._refuse_weak_spots(random_state, state)
        saved, able = None, self.family.capabilities
        if state is not None:
            saved = RunState(state, plan, *self._settings(), save_every=save_every)
        elif ledger is not None and able.checkpoints and (able.secure_resume or not secure):
            saved = RunState.by_default(plan, *self._settings(), save_every=save_every)
        release = partial(self._released, plan, data, saved)
        return pay(plan, release, random_state, ledger=ledger, saved=saved, rows_per_person=rows_per_person)

    def _refuse(self, plan: Price, data: D) -> None:
        """Refusals that depend on public values only, before the ledger is charged."""

    def _refuse_weak_spots(self, random_state: object, state: StatePath) -> None:
        """What would undo secure noise: a seed, or one charge for two releases with different noise."""
        refuse_seed(random_state)
        if state is not None and not self.family.capabilities.secure_resume:
            raise InvalidParameter(
                "state must be left out in secure mode here: secure noise is never written to a file, so a run that "
                "goes on would draw another noise for the same charge."
            )

    def _settings(self) -> tuple[object, ...]:
        """What makes this run another one besides its plan; all of it public."""
        return ()

    @abstractmethod
    def _released(
        self, plan: Price, data: D, saved: RunState | None, rng: np.random.Generator, seeded: bool
    ) -> R:
        """Read the records, which are paid for, and release; `saved` is where a walk keeps its position."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit(Generic[S]):
    """What a fit is handed once its plan is paid for."""

    plan: Price
    schedule: S
    data: Dataset
    saved: RunState | None
    seeded: bool
    rng: np.random.Generator


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """What a fit gives: the value, the number of steps (public), and the iterates that the promise covers.

    `beside` holds whatever else was released with it, by name.
    """

    value: Floats
    n_steps: int = 1
    iterates: Mapping[int, Floats] = field(default_factory=dict)
    beside: Mapping[str, Floats] = field(default_factory=dict)


class FitMechanism(Mechanism[S, Dataset | RecordReader, Release]):
    """Base of the mechanisms that solve a problem on its data set."""

    whole_records: ClassVar[Literal["none", "bounded values", "all"]] = "none"
    """The losses of whole records that will do: all of them where nothing but sums of gradients is asked for."""

    @final
    def _refuse(self, plan: Price, data: Dataset | RecordReader) -> None:
        if not isinstance(plan, Plan):
            raise InvalidParameter(
                "this price has constants but no problem, so it cannot be run; make a Plan."
            )
        if data.problem != plan.problem:
            raise InvalidParameter(
                "the data set was prepared for another problem than the plan's; build it from plan.problem."
            )
        loss = plan.problem.loss
        if isinstance(loss, RecordLoss) and not (
            self.whole_records == "all" or (self.whole_records == "bounded values" and loss.bounded_values)
        ):
            raise InvalidParameter(
                f"{self.family.mechanism} needs a loss of linear scores; the {plan.problem.loss.name} loss is one of "
                "whole records. Use noisy gradient descent."
            )
        if isinstance(loss, RecordLoss) and replace(plan.problem).constants != plan.problem.constants:
            raise InvalidParameter(
                f"the gradient bound of the {loss.name} loss has changed since the plan was made; make another plan."
            )
        self.check(cast(S, plan.schedule), plan.problem)

    def check(self, schedule: S, problem: Problem) -> None:
        """Refuse what this mechanism cannot run; no record is seen."""

    @final
    def _released(
        self,
        plan: Price,
        data: Dataset | RecordReader,
        saved: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> Release:
        schedule = cast(S, plan.schedule)
        data = read_records(data)  # the plan is charged: this is where the first cell is read
        # a warning of a user's function would tell about a record
        users = isinstance(data.problem.loss, RecordLoss)
        with warnings.catch_warnings(action="ignore") if users else nullcontext():
            if saved is not None:
                saved.check_records(lambda salt: fingerprint(data, salt))
            drawn = self.draw(
                Fit(plan=plan, schedule=schedule, data=data, saved=saved, seeded=seeded, rng=rng)
            )
        return Release(plan=cast(Plan, plan), seeded=seeded, **vars(drawn))

    @abstractmethod
    def draw(self, run: Fit[S]) -> Draw:
        """Run the schedule."""


class AnswerMechanism(Mechanism[A, Answers, AnswersRelease]):
    """Base of the mechanisms that add noise to exact answers about records."""

    @final
    def _refuse(self, plan: Price, data: Answers) -> None:
        if not callable(data):
            raise InvalidParameter(
                f"{self.family.mechanism} takes a function that reads the records and gives the exact answers, not a "
                f"{type(data).__name__}."
            )

    @final
    def _released(
        self, plan: Price, data: Answers, saved: RunState | None, rng: np.random.Generator, seeded: bool
    ) -> AnswersRelease:
        schedule, exact = cast(A, plan.schedule), [np.asarray(values, float) for values in data()]
        if tuple(values.size for values in exact) != schedule.sizes:
            raise InvalidParameter(
                f"the exact answers are {[values.size for values in exact]} numbers, but the promise was made for "
                f"{list(schedule.sizes)}; nothing was released."
            )
        if not all(np.isfinite(values).all() for values in exact):
            raise InvalidParameter("exact answers must be finite numbers; nothing was released.")
        if saved is not None:
            saved.check_records(lambda salt: _digest(salt, *exact))
        return AnswersRelease(values=self.draw(schedule, exact, rng), plan=plan, seeded=seeded)

    @abstractmethod
    def draw(self, schedule: A, exact: Sequence[Floats], rng: np.random.Generator) -> tuple[Floats, ...]:
        """The noisy answers."""


def refuse_seed(random_state: object) -> None:
    """Secure noise comes from the operating system only."""
    if random_state is not None:
        raise InvalidParameter(
            "random_state must be left out in secure mode: its noise comes from the operating system's cryptographic "
            "generator, and a seed would undo it."
        )


def _digest(salt: str, *arrays: Any) -> str:
    content = hashlib.sha256(salt.encode())
    for values in arrays:
        content.update(b"none" if values is None else np.ascontiguousarray(values).data)
    return content.hexdigest()


def fingerprint(data: Dataset, salt: str) -> str:
    """A hash of all clipped records, and of one gradient.

    Gradients alone are not enough: the slope of a quantile or a hinge loss is the same for many labels, so a changed
    record might not move them. A change that clipping undoes does not change the release. The gradient tells
    another kernel, whose roundings differ.
    """
    theta = np.cos(np.arange(1.0, data.problem.dimension + 1))[:, None]
    content = hashlib.sha256(salt.encode())
    content.update(data.n_samples.to_bytes(8, "little"))
    content.update(data.summed(_record_hash, salt).tobytes())
    content.update(data.gradient_sum(data.problem.loss, theta / np.linalg.norm(theta)).tobytes())
    return content.hexdigest()


def _record_hash(data: Dataset, salt: str) -> Floats:
    """A hash of the records as eight whole numbers below 2^32: sums over partitions stay exact."""
    content = hashlib.sha256(salt.encode())
    for block in data.blocks():
        for values in (block.rows, block.labels, block.weights):
            content.update(b"none" if values is None else np.ascontiguousarray(values).data)
    return np.frombuffer(content.digest(), np.uint32).astype(float)


def run(
    plan: Plan,
    data: Dataset | RecordReader,
    random_state: object = None,
    *,
    ledger: Spender | None = None,
    secure: bool = False,
    state: StatePath = None,
    rows_per_person: int | None = None,
) -> Release:
    """Run a plan on data with the mechanism its schedule belongs to.

    data are clipped records, or a RecordReader, which reads them after the charge.

    secure=True insists on noise that is exact in integers: a plan whose proof is about real-valued noise is refused.
    state names a private file from which the same call goes on after a crash: with the same noise, charged once.
    rows_per_person is to whom the request promises, where it says so; the ledger must say the same.
    """
    if secure and plan.guarantee.arithmetic != "discrete-grid":
        raise AssumptionFailed(
            f"secure mode has no proof for {plan.guarantee.theorem} ({plan.schedule.mechanism}): its noise is "
            "real-valued. Plan with a DiscreteGradientSchedule, a schedule with secure=True, or secure=True of an "
            "estimator; hidden-state bounds, Gamma noise and draws have no secure form."
        )
    mechanism = mechanism_for(type(plan.schedule))
    if mechanism is None:
        raise InvalidParameter(
            "this plan needs a public mirror map; use PublicMirrorDescent(mirror).run(plan, data)."
        )
    release: Release = mechanism.run(
        plan, data, random_state, ledger=ledger, state=state, rows_per_person=rows_per_person
    )
    return release
