"""Arrays, files and Dask: every mechanism, the same plan and the same noise give the same release.

Files are read in the blocks of arrays, so releases are equal bit for bit. On Dask the same numbers are added in another
order: sums differ by about 1e-14 of their size, and releases by what solvers and steps make of that, within TOLERANCE.
Rejection samplers compare a uniform number with a ratio of densities: rounding changes one decision in about 1e13, so
that all homes accept the same proposals, and draws differ by rounding too. Integer sums are equal in every bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from _registered import MECHANISMS, THEOREMS_BY_SPEC
from dplangevin.accounting.plan import CertifiedSpec, Plan, Spec
from dplangevin.data import ArrayDataset, ArraySource, ArrowSource, Dataset, ScratchDataset
from dplangevin.mechanisms.exponential.mechanism import UNCERTIFIED_SAMPLERS, run_uncertified_chains
from dplangevin.mechanisms.exponential.sampler_plans import plan_sampler
from dplangevin.mechanisms.exponential.spec import ExponentialSpec, IteratedExponentialSpec
from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import public_mirror_map
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.mechanisms.moments.spec import calibrate_sufficient_statistics
from dplangevin.mechanisms.noisy_answers.curvature import curvature_groups, release_curvature
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec, calibrate_noisy_sums
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
)
from dplangevin.mechanisms.ridge_whitened.spec import RidgeWhitenedSpec
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec
from dplangevin.mechanisms.whitened.spec import WhitenedSpec
from dplangevin.mechanisms.whitened_objective import mechanism
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec
from dplangevin.problem import (
    Ball,
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Problem,
    Sigmoid,
    Softmax,
    Squared,
    WholeSpace,
)
from dplangevin.rashomon import plan_rashomon

distributed = pytest.importorskip("distributed", reason="dask is not installed")
da = pytest.importorskip("dask.array")
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

from dplangevin.data.dask import DaskDataset  # noqa: E402

TOLERANCE = {"rtol": 1e-7, "atol": 1e-9}
N, P, SEED, DELTA = 600, 2, 3, 1e-5
PARTS = (250, 0, 33, 317)  # unequal partitions, one of them empty
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, P))
SIGNAL = X @ np.array([1.0, -0.5])
LABELS = (SIGNAL + 0.3 * rng.standard_normal(N) > 0).astype(float)
TARGETS = np.clip(SIGNAL + 0.1 * rng.standard_normal(N), -1, 1)
WEIGHTS = rng.random(N)


class Case(NamedTuple):
    """What is run on each home."""

    problem: Problem
    release: Callable[[Dataset], Any]
    spec: Spec | None
    weighted: bool = False
    exact: bool = False


def stated(loss: Any = None, **changes: Any) -> Problem:
    chosen = loss or Logistic()
    labels: dict[str, Any] = {"classes": 2} if chosen.label_range == (0, 1) else {"target": (-1.0, 1.0)}
    options: dict[str, Any] = {
        "loss": chosen,
        "bounds": DataBounds(data_norm=1.5, **labels),
        "n": N,
        "n_features": P,
    }
    return Problem(**(options | {"constraint": Ball(1.0), "ridge": 0.05, "fit_intercept": False} | changes))


def planned(problem: Problem, spec: Spec, delta: float = DELTA, **more: Any) -> Case:
    return of_plan(Plan(problem=problem, spec=spec, delta=delta), **more)


def of_plan(plan: Plan, **more: Any) -> Case:
    return Case(plan.problem, functools.partial(_run, plan), plan.spec, **more)


def _run(plan: Plan, data: Dataset) -> Any:
    release = run_plan(plan, data, SEED)
    return [release.value, *release.iterates.values()]


def descent(sampling: str, **changes: Any) -> Case:
    adjacency = "add-remove" if sampling == "poisson" else "replace-one"
    size = None if sampling == "full" else 100
    spec = NoisyGradientSpec(step_size=0.5, noise_std=0.3, n_steps=12, sampling=sampling, batch_size=size)
    problem = stated(adjacency=adjacency, **changes)
    weighted = problem.bounds.weight_bound != 1
    return of_plan(Plan(problem=problem, spec=spec, delta=DELTA, theorem="composition"), weighted=weighted)


def whitened(n_moment_releases: int = 2, approach: int = 0, **changes: Any) -> Case:
    spec = WhitenedSpec(
        moment_noise_std=0.01, noise_std=0.05, n_steps=8, step_size=2.0, coef_bound=5.0, average_from=3,
        n_moment_releases=n_moment_releases,
        shrink=n_moment_releases == 1, n_approach_steps=approach, max_steps=12,
    )  # fmt: skip
    problem = stated(**({"constraint": WholeSpace(), "ridge": 0.0} | changes))
    return planned(problem, spec, weighted=problem.bounds.weight_bound != 1)


def ridge_whitened(releases: int = 3, **changes: Any) -> Case:
    spec = RidgeWhitenedSpec(
        moment_noise_std=0.003, noise_std=0.01, step_cap=4.0, max_moment_releases=releases, further_noise_std=0.1,
        further_fraction=0.2,
    )  # fmt: skip
    problem = stated(**({"constraint": WholeSpace(), "ridge": 0.0} | changes))
    return planned(problem, spec, weighted=problem.bounds.weight_bound != 1)


def whitened_objective(**changes: Any) -> Case:
    spec = WhitenedObjectiveSpec(
        moment_density_scale=0.01,
        ridge=0.02,
        density_scale=2.0,
        tolerance=1e-7,
        release_density_scale=1e-5,
        coef_bound=500.0,
    )
    problem = stated(**({"constraint": WholeSpace(), "ridge": 0.0} | changes))
    return planned(problem, spec, weighted=problem.bounds.weight_bound != 1)


def block_by_block() -> Case:
    """As where whitened rows do not fit in memory."""
    case = whitened_objective()

    def release(data: Dataset) -> Any:
        with mock.patch.object(mechanism, "MAX_BYTES_IN_MEMORY", 0):
            return case.release(data)

    return case._replace(release=release)


def gated() -> Case:
    spec = NoisyGradientSpec(
        step_size=0.5,
        noise_std=0.3,
        n_steps=12,
        release="average",
        average_from=4,
        momentum=True,
        weights="gated",
    )
    return planned(stated(constraint=WholeSpace(), ridge=0.0), spec)


def secure(**changes: Any) -> Case:
    fields: dict[str, Any] = {"step_size": 0.5, "noise_std": 0.5, "n_steps": 6}
    return planned(stated(), NoisyGradientSpec(**(fields | changes), secure=True), exact=True)


def sampled(tier: Any, loss: Any = None, *, epsilon: float = 1.0, delta: float = 0.0, **changes: Any) -> Case:
    options = {key: changes.pop(key) for key in ("law", "grid") if key in changes}
    found = plan_sampler(stated(loss, **changes), epsilon, delta, tier, verbose=False, **options)
    return of_plan(found.plan)


def perturbed(calibrated: Callable[..., Spec], delta: float, **changes: Any) -> Case:
    problem = stated(**({"constraint": WholeSpace()} | changes))
    return planned(problem, calibrated(problem.constants, epsilon=1.0, delta=delta), delta)


def rashomon(n_features: int = P, ridge: float = 0.01, **options: Any) -> Case:
    fields: dict[str, Any] = {"threshold": 0.1, "n_models": 3, "epsilon": 1.0}
    problem = stated(ridge=ridge, n_features=n_features)
    return of_plan(plan_rashomon(problem, **(fields | options)).plan)


def iterated() -> Case:
    draws = tuple(ExponentialSpec(inverse_temperature=beta) for beta in (20.0, 60.0))
    return planned(stated(n_features=1), IteratedExponentialSpec(draws=draws, radii=(0.5,)), 0.0)


def mirror(mode: str) -> Case:
    problem = stated(constraint=Ball(2.0))
    fields: dict[str, Any] = {"step_size": 0.5, "noise_std": 0.2, "n_steps": 5, "mode": mode}
    spec = PublicMirrorSpec(**fields, mixing=0.7 if mode == "mix" else None)
    plan = Plan(problem=problem, spec=spec, delta=DELTA)
    public = public_mirror_map(X[:50] / 2, LABELS[:50], problem)
    return Case(problem, lambda data: PublicMirrorDescent(public).run(plan, data, SEED).value, spec)


def curvature(loss: Any, delta: float, *, dispersion: bool = False, slope_moment: bool = False) -> Case:
    problem = stated(loss)
    groups = curvature_groups(problem, dispersion=dispersion, slope_moment=slope_moment)
    noise: Any = "gaussian" if delta else "gamma"
    sums = calibrate_noisy_sums(groups, epsilon=1.0, delta=delta, noise=noise, adjacency="replace-one")
    plan = CertifiedSpec(spec=sums, delta=delta)
    theta = np.linspace(0.3, -0.2, problem.dimension)

    def release(data: Dataset) -> list[Any]:
        found = release_curvature(plan, data, theta, np.random.default_rng(SEED))
        return [
            v
            for v in (found.matrix, found.squared_slopes, found.curvature_sum, found.slope_moment)
            if v is not None
        ]

    return Case(problem, release, None)


def diagnosed(sampler: Any) -> Case:
    def release(data: Dataset) -> Any:
        return run_uncertified_chains(
            data, inverse_temperature=20.0, sampler=sampler, n_steps=5, n_chains=3, random_state=SEED
        ).value

    constraint = {} if sampler in ("mala", "hit-and-run") else {"constraint": WholeSpace()}
    return Case(stated(**constraint), release, None)


SQUARE = Clipped(Squared(), 3.0)  # no admissible residual reaches the clip on the unit ball
CASES: dict[str, Callable[[], Case]] = {
    **{
        f"noisy-gd {s}": functools.partial(descent, s)
        for s in ("full", "poisson", "shuffle", "without-replacement")
    },
    "noisy-gd multinomial": lambda: descent("full", loss=Softmax(n_classes=2), fit_intercept=True),
    "noisy-gd weighted": lambda: descent(
        "full", bounds=DataBounds(data_norm=1.5, classes=2, weight_bound=0.7)
    ),
    "noisy-gd moments": lambda: descent("full", loss=SQUARE, constraint=Ball(0.5)),
    "noisy-gd gated": gated,
    "whitened": whitened,
    "ridge-whitened": ridge_whitened,
    "ridge-whitened once": lambda: ridge_whitened(1, fit_intercept=True),
    "ridge-whitened, rows as they are": lambda: ridge_whitened(0),
    "ridge-whitened multinomial": lambda: ridge_whitened(loss=Softmax(n_classes=2, slope_clip=0.25)),
    "whitened approach": lambda: whitened(approach=3),
    "whitened once": lambda: whitened(1, fit_intercept=True),
    "whitened multinomial": lambda: whitened(loss=Softmax(n_classes=2)),
    "whitened weighted": lambda: whitened(bounds=DataBounds(data_norm=1.5, classes=2, weight_bound=0.7)),
    "whitened objective": whitened_objective,
    "whitened objective, block by block": block_by_block,
    "whitened objective multinomial": lambda: whitened_objective(
        loss=Softmax(n_classes=2), fit_intercept=True
    ),
    "whitened objective weighted": lambda: whitened_objective(
        loss=SQUARE, bounds=DataBounds(data_norm=1.5, target=(-1.0, 1.0), weight_bound=0.7)
    ),
    "secure full": secure,
    "secure shuffle": lambda: secure(sampling="shuffle", batch_size=100),
    "secure subsets": lambda: secure(sampling="without-replacement", batch_size=100),
    "objective perturbation": lambda: perturbed(calibrate_objective_perturbation, 0.0),
    "objective perturbation, ball": lambda: perturbed(
        calibrate_objective_perturbation, DELTA, constraint=Ball(0.5)
    ),
    "output perturbation": lambda: perturbed(calibrate_output_perturbation, DELTA),
    "sufficient statistics": lambda: perturbed(calibrate_sufficient_statistics, DELTA, loss=SQUARE),
    "exponential line": lambda: sampled("exact", n_features=1, ridge=0.0),
    "exponential grid": lambda: sampled("exact", Sigmoid(), grid=15, ridge=0.0),
    "exponential gaussian": lambda: sampled("exact", SQUARE, law="exponential"),
    "exponential logistic": lambda: sampled("exact", law="exponential"),
    "exponential on the sphere": lambda: sampled(
        "exact", law="exponential", epsilon=20.0, constraint=Ball(0.3)
    ),
    "exponential pure": lambda: sampled("pure", Huber(transition=0.5)),
    "exponential certified": lambda: sampled("certified", delta=DELTA, law="exponential"),
    "gibbs": lambda: sampled("exact", delta=DELTA, law="gibbs"),
    "gibbs certified": lambda: sampled("certified", delta=DELTA, law="gibbs"),
    "iterated exponential": iterated,
    "underdamped": lambda: planned(
        stated(constraint=WholeSpace()),
        UnderdampedSpec(inverse_temperature=5.0, step_size=0.1, n_steps=6),
    ),
    "langevin": lambda: planned(
        stated(), LangevinSpec(inverse_temperature=20.0, time_step=0.02, n_steps=8, release="trajectory")
    ),
    "rashomon line": lambda: rashomon(n_features=1),
    "rashomon exact": lambda: rashomon(tier="exact"),
    "rashomon certified": lambda: rashomon(tier="certified", delta=DELTA, ridge=0.1),
    "rashomon chains": lambda: rashomon(route="trajectory", delta=DELTA, n_steps=20, ridge=2.0),
    **{f"public {mode}": functools.partial(mirror, mode) for mode in ("mirror", "mix", "gradient")},
    "curvature logistic": lambda: curvature(Logistic(), 0.0),
    "curvature squared": lambda: curvature(SQUARE, DELTA, dispersion=True),
    "curvature with squared slopes": lambda: curvature(Huber(transition=0.5), DELTA, slope_moment=True),
    "curvature multinomial": lambda: curvature(Softmax(n_classes=2), DELTA),
    **{f"diagnosed {name}": functools.partial(diagnosed, name) for name in UNCERTIFIED_SAMPLERS},
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as found:
        yield found


def records(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    labels = LABELS if case.problem.bounds.classes else TARGETS
    return X[:, : case.problem.n_features], labels, WEIGHTS if case.weighted else None


def on_files(case: Case, folder: Path) -> list[ScratchDataset]:
    """The records from two Parquet files, and from memory-mapped arrays."""
    features, labels, weights = records(case)
    columns = {f"x{j}": features[:, j] for j in range(features.shape[1])} | {"y": labels}
    if weights is not None:
        columns["w"] = weights
    paths = [folder / "a.parquet", folder / "b.parquet"]
    for path, part in zip(paths, np.split(np.arange(N), [211]), strict=True):
        pq.write_table(pa.table({name: column[part] for name, column in columns.items()}), path)
    np.save(folder / "X.npy", features)
    sources = (
        ArrowSource(paths, "y", weight=None if weights is None else "w"),
        ArraySource(np.load(folder / "X.npy", mmap_mode="r"), labels, weights),
    )
    return [ScratchDataset(source, case.problem) for source in sources]


def on_dask(case: Case, client: Any) -> DaskDataset:
    arrays = [v if v is None else _in_parts(v) for v in records(case)]
    return DaskDataset(arrays[0], arrays[1], case.problem, arrays[2], client=client)


def _in_parts(values: np.ndarray) -> Any:
    return da.from_array(values, chunks=(PARTS, *((size,) for size in values.shape[1:])))


@pytest.fixture
def no_record_travels(monkeypatch) -> None:
    """Whoever asks a data set on Dask for its records fails: sums are all that the driver may see."""

    def refuse(self: DaskDataset, rows: Any = None) -> Any:
        raise AssertionError("records were asked for on the driver")

    monkeypatch.setattr(DaskDataset, "blocks", refuse)


@pytest.mark.parametrize("name", CASES)
def test_every_home_gives_the_same_release(
    name: str, client: Any, tmp_path: Path, no_record_travels: None
) -> None:
    case = CASES[name]()

    def released(data: Dataset) -> list[np.ndarray]:
        return [np.asarray(value, float) for value in case.release(data)]

    features, labels, weights = records(case)
    expected = released(ArrayDataset(features, labels, case.problem, weights))
    assert all(np.isfinite(value).all() for value in expected)
    for data in on_files(case, tmp_path):
        for found, wanted in zip(released(data), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    tolerance = {"rtol": 0.0, "atol": 0.0} if case.exact else TOLERANCE
    for found, wanted in zip(released(on_dask(case, client)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, **tolerance)


def test_long_rows_are_not_summed_by_moments_on_a_cluster(client: Any) -> None:
    """Rows that were stretched may reach a clip that the bounds of the problem rule out; see QuadraticGradients."""
    case = planned(stated(Clipped(Squared(), 2.0), constraint=WholeSpace(), ridge=0.0), descent("full").spec)
    theta = np.array([[0.3], [0.3]])
    homes = [on_dask(case, client), ArrayDataset(*records(case)[:2], case.problem)]
    kept, local = (mechanism.make_whitened_dataset(data, 10 * np.eye(P)) for data in homes)
    wanted = mechanism.WhitenedDataset(homes[1], 10 * np.eye(P)).gradient_sum(case.problem.loss, theta)
    for data in (kept, local):
        for _ in range(12):  # the shortcut, once its pass for the moments is repaid
            np.testing.assert_allclose(data.gradient_sum(case.problem.loss, theta), wanted, rtol=1e-12)


def test_every_mechanism_is_among_the_cases() -> None:
    tried = {type(case().spec) for case in CASES.values()}
    not_run = (AnswerSpec, DiffusionSpec)
    fits = {kind for kind in {*THEOREMS_BY_SPEC, *MECHANISMS} if not issubclass(kind, not_run)}
    assert fits <= tried


def test_asking_for_records_on_the_driver_is_noticed(client: Any, no_record_travels: None) -> None:
    data = on_dask(CASES["noisy-gd full"](), client)
    assert [len(part) for part in data._rows_by_partition(np.arange(N))] == list(PARTS)
    with pytest.raises(AssertionError, match="asked for on the driver"):
        next(data.blocks())
