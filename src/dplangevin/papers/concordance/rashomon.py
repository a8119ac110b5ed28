"""Ganesh, Thakurta and Upadhyay (2023): Langevin diffusion and Rashomon sets."""

from __future__ import annotations

from functools import partial

from dplangevin.papers.concordance._row import Row

_row = partial(Row, paper="ganesh-thakurta-upadhyay2023")
_THEORY = "tests/unit/families/noisy_gradient/test_langevin_theory.py::"

ROWS: tuple[Row, ...] = (
    _row(
        number="Definition 1.4",
        says="a Rashomon sampler: nearly uniform on {F <= F* + psi}, rarely above psi + gamma",
        where=("dplangevin.rashomon:RashomonSampler",),
        test="tests/statistical/test_rashomon_laws.py::test_draws_inside_the_set_are_uniform",
    ),
    _row(
        number="Theorem 2.1",
        says="exp(-beta max{F, F* + psi}) is eps-DP",
        where=("dplangevin.rashomon:RashomonSampler", "dplangevin.papers:paper_exponential_temperature"),
        test="tests/unit/families/test_errata.py::test_exponential_mechanism_factor_two",
        corrected="beta = eps n / (2 L D): the printed one is 2 eps-DP; an inexact F* is paid for",
    ),
    _row(
        number="Lemma 2.2",
        says="divergence of the whole trajectory",
        where=("dplangevin.papers:langevin_trajectory", "dplangevin.rashomon:plan_rashomon"),
        test="tests/unit/families/rashomon/test_rashomon.py::test_whole_trajectories_cost_composition",
    ),
    _row(
        number="Theorem 2.3",
        says="an (eps, delta) sampler by running the diffusion of the thresholded loss",
        where=("dplangevin.families:RashomonChainSchedule",),
        test="tests/unit/families/rashomon/test_rashomon.py::test_trajectory_route_checks_its_hypotheses",
        corrected="the sensitivity (9) is wrong; needs interior minimisers (or a ramp), checked",
    ),
    _row(
        number="Theorem 2.4, C.11",
        says="excess empirical risk psi + p / beta",
        where=("dplangevin.papers:exponential_excess",),
        test=_THEORY + "test_gamma_domination",
    ),
    _row(
        number="Theorem 2.5",
        says="uniform stability of the thresholded law: 4 L sqrt(2 psi / m) + 2 L^2 / (m n)",
        where=("dplangevin.papers:thresholded_stability", "dplangevin.rashomon:plan_rashomon"),
        corrected="sharper: 1 for 4, by comparing both gradients at one point",
        test=_THEORY + "test_thresholded_laws_of_neighbours_stay_close",
    ),
    _row(
        number="Theorem 2.6",
        says="population risk of a Rashomon draw",
        where=("dplangevin.rashomon:plan_rashomon",),
        test="tests/unit/families/rashomon/test_rashomon.py::test_stability_and_population_risk_of_a_draw_are_told",
        corrected="with constants; for draws (the pure route), by either promise",
    ),
    _row(
        number="Theorem 2.7",
        says="the thresholded Gibbs law is (eps, delta)-DP by a log-Sobolev inequality",
        where=("dplangevin.papers:thresholded_gibbs", "dplangevin.papers:paper_gibbs_temperature"),
        test=_THEORY + "test_theorem_2_7_pays_for_draws_that_miss",
        corrected="beta must grow as eps^2; G^2 / (2c)-zCDP with explicit constants",
        status="refused",
        note="as a price of Rashomon draws: with x = beta psi, rho is at least x e^x up to x = 1 and e x^2 beyond (a "
        "point with F = F* + psi has |grad F|^2 >= 2 m psi), while a hit bound of 1/2 needs x >= 1: epsilon is then 14 "
        "at delta = 1e-6, whatever n is. Draws are priced by bounded range, psi = 0 by the Gibbs law's Gaussian DP; "
        "the bound itself stays, tested",
    ),
    _row(
        number="Lemma 3.1",
        says="SGLD with beta = 2 eps / (Delta sqrt(T eta log(1/delta))) is (eps, delta)-DP",
        where=("dplangevin.papers:safe_sgld_temperature", "dplangevin.papers:paper_sgld_temperature"),
        test=_THEORY + "test_lemma_3_1_is_false_and_unused",
        corrected="false: nominal (1, 1e-6) is eps 1.672; exact Gaussian DP is used",
    ),
    _row(
        number="Theorem 3.2, D.9, D.10",
        says="SGLD comes close to the smoothed law in Renyi divergence after polynomially many steps",
        where=("dplangevin.papers:overdamped_steps", "dplangevin:plan_sampler"),
        test="tests/unit/samplers/test_samplers_chains.py::test_iteration_counts",
        corrected="the smoothness is beta M, and beta cancels",
        status="refused",
        note="at p = 20 and condition 26 the rate asks for 2.5e12 steps for a total variation of 1e-3: no run can "
        "carry its promise. The proximal sampler has a rate with explicit constants and takes its place",
    ),
    _row(
        number="Lemma D.1, D.2, D.4",
        says="log-Sobolev constants of strongly convex and thresholded laws",
        where=("dplangevin.papers:log_sobolev_constant",),
        test=_THEORY + "test_log_sobolev_constants",
        corrected="e^-osc for e^-sup",
    ),
    _row(
        number="Lemma D.5",
        says="time after which the diffusion is close to the thresholded law",
        where=("dplangevin.papers:total_variation_steps",),
        test="tests/unit/samplers/test_samplers_proximal.py::test_steps_meet_their_goal_and_no_fewer_do",
        corrected="for the proximal chain, whose steps can be run",
    ),
    _row(
        number="Theorem D.6",
        says="the chance that a draw lies in the set is at least a ratio of volumes less phi",
        where=("dplangevin.papers:hit_probability",),
        test=_THEORY + "test_hit_probability",
        corrected="x^p e^-x / Gamma(p + 1, x), attained by cones",
    ),
    _row(
        number="Theorem D.7, Lemma D.8",
        says="Gaussian smoothing of the thresholded loss: error and smoothness",
        where=("dplangevin.papers:log_sobolev_constant",),
        test=_THEORY + "test_smoothed_threshold",
        corrected="M |xi|^2 / 2, and sqrt(2 M psi) sqrt(2 / pi) / lambda",
    ),
    _row(
        number="Lemma D.11",
        says="a start in the hull of the records' minimisers",
        where=("dplangevin.samplers:warm_start",),
        test="tests/unit/samplers/test_samplers_proximal.py::test_start_ratio_bounds_the_density_ratio_everywhere",
        corrected="that start is private data; the certified start's ratio holds for every data set",
        status="refused",
        note="a start among the records' minimisers differs between neighbours, so no trajectory bound holds from it",
    ),
    _row(
        number="Theorem E.1 to E.4, Algorithm 2",
        says="population risk by regularised and iterated exponential mechanisms",
        where=("dplangevin.papers:regularised_gibbs", "dplangevin.families:plan_iterated"),
        test=_THEORY + "test_regularised_gibbs",
        corrected="L D / sqrt(n) for L D / n in E.4",
    ),
    _row(
        number="Section 1.2",
        says="spread of predictions over the set",
        where=("dplangevin.rashomon:Multiplicity",),
        test="tests/unit/rashomon/test_rashomon_metrics.py::test_decision_metrics_against_brute_force",
        corrected='"no additional privacy cost" holds only for a split budget: K draws cost K eps',
    ),
    _row(
        number="Table 1",
        says="rates that follow from the sampler",
        where=("dplangevin reproduce erm-rates", "dplangevin reproduce sco-rates"),
        test="tests/unit/papers/test_rates.py::test_slopes_of_population_risk",
    ),
    _row(
        number="Table 2",
        says="excess empirical and population risk of Rashomon draws, pure and approximate",
        where=("dplangevin reproduce rashomon-rates",),
        test="tests/unit/papers/test_rates.py::test_the_four_cells_of_rashomon_draws",
        corrected="the (eps, delta) column holds for thresholds up to about L^2 / (M n^2) only",
    ),
)
