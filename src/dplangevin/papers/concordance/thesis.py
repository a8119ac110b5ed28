"""Ganesh (2022): counting queries, Langevin samplers and mirror descent with public data."""

from __future__ import annotations

from functools import partial

from dplangevin.papers.concordance._row import Row

_row = partial(Row, paper="ganesh2022")
_COUNTS = "tests/unit/families/noisy_answers/test_generalized_gaussian.py::"
_CHAINS = "tests/unit/samplers/test_samplers_chains.py::"
_MIRROR = "tests/unit/families/mirror_descent/test_public_mirror_descent.py::"

ROWS: tuple[Row, ...] = (
    _row(
        number="Example 2, Fact 3",
        says="the Laplace mechanism",
        where=("dplangevin.families:GeneralizedGaussianMechanism",),
        test=_COUNTS + "test_pure_laplace",
    ),
    _row(
        number="Example 5, Fact 6",
        says="the Gaussian mechanism with sqrt(2 log(1.25 / delta)) / eps",
        where=("dplangevin.families:GeneralizedGaussianMechanism",),
        test=_COUNTS + "test_gaussian_is_the_analytic_one_from_above",
        corrected="printed without its range: it fails from eps = 8.4 on; the exact curve is used",
    ),
    _row(
        number="Example 7, Theorem 8",
        says="the exponential mechanism on a finite set",
        where=("dplangevin.papers:finite_grid",),
        test="tests/unit/families/test_errata.py::test_thesis_exponent",
        corrected="exponent eps l / (2 Delta); the printed 2 eps l / Delta is 4 eps-DP",
    ),
    _row(
        number="Theorem 17, Lemmas 27 to 30, Theorem 34",
        says="generalised Gaussian noise: (eps, delta) with largest error sqrt(k p log(1/delta)) (log k)^{1/p} / eps",
        where=("dplangevin.families:GeneralizedGaussianMechanism", "dplangevin reproduce counting-error"),
        test=_COUNTS + "test_published_sigmas",
        corrected="sigma is computed, 160 to 188 times below Lemma 30; the step that outputs exact answers is left out",
    ),
    _row(
        number="Section 2.1, after Theorem 17",
        says="the exponential mechanism with loss |.|_inf: largest error k / eps with delta = 0",
        where=("dplangevin.families:GeneralizedGaussianMechanism", "dplangevin.families:LargestNormSchedule"),
        test="tests/unit/families/noisy_answers/test_largest_norm.py::test_largest_error_of_a_pure_promise",
        corrected="p = inf; when a record touches m of k counts, the norm is max(|x|_inf, |x|_1 / m); charged as one "
        "Laplace answer under composition, exactly",
    ),
    _row(
        number="Theorem 17, errors in l_q",
        says="E |error|_q / k^{1/q} for every 1 <= q <= p",
        where=("dplangevin.families:GeneralizedGaussianMechanism",),
        test="tests/unit/families/noisy_answers/test_largest_norm.py::test_errors_in_other_norms",
        corrected="sqrt(k p log(1/delta)), not sqrt(k p) log(1/delta); `expected_error(q)` reports it for any q",
    ),
    _row(
        number="Theorems 18, 36, 37",
        says="sparse vector mends the largest errors: sqrt(k log log log k log(1/delta)) / eps",
        where=("dplangevin.papers:SparseVectorCorrection",),
        test="tests/unit/families/noisy_answers/test_sparse_vector.py::test_no_gain_is_measured",
        corrected="one joint account instead of eps/2 each; no gain up to 100,000 counts, so it is experimental",
    ),
    _row(
        number="Lemmas 40, 41",
        says="sub-gamma tails of the generalised Gamma law",
        where=("dplangevin.papers:GeneralizedGaussian",),
        test=_COUNTS + "test_exact_integration_never_exceeds_the_certificate",
        corrected="the proof of Lemma 41 has a gap at r = 1; not needed by the exact account",
    ),
    _row(
        number="Theorem 42",
        says="overdamped Langevin close to S in both directions of Renyi divergence",
        where=(
            "dplangevin.papers:overdamped_steps",
            "dplangevin.papers:mixing_time",
            "dplangevin reproduce langevin-steps",
        ),
        test=_CHAINS + "test_iteration_counts",
        corrected="(3 eps, 3 delta) after it is false; the Girsanov certificate needs 1e9 times fewer steps",
    ),
    _row(
        number="Theorem 49",
        says="one direction, from N(0, I / M)",
        where=("dplangevin.papers:mixing_time",),
        test=_CHAINS + "test_mixing_times",
    ),
    _row(
        number="Lemmas 47 to 50, Theorem 52",
        says="divergence between the discrete and the continuous diffusion",
        where=("dplangevin.papers:girsanov_bound",),
        test=_CHAINS + "test_girsanov_bounds_the_exact_path_divergence",
        corrected="constants of Lemma 50 (a factor 4) and M^2 for M^4",
    ),
    _row(
        number="Lemma 51",
        says="from conditional to unconditional moments",
        where=("dplangevin.papers:thesis_moment_factor",),
        test="tests/unit/families/test_errata.py::test_thesis_lemma_51",
        corrected="theta / (theta - 1 - gamma); both printed factors are refuted by a Pareto law",
    ),
    _row(
        number="Lemmas 53, 54, 57 to 59",
        says="decay of Renyi divergence in continuous time, from explicit starts",
        where=("dplangevin.papers:mixing_time",),
        test=_CHAINS + "test_mixing_times",
        corrected="L and M mixed up; R_{1 + 1/M}",
    ),
    _row(
        number="Theorem 56",
        says="discretisation for Lipschitz, smooth, not strongly convex f",
        where=("dplangevin.papers:lipschitz_bound",),
        test=_CHAINS + "test_lipschitz_certificate",
        corrected="explicit constants by Girsanov, M^2 for M^4",
    ),
    _row(
        number="Lemmas 63, 64, Theorem 65",
        says="underdamped Langevin: steps of order sqrt(k) / eps",
        where=(
            "dplangevin.families:UnderdampedLangevin",
            "dplangevin.families:UnderdampedSchedule",
            "dplangevin.papers:underdamped_bound",
        ),
        test="tests/unit/families/test_underdamped.py::test_the_promise_is_above_the_law_of_a_step",
        corrected="mu^2 for mu in the proof; private by its own noise, since no convergence of the process is proved",
    ),
    _row(
        number="Table 3.1",
        says="steps of the three settings",
        where=("dplangevin reproduce langevin-steps",),
        test="tests/unit/papers/test_gallery.py::test_every_figure_is_drawn",
        corrected="mu is missing in the third row; M^2 suffices in the second",
    ),
    _row(
        number="Algorithm 1, Theorem 74",
        says="mirror descent with a public mirror map, (eps, delta) for the private records",
        where=("dplangevin.families:PublicMirrorDescent", "dplangevin.families:mirror_noise"),
        test=_MIRROR + "test_the_price_is_one_gaussian",
        corrected="gradients differ by 2 L / n under replacement; the noise is computed, not bounded",
    ),
    _row(
        number="Lemmas 77 to 80, Theorem 76 (72)",
        says="linear regression: excess risk of order chi log(1/delta) / (eps^2 n^2) + 1 / (lambda_min n)",
        where=(
            "dplangevin.papers:chi",
            "dplangevin.papers:regression_risk",
            "dplangevin.papers:public_gradient_radius",
        ),
        test="tests/unit/papers/test_mirror_formulas.py::test_chi_of_the_examples",
        corrected="the shrunken set is |grad Psi| <= r with an explicit r (the text has an equality and an O)",
    ),
    _row(
        number="Theorem 81",
        says="effective noise along v: eta sigma sqrt((2 / pi) sum (a_i / lambda_i)^2)",
        where=("dplangevin.papers:effective_noise", "dplangevin.families:PublicMirrorDescent"),
        test=_MIRROR + "test_effective_noise_of_theorem_81",
    ),
    _row(
        number="Theorem 83, Lemma 84",
        says="general convex losses: V^2 / (2 m eta T n_pub) + eta O(L^2 |Q|^2 + sigma^2 (G_Q^2 + |Q|^2))",
        where=("dplangevin.papers:mirror_risk", "dplangevin.papers:ellipsoid_width"),
        test="tests/unit/papers/test_mirror_formulas.py::test_theorem_83_bounds_a_run",
        corrected="the constant of the O is 1",
    ),
    _row(
        number="Lemma 85, Theorem 86 (73)",
        says="population risk in terms of the Gaussian width",
        where=("dplangevin.papers:mirror_population_risk", "dplangevin.papers:cross_polytope_width"),
        test="tests/unit/papers/test_mirror_formulas.py::test_gaussian_widths",
        corrected="L D (e^eps - 1 + delta) for Lemma 85; epsilon is stated, never chosen for utility",
    ),
    _row(
        number="Theorem 87",
        says="effective noise when the Hessian's eigenvectors are fixed",
        where=("dplangevin.papers:varying_effective_noise", "dplangevin.papers:printed_effective_noise"),
        test="tests/unit/papers/test_mirror_formulas.py::test_theorem_87_is_false_and_what_holds_instead",
        corrected="sum |a_i| / w_i in place of the Euclidean norm",
        status="refused",
        note="false as printed: for curvature 1 on one side of the iterate and huge on the other, 16 directions "
        "move it twice as far as claimed; the replacement is proved by the triangle inequality",
    ),
    _row(
        number="Figure 4.1",
        says="synthetic regression: cold and warm starts, and mirror descent",
        where=("dplangevin reproduce public-mirror-descent",),
        test="tests/unit/papers/test_gallery.py::test_every_figure_is_drawn",
        corrected="every Hessian of the design is singular; the ridge decides the step and is stated",
        status="partial",
        note="4.1b for k = 500 to 2000",
    ),
)
