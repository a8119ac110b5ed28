"""Secure counts, sums, choices, moments and minimisers: exact attacks on integer laws, sensitivities, refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, stats

from dplangevin import DPLogisticRegression, DPRidge
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter, NotPrivateError
from dplangevin.estimators.evaluation import private_score, private_selection
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mechanism import AnswersRelease
from dplangevin.mechanisms.mirror_descent.mechanism import PublicMirrorDescent
from dplangevin.mechanisms.mirror_descent.mirror_map import public_mirror_map
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec, calibrate_mirror_noise
from dplangevin.mechanisms.moments.mechanism import (
    integer_limits,
    integer_units,
    release_secure_moments,
    round_records,
)
from dplangevin.mechanisms.moments.spec import (
    SufficientStatisticsSpec,
    SufficientStatisticsTheorem,
    joint_sensitivity,
)
from dplangevin.mechanisms.noisy_answers.mechanism import (
    GeneralizedGaussianMechanism,
    GeneralizedGaussianNoise,
    permute_and_flip,
    to_whole_numbers,
)
from dplangevin.mechanisms.noisy_answers.spec import (
    CorrectedAnswersSpec,
    NoisyAnswersSpec,
    NoisyMaxSpec,
    NoisyMaxTheorem,
    NoisySumsSpec,
    NoisySumsTheorem,
    SumGroup,
    WorstShift,
)
from dplangevin.mechanisms.perturbation.spec import (
    OutputPerturbationTheorem,
    calibrate_output_perturbation,
)
from dplangevin.problem import Ball, Clipped, DataBounds, Problem, Squared
from dplangevin.queries import column, count_queries


def law(scale: float, p: float, half_width: int) -> np.ndarray:
    """P(round(X) = x) for |x| <= half_width; what is beyond is added to the ends."""
    ideal = stats.gennorm(p, scale=scale)
    half = -np.diff(ideal.sf(np.arange(half_width) + 0.5))
    return np.concatenate(
        [
            [ideal.sf(half_width - 0.5)],
            half[::-1],
            [1 - 2 * ideal.sf(0.5)],
            half,
            [ideal.sf(half_width - 0.5)],
        ]
    )


def leak(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """The exact delta of two laws: how much more likely some set is under one, both ways."""
    return max(
        float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((first, second), (second, first))
    )


@pytest.mark.parametrize(("p", "changed"), [(1.0, 1), (1.0, 2), (2.0, 1), (2.0, 2), (3.65, 1), (1.5, 2)])
def test_no_set_of_outputs_tells_more_than_was_promised(p: float, changed: int) -> None:
    """Enumerated on whole numbers for sigma = 6 grid steps and a shift of 4; half the noise is caught."""
    half_width, shift, sigma = 240, 4, 6.0
    spec = NoisyAnswersSpec(
        answers=changed, changed=changed, sensitivity=shift, p=p, sigma=sigma, secure=True
    )
    guarantee = WorstShift().certify(None, spec)
    assert guarantee.arithmetic == "discrete-grid"

    def pair(scale: float) -> tuple[np.ndarray, np.ndarray]:
        here = np.pad(law(scale, p, half_width), shift)
        there = np.roll(here, shift)
        return (here, there) if changed == 1 else (np.outer(here, here), np.outer(there, there))

    for epsilon in (0.0, 0.3, 1.5):
        claimed = guarantee.delta(epsilon)
        assert leak(*pair(sigma), epsilon) <= claimed * (1 + 1e-6) + 1e-12
        assert leak(*pair(sigma), epsilon) > 0.7 * claimed - 1e-9  # and little is given away
    assert leak(*pair(sigma / 2), 0.3) > 1.2 * guarantee.delta(0.3)


def test_rounding_the_exact_answers_needs_its_allowance() -> None:
    """Answers that differ by 1/2 may differ by a whole step once rounded: without the allowance it would be a lie."""
    here = np.pad(law(2.0, 2.0, 60), 1)
    guarantee = NoisyAnswersSpec(answers=1, changed=1, sensitivity=0.5, p=2.0, sigma=2.0, secure=True)
    assert leak(here, np.roll(here, 1), 0.2) > 1.5 * WorstShift().certify(None, guarantee).delta(0.2)
    with pytest.raises(InvalidParameter, match="whole numbers"):
        to_whole_numbers(np.array([0.5]))


@pytest.mark.parametrize("scale", [0.4, 1.0, 7.3])
def test_geometric_sums_meet_pure_epsilon_exactly(scale: float) -> None:
    x = np.arange(-400, 401)  # beyond, the ratio stays what it is
    here = np.exp(-np.abs(x) / scale) * math.tanh(1 / (2 * scale))
    guarantee = NoisySumsTheorem().certify(
        None,
        NoisySumsSpec(
            groups=(SumGroup(answers=1, unit=3, scale=scale),),
            noise="geometric",
            adjacency="add-remove",
            secure=True,
        ),
    )
    middle = slice(300, 501)
    worst = float(np.abs(np.log(here[middle] / np.roll(here, 3)[middle])).max())
    assert worst <= guarantee.epsilon() <= worst * (1 + 1e-6)


def flip_law(totals: np.ndarray, scale: float) -> np.ndarray:
    """Of permute-and-flip, by all orders."""
    heads = np.exp(-(totals.max() - totals) / scale)
    found = np.zeros(len(totals))
    for order in itertools.permutations(range(len(totals))):
        left = 1.0
        for candidate in order:
            found[candidate] += left * heads[candidate]
            left *= 1 - heads[candidate]
    return found / math.factorial(len(totals))


def largest_law(totals: np.ndarray, scale: float) -> np.ndarray:
    """Of the largest total + Exponential(scale), by integrating over the winner's noise."""

    def wins(i: int) -> float:
        def density(e: float) -> float:
            others = [
                max(-math.expm1(-max(totals[i] + e - q, 0.0) / scale), 0.0) for q in np.delete(totals, i)
            ]
            return math.exp(-e / scale) / scale * math.prod(others)

        points = sorted({max(float(q - totals[i]), 0.0) for q in totals})
        return float(integrate.quad(density, 0, points[-1] + 40 * scale, points=points, limit=400)[0])

    return np.array([wins(i) for i in range(len(totals))])


