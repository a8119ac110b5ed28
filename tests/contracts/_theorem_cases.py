"""One run per theorem on which the shared laws are tested, and its hypotheses, each broken in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dplangevin.accounting.plan import Spec
from dplangevin.mechanisms.exponential.spec import ExponentialSpec, GibbsSpec, IteratedExponentialSpec
from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec
from dplangevin.mechanisms.noisy_answers.spec import (
    CorrectedAnswersSpec,
    MaxNormSpec,
    NoisyAnswersSpec,
    NoisyMaxSpec,
    NoisySumsSpec,
    SumGroup,
)
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec, OutputPerturbationSpec
from dplangevin.mechanisms.rashomon.spec import RashomonChainSpec, RashomonSpec
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec
from dplangevin.mechanisms.ridge_whitened.spec import RidgeWhitenedSpec
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec
from dplangevin.mechanisms.whitened.spec import WhitenedSpec
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec
from dplangevin.problem.constants import Constants

Changes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """constants and spec of a run; changes of the spec; (words of the refusal, changes of both) per hypothesis.

    constants : None for noisy answers, whose specs state their own neighbours.
    noisier : changes that add noise. gentler : changes of such a spec that lower what a record can do.
    longer : changes that add steps or releases, empty when there are none to add.
    in_rows : the noise is stated in units of the largest row, so that shorter rows alone change nothing.
    broken : a hypothesis in words, with changes of the constants and of the spec that break it.
    """

    constants: Constants | None
    spec: Spec
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


def _batches(sampling: str, **more: Any) -> NoisyGradientSpec:
    return NoisyGradientSpec(
        step_size=0.1 if sampling == "poisson" else 0.5,
        noise_std=0.4,
        n_steps=60,
        batch_size=50,
        sampling=sampling,  # type: ignore[arg-type]
        **more,
    )


def _gradient(run_spec: NoisyGradientSpec, *broken: tuple[str, Changes, Changes], **constants: Any) -> Case:
    noise = float(run_spec.noise_std)  # type: ignore[arg-type]
    return Case(
        constants=replace(BASE, **constants),
        spec=run_spec,
        noisier={"noise_std": 1.5 * noise},
        longer={"n_steps": 2 * int(run_spec.n_steps)},
        broken=broken,
    )


_AVERAGES = (("whole path", {}, {"release": "trajectory"}), ("whole path", {}, {"release": "average"}))
_ROUGH = ("smoothness", {"smoothness": math.inf}, {})
_LANGEVIN: dict[str, tuple[tuple[str, Changes, Changes], ...]] = {
    "composition": (("number of steps", {}, ENDLESS),),
    "optimal-shift": (*_AVERAGES, _ROUGH),
    "block-recursion": (*_AVERAGES, _ROUGH, ("bounded set", UNBOUNDED, {})),
    "dobrushin": (*_AVERAGES, _ROUGH, ("bounded set", UNBOUNDED, {})),
}


def _langevin(*broken: tuple[str, Changes, Changes]) -> Case:
    return Case(
        constants=BASE,
        spec=LangevinSpec(inverse_temperature=300.0, time_step=0.5 / 300, n_steps=60),
        noisier={"inverse_temperature": 200.0, "time_step": 0.5 / 200},
        longer={"n_steps": 120},
        broken=broken,
    )


_FULL_RUN = NoisyGradientSpec(step_size=0.5, noise_std=0.05, n_steps=60)
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
    ("would share a permutation", {}, CHECKPOINTS),
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
_STAGE = ExponentialSpec(inverse_temperature=100.0)
_CHAINS = RashomonChainSpec(
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

CASES: dict[tuple[type[Spec], str], Case] = {
    (NoisyGradientSpec, "composition"): _gradient(
        _FULL_RUN,
        ("starting point may depend", {}, UNKNOWN),
        ("without bound", {}, ENDLESS),
        ("larger than n", {"n": 40}, _CYCLIC),
        ("not defined under adjacency", ADD_REMOVE, _CYCLIC),
    ),
    (NoisyGradientSpec, "opposite-records"): _gradient(
        _batches("poisson"),
        ("starting point may depend", {}, UNKNOWN),
        ("without bound", {}, ENDLESS),
        ("larger than n", {"n": 40}, {}),
        ("Poisson batches under replace-one", ADD_REMOVE, {}),
        ("Poisson batches under replace-one", {}, {"sampling": "without-replacement"}),
    ),
    (NoisyGradientSpec, "optimal-shift"): _gradient(
        _FULL_RUN,
        *PATH,
        ("not full batch", {}, _CYCLIC),
        ("unknown start needs a bounded set", UNBOUNDED, UNKNOWN),
        ("expand distances", EXPANSIVE | UNBOUNDED, {}),
        APART,
    ),
    (NoisyGradientSpec, "cyclic-shift"): _gradient(
        _batches("cyclic"),
        *PATH,
        ("not cyclic", {}, FULL),
        ("unknown start needs a bounded set", UNBOUNDED, UNKNOWN),
        ("not defined under adjacency", ADD_REMOVE, {}),
        APART,
    ),
    (NoisyGradientSpec, "shuffled-shift"): _gradient(
        _batches("shuffle"), *_EPOCHS, ("not shuffle", {}, FULL), APART
    ),
    (NoisyGradientSpec, "secret-permutation"): _gradient(
        _batches("shuffle"),
        *_EPOCHS,
        _SECRET,
        ("not bounded", {}, ENDLESS),
        ("divides n", {}, {"batch_size": 499}),
    ),
    (NoisyGradientSpec, "block-recursion"): _gradient(
        _FULL_RUN, *_BOUNDED, ("expands distances", EXPANSIVE, {})
    ),
    (NoisyGradientSpec, "dobrushin"): _gradient(
        _FULL_RUN, *_BOUNDED, ("too wide", {"diameter": 1e6}, ENDLESS), diameter=0.02
    ),
    (NoisyGradientSpec, "hidden-state-sgd"): _gradient(_batches("without-replacement"), *_RANDOM, APART),
    (NoisyGradientSpec, "every-step-shift"): _gradient(
        _batches("without-replacement"),
        *_RANDOM,
        ("not covered", {}, CHECKPOINTS),
        ("expands distances", EXPANSIVE, {}),
        APART,
    ),
    (NoisyGradientSpec, "participation-start"): _gradient(
        _batches("poisson"),
        *_RANDOM[:-1],
        ("no proved bound under", {"adjacency": "replace-one"}, {}),
        ("not covered", {}, CHECKPOINTS),
        ("not convex", EXPANSIVE, {}),
        ("too large", {}, {"step_size": 15.0}),
        APART,
        **ADD_REMOVE,
    ),
    (NoisyGradientSpec, "block-sgd"): _gradient(
        _batches("without-replacement"),
        *_RANDOM,
        ("not covered", {}, CHECKPOINTS),
        ("bounded set", UNBOUNDED, {}),
    ),
    (ObjectivePerturbationSpec, "objective-perturbation"): Case(
        constants=BASE,
        spec=ObjectivePerturbationSpec(density_scale=3.0, tolerance=_PRECISE, release_density_scale=1e-3),
        noisier={"density_scale": 5.0},
        broken=(
            *_MINIMISER,
            ("no pure guarantee", {}, {"noise": "gaussian"}),
            ("rank", {"hessian_rank": None}, {}),
            ("dimension", {"dimension": None}, {}),
        ),
    ),
    (ObjectivePerturbationSpec, "gaussian-objective-perturbation"): Case(
        constants=BASE,
        spec=ObjectivePerturbationSpec(
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
    (OutputPerturbationSpec, "output-perturbation"): Case(
        constants=BASE,
        spec=OutputPerturbationSpec(density_scale=0.02, tolerance=_PRECISE, noise="gaussian"),
        noisier={"density_scale": 0.05},
        broken=_MINIMISER,
    ),
    (PublicMirrorSpec, "public-mirror-descent"): Case(
        constants=BASE,
        spec=PublicMirrorSpec(step_size=0.5, noise_std=0.02, n_steps=60),
        noisier={"noise_std": 0.05},
        longer={"n_steps": 120},
    ),
    (WhitenedSpec, "whitened-composition"): Case(
        constants=MOMENTS,
        spec=WhitenedSpec(
            moment_noise_std=0.01,
            noise_std=0.05,
            n_steps=32,
            step_size=4.0,
            coef_bound=10.0,
            n_moment_releases=2,
        ),
        noisier={"noise_std": 0.1},
        longer={"n_steps": 64},
        in_rows=True,
        broken=(("row norm", {"row_norm": None}, {}),),
    ),
    (RidgeWhitenedSpec, "ridge-whitened-composition"): Case(
        constants=MOMENTS,
        spec=RidgeWhitenedSpec(
            moment_noise_std=0.01,
            noise_std=0.01,
            step_cap=4.0,
            max_moment_releases=3,
            further_noise_std=0.05,
            further_fraction=0.2,
        ),
        noisier={"noise_std": 0.02, "further_noise_std": 0.1},
        in_rows=True,
        broken=(
            ("row norm", {"row_norm": None}, {}),
            ("costs more than its fraction", {}, {"further_noise_std": 1e-4}),
        ),
    ),
    (WhitenedObjectiveSpec, "whitened-objective-perturbation"): Case(
        constants=replace(MOMENTS, strong_convexity=0.0, smoothness=0.25, diameter=math.inf),
        spec=WhitenedObjectiveSpec(
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
    (SufficientStatisticsSpec, "sufficient-statistics"): Case(
        constants=MOMENTS,
        spec=SufficientStatisticsSpec(gram_noise_std=2.0, cross_noise_std=1.0, eigenvalue_floor=1.0),
        noisier={"cross_noise_std": 2.0},
        broken=(("row norm", {"row_norm": None}, {}), ("label", {"label_bound": None}, {})),
    ),
    (IteratedExponentialSpec, "iterated-exponential-mechanism"): Case(
        constants=BASE,
        spec=IteratedExponentialSpec(draws=(_STAGE, _STAGE), radii=(0.2,)),
        noisier={"radii": (0.1,)},
        longer={"draws": (_STAGE,) * 3, "radii": (0.2, 0.2)},
        broken=(("unbounded", UNBOUNDED, {}), ("not convex", {"convex": False}, {})),
    ),
    (RashomonSpec, "rashomon-local"): Case(
        constants=BASE,
        spec=RashomonSpec(
            n_models=3, threshold=0.05, inverse_temperature=100.0, tolerance=_PRECISE, max_excess=2.1
        ),
        noisier={"inverse_temperature": 50.0},
        longer={"n_models": 6},
        broken=(
            *_MINIMISER,
            ("dimension", {"dimension": None}, {}),
            ("ramp", {}, {"ramp": 0.01}),
            ("threshold is 0", {}, {"threshold": 0.0}),
            ("too short", {}, {"tier": "pure", "step_size": 0.1, "n_steps": 1}),
        ),
    ),
    (RashomonSpec, "rashomon-draws"): Case(
        constants=BASE,
        spec=RashomonSpec(
            n_models=3, threshold=0.05, inverse_temperature=100.0, tolerance=_PRECISE, max_excess=2.1
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
    (RashomonChainSpec, "rashomon-chains"): Case(
        constants=BASE,
        spec=_CHAINS,
        noisier={"inverse_temperature": 10.0},
        longer={"n_steps": 100},
        broken=(
            *_MINIMISER,
            ("below lipschitz", {}, {"full_lipschitz": 1.0}),
            ("too small to contain", {}, {"interior_minimizers": True}),
            ("zero of the gradient", {}, {"ramp": 0.0}),
        ),
    ),
}
_NOISE = NoisyAnswersSpec(answers=20, changed=2, sensitivity=1.0, p=2.5, sigma=8.0)
CASES |= {
    (NoisySumsSpec, "noisy sums"): Case(
        constants=None,
        spec=NoisySumsSpec(
            groups=(SumGroup(answers=3, unit=1.0, scale=4.0),), noise="gaussian", adjacency="replace-one"
        ),
        noisier={"groups": (SumGroup(answers=3, unit=1.0, scale=8.0),)},
        gentler={"groups": (SumGroup(answers=3, unit=0.8, scale=4.0),)},
        longer={"groups": (SumGroup(answers=3, unit=1.0, scale=4.0),) * 2},
    ),
    (NoisyMaxSpec, "report noisy max"): Case(
        constants=None,
        spec=NoisyMaxSpec(candidates=5, unit=1.0, scale=4.0, adjacency="replace-one"),
        noisier={"scale": 8.0},
        gentler={"unit": 0.8},
    ),
    (RepeatedSelectionSpec, "repeat and select"): Case(
        constants=None,
        spec=RepeatedSelectionSpec(mu=0.2, repetitions=10, adjacency="replace-one"),
        noisier={"mu": 0.1},
        gentler={"mu": 0.15},
        longer={"repetitions": 20},
    ),
    (LearnedSchemaSpec, "learned schema"): Case(
        constants=None,
        spec=LearnedSchemaSpec(
            n_numbers=2,
            n_cells=9,
            n_categories=1,
            noise="gaussian",
            scale=8.0,
            threshold=60.0,
            adjacency="replace-one",
        ),
        noisier={"scale": 10.0},
        gentler={"n_numbers": 1},
    ),
    (SlackSpec, "noisy slack"): Case(
        constants=None,
        spec=SlackSpec(unit=1.0, scale=8.0, adjacency="replace-one"),
        noisier={"scale": 16.0},
        gentler={"unit": 0.8},
    ),
    (NoisyAnswersSpec, "worst-shift"): Case(
        constants=None,
        spec=_NOISE,
        noisier={"sigma": 12.0},
        gentler={"sensitivity": 0.8},
        longer={"changed": 4},
    ),
    **{(LangevinSpec, name): _langevin(*broken) for name, broken in _LANGEVIN.items()},
    (DiffusionSpec, "diffusion-path"): Case(
        constants=BASE,
        spec=DiffusionSpec(inverse_temperature=50.0, time=0.2, release="trajectory"),
        noisier={"inverse_temperature": 30.0},
        longer={"time": 0.4},
        broken=(("without bound in time", {}, {"time": math.inf}),),
    ),
    (DiffusionSpec, "diffusion-end"): Case(
        constants=BASE,
        spec=DiffusionSpec(inverse_temperature=50.0, time=0.2),
        noisier={"inverse_temperature": 30.0},
        longer={"time": 0.4},
        broken=(
            ("whole path", {}, {"release": "trajectory"}),
            ("not constant", {}, {"exponent": 1.0}),
            ("not convex", EXPANSIVE, {}),
        ),
    ),
    **{
        (type(spec), "log-sobolev"): Case(
            constants=replace(BASE, log_sobolev=1.0),
            spec=spec,
            noisier={"inverse_temperature": 30.0},
            longer=longer,
            broken=(
                ("constant is stated", {"log_sobolev": None}, {}),
                ("than the end point", {}, {"release": "trajectory"}),
            ),
        )
        for spec, longer in (
            (DiffusionSpec(inverse_temperature=50.0, time=0.2), {"time": 0.4}),
            (LangevinSpec(inverse_temperature=50.0, time_step=0.005, n_steps=40), {"n_steps": 80}),
        )
    },
    (UnderdampedSpec, "underdamped-trajectory"): Case(
        constants=BASE,
        spec=UnderdampedSpec(inverse_temperature=50.0, step_size=0.1, n_steps=40),
        noisier={"inverse_temperature": 30.0},
        longer={"n_steps": 80},
    ),
    (MaxNormSpec, "norm noise"): Case(
        constants=None,
        spec=MaxNormSpec(answers=20, changed=4, sensitivity=1.0, scale=8.0),
        noisier={"scale": 12.0},
        gentler={"sensitivity": 0.8},
    ),
    (CorrectedAnswersSpec, "worst-shift"): Case(
        constants=None,
        spec=CorrectedAnswersSpec(
            noise=_NOISE, max_corrections=2, search_epsilon=0.05, answer_epsilon=0.05, threshold=10.0
        ),
        noisier={"search_epsilon": 0.02},
        gentler={"noise": replace(_NOISE, sensitivity=0.8)},
        longer={"max_corrections": 4},
    ),
}
for _family, _spec in (
    (ExponentialSpec, _STAGE),
    (GibbsSpec, GibbsSpec(inverse_temperature=100.0)),
):
    for _name, _hypotheses in (("exponential-mechanism", _EXPONENTIAL), ("strongly-convex-gibbs", _GIBBS)):
        CASES[_family, _name] = Case(
            constants=BASE, spec=_spec, noisier={"inverse_temperature": 50.0}, broken=_hypotheses
        )
