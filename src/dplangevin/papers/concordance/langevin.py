"""Ganesh, Thakurta and Upadhyay (2022): Langevin diffusion and the exponential mechanism."""

from __future__ import annotations

from functools import partial

from dplangevin.papers.concordance._row import Row

_row = partial(Row, paper="ganesh-thakurta-upadhyay2022")
_THEORY = "tests/unit/families/noisy_gradient/test_langevin_theory.py::"
_EXPONENTIAL = "tests/unit/families/draws/test_exponential_mechanism.py::"

ROWS: tuple[Row, ...] = (
    _row(
        number="Algorithm 1",
        says="noisy SGD with the noise sqrt(8 T L^2 log(1/delta)) / eps",
        where=("dplangevin.families:NoisyGradientDescent", "dplangevin.papers:paper_dp_sgd_noise"),
        test="tests/unit/families/test_errata.py::test_dp_sgd_noise_fails_for_large_epsilon",
        corrected="the printed noise fails from eps = 8.35 on (delta = 1e-6); runs are accounted exactly",
    ),
    _row(
        number="Algorithm 2, Theorem D.1",
        says="the exponential mechanism is eps-DP with excess empirical risk of order L p / (eps n)",
        where=("dplangevin.families:ExponentialMechanism", "dplangevin.families:exponential_temperature"),
        test=_EXPONENTIAL + "test_exact_log_ratio",
        corrected="constants made explicit: beta = eps n / (2 L D) is eps-bounded range, and the risk p / beta",
    ),
    _row(
        number="Theorem D.1, losses that are not smooth",
        says="Lipschitz losses with corners, by smoothing",
        where=("dplangevin.papers:moreau_excess", "dplangevin.papers:gaussian_smoothing_excess"),
        test="tests/unit/problem/test_record_losses.py::test_smoothing_costs_what_is_said",
        corrected="the excess that smoothing costs has its constant",
    ),
    _row(
        number="Section 1, losses l(theta; d)",
        says="any loss of theta and one record with bounded gradients",
        where=("dplangevin.problem:RecordLoss", "dplangevin.problem:RadialHuber"),
        test="tests/unit/problem/test_record_losses.py::test_a_user_loss_runs_and_is_composed",
        corrected="the Lipschitz constant is enforced by a clip of every record's gradient",
    ),
    _row(
        number="Lemma C.1 (1.1)",
        says="the whole trajectory of the diffusion has Renyi divergence (a Delta^2 / 4) int beta^2",
        where=("dplangevin.papers:langevin_trajectory",),
        test=_THEORY + "test_ornstein_uhlenbeck_against_every_bound",
        corrected="sharpened to Gaussian DP with the same mu, exactly",
    ),
    _row(
        number="Lemma D.2",
        says="the diffusion at constant beta has the exponential mechanism as its stationary law",
        where=("dplangevin.samplers:overdamped",),
        test="tests/unit/samplers/test_samplers_chains.py::test_overdamped_variance",
        note="a chain of steps is biased: it serves research, and draws come from exact or certified samplers",
    ),
    _row(
        number="Algorithm 3, Theorem D.3 (1.2)",
        says="the iterated exponential mechanism: pure eps, risk of order (p^2 + p log n) L^2 / (m eps^2 n^2)",
        where=("dplangevin.families:IteratedExponentialMechanism", "dplangevin.families:plan_iterated"),
        test=_EXPONENTIAL + "test_iterated_rate",
        corrected="budgets that add up to eps, Gamma quantiles for the radii, stages chosen before any data",
    ),
    _row(
        number="Lemma D.4",
        says="one stage lands within sqrt(L D (p + log n) / (m eps n)) of the minimiser",
        where=("dplangevin.families:iterated_schedule",),
        test=_EXPONENTIAL + "test_iterated_gamma_quantiles",
        corrected="2^-t with t = 3 log n holds for log_2 only; the Gamma quantile needs no such step",
    ),
    _row(
        number="Equation (7)",
        says="the product over the stages is at most 8",
        where=("dplangevin.papers:paper_stage_product",),
        test=_EXPONENTIAL + "test_stage_product",
    ),
    _row(
        number="Theorem D.5",
        says="without convexity: risk of order (L p / (eps n)) log(eps n / p)",
        where=("dplangevin.papers:nonconvex_excess", "dplangevin.families:plan_sampler"),
        test="tests/statistical/test_cell_envelope.py::test_pure_epsilon_by_enumeration",
        corrected="explicit constants; exact draws on the set itself up to three parameters, on a public grid beyond",
    ),
    _row(
        number="Lemma E.1",
        says="two coupled diffusions on neighbours stay within Delta / m",
        where=("dplangevin.papers:sgld_distance",),
        test="tests/unit/samplers/test_samplers_chains.py::test_synchronous_chains_stay_close",
    ),
    _row(
        number="Corollary E.2",
        says="uniform stability 2 L^2 / (m n) of the diffusion at any time",
        where=("dplangevin.papers:langevin_stability",),
        test=_THEORY + "test_population_limits",
    ),
    _row(
        number="Corollary E.3",
        says="uniform stability of the regularised exponential mechanism",
        where=("dplangevin.papers:gibbs_stability",),
        test=_THEORY + "test_regularised_exponential",
    ),
    _row(
        number="Theorem E.4 (1.3)",
        says="regularised exponential mechanism: population risk L / sqrt(n) + L p / (eps n), pure eps",
        where=("dplangevin.papers:regularised_exponential", "dplangevin.families:plan_sampler"),
        test="tests/unit/families/test_plan_sampler.py::test_population_objective_does_it_without_hand_work",
        corrected='`objective="population"` chooses the ridge; printed as (eps, delta), and the Lipschitz constant of '
        "the regulariser does not enter",
    ),
    _row(
        number="Lemma E.5, Theorem E.6 (1.4)",
        says="iterated mechanism with wider radii: population risk for strongly convex losses",
        where=("dplangevin.families:plan_iterated",),
        test=_EXPONENTIAL + "test_iterated_zcdp_and_population",
        corrected="the last stage's set depends on the data, so the printed stability argument is indicative",
    ),
    _row(
        number="Theorem F.1",
        says="diffusion at constant beta, convex: risk L D sqrt(p log(1/delta)) / (eps n) of the last point",
        where=("dplangevin.papers:langevin_convex", "dplangevin.families:LangevinSchedule"),
        test=_THEORY + "test_reflected_diffusion_of_the_norm",
        corrected="(33) diverges: the last point needs a logarithm (`langevin_last`); the time average has the bound",
    ),
    _row(
        number="Theorem F.2",
        says="beta_t = t^a, strongly convex: weighted average, risk of order L^2 p log(1/delta) / (m eps^2 n^2)",
        where=(
            "dplangevin.papers:langevin_strongly_convex",
            "dplangevin.papers:power_temperatures",
        ),
        test=_THEORY + "test_power_temperatures_have_their_bound",
        corrected="m for 2m; weights a_t / ((1 - a_0 m) ... (1 - a_t m)) of the chain; constants for every exponent: "
        "a third less risk than constant temperatures at exponent 8",
    ),
    _row(
        number="Lemma F.3",
        says="uniform stability (4 L^2 / n) int beta of the last point",
        where=("dplangevin.papers:langevin_stability",),
        test=_THEORY + "test_population_limits",
        corrected="2 L^2 / n, and only for convex losses",
    ),
    _row(
        number="Theorem F.4",
        says="diffusion, convex: population risk L / sqrt(n) + L sqrt(p log(1/delta)) / (eps n)",
        where=("dplangevin.papers:langevin_convex_population",),
        test=_THEORY + "test_population_limits",
    ),
    _row(
        number="Theorem F.5",
        says="diffusion, strongly convex: population risk",
        where=("dplangevin.papers:langevin_strongly_convex_population", "dplangevin reproduce sco-rates"),
        test=_THEORY + "test_rising_temperatures_are_better_than_constant_ones",
        corrected="stability 2 L^2 / (m n), which the weighted average keeps",
    ),
    _row(
        number="Theorem G.1 (1.5)",
        says="non-convex lower bound by a packing of bumps: no mechanism beats p / (eps n)",
        where=("dplangevin.papers:PackedBumps", "dplangevin.problem:Bump", "dplangevin reproduce packing"),
        test="tests/statistical/test_cell_envelope.py::test_packed_bumps_are_a_problem_that_runs",
        corrected="centres 2 alpha apart, losses scaled to be 1-Lipschitz, no factor log(1/delta)",
    ),
    _row(
        number="Figure 1, Appendix H",
        says="drift against Brownian motion: at T = 1/(100 p) the diffusion is far from stationary",
        where=("dplangevin reproduce drift",),
        test="tests/unit/papers/test_gallery.py::test_every_figure_is_drawn",
        corrected="the noise integrates to N(0, 2 T I)",
    ),
    _row(
        number="Lemma I.1",
        says="long-time divergence of the last point from N(0, I / (beta m))",
        where=("dplangevin.papers:paper_long_time_divergence", "dplangevin reproduce split-regimes"),
        test=_THEORY + "test_equation_10_and_long_time_reference",
        corrected="t0 has no unit of time as printed; 37.5 for 30, 6p for 3p; superseded by the tanh form",
    ),
    _row(
        number="Lemma I.2",
        says="last point, strongly convex: (a beta Delta^2 / m)(1 - e^{-beta m T / 2})",
        where=("dplangevin.papers:langevin_last_iterate",),
        test=_THEORY + "test_tanh_limit",
        corrected="twice too large at both ends; mu^2 = (beta Delta^2 / m) tanh(beta m T / 2) is attained",
    ),
    _row(
        number="Table 1",
        says="rates of all settings: ERM and SCO, convex and strongly convex, pure and approximate",
        where=("dplangevin reproduce erm-rates", "dplangevin reproduce sco-rates"),
        test="tests/unit/papers/test_rates.py::test_slopes_of_empirical_risk",
    ),
)
