"""Mutants of the wiring: the formula or the noise is right, and the path that runs does not use it."""

# ruff: noqa: E501
# fmt: off

from __future__ import annotations

WIRING: tuple[tuple[str, str, str], ...] = (
    ("learned_norm", "return np.asarray(LearnedCounts().run(price, lambda: exact, rng).cells[0])", "return np.asarray(exact.cells[0], float)"),
    ("learned_norm", "        plan, release, model.random_state, ledger=model.ledger, saved=saved", "        plan.recipe.plan, release, model.random_state, ledger=model.ledger, saved=saved"),
    ("search_wiring", "return float(noisy[0]), model", "return float(exact[0]), model"),
    ("search_wiring", "total = rows if n is None else _check.count(\"n\", n)", "total = len(table)"),
    ("region_release", "noisy = float(NoisySlack().run(plan.slack, exact, rng).values[0][0])", "noisy = float(exact()[0][0])"),
    ("region_release", "minimised_within(data, plan, centre, min(steps, MOST_STEPS))", "minimised_within(data, plan, centre, min(steps // 4, MOST_STEPS))"),
    ("region_sums", "return np.asarray(total / (steepest * objective.row_norm))", "return np.asarray(total / steepest)"),
    ("whitened_wiring", "return np.asarray((exact + exact.T) / 2 + noise)", "return np.asarray((exact + exact.T) / 2 + 0 * noise)"),
    ("whitened_wiring", "weighted = data if short else data.reweighted", "weighted = data if True else data.reweighted"),
    ("whitened_wiring", "range(walk.step, walk.steps if last is None else last)", "range(walk.step, walk.steps + 1 if last is None else last)"),
    ("whitened_wiring", "exact = data.summed(second_moment) / data.problem.n\n", "exact = data.summed(second_moment) / data.n_samples\n"),
    ("whitened_resumed", "            saved.restore(rng)\n", ""),
    ("mirror_resumed", "            saved.restore(rng)\n", ""),
    ("pure_wiring", "noise = wishart_difference(data.problem.n_columns, schedule.moment_density_scale, rng)", "noise = 0 * wishart_difference(data.problem.n_columns, schedule.moment_density_scale, rng)"),
    ("mirror_wiring", "(total + rounded_gaussian(RESOLUTION, problem.dimension))", "(total + rounded_gaussian(RESOLUTION, problem.dimension) // 2)"),
    ("mirror_wiring", "rounded_gaussian(RESOLUTION,", "rounded_gaussian(RESOLUTION - 1,"),
    ("secure_sums", "gaussian_scale(group.scale), 2.0)", "group.scale, 2.0)"),
    ("secure_sums", "geometric_noise(group.scale, values.size)", "geometric_noise(group.scale / 2, values.size)"),
    ("secure_sums", "return group.scale * rng.standard_normal(group.answers)", "return 0.5 * group.scale * rng.standard_normal(group.answers)"),
    ("group_wiring", "parts = tuple(replace(part.group(rows), count=part.count) for part in self.parts)", "parts = self.parts"),
    ("screen", "all_short = all(np.linalg.norm(part, 2) <= 1 - SLACK for part in parts)", "all_short = all(np.linalg.norm(part, 2) <= 9 - SLACK for part in parts)"),
    # perturbation
    ("perturbation_wiring", "value=problem.constraint.project(_secure(found, schedule.density_scale))", "value=problem.constraint.project(_secure(found, schedule.density_scale / 2))"),
    ("perturbation_wiring", "gaussian_scale(deviation), 2.0)", "deviation, 2.0)"),
    ("perturbation_wiring", "ridge=problem.n * problem.ridge, tilt=tilt)", "ridge=problem.ridge, tilt=tilt)"),
    ("output_wiring", "(constants.gradient_sensitivity + 2 * tolerance) / total_ridge(constants)", "(constants.gradient_sensitivity / 2 + 2 * tolerance) / total_ridge(constants)"),
    # budget shares
    ("raw_shares", "        for price in self.learning:\n            total = total + price.guarantee\n", ""),
    ("raw_shares", "total = self.people.promised(self.recipe.plan.guarantee)", "total = self.recipe.plan.guarantee"),
    ("raw_shares", "return other.mu <= planned.mu", "return True"),
    ("raw_shares", "if plan.guarantee.epsilon(delta) <= epsilon:\n            return plan", "if True:\n            return plan"),
    ("raw_shares", "if not plan.guarantee.epsilon(0.0) <= epsilon:", "if False:"),
    ("interval_shares", "        if spent <= epsilon:\n", "        if spent <= 2 * epsilon:\n"),
    ("interval_shares", "return _with_curvature(plan, problem, epsilon - plan.guarantee.epsilon(0.0), 0.0)", "return _with_curvature(plan, problem, epsilon, 0.0)"),
    # learned schemas and persons
    ("learned_wiring", "return schedule.scale * rng.standard_normal(size)", "return 0.5 * schedule.scale * rng.standard_normal(size)"),
    ("learned_wiring", "return discrete_laplace(schedule.scale, size, rng)", "return discrete_laplace(schedule.scale / 2, size, rng)"),
    ("learned_price", "cost, tail = schedule.reach / schedule.scale, schedule.tail", "cost, tail = schedule.reach / schedule.scale / 2, schedule.tail"),
    ("persons", "(np.arange(len(codes)) - first < most) & (ordered >= 0)", "ordered >= 0"),
    ("persons", "(np.arange(len(codes)) - first < most) & (ordered >= 0)", "np.arange(len(codes)) - first <= most"),
    ("person_price", "guarantee.group(most if adjacency == \"add-remove\" else 2 * most)", "guarantee.group(most)"),
    ("person_price", "mu = cv.gdp_mu(epsilon, delta) / rows", "mu = cv.gdp_mu(epsilon, delta)"),
    # counting and scores
    ("counting", "sensitivity=float(rows),", "sensitivity=1.0,"),
    ("counts_by_group", "plan.guarantee.group(max_rows_per_person)", "plan.guarantee"),
    ("sums_price", "group.reach(noise, adjacency) / cost * (1 + 1e-9)", "group.reach(noise, \"add-remove\") / cost * (1 + 1e-9)"),
    ("sums_price", "costs = [group.reach(schedule.noise, schedule.adjacency) / group.scale for group in schedule.groups]", "costs = [group.reach(schedule.noise, schedule.adjacency) / group.scale for group in schedule.groups][:1]"),
    # cells, clipping and weights
    ("clipping", "_clip_rows(features, self.data_norm, rows)", "rows[...] = features"),
    ("clipping", "np.clip(_numbers(\"weights\", weights, 1), 0.0, self.weight_bound)", "_numbers(\"weights\", weights, 1)"),
    ("clipping", "return rows, np.clip(labels, *self.label_range), clipped_weights", "return rows, labels, clipped_weights"),
    # payment
    ("payment", "    check_rows(ledger, rows_per_person)\n", ""),
    ("payment", "    check_strict(ledger, plan)\n", ""),
    # mirror descent, statistics, secure descent
    ("mirror_price", "constants.gradient_sensitivity / constants.n / noises", "constants.gradient_sensitivity / 2 / constants.n / noises"),
    ("statistics_price", "gram = scale * constants.weight_bound * (constants.row_norm or 1.0) ** 2 / math.sqrt(1 - share)", "gram = scale * (constants.row_norm or 1.0) ** 2 / math.sqrt(1 - share)"),
)