def test_permute_and_flip_is_the_largest_with_exponential_noise() -> None:
    for totals in ([0, 0, 3], [5, 1, 2, 2]):
        exact = flip_law(np.array(totals, float), 1.7)
        assert exact == pytest.approx(largest_law(np.array(totals, float), 1.7), abs=1e-7)
    source = np.random.default_rng(3).bytes
    chosen = [permute_and_flip(np.array([5, 1, 2, 2]), 1.7, source) for _ in range(4000)]
    expected = 4000 * flip_law(np.array([5.0, 1, 2, 2]), 1.7)
    assert stats.chisquare(np.bincount(chosen, minlength=4), expected).pvalue > 1e-4  # type: ignore[attr-defined]


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_choices_meet_pure_epsilon_for_all_small_neighbours(adjacency: str) -> None:
    """All pairs of totals of three candidates that one record can make; half the noise is caught."""
    spec = NoisyMaxSpec(candidates=3, unit=2, scale=2.5, adjacency=adjacency, secure=True)  # type: ignore[arg-type]
    guarantee = NoisyMaxTheorem().certify(None, spec)
    moves = range(-2, 3) if adjacency == "replace-one" else range(3)
    worst = dict.fromkeys((2.5, 1.25), 0.0)
    for totals in itertools.product(range(0, 7, 2), repeat=3):
        for move in itertools.product(moves, repeat=3):
            first, second = np.array(totals, float), np.array(totals, float) + move
            for scale in worst:
                ratio = np.log(flip_law(first, scale) / flip_law(second, scale))
                worst[scale] = max(worst[scale], float(np.abs(ratio).max()))
    assert 0.8 * guarantee.epsilon() < worst[2.5] <= guarantee.epsilon()
    assert worst[1.25] > guarantee.epsilon()


def test_secure_counts_have_the_error_of_plain_ones_and_no_low_bits() -> None:
    """Deviations agree within 1% (20,000 draws: 5 standard errors are 2.5%, so both are compared with the law)."""
    for options in ({"delta": 1e-6, "p": 3.65}, {"delta": 1e-6, "p": 2.0}, {"delta": 0.0}):
        plain = GeneralizedGaussianMechanism(k=20_000, epsilon=1.0, changed_counts=1, **options)  # type: ignore[arg-type]
        secure = replace(plain, secure=True)
        assert secure.sigma == plain.sigma
        assert secure.expected_maximum_error() == plain.expected_maximum_error()
        counts = np.arange(20_000)
        errors = secure.release(counts) - counts
        assert np.array_equal(errors / secure.grid, np.rint(errors / secure.grid))
        assert errors.std() == pytest.approx(secure.standard_deviation, rel=0.04)
        assert abs(errors.mean()) < 5 * secure.standard_deviation / math.sqrt(20_000)
        assert abs(np.mean(errors / secure.grid % 2) - 0.5) < 5 * 0.5 / math.sqrt(20_000)


