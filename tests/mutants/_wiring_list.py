"""Mutants of the wiring: the formula or the noise is right, and the path that runs does not use it."""

# ruff: noqa: E501
# fmt: off

from __future__ import annotations

WIRING: tuple[tuple[str, str, str], ...] = (
    ("learned_norm", "return np.asarray(LearnedSchemaMechanism().run(spec, lambda: exact, shared).cells[0])", "return np.asarray(exact.cells[0], float)"),
    ("learned_norm", "    norm_release = charge_then_release(\n        plan,", "    norm_release = charge_then_release(\n        plan.fit_plan.plan,"),
    ("search_wiring", "return float(noisy[0]), model", "return float(exact[0]), model"),
    ("search_wiring", "total = n_rows if stated is None else _check.check_count(\"n_public\", stated)", "total = n_rows"),
    ("region_release", "noisy = float(NoisySlack().run(plan.slack, exact_answer, random_state).values[0][0])", "noisy = float(exact_answer()[0][0])"),
    ("region_release", "minimize_within_radius(data, plan, center, steps)", "minimize_within_radius(data, plan, center, steps // 4)"),
    ("region_sums", "return np.asarray(total / (max_slope * objective.row_norm))", "return np.asarray(total / max_slope)"),
    ("whitened_wiring", "return np.asarray((exact + exact.T) / 2 + noise)", "return np.asarray((exact + exact.T) / 2 + 0 * noise)"),
    ("whitened_wiring", "if row_filter is not None and row_filter.all_short:", "if True:"),
    ("whitened_wiring", "range(state.step, state.n_steps if last is None else last)", "range(state.step, state.n_steps + 1 if last is None else last)"),
    ("whitened_wiring", "exact = data.sum_over_blocks(second_moment_sum) / data.problem.n\n", "exact = data.sum_over_blocks(second_moment_sum) / data.n_samples\n"),
    ("whitened_resumed", "                run_state.restore_generator(draws.rng)\n", ""),
    ("mirror_resumed", "                run_state.restore_generator(rng)\n", ""),
    ("pure_wiring", "noise = sample_wishart_difference(data.problem.n_columns, spec.moment_density_scale, draws.rng)", "noise = 0 * sample_wishart_difference(data.problem.n_columns, spec.moment_density_scale, draws.rng)"),
    ("secure_sums", "scale = gaussian_density_scale(group.scale)", "scale = group.scale"),
    ("secure_sums", "sample_geometric_noise(group.scale, values.size,", "sample_geometric_noise(group.scale / 2, values.size,"),
    ("secure_sums", "return group.scale * rng.standard_normal(group.answers)", "return 0.5 * group.scale * rng.standard_normal(group.answers)"),
    ("group_wiring", "parts = tuple(replace(part.group(rows), count=part.count) for part in self.parts)", "parts = self.parts"),
    ("screen", "all_short = bool(roots[0] <= 1 - ROUNDING_SLACK)", "all_short = bool(roots[0] <= 9 - ROUNDING_SLACK)"),
    # perturbation
    ("mirror_wiring", "noises[t] / problem.row_norm,", "0.5 * noises[t] / problem.row_norm,"),
    ("perturbation_wiring", "grid, scale = public_noise_grid(spec.density_scale), spec.density_scale", "grid, scale = public_noise_grid(spec.density_scale), spec.density_scale / 2"),
    ("perturbation_wiring", "gaussian_density_scale(scale), 2.0, source)", "deviation, 2.0, source)"),
    ("perturbation_wiring", "ridge=problem.n * problem.ridge, tilt=tilt)", "ridge=problem.ridge, tilt=tilt)"),
    ("output_wiring", "(constants.gradient_sensitivity + 2 * tolerance) / total_ridge(constants)", "(constants.gradient_sensitivity / 2 + 2 * tolerance) / total_ridge(constants)"),
    # budget shares
    ("raw_shares", "        for spec in self.learning:\n            total = total + spec.guarantee\n", ""),
    ("raw_shares", "total = self.privacy_unit.guarantee_for_person(self.fit_plan.plan.guarantee)", "total = self.fit_plan.plan.guarantee"),
    ("raw_shares", "return other.mu <= planned.mu", "return True"),
    ("raw_shares", "if plan.guarantee.epsilon(delta) <= epsilon:\n            return plan", "if True:\n            return plan"),
    ("raw_shares", "if not plan.guarantee.epsilon(0.0) <= epsilon:", "if False:"),
    ("interval_shares", "        if spent <= epsilon:\n", "        if spent <= 2 * epsilon:\n"),
    ("interval_shares", "return _attach_curvature(plan, problem, epsilon - plan.guarantee.epsilon(0.0), 0.0)", "return _attach_curvature(plan, problem, epsilon, 0.0)"),
    # learned schemas and persons
    ("learned_wiring", "spec.scale * rng.standard_normal(counts.shape)", "0.5 * spec.scale * rng.standard_normal(counts.shape)"),
    ("learned_wiring", "sample_discrete_laplace(spec.scale, counts.shape, rng)", "sample_discrete_laplace(spec.scale / 2, counts.shape, rng)"),
    ("learned_price", "cost, threshold_delta = spec.sensitivity / spec.scale, spec.threshold_delta", "cost, threshold_delta = spec.sensitivity / spec.scale / 2, spec.threshold_delta"),
    ("persons", "(np.arange(len(codes)) - first < max_rows) & (ordered >= 0)", "ordered >= 0"),
    ("persons", "(np.arange(len(codes)) - first < max_rows) & (ordered >= 0)", "np.arange(len(codes)) - first <= max_rows"),
    ("person_price", "guarantee.group(max_rows if adjacency == \"add-remove\" else 2 * max_rows)", "guarantee.group(max_rows)"),
    ("person_price", "mu = cv.gdp_mu(epsilon, delta) / rows", "mu = cv.gdp_mu(epsilon, delta)"),
    # counting and scores
    ("counting", "sensitivity=float(rows),", "sensitivity=1.0,"),
    ("counts_by_group", "plan.guarantee.group(max_rows_per_person)", "plan.guarantee"),
    ("sums_price", "group.sensitivity(noise, adjacency) / cost * (1 + 1e-9)", "group.sensitivity(noise, \"add-remove\") / cost * (1 + 1e-9)"),
    ("sums_price", "costs = [group.sensitivity(spec.noise, spec.adjacency) / group.scale for group in spec.groups]", "costs = [group.sensitivity(spec.noise, spec.adjacency) / group.scale for group in spec.groups][:1]"),
    # cells, clipping and weights
    ("clipping", "_clip_rows(features, self.data_norm, rows)", "rows[...] = features"),
    ("clipping", "np.clip(_as_numeric_array(\"weights\", weights, 1), 0.0, self.weight_bound)", "_as_numeric_array(\"weights\", weights, 1)"),
    ("clipping", "return np.clip(labels, *self.label_range), clipped_weights", "return labels, clipped_weights"),
    # payment
    ("payment", "    check_rows_per_person(ledger, rows_per_person)\n", ""),
    ("payment", "    check_strict_dataset(ledger, plan)\n", ""),
    # mirror descent, statistics, secure descent
    ("mirror_price", "constants.gradient_sensitivity / constants.n / noises", "constants.gradient_sensitivity / 2 / constants.n / noises"),
    ("statistics_price", "gram = scale * constants.weight_bound * (constants.row_norm or 1.0) ** 2 / math.sqrt(1 - fraction)", "gram = scale * (constants.row_norm or 1.0) ** 2 / math.sqrt(1 - fraction)"),
)
