"""The base classes of mechanisms and of their releases: every run is checked, then charged, before a record is read."""

from __future__ import annotations

import hashlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, final, get_args

import numpy as np
from numpy.typing import ArrayLike

from dplangevin._arrays import Floats
from dplangevin.accounting.charge import Releasable, charge_then_release
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Plan, Spec
from dplangevin.accounting.registry import mechanism_for
from dplangevin.data.dataset import Dataset
from dplangevin.data.integer_grids import RowGrid
from dplangevin.data.sources import RecordReader, read_records
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec
from dplangevin.mechanisms.run_state import SAVE_INTERVAL_SECONDS, CheckpointPath, RunState
from dplangevin.problem import Problem, RecordLoss
from dplangevin.sampling.exact_noise import ByteSource

SEEDED_MESSAGE = (
    "the noise came from random_state: the guarantee holds only against those who do not know the seed, and for this "
    "release alone: a second release with the same seed has the same noise, and the two together reveal it"
)


def check_seed(secure: bool | None, random_state: object) -> None:
    """Refuse a seed together with an explicit secure=True, which a seed contradicts."""
    if secure and random_state is not None:
        raise InvalidParameter(
            "random_state must be left out with secure=True: a seed would undo the noise. Leave secure out for a "
            "repeatable release with exact noise."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ChargedRelease:
    """The base of releases: the plan that was charged, whether the noise was seeded, and the entry in the ledger.

    Parameters
    ----------
    plan : the certified spec that ran, with its guarantee.
    seeded : whether the noise came from a user's seed. Whoever knows the seed can remove the noise.
    ledger_head : the head of the ledger's hash chain after this release was charged; None without a ledger.
    """

    plan: CertifiedSpec
    seeded: bool
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this release."""
        return self.plan.guarantee


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(ChargedRelease):
    """A released value, and nothing that its guarantee does not cover.

    Parameters
    ----------
    value : the last iterate, the average, or the last checkpoint.
    plan : the plan that ran.
    iterates : the iterates the guarantee covers, by step.
    n_steps : the number of steps that ran (public).
    auxiliary : what else was released with the value, by name; the guarantee covers it.
    """

    value: Floats
    plan: Plan
    n_steps: int
    iterates: Mapping[int, Floats] = field(default_factory=dict, repr=False)
    auxiliary: Mapping[str, Floats] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        frozen = {step: _read_only_copy(theta) for step, theta in self.iterates.items()}
        object.__setattr__(self, "iterates", MappingProxyType(frozen))
        object.__setattr__(self, "value", _read_only_copy(self.value))
        arrays = {name: _read_only_copy(array) for name, array in self.auxiliary.items()}
        object.__setattr__(self, "auxiliary", MappingProxyType(arrays))

    def iterate(self, step: int) -> Floats:
        """Return the iterate after `step` steps, if the guarantee covers it."""
        if step not in self.iterates:
            raise NotPrivateError(
                f"iterate {step} is not covered: the guarantee is for release={self.plan.spec.release!r}. "
                "Plan with release='checkpoints' or 'trajectory' to release it."
            )
        return self.iterates[step]

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        content = hashlib.sha256(np.ascontiguousarray(self.value).tobytes())
        for step in sorted(self.iterates):
            content.update(np.ascontiguousarray(self.iterates[step]).tobytes())
        for name in sorted(self.auxiliary):
            content.update(np.ascontiguousarray(self.auxiliary[name]).tobytes())
        return content.hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.value, self.plan, self.seeded, self.n_steps, dict(self.iterates), self.ledger_head)
        return _rebuild_release, (*fields, dict(self.auxiliary))


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswersRelease(ChargedRelease):
    """Noisy answers, one array for each of the spec's sizes; for a noisy max, the index."""

    values: tuple[Floats, ...]

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        content = hashlib.sha256()
        for value in self.values:
            content.update(np.ascontiguousarray(value).tobytes())
        return content.hexdigest()


def _rebuild_release(
    value: Floats,
    plan: Plan,
    seeded: bool,
    n_steps: int,
    iterates: dict[int, Floats],
    ledger_head: str | None = None,
    auxiliary: dict[str, Floats] | None = None,
) -> Release:
    return Release(
        value=value,
        plan=plan,
        seeded=seeded,
        n_steps=n_steps,
        iterates=iterates,
        ledger_head=ledger_head,
        auxiliary=auxiliary or {},
    )


def _read_only_copy(array: Floats) -> Floats:
    copy = np.array(array, dtype=float)
    copy.flags.writeable = False
    return copy


AnswerReader = Callable[[], Sequence[ArrayLike]]
"""A function that reads the records and returns the exact answers: one array for each of the spec's sizes."""
S = TypeVar("S", bound=Spec)
A = TypeVar("A", bound=AnswerSpec)
D = TypeVar("D")
R = TypeVar("R", bound=Releasable)


class Mechanism(ABC, Generic[S, D, R]):
    """An algorithm that runs the specs of one type. Public inputs besides the spec are given to its constructor.

    `run` checks and charges; subclasses release, given a generator and data whose charge has been made.
    """

    spec_type: ClassVar[type[Spec]]
    """The type of its specs: the first type argument of the base class."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for base in vars(cls).get("__orig_bases__", ()):
            first = next(iter(get_args(base)), None)
            if isinstance(first, type) and issubclass(first, Spec):
                cls.spec_type = first

    @final
    def run(
        self,
        plan: CertifiedSpec,
        data: D,
        random_state: object = None,
        *,
        ledger: BudgetAccount | None = None,
        checkpoint: CheckpointPath = None,
        save_every: float = SAVE_INTERVAL_SECONDS,
        rows_per_person: int | None = None,
    ) -> R:
        """Check the plan, charge the budget, read the records, release, and record the release in the ledger.

        Parameters
        ----------
        plan : the certified spec to run; a fit needs a Plan, which has a problem.
        data : the records, or what reads them after the charge.
        random_state : a seed or a generator, for tests only: whoever knows it can remove the noise.
        ledger : the budget account to charge.
        checkpoint : path of a private file. The run is saved there at intervals, and resumes from it with the same
            charge and the same noise (random_state is not used again). Noise that the operating system makes is in no
            file: an exact run without a seed continues from its position with fresh noise, and its last position is
            saved before the release, so that one charge gives one release.
        save_every : seconds between two saved positions.
        rows_per_person : the most records of one person, where the guarantee is for persons; the ledger must state
            the same.
        """
        if not isinstance(plan.spec, self.spec_type):
            raise InvalidParameter(
                f"this plan is for {plan.spec.mechanism}, not for {self.spec_type.mechanism}."
            )
        self._check_inputs(plan, data)
        self._check_options(plan, random_state, checkpoint)
        run_state = None
        if checkpoint is not None:
            run_state = RunState(checkpoint, plan, *self._run_settings(), save_every=save_every)
        elif ledger is not None and self.spec_type.capabilities.checkpoints:
            run_state = RunState.default_for_command(plan, *self._run_settings(), save_every=save_every)
        release = partial(self._release, plan, data, run_state)
        return charge_then_release(
            plan, release, random_state, ledger=ledger, checkpoint=run_state, rows_per_person=rows_per_person
        )

    def _check_inputs(self, plan: CertifiedSpec, data: D) -> None:
        """Refuse what cannot run, from public values only, before the ledger is charged."""

    def _check_options(self, plan: CertifiedSpec, random_state: object, checkpoint: CheckpointPath) -> None:
        """Refuse a seed or a checkpoint that this mechanism would not follow."""

    def _run_settings(self) -> tuple[object, ...]:
        """Return the public settings, besides the plan, that identify this run."""
        return ()

    @abstractmethod
    def _release(
        self, plan: CertifiedSpec, data: D, run_state: RunState | None, rng: np.random.Generator, seeded: bool
    ) -> R:
        """Read the records, whose charge has been made, and release; `run_state` stores the position of the run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseDraws:
    """Where the randomness of a run comes from: a generator, and a source of bytes for noise that is drawn exactly.

    Without a seed the bytes come from the operating system; with one from the generator, so that a seeded run is
    repeatable, and its noise can be removed by whoever knows the seed.
    """

    rng: np.random.Generator
    source: ByteSource = os.urandom

    @classmethod
    def from_generator(cls, rng: np.random.Generator, seeded: bool) -> NoiseDraws:
        """Return the randomness of a charged run."""
        return cls(rng=rng, source=rng.bytes if seeded else os.urandom)

    @classmethod
    def of(cls, inputs: MechanismInput[Any]) -> NoiseDraws:
        """Return the randomness of a charged fit."""
        return cls.from_generator(inputs.rng, inputs.seeded)


@dataclass(frozen=True, kw_only=True, eq=False)
class MechanismInput(Generic[S]):
    """The spec, data, generator and run state of a fit whose plan has been charged."""

    plan: CertifiedSpec
    spec: S
    data: Dataset
    run_state: RunState | None
    seeded: bool
    rng: np.random.Generator
    owns_data: bool = False
    """Whether the records were read for this run alone, so that their copy in memory may be overwritten."""

    @property
    def repeats_noise(self) -> bool:
        """Whether a resumed run draws the noise it would have drawn: not where the operating system makes it."""
        return self.seeded or not self.spec.secure


@dataclass(frozen=True, kw_only=True, eq=False)
class MechanismOutput:
    """The result of a fit: the value, the number of steps (public), and the iterates that the guarantee covers.

    `auxiliary` holds what else is released with it, by name.
    """

    value: Floats
    n_steps: int = 1
    iterates: Mapping[int, Floats] = field(default_factory=dict)
    auxiliary: Mapping[str, Floats] = field(default_factory=dict)


class FitMechanism(Mechanism[S, Dataset | RecordReader, Release]):
    """The base of the mechanisms that solve a problem on its data set."""

    supported_record_losses: ClassVar[Literal["none", "bounded values", "all"]] = "none"
    """Which losses of whole records are supported: all where only sums of gradients are needed."""
    flat_directions: Floats | None = None
    """Public directions [columns, k] in which the rows of a schema do not differ, for post-processing."""

    @final
    def _check_inputs(self, plan: CertifiedSpec, data: Dataset | RecordReader) -> None:
        if not isinstance(plan, Plan):
            raise InvalidParameter(
                "this certified spec has constants but no problem, so it cannot be run; make a Plan."
            )
        if data.problem != plan.problem:
            raise InvalidParameter(
                "the data set was prepared for another problem than the plan's; build it from plan.problem."
            )
        loss = plan.problem.loss
        self.check_loss(plan.problem)
        if isinstance(loss, RecordLoss) and replace(plan.problem).constants != plan.problem.constants:
            raise InvalidParameter(
                f"the gradient bound of the {loss.name} loss has changed since the plan was made; make another plan."
            )
        self.check_problem(cast(S, plan.spec), plan.problem)

    @final
    def check_loss(self, problem: Problem) -> None:
        """Refuse a loss of whole records that this mechanism cannot evaluate; planners ask as well."""
        loss = problem.loss
        if isinstance(loss, RecordLoss) and not (
            (self.supported_record_losses == "all" and loss.has_gradients)
            or (
                self.supported_record_losses == "bounded values"
                and (loss.bounded_values or loss.has_clipped_values)
            )
        ):
            raise InvalidParameter(
                f"{self.spec_type.mechanism} needs a loss of linear scores; the {loss.name} loss is one of whole "
                "records. Use noisy gradient descent, which needs record_gradient, or a draw on a public grid, which "
                "needs value_range and values_of_record."
            )

    def check_problem(self, spec: S, problem: Problem) -> None:
        """Refuse a problem that this mechanism cannot solve; no record is read."""

    def row_grid(self, spec: S, problem: Problem) -> RowGrid | None:
        """Return the public grid to which an exact run rounds all rows before anything else; None if it does not."""
        return None

    @final
    def _release(
        self,
        plan: CertifiedSpec,
        data: Dataset | RecordReader,
        run_state: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> Release:
        spec = cast(S, plan.spec)
        # the charge has been made: the first cell is read here
        owns_data = isinstance(data, RecordReader) and data.is_single_use
        if isinstance(data, RecordReader) and owns_data and run_state is None:
            data = data.read_once(self.row_grid(spec, data.problem) if spec.secure else None)
        data = read_records(data)
        # a warning from a user's function could reveal a record
        is_user_loss = isinstance(data.problem.loss, RecordLoss)
        with warnings.catch_warnings(action="ignore") if is_user_loss else nullcontext():
            if run_state is not None:
                run_state.check_records(lambda salt: fingerprint_dataset(data, salt))
            inputs = MechanismInput(
                plan=plan,
                spec=spec,
                data=data,
                run_state=run_state,
                seeded=seeded,
                rng=rng,
                owns_data=owns_data,
            )
            output = self._execute_once(inputs)
        return Release(plan=cast(Plan, plan), seeded=seeded, **vars(output))

    def _execute_once(self, inputs: MechanismInput[S]) -> MechanismOutput:
        """Run the spec; what a single release with fresh noise gave is saved before anybody sees it."""
        run_state = inputs.run_state
        if run_state is None or inputs.repeats_noise or self.spec_type.capabilities.checkpoints:
            return self.execute(inputs)
        saved = run_state.load_position()
        if saved is not None:
            return MechanismOutput(**saved)
        output = self.execute(inputs)
        run_state.save_if_due(output, inputs.rng, now=True)
        return output

    @abstractmethod
    def execute(self, inputs: MechanismInput[S]) -> MechanismOutput:
        """Run the spec on the data and return what is released."""


class AnswerMechanism(Mechanism[A, AnswerReader, AnswersRelease]):
    """The base of the mechanisms that add noise to exact answers about records."""

    @final
    def _check_inputs(self, plan: CertifiedSpec, data: AnswerReader) -> None:
        if not callable(data):
            raise InvalidParameter(
                f"{self.spec_type.mechanism} takes a function that reads the records and returns the exact answers, "
                f"not a {type(data).__name__}."
            )

    @final
    def _release(
        self,
        plan: CertifiedSpec,
        data: AnswerReader,
        run_state: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> AnswersRelease:
        spec, exact = cast(A, plan.spec), [np.asarray(values, float) for values in data()]
        if tuple(values.size for values in exact) != spec.sizes:
            raise InvalidParameter(
                f"the exact answers are {[values.size for values in exact]} numbers, but the guarantee was made for "
                f"{list(spec.sizes)}; nothing was released."
            )
        if not all(np.isfinite(values).all() for values in exact):
            raise InvalidParameter("exact answers must be finite numbers; nothing was released.")
        if run_state is not None:
            run_state.check_records(lambda salt: _hash_arrays(salt, *exact))
        draws = NoiseDraws.from_generator(rng, seeded)
        return AnswersRelease(
            values=self._release_once(spec, exact, draws, run_state, seeded), plan=plan, seeded=seeded
        )

    def _release_once(
        self, spec: A, exact: Sequence[Floats], draws: NoiseDraws, run_state: RunState | None, seeded: bool
    ) -> tuple[Floats, ...]:
        """Return the noisy answers; those with fresh noise are saved before anybody sees them."""
        if run_state is None or seeded or not spec.secure:  # a resumed run draws the same noise
            return self.release_answers(spec, exact, draws)
        saved = run_state.load_position()
        if saved is not None:
            return tuple(saved["auxiliary"][str(i)] for i in range(len(exact)))
        values = self.release_answers(spec, exact, draws)
        answers = {str(i): value for i, value in enumerate(values)}
        run_state.save_if_due(MechanismOutput(value=np.zeros(0), auxiliary=answers), draws.rng, now=True)
        return values

    @abstractmethod
    def release_answers(self, spec: A, exact: Sequence[Floats], draws: NoiseDraws) -> tuple[Floats, ...]:
        """Return the noisy answers: with exact noise from `draws.source` if the spec is secure."""


def _hash_arrays(salt: str, *arrays: Any) -> str:
    content = hashlib.sha256(salt.encode())
    for values in arrays:
        content.update(b"none" if values is None else np.ascontiguousarray(values).data)
    return content.hexdigest()


def fingerprint_dataset(data: Dataset, salt: str) -> str:
    """Return a hash of all clipped records and of one gradient.

    Gradients alone are not enough: the slope of a quantile or hinge loss is the same for many labels, so a changed
    record might not move them. A change that clipping undoes does not change the release. The gradient detects
    another kernel, whose rounding differs.
    """
    theta = np.cos(np.arange(1.0, data.problem.dimension + 1))[:, None]
    content = hashlib.sha256(salt.encode())
    content.update(data.n_samples.to_bytes(8, "little"))
    content.update(data.sum_over_blocks(_hash_records, salt).tobytes())
    content.update(data.gradient_sum(data.problem.loss, theta / np.linalg.norm(theta)).tobytes())
    return content.hexdigest()


def _hash_records(data: Dataset, salt: str) -> Floats:
    """Return a hash of the records as eight integers below 2^32, so that sums over partitions stay exact."""
    content = hashlib.sha256(salt.encode())
    for block in data.blocks():
        for values in (block.rows, block.labels, block.weights):
            content.update(b"none" if values is None else np.ascontiguousarray(values).data)
    return np.frombuffer(content.digest(), np.uint32).astype(float)


def run_plan(
    plan: Plan,
    data: Dataset | RecordReader,
    random_state: object = None,
    *,
    ledger: BudgetAccount | None = None,
    secure: bool = False,
    checkpoint: CheckpointPath = None,
    rows_per_person: int | None = None,
    flat_directions: Floats | None = None,
) -> Release:
    """Run a plan on data with the mechanism of its spec, and return the release.

    Parameters
    ----------
    plan : the problem, the spec and the certified guarantee.
    data : clipped records, or a RecordReader, which reads them after the charge.
    random_state : a seed or a generator, for tests only: whoever knows it can remove the noise.
    ledger : the budget account to charge.
    secure : True refuses a plan whose proof is about real-valued noise instead of exact noise on integers.
    checkpoint : path of a private file from which the same call resumes after a crash, with the same noise and
        charged once.
    rows_per_person : the most records of one person, where the guarantee is for persons; the ledger must state the
        same.
    flat_directions : public directions [columns, k] in which the rows of a schema do not differ, for intervals.
    """
    if secure and plan.guarantee.arithmetic != "discrete-grid":
        raise AssumptionFailed(
            f"secure mode has no proof for {plan.guarantee.theorem} ({plan.spec.mechanism}): its noise is "
            "real-valued. Plan with a spec with secure=True, or with secure=True of an estimator; hidden-state "
            "bounds and posterior draws have no secure form."
        )
    mechanism = mechanism_for(type(plan.spec))
    if mechanism is None:
        raise InvalidParameter(
            "this plan needs a public mirror map; use PublicMirrorDescent(mirror).run(plan, data)."
        )
    mechanism.flat_directions = flat_directions
    release: Release = mechanism.run(
        plan, data, random_state, ledger=ledger, checkpoint=checkpoint, rows_per_person=rows_per_person
    )
    return release