def test_the_low_bit_attack_finds_nothing_in_secure_counts() -> None:
    """A textbook Laplace count in doubles gives itself away; every output of a secure count fits both neighbours."""
    rng, runs = np.random.default_rng(0), 2000

    def fits(output: float, count: float) -> bool:
        noise = output - count
        near = (noise, np.nextafter(noise, -np.inf), np.nextafter(noise, np.inf))
        return any(count + z == output for z in near)

    textbook = 0 + rng.laplace(scale=1.0, size=runs)
    assert sum(not fits(y, 1.0) for y in textbook) > runs / 20  # certain that the count was 0
    mechanism = GeneralizedGaussianMechanism(k=runs, epsilon=1.0, delta=0.0, changed_counts=1, secure=True)
    for truth in (0, 1):
        released = mechanism.release(np.full(runs, truth))
        assert all(fits(y, 0.0) and fits(y, 1.0) for y in released)


def test_counting_front_ends_count_in_secure_mode(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": np.arange(500) % 7, "b": np.linspace(0, 1, 500)})
    asked: dict[str, Any] = {
        "small": column("a") < 3,
        "share": lambda row: row["b"] / 3,
        "array": np.linspace(0, 1, 500),
    }
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=500.0, delta=1e-3)
    found = count_queries(table, asked, epsilon=100.0, delta=1e-6, p=2.0, secure=True, ledger=budget)
    assert found.values == pytest.approx([216, 500 / 6, 250], abs=3)
    grid = found.mechanism.grid
    assert np.array_equal(found.values / grid, np.rint(found.values / grid))
    assert budget.history()[0].guarantee.arithmetic == "discrete-grid"
    with pytest.raises(InvalidParameter, match="must be left out with secure=True"):
        count_queries(table, asked, epsilon=1.0, delta=1e-6, p=2.0, secure=True, random_state=1)


def test_exact_noise_is_the_default_and_a_seed_repeats_it() -> None:
    """Counts, scores and selections: exact without a word, the same bits for the same seed, real only if allowed."""
    table = pd.DataFrame({"a": np.arange(300) % 3})
    X, y = np.zeros((200, 1)), np.arange(200) % 2
    models = [_Constant(1), _Constant(0)]
    calls: list[Callable[..., Any]] = [
        lambda **how: count_queries(table, {"zero": column("a") == 0}, epsilon=1.0, delta=1e-6, **how),
        lambda **how: private_score(models[0], X, y, epsilon=1.0, delta=1e-6, **how),
        lambda **how: private_selection(models, X, y, epsilon=1.0, **how),
    ]
    for call in calls:
        released = [call(random_state=5) for _ in range(2)]
        guarantees = [getattr(each, "guarantee", None) or each.mechanism.guarantee for each in released]
        assert {each.arithmetic for each in guarantees} == {"discrete-grid"}
        values = [
            getattr(each, "values", getattr(each, "value", getattr(each, "index", None))) for each in released
        ]
        assert np.array_equal(*values)
        loose = call(secure=False, random_state=5)
        assert (getattr(loose, "guarantee", None) or loose.mechanism.guarantee).arithmetic == "real"


