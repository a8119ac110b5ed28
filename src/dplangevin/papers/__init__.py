"""The papers behind the library: formulas as printed, redrawn figures, and a concordance of all statements."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.accounting.generalized_gaussian import GeneralizedGaussian as GeneralizedGaussian
    from dplangevin.accounting.proximal_certificate import total_variation_steps as total_variation_steps
    from dplangevin.accounting.sampled_gaussian import renyi_poisson as renyi_poisson
    from dplangevin.mechanisms.exponential.spec import (
        log_sobolev_constant as log_sobolev_constant,
        thresholded_gibbs_guarantee as thresholded_gibbs_guarantee,
    )
    from dplangevin.mechanisms.langevin.spec import (
        langevin_last_iterate_guarantee as langevin_last_iterate_guarantee,
        langevin_trajectory_guarantee as langevin_trajectory_guarantee,
        power_temperatures as power_temperatures,
    )
    from dplangevin.mechanisms.noisy_answers.mechanism import (
        SparseVectorCorrection as SparseVectorCorrection,
    )
    from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
        BlockRecursion as BlockRecursion,
    )
    from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
        HiddenStateSGD as HiddenStateSGD,
        ParticipationStart as ParticipationStart,
    )
    from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import (
        best_restart_mu as best_restart_mu,
        hull_energy as hull_energy,
    )
    from dplangevin.papers.concordance import (
        ITEMS as ITEMS,
        PAPERS as PAPERS,
        ROWS as ROWS,
        Item as Item,
        Paper as Paper,
        Row as Row,
    )
    from dplangevin.papers.formulas import (
        PublicRowsNeeded as PublicRowsNeeded,
        best_public_rows as best_public_rows,
        chi_factor as chi_factor,
        chourasia_composition as chourasia_composition,
        chourasia_isoperimetric as chourasia_isoperimetric,
        chourasia_quadratic as chourasia_quadratic,
        chourasia_quadratic_lower as chourasia_quadratic_lower,
        chourasia_strongly_convex as chourasia_strongly_convex,
        count_public_rows as count_public_rows,
        cross_polytope_width as cross_polytope_width,
        ellipsoid_width as ellipsoid_width,
        lemma_2_6 as lemma_2_6,
        lemma_2_6_max_order as lemma_2_6_max_order,
        lemma_6_risk as lemma_6_risk,
        log_sobolev_information as log_sobolev_information,
        mirror_population_risk as mirror_population_risk,
        mirror_risk as mirror_risk,
        noise_along as noise_along,
        paper_dp_sgd_noise as paper_dp_sgd_noise,
        paper_exponential_temperature as paper_exponential_temperature,
        paper_gibbs_temperature as paper_gibbs_temperature,
        paper_long_time_divergence as paper_long_time_divergence,
        paper_sgld_temperature as paper_sgld_temperature,
        paper_stage_product as paper_stage_product,
        printed_definition_2_5 as printed_definition_2_5,
        printed_noise_along as printed_noise_along,
        propagate_log_sobolev as propagate_log_sobolev,
        public_gradient_radius as public_gradient_radius,
        quadratic_exact as quadratic_exact,
        regression_risk as regression_risk,
        renyi_from_profile as renyi_from_profile,
        safe_sgld_temperature as safe_sgld_temperature,
        theorem_4 as theorem_4,
        theorem_4_renyi as theorem_4_renyi,
        thesis_moment_factor as thesis_moment_factor,
        varying_noise_along as varying_noise_along,
    )
    from dplangevin.papers.gallery import (
        FIGURES as FIGURES,
        find_figure as find_figure,
        reproduce_figure as reproduce_figure,
    )
    from dplangevin.papers.gallery.lower_bounds import PackedBumps as PackedBumps
    from dplangevin.problem.risk import (
        exponential_excess as exponential_excess,
        gaussian_smoothing_excess as gaussian_smoothing_excess,
        gibbs_stability as gibbs_stability,
        hit_probability as hit_probability,
        langevin_convex_excess as langevin_convex_excess,
        langevin_convex_population_excess as langevin_convex_population_excess,
        langevin_stability as langevin_stability,
        langevin_strongly_convex_excess as langevin_strongly_convex_excess,
        langevin_strongly_convex_population_excess as langevin_strongly_convex_population_excess,
        moreau_excess as moreau_excess,
        nonconvex_excess as nonconvex_excess,
        regularized_exponential_excess as regularized_exponential_excess,
        regularized_gibbs_ridge as regularized_gibbs_ridge,
        sgld_coupling_distance as sgld_coupling_distance,
        thresholded_stability as thresholded_stability,
    )
    from dplangevin.sampling.langevin import (
        girsanov_divergence as girsanov_divergence,
        lipschitz_divergence as lipschitz_divergence,
        mixing_time as mixing_time,
        n_overdamped_steps as n_overdamped_steps,
        underdamped_divergence as underdamped_divergence,
    )
    from dplangevin.sampling.rejection import sample_finite_grid as sample_finite_grid

__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
