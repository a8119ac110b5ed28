"""One run per theorem on which the shared laws are tested, and its hypotheses, each broken in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dplangevin.families.draws.schedule import ExponentialSchedule, GibbsSchedule, IteratedExponentialSchedule
from dplangevin.families.learned_schema.schedule import LearnedSchemaSchedule
from dplangevin.families.mirror_descent.schedule import PublicMirrorSchedule
from dplangevin.families.moments.schedule import SufficientStatisticsSchedule
from dplangevin.families.noisy_answers.schedule import (
    CorrectedAnswersSchedule,
    LargestNormSchedule,
    NoisyAnswersSchedule,
    NoisyMaxSchedule,
    NoisySumsSchedule,
    SumGroup,
)
from dplangevin.families.noisy_gradient.discrete_schedule import DiscreteGradientSchedule
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.families.rashomon.schedule import RashomonChainSchedule, RashomonSchedule
from dplangevin.families.rashomon_region.schedule import SlackSchedule
from dplangevin.families.repeated_selection.schedule import RepeatedSelectionSchedule
from dplangevin.families.underdamped.schedule import UnderdampedSchedule
from dplangevin.families.whitened.schedule import WhitenedSchedule
from dplangevin.families.whitened_objective.schedule import WhitenedObjectiveSchedule
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

Changes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """constants and schedule of a run; changes of the schedule; (words of the refusal, changes of both) per hypothesis.

    constants : None for noisy answers, whose schedules state their own neighbours.
    noisier : changes that add noise. gentler : changes of such a schedule that lower what a record can do.
    longer : changes that add steps or releases, empty when there are none to add.
    in_rows : the noise is stated in units of the largest row, so that shorter rows alone change nothing.
    broken : a hypothesis in words, with changes of the constants and of the schedule that break it.
    """

    constants: Constants | None
    schedule: Schedule
    noisier: Changes
    gentler: Changes = field(default_factory=dict)
    longer: Changes = field(default_factory=dict)
    in_rows: bool = False
    broken: tuple[tuple[str, Changes, Changes], ...] = ()


BASE = Constants(
    n=1000, lipschitz=1.0, smoothness=0.3, strong_convexity=0.05, diameter=1.0, dimension=4, hessian_rank=1
)
MOMENTS = replace(BASE, row_norm=1.0, label_bound=0.5)
ADD_REMOVE: Changes = {"adjacency": "add-remove", "gradient_sensitivity": math.nan}
UNBOUNDED: Changes = {"diameter": math.inf}
ENDLESS: Changes = {"n_steps": math.inf}
UNKNOWN: Changes = {"start": "unknown"}
PATH = (
    ("momentum", {}, {"momentum": True}),
    ("whole path", {}, {"release": "trajectory"}),
    ("whole path", {}, {"release": "average"}),
    ("smoothness", {"smoothness": math.inf}, {}),
)
APART = ("never forced together", {"diameter": math.inf, "strong_convexity": 0.0}, ENDLESS)
EXPANSIVE: Changes = {"convex": False}
VARYING: Changes = {"noise_std": tuple([0.05] * 60)}
CHECKPOINTS: Changes = {"release": "checkpoints", "checkpoints": (20, 60)}
FULL: Changes = {"sampling": "full", "batch_size": None}
INEXACT: Changes = {"projection_error": 1e-9}


def _batches(sampling: str, **more: Any) -> NoisyGradientSchedule:
    return NoisyGradientSchedule(
        step_size=0.1 if sampling == "poisson" else 0.5,
        noise_std=0.4,
        n_steps=60,
        batch_size=50,
        sampling=sampling,  # type: ignore[arg-type]
        **more,
    )


def _gradient(
    schedule: NoisyGradientSchedule, *broken: tuple[str, Changes, Changes], **constants: Any
) -> Case:
    noise = float(schedule.noise_std)  # type: ignore[arg-type]
    return Case(
        constants=replace(BASE, **constants),
        schedule=schedule,
        noisier={"noise_std": 1.5 * noise},
        longer={"n_steps": 2 * int(schedule.n_steps)},
        broken=broken,
    )


_FULL_RUN = NoisyGradientSchedule(step_size=0.5, noise_std=0.05, n_steps=60)
_CYCLIC = {"sampling": "cyclic", "batch_size": 50}
_BOUNDED = (
    *PATH,
    ("not full batch", {}, _CYCLIC),
    ("not the last iterate alone", {}, CHECKPOINTS),
    ("varies", {}, VARYING),
    ("starting point may depend", {}, UNKNOWN),
    ("bounded set", UNBOUNDED, {}),
    ("inexact", INEXACT, {}),
)
_RANDOM = (
    *PATH,
    ("fresh random batch", {}, FULL),
    ("starting point may depend", {}, UNKNOWN),
    ("inexact", INEXACT, {}),
    ("larger than n", {"n": 40}, {}),
    ("no proved bound under", ADD_REMOVE, {}),
)
_EPOCHS = (
    *PATH,
    ("shared by checkpoints", {}, CHECKPOINTS),
    ("varies", {}, {"noise_std": tuple([0.4] * 60)}),
    ("starting point may depend", {}, UNKNOWN),
    ("inexact", INEXACT, {}),
    ("expand distances", EXPANSIVE, {}),
    ("inside an epoch", {}, {"n_steps": 61}),
    ("not defined under adjacency", ADD_REMOVE, {}),
)
_MINIMISER = (
    ("not convex", {"convex": False}, {}),
    ("no ridge", {"strong_convexity": 0.0}, {}),
    ("smoothness", {"smoothness": math.inf}, {}),
    ("inexact", INEXACT, {}),
    ("double precision", {}, {"tolerance": 1e-14}),
)
_PRECISE = 1e-6
_CHAIN: Changes = {"tier": "certified", "step_size": 0.1, "n_steps": 50}
_DRAW_CHAIN = (
    ("not convex", {"convex": False}, _CHAIN),
    ("smoothness", {"smoothness": math.inf}, _CHAIN),
    ("dimension", {"dimension": None}, _CHAIN),
)
_EXPONENTIAL = (
    ("unbounded", UNBOUNDED, {}),
    ("not convex", {"convex": False}, {}),
    ("too short", {}, {"tier": "pure", "step_size": 0.1, "n_steps": 1}),
    *_DRAW_CHAIN,
)
_GIBBS = (
    ("grid", {"dimension": 2}, {"grid": 10}),
    ("pure tier", {}, {"tier": "pure", "step_size": 0.1, "n_steps": 5}),
    ("not convex", {"convex": False}, {}),
    ("strong_convexity is 0", {"strong_convexity": 0.0}, {}),
    *_DRAW_CHAIN[1:],
)
_STAGE = ExponentialSchedule(inverse_temperature=100.0)
_CHAINS = RashomonChainSchedule(
    n_models=2,
    threshold=0.05,
    inverse_temperature=20.0,
    tolerance=_PRECISE,
    full_lipschitz=2.0,
    step_size=1e-3,
    n_steps=50,
    ramp=0.1,
)
_SECRET = ("no secret uniform permutation", {}, {"sampling": "cyclic", "order": "public"})
_INTEGERS = {"batch_size": 50, "sampling": "cyclic"}

CASES: dict[tuple[type[Schedule], str], Case] = {
    (NoisyGradientSchedule, "composition"): _gradient(
        _FULL_RUN,
        ("starting point may depend", {}, UNKNOWN),
        ("without bound", {}, ENDLESS),
        ("larger than n", {"n": 40}, _CYCLIC),
        ("not defined under adjacency", ADD_REMOVE, _CYCLIC),
    ),
    (NoisyGradientSchedule, "opposite-records"): _gradient(
        _batches("poisson"),
        ("starting point may depend", {}, UNKNOWN),
        ("without bound", {}, ENDLESS),
        ("larger than n", {"n": 40}, {}),
        ("Poisson batches under replace-one", ADD_REMOVE, {}),
        ("Poisson batches under replace-one", {}, {"sampling": "without-replacement"}),
    ),
    (NoisyGradientSchedule, "optimal-shift"): _gradient(
        _FULL_RUN,
        *PATH,
        ("not full batch", {}, _CYCLIC),
        ("unknown start needs a bounded set", UNBOUNDED, UNKNOWN),
        ("expand distances", EXPANSIVE | UNBOUNDED, {}),
        APART,
    ),
    (NoisyGradientSchedule, "cyclic-shift"): _gradient(
        _batches("cyclic"),
        *PATH,
        ("not cyclic", {}, FULL),
        ("unknown start needs a bounded set", UNBOUNDED, UNKNOWN),
        ("not defined under adjacency", ADD_REMOVE, {}),
        APART,
    ),
    (NoisyGradientSchedule, "shuffled-shift"): _gradient(
        _batches("shuffle"), *_EPOCHS, ("not shuffle", {}, FULL), APART
    ),
    (NoisyGradientSchedule, "secret-permutation"): _gradient(
        _batches("shuffle"),
        *_EPOCHS,
        _SECRET,
        ("not bounded", {}, ENDLESS),
        ("divides n", {}, {"batch_size": 499}),
    ),
    (NoisyGradientSchedule, "block-recursion"): _gradient(
        _FULL_RUN, *_BOUNDED, ("expands distances", EXPANSIVE, {})
    ),
    (NoisyGradientSchedule, "dobrushin"): _gradient(
        _FULL_RUN, *_BOUNDED, ("too wide", {"diameter": 1e6}, ENDLESS), diameter=0.02
    ),
    (NoisyGradientSchedule, "hidden-state-sgd"): _gradient(_batches("without-replacement"), *_RANDOM, APART),
    (NoisyGradientSchedule, "every-step-shift"): _gradient(
        _batches("without-replacement"),
        *_RANDOM,
        ("not covered", {}, CHECKPOINTS),
        ("expands distances", EXPANSIVE, {}),
        APART,
    ),
    (NoisyGradientSchedule, "participation-start"): _gradient(
        _batches("poisson"),
        *_RANDOM[:-1],
        ("no proved bound under", {"adjacency": "replace-one"}, {}),
        ("not covered", {}, CHECKPOINTS),
        ("not convex", EXPANSIVE, {}),
        ("too large", {}, {"step_size": 15.0}),
        APART,
        **ADD_REMOVE,
    ),
    (NoisyGradientSchedule, "block-sgd"): _gradient(
        _batches("without-replacement"),
        *_RANDOM,
        ("not covered", {}, CHECKPOINTS),
        ("bounded set", UNBOUNDED, {}),
    ),
    (DiscreteGradientSchedule, "discrete-composition"): Case(
        constants=BASE,
        schedule=DiscreteGradientSchedule(step_size=0.5, noise_std=0.05, n_steps=60),
        noisier={"noise_std": 0.08},
        longer={"n_steps": 120},
        broken=(
            ("not defined under add-remove", ADD_REMOVE, _INTEGERS),
            ("larger than n", {"n": 40}, _INTEGERS),
            ("number of parameters", {"dimension": None}, {}),
            ("too long", {}, {"noise_std": 1e-9}),
        ),
    ),
    (ObjectivePerturbationSchedule, "objective-perturbation"): Case(
        constants=BASE,
        schedule=ObjectivePerturbationSchedule(
            density_scale=3.0, tolerance=_PRECISE, release_density_scale=1e-3
        ),
        noisier={"density_scale": 5.0},
        broken=(
            *_MINIMISER,
            ("no pure promise", {}, {"noise": "gaussian"}),
            ("rank", {"hessian_rank": None}, {}),
            ("dimension", {"dimension": None}, {}),
        ),
    ),
    (ObjectivePerturbationSchedule, "gaussian-objective-perturbation"): Case(
        constants=BASE,
        schedule=ObjectivePerturbationSchedule(
            density_scale=3.0, tolerance=_PRECISE, release_density_scale=1e-3, noise="gaussian"
        ),
        noisier={"density_scale": 5.0},
        broken=(
            *_MINIMISER,
            ("not Gaussian", {}, {"noise": "gamma"}),
            ("rank", {"hessian_rank": None}, {}),
            ("noise is", {}, {"density_scale": 0.01}),
        ),
    ),
    (OutputPerturbationSchedule, "output-perturbation"): Case(
        constants=BASE,
        schedule=OutputPerturbationSchedule(density_scale=0.02, tolerance=_PRECISE, noise="gaussian"),
        noisier={"density_scale": 0.05},
        broken=_MINIMISER,
    ),
    (PublicMirrorSchedule, "public-mirror-descent"): Case(
        constants=BASE,
        schedule=PublicMirrorSchedule(step_size=0.5, noise_std=0.02, n_steps=60),
        noisier={"noise_std": 0.05},
        longer={"n_steps": 120},
    ),
    (WhitenedSchedule, "whitened-composition"): Case(
        constants=MOMENTS,
        schedule=WhitenedSchedule(
            moment_noise_std=0.01, noise_std=0.05, n_steps=32, step_size=4.0, reach=10.0, looks=2
        ),
        noisier={"noise_std": 0.1},
        longer={"n_steps": 64},
        in_rows=True,
        broken=(("row norm", {"row_norm": None}, {}),),
    ),
    (WhitenedObjectiveSchedule, "whitened-objective-perturbation"): Case(
        constants=replace(MOMENTS, strong_convexity=0.0, smoothness=0.25, diameter=math.inf),
        schedule=WhitenedObjectiveSchedule(
            moment_density_scale=0.01,
            ridge=0.05,
            density_scale=10.0,
            tolerance=_PRECISE,
            release_density_scale=1e-4,
        ),
        noisier={"moment_density_scale": 0.02},
        in_rows=True,
        broken=(
            ("row norm", {"row_norm": None}, {}),
            ("ridge or a radius", {"strong_convexity": 0.01}, {}),
            ("ridge or a radius", {"diameter": 1.0}, {}),
            ("not convex", {"convex": False}, {}),
            ("smoothness", {"smoothness": math.inf}, {}),
            ("rank of one record", {"hessian_rank": None}, {}),
            ("double precision", {}, {"tolerance": 1e-12}),
        ),
    ),
    (SufficientStatisticsSchedule, "sufficient-statistics"): Case(
        constants=MOMENTS,
        schedule=SufficientStatisticsSchedule(gram_noise_std=2.0, cross_noise_std=1.0, eigenvalue_floor=1.0),
        noisier={"cross_noise_std": 2.0},
        broken=(("row norm", {"row_norm": None}, {}), ("label", {"label_bound": None}, {})),
    ),
    (IteratedExponentialSchedule, "iterated-exponential-mechanism"): Case(
        constants=BASE,
        schedule=IteratedExponentialSchedule(draws=(_STAGE, _STAGE), radii=(0.2,)),
        noisier={"radii": (0.1,)},
        longer={"draws": (_STAGE,) * 3, "radii": (0.2, 0.2)},
        broken=(("unbounded", UNBOUNDED, {}), ("not convex", {"convex": False}, {})),
    ),
    (RashomonSchedule, "rashomon-draws"): Case(
        constants=BASE,
        schedule=RashomonSchedule(
            n_models=3, threshold=0.05, inverse_temperature=100.0, tolerance=_PRECISE, excess=2.1
        ),
        noisier={"inverse_temperature": 50.0},
        longer={"n_models": 6},
        broken=(
            *_MINIMISER,
            ("dimension", {"dimension": None}, {}),
            ("unbounded", UNBOUNDED, {}),
            ("too short", {}, {"tier": "pure", "step_size": 0.1, "n_steps": 1}),
        ),
    ),
    (RashomonChainSchedule, "rashomon-chains"): Case(
        constants=BASE,
        schedule=_CHAINS,
        noisier={"inverse_temperature": 10.0},
        longer={"n_steps": 100},
        broken=(
            *_MINIMISER,
            ("below lipschitz", {}, {"full_lipschitz": 1.0}),
            ("too small to hold", {}, {"interior": True}),
            ("zero of the gradient", {}, {"ramp": 0.0}),
        ),
    ),
}
_NOISE = NoisyAnswersSchedule(answers=20, changed=2, sensitivity=1.0, p=2.5, sigma=8.0)
CASES |= {
    (NoisySumsSchedule, "noisy sums"): Case(
        constants=None,
        schedule=NoisySumsSchedule(
            groups=(SumGroup(answers=3, unit=1.0, scale=4.0),), noise="gaussian", adjacency="replace-one"
        ),
        noisier={"groups": (SumGroup(answers=3, unit=1.0, scale=8.0),)},
        gentler={"groups": (SumGroup(answers=3, unit=0.8, scale=4.0),)},
        longer={"groups": (SumGroup(answers=3, unit=1.0, scale=4.0),) * 2},
    ),
    (NoisyMaxSchedule, "report noisy max"): Case(
        constants=None,
        schedule=NoisyMaxSchedule(candidates=5, unit=1.0, scale=4.0, adjacency="replace-one"),
        noisier={"scale": 8.0},
        gentler={"unit": 0.8},
    ),
    (RepeatedSelectionSchedule, "repeat and select"): Case(
        constants=None,
        schedule=RepeatedSelectionSchedule(mu=0.2, repetitions=10, adjacency="replace-one"),
        noisier={"mu": 0.1},
        gentler={"mu": 0.15},
        longer={"repetitions": 20},
    ),
    (LearnedSchemaSchedule, "learned schema"): Case(
        constants=None,
        schedule=LearnedSchemaSchedule(
            numbers=2,
            cells=9,
            categories=1,
            noise="gaussian",
            scale=8.0,
            threshold=60.0,
            adjacency="replace-one",
        ),
        noisier={"scale": 10.0},
        gentler={"numbers": 1},
    ),
    (SlackSchedule, "noisy slack"): Case(
        constants=None,
        schedule=SlackSchedule(unit=1.0, scale=8.0, adjacency="replace-one"),
        noisier={"scale": 16.0},
        gentler={"unit": 0.8},
    ),
    (NoisyAnswersSchedule, "worst-shift"): Case(
        constants=None,
        schedule=_NOISE,
        noisier={"sigma": 12.0},
        gentler={"sensitivity": 0.8},
        longer={"changed": 4},
    ),
    (UnderdampedSchedule, "underdamped-trajectory"): Case(
        constants=BASE,
        schedule=UnderdampedSchedule(inverse_temperature=50.0, step_size=0.1, n_steps=40),
        noisier={"inverse_temperature": 30.0},
        longer={"n_steps": 80},
    ),
    (LargestNormSchedule, "norm noise"): Case(
        constants=None,
        schedule=LargestNormSchedule(answers=20, changed=4, sensitivity=1.0, scale=8.0),
        noisier={"scale": 12.0},
        gentler={"sensitivity": 0.8},
    ),
    (CorrectedAnswersSchedule, "worst-shift"): Case(
        constants=None,
        schedule=CorrectedAnswersSchedule(
            noise=_NOISE, hits=2, search_epsilon=0.05, answer_epsilon=0.05, threshold=10.0
        ),
        noisier={"search_epsilon": 0.02},
        gentler={"noise": replace(_NOISE, sensitivity=0.8)},
        longer={"hits": 4},
    ),
}
for _family, _schedule in (
    (ExponentialSchedule, _STAGE),
    (GibbsSchedule, GibbsSchedule(inverse_temperature=100.0)),
):
    for _name, _hypotheses in (("exponential-mechanism", _EXPONENTIAL), ("strongly-convex-gibbs", _GIBBS)):
        CASES[_family, _name] = Case(
            constants=BASE, schedule=_schedule, noisier={"inverse_temperature": 50.0}, broken=_hypotheses
        )