def test_an_interrupted_exact_release_is_delivered_and_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noisy counts are saved before anybody sees them: a crash after the draw gives the same counts."""
    table, asked = pd.DataFrame({"a": np.arange(300) % 3}), {"zero": column("a") == 0}
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=3.0, delta=1e-3)
    drawn: list[np.ndarray] = []
    release = GeneralizedGaussianNoise.release_answers

    def draw_then_crash(self: Any, *arguments: Any) -> Any:
        drawn.append(release(self, *arguments)[0])
        return (drawn[-1],)

    monkeypatch.setattr(GeneralizedGaussianNoise, "release_answers", draw_then_crash)
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "p": 2.0, "checkpoint": tmp_path / "state"}
    monkeypatch.setattr(AnswersRelease, "digest", _interrupt)
    with pytest.warns(UserWarning, match="keep it secret"), pytest.raises(KeyboardInterrupt):
        count_queries(table, asked, ledger=budget, **options)
    monkeypatch.undo()
    resumed = count_queries(table, asked, ledger=budget, **options)
    assert len(drawn) == 1
    assert np.array_equal(resumed.values, drawn[0])
    assert len(budget.history()) == 1


def _interrupt(self: Any) -> str:
    raise KeyboardInterrupt


def test_releases_of_counts_take_a_ledger(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=3.0, delta=1e-3)
    for secure in (False, True):
        GeneralizedGaussianMechanism(k=3, epsilon=1.0, delta=1e-6, p=2.0, secure=secure).release(
            [1, 2, 3], ledger=budget
        )
    assert [entry.guarantee.arithmetic for entry in budget.history()] == ["real", "discrete-grid"]


class _Constant:
    classes_ = np.array([0, 1])

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), self.answer)


def test_secure_scores_and_choices() -> None:
    X, y = np.zeros((2000, 1)), np.r_[np.zeros(1400, int), np.ones(600, int)]
    for delta in (0.0, 1e-6):
        score = private_score(_Constant(0), X, y, epsilon=2.0, delta=delta, secure=True)
        assert score.interval[0] < 0.7 < score.interval[1]
        assert score.guarantee.arithmetic == "discrete-grid"
    chosen = private_selection([_Constant(1), _Constant(0)], X, y, epsilon=2.0, secure=True)
    assert chosen.index == 1
    assert chosen.guarantee.arithmetic == "discrete-grid"
    with pytest.raises(InvalidParameter, match="random_state"):
        private_selection([_Constant(1), _Constant(0)], X, y, epsilon=2.0, secure=True, random_state=0)


MOMENTS = Problem(
    loss=Clipped(Squared(), 1.0),
    bounds=DataBounds(data_norm=0.9, target=(-1.3, 1.3), weight_bound=1.7),
    n=60,
    n_features=3,
    fit_intercept=False,
)


MINIMUM = replace(MOMENTS, ridge=0.1)


def _moment_data(seed: int, size: float = 1.0, weights: bool = True) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    n = MOMENTS.n
    return ArrayDataset(
        size * rng.standard_normal((n, 3)), 3 * rng.standard_normal(n), MOMENTS,
        rng.uniform(0, 3, n) if weights else None,
    )  # fmt: skip


def _whole(data: ArrayDataset) -> tuple[np.ndarray, np.ndarray]:
    (block,) = data.blocks()
    return round_records(data, block)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.1, 1.0, 1e3]))
def test_moments_of_neighbours_are_no_further_apart_than_accounted(seed: int, size: float) -> None:
    """Shifts of both moments in integers, for pairs of records, against the joint shift of the theorem."""
    data = _moment_data(seed, size)
    rows, labels = _whole(data)
    row, label = integer_units(data)
    spec = SufficientStatisticsSpec(
        gram_noise_std=2.0, cross_noise_std=3.0, eigenvalue_floor=1.0, secure=True
    )
    bound = joint_sensitivity(SufficientStatisticsTheorem(), MOMENTS.constants, spec)
    for i, j in ((0, 1), (2, 3), (4, 4)):
        sign = -1 if i == j else 1  # the worst neighbour turns its label around
        gram = np.outer(rows[i], rows[i]) - np.outer(rows[j], rows[j])
        cross = labels[i] * rows[i] - sign * labels[j] * rows[j]
        moved = math.hypot(np.linalg.norm(gram) * row**2 / 2.0, np.linalg.norm(cross) * row * label / 3.0)
        assert moved <= bound * (1 + 1e-12)


def test_admissible_records_are_counted_and_long_ones_are_not() -> None:
    for seed in range(20):
        data = _moment_data(seed, 1e3)
        rows, labels = _whole(data)
        square, height = integer_limits(data)
        (block,) = data.blocks()
        assert block.weights is not None
        assert ((rows**2).sum(axis=1) <= square).all()
        assert (np.abs(labels) <= height).all()
        heavy = block.weights > 0.5
        assert (np.abs(rows[heavy]).sum(axis=1) > 0).all()  # none was dropped
        row, _ = integer_units(data)
        exact = block.rows * np.sqrt(block.weights)[:, None]
        assert np.abs(rows * row - exact).max() <= row * (1 + 1e-4)
    assert max((rows**2).sum(axis=1)) > 0.9 * square
    data = _moment_data(0)
    (block,) = data.blocks()
    far = block._replace(rows=block.rows * 10, weights=np.ones(60))
    assert not round_records(data, far)[0][np.linalg.norm(far.rows, axis=1) > 1.3].any()
    broken = block._replace(rows=np.full((60, 3), np.nan))
    assert not round_records(data, broken)[0].any()


def test_secure_moments_are_the_moments_plus_the_accounted_noise() -> None:
    data = _moment_data(1)
    rows, labels = _whole(data)
    row, label = integer_units(data)
    spec = SufficientStatisticsSpec(
        gram_noise_std=2.0, cross_noise_std=3.0, eigenvalue_floor=1.0, secure=True
    )
    draws = [release_secure_moments(spec, data) for _ in range(1000)]
    grams = np.array([gram - rows.T @ rows * row**2 for gram, _ in draws])
    crosses = np.array([cross - rows.T @ labels * row * label for _, cross in draws])
    assert np.array_equal(grams, grams.transpose(0, 2, 1))
    wanted = np.where(np.eye(3, dtype=bool), 2.0, 2.0 / math.sqrt(2))
    assert grams.std(axis=0) == pytest.approx(wanted, rel=0.12)  # five standard errors
    assert crosses.std(axis=0) == pytest.approx([3.0] * 3, rel=0.12)
    assert stats.kstest(crosses.ravel() / 3.0, "norm").pvalue > 1e-4
    assert stats.kstest(grams[:, 0, 1] / math.sqrt(2), "norm").pvalue > 1e-4


def test_secure_estimators_of_one_shot_mechanisms() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2))
    options = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 1.5, "secure": True}
    for mechanism in ("sufficient-statistics", "output-perturbation", "objective-perturbation"):
        model = DPRidge(target_bounds=(-1, 1), mechanism=mechanism, **options).fit(X, X[:, 0])  # type: ignore[arg-type]
        assert model.privacy_.arithmetic == "discrete-grid"
        assert 1.9 < model.privacy_.epsilon() <= 2.0
        assert model.score(X, X[:, 0]) > 0.3
    with pytest.raises(AssumptionFailed, match="has no proof here"):
        DPLogisticRegression(classes=[0, 1], mechanism="objective-perturbation", radius=2.0, **options).fit(
            X, X[:, 0] > 0
        )  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_secure_output_perturbation_pays_for_its_grid(epsilon: float) -> None:
    problem = replace(MOMENTS, ridge=0.1)
    plain = calibrate_output_perturbation(problem.constants, epsilon=epsilon, delta=1e-6)
    secure = calibrate_output_perturbation(problem.constants, epsilon=epsilon, delta=1e-6, secure=True)
    theorem = OutputPerturbationTheorem()
    assert 1 < secure.density_scale / plain.density_scale < 1.001
    assert 0.99 * epsilon < theorem.certify(problem.constants, secure).epsilon(1e-6) <= epsilon
    same = replace(plain, secure=True)
    free, paid = (theorem.certify(problem.constants, spec).mu for spec in (plain, same))
    assert free is not None
    assert paid is not None
    assert paid > free


def test_what_has_no_secure_form_says_why() -> None:
    calibrated = calibrate_output_perturbation(MINIMUM.constants, epsilon=1.0, delta=1e-6, secure=True)
    with pytest.raises(NotPrivateError, match="rounding of a projection"):
        Plan(problem=replace(MINIMUM, constraint=Ball(1.0)), spec=calibrated, delta=1e-6)
    with pytest.raises(InvalidParameter, match="are dependent"):
        NoisySumsSpec(
            groups=(SumGroup(answers=2, unit=1, scale=1),), noise="gamma", adjacency="add-remove", secure=True
        )
    noise = NoisyAnswersSpec(answers=3, changed=1, sensitivity=1, p=2, sigma=3.0, secure=True)
    with pytest.raises(InvalidParameter, match="compare real-valued errors"):
        CorrectedAnswersSpec(noise=noise, max_corrections=1, search_epsilon=1, answer_epsilon=1, threshold=1)
    with pytest.raises(InvalidParameter, match="True or False"):
        replace(noise, secure="yes")
    with pytest.raises(InvalidParameter, match="nothing was released"):
        GeneralizedGaussianMechanism(k=1, epsilon=1, delta=1e-6, p=2.0, secure=True).release([0.3])


def test_secure_rounds_with_a_public_map() -> None:
    problem = replace(MOMENTS, ridge=0.1)
    noise = calibrate_mirror_noise(problem.constants, 4, epsilon=2.0, delta=1e-6)
    spec = PublicMirrorSpec(step_size=0.5, noise_std=noise, n_steps=4, mode="gradient", secure=True)
    plan = Plan(problem=problem, spec=spec, delta=1e-6)
    assert 1.99 < plan.guarantee.epsilon() <= 2.0
    assert plan.guarantee.arithmetic == "discrete-grid"
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (120, 3)), rng.uniform(-1, 1, 120)
    mechanism, data = (
        PublicMirrorDescent(public_mirror_map(X[:60], y[:60], problem)),
        ArrayDataset(X[60:], y[60:], problem),
    )
    assert np.isfinite(mechanism.run(plan, data).value).all()
    assert np.array_equal(mechanism.run(plan, data, 1).value, mechanism.run(plan, data, 1).value)
