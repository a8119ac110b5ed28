"""Single changes of privacy-critical code, each of which some test must notice.

A mutant is (module, old text, new text): the old text occurs once in that module. FILES says where modules are and
TESTS which tests are asked. EQUIVALENT argues for those that change nothing anyone may rely on.
"""

from __future__ import annotations

_PRIVACY, _FAMILIES = "src/dplangevin/privacy", "src/dplangevin/families"
_GRADIENT, _DRAWS = f"{_FAMILIES}/noisy_gradient", f"{_FAMILIES}/draws"
_THEOREMS = f"{_GRADIENT}/theorems"
_SAMPLERS, _DATA, _LEDGER = "src/dplangevin/samplers", "src/dplangevin/data", "src/dplangevin/ledger"

FILES = {
    "parts": f"{_PRIVACY}/parts.py",
    "guarantee": f"{_PRIVACY}/guarantee.py",
    "compose": f"{_PRIVACY}/compose.py",
    "responses": f"{_PRIVACY}/responses.py",
    "pld": f"{_PRIVACY}/_pld.py",
    "conversions": f"{_PRIVACY}/conversions.py",
    "sampled_gaussian": f"{_PRIVACY}/sampled_gaussian.py",
    "proximal_certificate": f"{_PRIVACY}/proximal_certificate.py",
    "theorem": f"{_PRIVACY}/theorem.py",
    "accountant": f"{_PRIVACY}/accountant.py",
    "self_check": f"{_GRADIENT}/self_check.py",
    "units": f"{_THEOREMS}/_units.py",
    "composition": f"{_THEOREMS}/composition.py",
    "optimal_shift": f"{_THEOREMS}/optimal_shift.py",
    "cyclic_shift": f"{_THEOREMS}/cyclic_shift.py",
    "shuffled_shift": f"{_THEOREMS}/shuffled_shift.py",
    "block_recursion": f"{_THEOREMS}/block_recursion.py",
    "block_sgd": f"{_THEOREMS}/block_sgd.py",
    "capped_composition": f"{_THEOREMS}/_capped_composition.py",
    "varying_batches": f"{_THEOREMS}/_varying_batches.py",
    "dobrushin": f"{_THEOREMS}/dobrushin.py",
    "distance_moment": f"{_THEOREMS}/_distance_moment.py",
    "random_batches": f"{_THEOREMS}/_random_batches.py",
    "hidden_state_sgd": f"{_THEOREMS}/hidden_state_sgd.py",
    "participation_start": f"{_THEOREMS}/participation_start.py",
    "langevin_process": f"{_THEOREMS}/langevin_process.py",
    "exponential_theorem": f"{_DRAWS}/theorems/exponential_mechanism.py",
    "gibbs": f"{_DRAWS}/theorems/gibbs.py",
    "draws": f"{_DRAWS}/theorems/draws.py",
    "objective_theorem": f"{_FAMILIES}/perturbation/theorems/objective.py",
    "output_theorem": f"{_FAMILIES}/perturbation/theorems/output.py",
    "minimiser": f"{_FAMILIES}/_minimiser.py",
    "statistics_theorem": f"{_FAMILIES}/moments/theorem.py",
    "mirror_theorem": f"{_FAMILIES}/mirror_descent/theorem.py",
    "rashomon_theorem": f"{_FAMILIES}/rashomon/theorem.py",
    "discrete_theorem": f"{_THEOREMS}/discrete_composition.py",
    "constants": "src/dplangevin/problem/constants.py",
    "noisy_gradient": f"{_GRADIENT}/mechanism.py",
    "discrete_gradient": f"{_GRADIENT}/discrete_mechanism.py",
    "integer_sums": f"{_GRADIENT}/_integer_sums.py",
    "sparse_vector": f"{_FAMILIES}/noisy_answers/sparse_vector.py",
    "output_perturbation": f"{_FAMILIES}/perturbation/mechanism.py",
    "objective_perturbation": f"{_FAMILIES}/perturbation/mechanism.py",
    "sufficient_statistics": f"{_FAMILIES}/moments/mechanism.py",
    "perturbed": f"{_FAMILIES}/perturbation/_noise.py",
    "exponential": f"{_DRAWS}/mechanism.py",
    "rashomon": f"{_FAMILIES}/rashomon/mechanism.py",
    "draw": f"{_DRAWS}/_draw.py",
    "sgld": f"{_SAMPLERS}/sgld.py",
    "gamma_norm": f"{_SAMPLERS}/gamma_norm.py",
    "rounded": f"{_SAMPLERS}/rounded.py",
    "lens": f"{_SAMPLERS}/lens.py",
    "proximal": f"{_SAMPLERS}/proximal_chain.py",
    "proposals": f"{_SAMPLERS}/_proposals.py",
    "truncated": f"{_SAMPLERS}/truncated.py",
    "bodies": f"{_SAMPLERS}/bodies.py",
    "score": f"{_SAMPLERS}/score.py",
    "finite_grid": f"{_SAMPLERS}/finite_grid.py",
    "rejection": f"{_SAMPLERS}/rejection.py",
    "dataset": f"{_DATA}/dataset.py",
    "kernels": f"{_DATA}/_kernels.py",
    "moments": f"{_DATA}/_moments.py",
    "admission": f"{_LEDGER}/_admission.py",
    "bill": f"{_LEDGER}/_bill.py",
    "budget": f"{_LEDGER}/budget.py",
    "rows": f"{_LEDGER}/_rows.py",
}

