"""Altschuler and Talwar (2022): noisy SGD on a bounded set stops losing privacy."""

from __future__ import annotations

from functools import partial

from dplangevin.papers.concordance._row import Row

_row = partial(Row, paper="altschuler-talwar2022")

ROWS: tuple[Row, ...] = (
    _row(
        number="Algorithm 1",
        says="noisy SGD with batches and projection",
        where=("dplangevin.families:NoisyGradientDescent",),
        test="tests/unit/families/noisy_gradient/test_noisy_gradient.py::test_batches_have_the_accounted_law",
    ),
    _row(
        number="Definition 2.5",
        says="Renyi divergence of one step on a random batch",
        where=("dplangevin.papers:printed_definition_2_5",),
        test="tests/unit/families/test_errata.py::test_altschuler_definition_2_5",
        corrected="printed in the smaller direction: 0.0033 where one step leaks 10.737",
    ),
    _row(
        number="Lemma 2.6",
        says="the step costs at most 2 a q^2 / sigma^2 for small q and large sigma",
        where=("dplangevin.papers:renyi_poisson",),
        test="tests/unit/privacy/test_sampled_gaussian.py::test_mironov_talwar_zhang_closed_form_is_above",
        corrected="computed instead of bounded, without conditions on q, sigma and the order",
    ),
    _row(
        number="Proposition 2.8",
        says="amplification by iteration with fixed shifts a_t: sum a_t^2 / (2 sigma_t^2) when they cancel s_t",
        where=("dplangevin.papers:hull_energy",),
        test="tests/unit/families/noisy_gradient/test_optimal_shift.py::test_hull_solves_the_quadratic_program",
        corrected="as Gaussian DP; the best shifts are the slopes of a convex minorant",
    ),
    _row(
        number="Proposition 3.2",
        says="the same from a diameter D at step tau, so that it does not grow with T",
        where=("dplangevin.papers:best_restart_mu",),
        test="tests/unit/families/noisy_gradient/test_langevin_theory.py::test_diameter_bound",
    ),
    _row(
        number="Theorem 3.1 (1.3), equation (3.3)",
        says="noisy SGD, convex: Renyi privacy of order min(T, D n / (L eta))",
        where=(
            "dplangevin.papers:HiddenStateSGD",
            "dplangevin:account",
        ),
        test="tests/unit/families/noisy_gradient/test_hidden_state_sgd.py::test_the_printed_direction_is_never_returned",
        corrected="direction of the sampled Gaussian, replace-one curve, and a proof that conditions correctly",
    ),
    _row(
        number="Theorem 4.1",
        says="a matching lower bound by a walk of linear losses on an interval",
        where=("dplangevin:lower_bound_epsilon",),
        test="tests/unit/families/test_errata.py::test_altschuler_theorem_4_1",
        corrected="n^2 for eta^2 in (4.1); the walk's law is computed, not bounded",
    ),
    _row(
        number="Remark 1.4",
        says="the plateau as (eps, delta)",
        where=("dplangevin.papers:BlockRecursion",),
        test="tests/unit/families/noisy_gradient/test_block_recursion.py::test_against_exact_walks_in_both_directions",
        corrected="as a delta(eps) profile by a recursion over blocks: 2.2 where GDP gives 5.8 (vector 44)",
    ),
    _row(
        number="Section 1.2, strongly convex losses",
        says="under strong convexity the plateau comes after log-many steps",
        where=("dplangevin.papers:ParticipationStart",),
        test="tests/unit/families/noisy_gradient/test_hidden_state_sgd.py::test_strongly_convex_run",
    ),
    _row(
        number="Section 1.2, smoothness",
        says="losses with corners by Gaussian or Moreau smoothing",
        where=("dplangevin.papers:moreau_excess", "dplangevin.papers:gaussian_smoothing_excess"),
        test="tests/unit/problem/test_record_losses.py::test_smoothing_costs_what_is_said",
        corrected="with the excess that it costs",
    ),
    _row(
        number="Section 5, clipped gradients",
        says="clipped gradients of generalised linear models are gradients of a convex loss; others in general not",
        where=(
            "dplangevin.problem:Clipped",
            "dplangevin.problem:RadialHuber",
            "dplangevin.problem:RecordLoss",
        ),
        test="tests/unit/problem/test_record_losses.py::test_only_what_is_proved_is_believed",
        corrected="proved for scores and for distances |theta - x|; every other loss is accounted by composition",
    ),
    _row(
        number="Section 5, average iterate",
        says="open: is the average as private as the last iterate?",
        where=("dplangevin.families:NoisyGradientSchedule", "dplangevin.papers:langevin_trajectory"),
        test="tests/unit/families/draws/test_draws.py::test_process_promises",
        status="refused",
        note="an average is a function of the whole path, and composition is exact for the path: no bound of the last "
        "iterate is applied to it (with cyclic batches it is provably less private, as the paper says)",
    ),
    _row(
        number="Figure 1",
        says="growth, then a plateau",
        where=("dplangevin reproduce plateau",),
        test="tests/unit/families/noisy_gradient/test_hidden_state_sgd.py::test_figure_1_of_altschuler_and_talwar",
    ),
)