_PINNED, _BOUNDS = "tests/unit/privacy/test_pinned_constants.py", "tests/unit/privacy/test_pinned_bounds.py"
_SHIFT = (
    "tests/unit/families/noisy_gradient/test_optimal_shift.py",
    "tests/unit/families/noisy_gradient/test_false_claims.py",
    "tests/unit/privacy/test_accountant.py",
)
_RANDOM = (
    "tests/unit/families/noisy_gradient/test_hidden_state_sgd.py",
    "tests/unit/families/noisy_gradient/test_sgd_exact_chains.py",
)
_CONTRACT = "tests/contracts/test_theorems.py"
_REFUSED = f"{_CONTRACT}::test_each_hypothesis_is_refused_by_name"
_LEDGER_TESTS = ("tests/unit/ledger/test_ledger_admission.py", "tests/unit/ledger/test_ledger.py")
_SAMPLERS_PINNED = "tests/unit/samplers/test_pinned_samplers.py"

TESTS = {
    "parts": (
        _PINNED,
        _BOUNDS,
        "tests/unit/privacy/test_guarantee.py",
        "tests/unit/privacy/test_serialize.py",
    ),
    "guarantee": (_PINNED, "tests/unit/privacy/test_guarantee.py"),
    "compose": ("tests/unit/privacy/test_guarantee.py",),
    "responses": ("tests/unit/privacy/test_guarantee.py",),
    "pld": ("tests/unit/privacy/test_guarantee.py",),
    "conversions": (
        _PINNED,
        "tests/unit/privacy/test_conversions.py",
        "tests/unit/privacy/test_guarantee.py",
    ),
    "sampled_gaussian": ("tests/unit/privacy/test_sampled_gaussian.py",),
    "proximal_certificate": (_PINNED, "tests/unit/samplers/test_samplers_proximal.py"),
    "theorem": (_PINNED, *_SHIFT, "tests/unit/privacy/test_guarantee.py"),
    "accountant": ("tests/unit/families/noisy_gradient/test_false_claims.py",),
    "self_check": ("tests/unit/families/noisy_gradient/test_false_claims.py",),
    "units": (_BOUNDS, _REFUSED, *_SHIFT),
    "composition": (
        _PINNED,
        _BOUNDS,
        _REFUSED,
        "tests/unit/families/noisy_gradient/test_poisson_replace_one.py",
        *_SHIFT,
    ),
    "optimal_shift": (_BOUNDS, _REFUSED, *_SHIFT),
    "cyclic_shift": (_BOUNDS, _REFUSED, *_SHIFT),
    "shuffled_shift": (
        "tests/unit/families/noisy_gradient/test_pinned_blocks.py",
        _BOUNDS,
        _REFUSED,
        *_SHIFT,
    ),
    "block_recursion": (_REFUSED, "tests/unit/families/noisy_gradient/test_block_recursion.py"),
    "block_sgd": ("tests/unit/families/noisy_gradient/test_pinned_blocks.py", *_RANDOM),
    "capped_composition": ("tests/unit/families/noisy_gradient/test_capped_composition.py",),
    "varying_batches": (_BOUNDS, "tests/unit/families/noisy_gradient/test_varying_batches.py"),
    "dobrushin": ("tests/unit/families/noisy_gradient/test_dobrushin.py",),
    "distance_moment": _RANDOM,
    "random_batches": (_BOUNDS, _REFUSED, *_RANDOM),
    "hidden_state_sgd": _RANDOM,
    "participation_start": _RANDOM,
    "langevin_process": (
        _REFUSED,
        "tests/unit/families/noisy_gradient/test_langevin_theory.py",
    ),
    "exponential_theorem": (
        "tests/unit/families/draws/test_exponential_mechanism.py",
        "tests/unit/families/draws/test_draws.py",
    ),
    "gibbs": (
        _BOUNDS,
        "tests/unit/families/draws/test_exponential_mechanism.py",
        "tests/unit/families/draws/test_draws.py",
        "tests/unit/families/rashomon/test_rashomon.py",
    ),
    "draws": (_BOUNDS, "tests/unit/families/draws/test_draws.py", _CONTRACT),
    "objective_theorem": (_PINNED, "tests/unit/families/perturbation/test_objective_perturbation.py"),
    "output_theorem": ("tests/unit/families/perturbation/test_output_perturbation.py",),
    "minimiser": (
        _BOUNDS,
        _REFUSED,
        "tests/unit/families/perturbation/test_output_perturbation.py",
        "tests/unit/families/perturbation/test_objective_perturbation.py",
    ),
    "statistics_theorem": ("tests/unit/families/moments/test_sufficient_statistics.py",),
    "mirror_theorem": ("tests/unit/families/mirror_descent/test_public_mirror_descent.py",),
    "rashomon_theorem": (_PINNED, _BOUNDS, _REFUSED, "tests/unit/families/rashomon/test_rashomon.py"),
    "discrete_theorem": (_BOUNDS, "tests/unit/families/noisy_gradient/test_secure.py", _CONTRACT),
    "constants": (_BOUNDS, "tests/unit/problem/test_problem.py", *_SHIFT),
    "noisy_gradient": (
        _BOUNDS,
        "tests/unit/families/noisy_gradient/test_noisy_gradient.py",
    ),
    "discrete_gradient": ("tests/unit/families/noisy_gradient/test_secure.py",),
    "integer_sums": ("tests/unit/families/noisy_gradient/test_secure.py",),
    "sparse_vector": ("tests/unit/families/noisy_answers/test_sparse_vector.py",),
    "output_perturbation": ("tests/unit/families/perturbation/test_output_perturbation.py",),
    "objective_perturbation": (_PINNED, "tests/unit/families/perturbation/test_objective_perturbation.py"),
    "sufficient_statistics": (
        _BOUNDS,
        "tests/unit/families/moments/test_sufficient_statistics.py",
    ),
    "perturbed": (
        _PINNED,
        "tests/unit/families/perturbation/test_output_perturbation.py",
        "tests/unit/families/perturbation/test_objective_perturbation.py",
    ),
    "exponential": (_PINNED, "tests/unit/families/draws/test_draws.py"),
    "rashomon": (_PINNED, "tests/unit/families/rashomon/test_rashomon.py"),
    "draw": (
        _BOUNDS,
        "tests/unit/families/draws/test_draws.py",
    ),
    "sgld": ("tests/unit/samplers/test_samplers_chains.py",),
    "gamma_norm": (
        "tests/unit/samplers/test_samplers_exact.py",
        "tests/unit/families/perturbation/test_output_perturbation.py",
    ),
    "rounded": ("tests/statistical/test_rounded_noise.py",),
    "lens": (_SAMPLERS_PINNED,),
    "proximal": ("tests/unit/samplers/test_samplers_proximal.py",),
    "proposals": ("tests/unit/samplers/test_samplers_proximal.py",),
    "truncated": (_SAMPLERS_PINNED, "tests/unit/samplers/test_samplers_exact.py"),
    "bodies": (_SAMPLERS_PINNED, "tests/unit/samplers/test_samplers_exact.py"),
    "score": (_SAMPLERS_PINNED,),
    "finite_grid": (_SAMPLERS_PINNED, "tests/unit/samplers/test_samplers_exact.py"),
    "rejection": (_SAMPLERS_PINNED, "tests/unit/samplers/test_samplers_exact.py"),
    "dataset": (_SAMPLERS_PINNED, "tests/unit/data/test_dataset.py"),
    "kernels": ("tests/unit/data/test_kernels.py", "tests/unit/data/test_dataset.py"),
    "moments": (_SAMPLERS_PINNED, "tests/unit/data/test_kernels.py"),
    "admission": _LEDGER_TESTS,
    "bill": _LEDGER_TESTS,
    "budget": _LEDGER_TESTS,
    "rows": _LEDGER_TESTS,
}

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""Why a survivor changes nothing that anyone may rely on."""
