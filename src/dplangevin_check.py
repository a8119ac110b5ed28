"""dplangevin-check: derive the epsilon of a model, a plan or a ledger again, without dplangevin.

From n, bounds, noise and adjacency in a certificate: the cost of each release, epsilon at delta (docs/checker.md).
"""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Context, Decimal as D, localcontext
from pathlib import Path
from typing import Any, NamedTuple

PI = D("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211707")
CONTEXT, SLACK, AGREES, TINY, LEAST = Context(prec=80), D("1e-60"), D("4e-6"), D("1e-11"), D("1e-999000")
STATED, MAX_PATTERNS = {"gaussian": "mu", "pure": "value", "generalized-gaussian": "shift"}, 4096
NEUTRAL = """type release secure step_size coef_bound shrink row_norm_factor average_from min_steps max_steps step_cap n
checkpoints weights momentum order start_scale eigenvalue_floor n_iterations candidates n_cells smoothness convex
strong_convexity diameter projection_error dimension hessian_rank row_norm label_bound lipschitz weight_bound
gradient_sensitivity allow_more_rows log_sobolev value_oscillation logistic_slope_bound"""  # a rule need not read these


class Refused(Exception):
    """What is stated is not derived again: it is wrong, damaged, or made by hand."""


class NotCovered(Refused):
    """This checker has no rule for it."""


class Cost(
    NamedTuple
):  # `uses` of a release: mu of GDP, or the largest loss of a pure one, or of Laplace answers
    kind: str
    value: D
    uses: int = 1
    laplace: int = 0


def need(condition: bool, reason: str, error: type[Refused] = Refused) -> None:
    if not condition:
        raise error(reason)


def tail(x: D) -> tuple[D, D]:
    """Return bounds on P[N(0, 1) > x], from below and from above."""
    if x < 0:
        return 1 - tail(-x)[1] - D("1e-76"), 1 - tail(-x)[0] + D("1e-76")
    density = (-x * x / 2).exp() / (2 * PI).sqrt()
    if x > 8:  # successive convergents of Laplace's continued fraction lie on both sides
        near, further = x, x + 121 / x
        for k in range(120, 0, -1):
            near, further = x + k / near, x + k / further
        ends = density / near, density / further
        return min(ends) * (1 - SLACK), max(ends) * (1 + SLACK) + LEAST
    term, total, k = x, x, 1
    while 2 * x * x > k or term > D("1e-78"):  # Phi(x) - 1/2 is the density times the sum of x^k / k!!, k odd
        k, term = k + 2, term * x * x / (k + 2)
        total += term
    middle = density * total  # the rest of the sum is at most its last term
    return D("0.5") - middle - D("1e-76"), D("0.5") - middle + D("1e-76")


def joint_delta(mu: D, pure: list[Cost], epsilon: D) -> D:
    """Return delta of mu-GDP with pure releases, at worst randomised responses (Kairouz, Oh, Viswanath 2015)."""
    if pure:
        (_, value, count, _), total = pure[0], D(0)
        up, down = 1 / (1 + (-value).exp()), 1 / (1 + value.exp())
        for j in range(count + 1):
            given = joint_delta(mu, pure[1:], epsilon - (2 * j - count) * value)
            total += math.comb(count, j) * up**j * down ** (count - j) * given
        return total * (1 + SLACK)
    if mu == 0:
        return max(D(0), 1 - epsilon.exp())
    near, far = tail(epsilon / mu - mu / 2), tail(epsilon / mu + mu / 2)
    return max(D(0), near[1] - epsilon.exp() * far[0])


def composed_delta(costs: list[Cost], epsilon: D) -> D:
    """Return delta of all costs together: of the pairs that dominate them, or with pure losses subtracted."""
    if len(costs) == 1 and costs[0].uses == 1 and (m := costs[0].laplace):
        half, reached, missed = (costs[0].value - epsilon) / 2, 0, D(0)
        if half <= 0 or half * m >= costs[0].value:
            return D(half > 0)
        for r in range(m - 1, -1, -1):  # delta is P[Poisson(half) > Binomial(m - 1, 1/2)] (theory/thesis.md)
            reached += math.comb(m - 1, r)
            missed += half**r / math.factorial(r) * reached
        return 1 - (-half).exp() * missed / D(2) ** (m - 1) + D("1e-70")
    pure = [cost for cost in costs if cost.kind != "gaussian"]
    mu = D(sum(cost.uses * cost.value**2 for cost in costs if cost not in pure)).sqrt() * (1 + SLACK)
    left = epsilon - sum(cost.uses * cost.value for cost in pure)
    best = joint_delta(mu, [], left) if left >= 0 else D(1)
    few = math.prod(min(cost.uses, MAX_PATTERNS) + 1 for cost in pure) <= MAX_PATTERNS
    return min(best, joint_delta(mu, pure, epsilon)) if best > 0 and few else best


def bisect(holds: Callable[[D], bool], good: D, bad: D) -> D:
    """Return a point where it holds, very close to one where it does not."""
    while abs(good - bad) > abs(good) * D("1e-18") and max(good, bad) > D("1e-30"):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


class Fields:
    """The fields of a JSON object, read as exact numbers; it remembers which of them were read."""

    def __init__(self, where: str, plain: Any) -> None:
        need(isinstance(plain, dict), f"{where} is missing")
        self.where, self.plain, self.read = where, plain, set(NEUTRAL.split())

    def get(self, name: str) -> Any:
        self.read.add(name)
        return self.plain.get(name)

    def number(self, name: str, *, zero: bool = False) -> D:
        value = 0 if zero and self.get(name) is None else self.get(name)
        is_number = type(value) in (int, float) and D(value).is_finite()
        need(is_number and value >= 0 and (value > 0 or zero), f"{self.where}.{name} = {value!r} is wrong")
        return D(value)

    def count(self, name: str, *, zero: bool = False) -> int:
        need(type(self.get(name)) is int, f"{self.where}.{name} must be a whole number")
        return int(self.number(name, zero=zero))

    def word(self, name: str, *allowed: str) -> str:
        need(self.get(name) in allowed, f"{self.where}.{name} = {self.get(name)!r} has no rule", NotCovered)
        return str(self.get(name))

    def check_read(self) -> None:
        unread = ", ".join(sorted(map(str, set(self.plain) - self.read)))
        need(not unread, f"{self.where} has fields that no rule knows: {unread}", NotCovered)


class Release:
    """One release: its constants and its spec. The rule of a theorem, named after it, yields what the release costs."""

    def __init__(self, plain: Any) -> None:
        release = Fields("a release", plain)
        self.theorem, self.group = release.get("theorem"), release.count("group")
        self.times, self.s = release.count("count"), Fields("spec", release.get("spec"))
        self.c = Fields("constants", release.get("constants")) if release.get("constants") else self.s
        self.records = 2 if self.c.word("adjacency", "replace-one", "add-remove") == "replace-one" else 1
        self.matrix = D(self.records).sqrt()  # the change of sums of matrices v v', and of vectors of counts
        self.rows = self.s.count("rows_per_person") if "rows_per_person" in self.s.plain else 1

    def derive(self, adjacency: str, rows: int) -> tuple[list[Cost], D]:
        """Return the costs for a person with `rows` rows, and the additive delta."""
        rule: Any = getattr(self, "rule_" + str(self.theorem).replace("-", "_").replace(" ", "_"), None)
        own, more_rows = self.c.get("adjacency"), self.c.get("allow_more_rows") is True
        moves = adjacency == "replace-one" and own == "add-remove"  # rows of a person leave, and others come
        need(more_rows if moves else own == adjacency, f"it is for {own}, not for {adjacency}")
        need(not (more_rows and self.records == 2), "replace-one has exactly n records")
        covered = self.group * self.rows if 1 in (self.group, self.rows) else 0
        need(covered >= rows * (2 if moves else 1), f"it does not cover {rows} rows of a person")
        need(rule is not None, f"theorem {self.theorem!r} has no rule", NotCovered)
        costs = [c._replace(uses=self.times * c.uses, value=self.group * c.value) for c in rule()]
        self.s.check_read()
        self.c.check_read()
        rare = self.times * self.rare_labels() if self.theorem == "learned schema" else D(0)
        need(rare == 0 or self.group == 1, "an additive delta has no rule for groups", NotCovered)
        return costs, rare

    def gradient(self) -> D:  # the change of a sum of gradients, at worst of two opposite ones
        change, stated = self.records * self.c.number("lipschitz"), self.c.number("gradient_sensitivity")
        need(stated >= change * (1 - D("1e-12")), "a smaller gradient sensitivity has no rule", NotCovered)
        return change

    def centers(self) -> list[D]:  # scales of the choices of a center and a spread: pure 2 / scale
        return [s for name in ("center_scale", "spread_scale") if (s := self.s.number(name, zero=True))]

    def rule_whitened_composition(self) -> Iterator[Cost]:
        s, n, weight = self.s, self.c.count("n"), self.c.number("weight_bound")
        approach, change = s.count("n_approach_steps", zero=True), self.gradient() / self.c.number("row_norm")
        steps = s.count("n_steps") - approach
        need(steps > 0, "the approach takes all steps")
        last, first = change / (n * s.number("noise_std")), change / (n * s.number("approach_noise_std"))
        if again := s.number("recount_noise_std", zero=True):  # it may take the place of the last steps
            last = max(last, self.matrix * weight / (n * again) / D(steps).sqrt())
        yield Cost("gaussian", last, steps)
        yield Cost("gaussian", self.matrix / (n * s.number("moment_noise_std")), s.count("n_moment_releases"))
        yield Cost("gaussian", first, approach)
        kind, size = ("gaussian", (2 * PI).sqrt()) if s.get("gaussian_center") is True else ("pure", D(2))
        yield from [Cost(kind, size / each) for each in self.centers()]
        moved = {"count": self.matrix * weight, "curvature": self.matrix, "slope": D(2).sqrt()}
        for name, change in moved.items():
            if noise := s.number(f"{name}_noise_std", zero=True):
                yield Cost("gaussian", change / (n * noise))

    def rule_ridge_whitened_composition(self) -> Iterator[Cost]:
        s, n, moments = self.s, self.c.count("n"), self.s.count("max_moment_releases", zero=True)
        steps = self.gradient() / self.c.number("row_norm") / (n * s.number("noise_std"))
        first, further = (self.matrix / (n * s.number(f"{each}_noise_std")) for each in ("moment", "further"))
        taken = s.number("further_fraction", zero=True)  # from the steps, by each further moment
        if taken or moments > 1:
            need(0 < (moments - 1) * taken < 1, "further moments leave nothing for steps")
            steps = max(steps, further / taken.sqrt())
        yield Cost("gaussian", steps)
        yield from [Cost("gaussian", first)] * (moments > 0)
        if noise := s.number("count_noise_std", zero=True):
            yield Cost("gaussian", self.matrix * self.c.number("weight_bound") / (n * noise))

    def rule_composition(self) -> Iterator[Cost]:
        s, n, steps = self.s, self.c.count("n"), self.s.count("n_steps")
        full = s.word("sampling", "full", "cyclic", "shuffle") == "full"
        divisor = n if s.get("batch_size") is None else s.count("batch_size")
        need(s.get("start") == "data-independent", "the start is not accounted for")
        need(divisor == n if full else divisor <= n and self.records == 2, "the batches are not of n records")
        need(not isinstance(s.get("noise_std"), list), "noise that changes has no rule", NotCovered)
        epochs = steps if full else -(-steps // -(-n // divisor))  # a record takes part once in each
        yield Cost("gaussian", self.gradient() / (divisor * s.number("noise_std")), epochs)

    def rule_sufficient_statistics(self) -> Iterator[Cost]:
        c, s = self.c, self.s
        need(not (c.get("allow_more_rows") and s.get("secure")), "exact sums are sized for n records")
        size, row = c.number("weight_bound") * c.number("row_norm"), c.number("row_norm")
        gram = (size * row / s.number("gram_noise_std")) ** 2
        cross = (size * c.number("label_bound") / s.number("cross_noise_std")) ** 2
        angle = min(D(1), cross / gram / 2)
        replaced = 2 * gram * (1 - angle**2) + 2 * cross * (1 + angle)
        yield Cost("gaussian", (replaced if self.records == 2 else gram + cross).sqrt())

    def minimiser(self, ridge: D) -> D:  # of noise and determinant (for a logistic loss jointly), and solver
        c, s, smooth = self.c, self.s, self.c.number("smoothness")
        need(c.get("convex") is True and c.get("projection_error") == 0, "the loss or its set is not convex")
        curvature = max(smooth - c.number("strong_convexity", zero=True), D(0)) + smooth * D("1e-15")
        total, slope = c.count("n") * ridge, c.number("logistic_slope_bound", zero=True)
        noise, bend = self.gradient() / s.number("density_scale"), curvature / total
        cost = noise + c.count("hessian_rank") * (1 + bend).ln()
        need(slope <= 1, "no slope of a logistic loss is so large")
        if slope > D("0.5") and c.count("hessian_rank") == 1:  # the maximum of g a + log(1 + k a (1 - a))
            g, k = noise / self.records / slope, 4 * bend
            a = min(max((((2 - g) ** 2 / 4 + g + g * g / k).sqrt() + g / 2 - 1) / g, D("0.5")), slope)
            cost = min(cost, (noise - slope * g + g * a + (1 + k * a * (1 - a)).ln()) * (1 + SLACK))
        secure, tolerance = s.get("secure") is True, s.number("tolerance")  # rounding hides no solver
        hidden = s.number("release_density_scale", zero=secure)
        need(not (secure and hidden), "an exact minimiser has noise on it")
        return cost + (D(0) if secure else 2 * tolerance / (total * hidden))

    def rule_objective_perturbation(self) -> Iterator[Cost]:
        self.s.word("noise", "gamma")
        yield Cost("pure", self.minimiser(self.c.number("strong_convexity")))

    def rule_whitened_objective_perturbation(self) -> Iterator[Cost]:
        c, s, n = self.c, self.s, self.c.count("n")
        need(c.get("strong_convexity") == 0 and c.get("diameter") == "inf", "there is a ridge or a radius")
        last, changed = self.minimiser(s.number("ridge")), self.matrix * c.number("weight_bound") / n
        if again := s.number("recount_density_scale", zero=True):  # it may take the place of the minimiser
            last = max(last, changed / again)
        yield Cost("pure", last)
        yield Cost("pure", self.records / (n * s.number("moment_density_scale")))
        if scale := s.number("count_density_scale", zero=True):
            yield Cost("pure", changed / scale)
        yield from [Cost("pure", 2 / each) for each in self.centers()]

    def rule_noisy_sums(self) -> Iterator[Cost]:
        noise, sizes = self.s.word("noise", "geometric", "gamma", "gaussian"), []
        replaced = self.records if noise == "geometric" else self.matrix
        for g in [Fields("a group", plain) for plain in self.s.get("groups")]:
            sizes.append(g.number("unit") / g.number("scale") * (replaced if g.count("answers") > 1 else 1))
            g.check_read()
        gaussian = D(sum(size**2 for size in sizes)).sqrt()
        yield Cost("gaussian", gaussian) if noise == "gaussian" else Cost("pure", D(sum(sizes)))

    def rule_report_noisy_max(self) -> Iterator[Cost]:
        yield Cost("pure", self.records * self.s.number("unit") / self.s.number("scale"))

    def rule_worst_shift(self) -> Iterator[Cost]:
        m, size = self.s.count("changed"), self.s.number("sensitivity") / self.s.number("sigma")
        need(self.s.get("p") in (1, 2), "noise of this exponent has no rule", NotCovered)
        need(m <= self.s.count("answers"), "more answers change than there are")
        pure = Cost("generalized-gaussian", m * size, 1, m)
        yield pure if self.s.get("p") == 1 else Cost("gaussian", (2 * m * size**2).sqrt())

    def rule_norm_noise(self) -> Iterator[Cost]:
        size = self.s.number("sensitivity") / self.s.number("scale")
        need(self.s.count("changed") <= self.s.count("answers"), "more answers change than there are")
        yield Cost("pure", size) if self.s.get("secure") else Cost("generalized-gaussian", size, 1, 1)

    def rare_labels(self) -> D:  # the probability of listing a label that only one of two neighbours has
        labels, scale = self.s.count("n_categories", zero=True), self.s.number("scale")
        above = [(self.s.number("threshold", zero=True) - a) / scale for a in range(1, self.rows + 1)]
        if self.rows == 1:
            return (1 - (1 - tail(above[0])[1]) ** labels) * (1 + SLACK)
        return labels * self.rows * max(tail(each)[1] / a for a, each in enumerate(above, 1))

    def rule_learned_schema(self) -> Iterator[Cost]:
        rare, noise = self.rare_labels(), self.s.word("noise", "gaussian", "geometric")
        columns = self.s.count("n_numbers", zero=True) + self.s.count("n_categories", zero=True)
        changed, scale = D(self.records * columns), self.s.number("scale")
        need(rare < 1 and (rare == 0 or noise == "gaussian"), "labels are listed without enough noise")
        absent = PI / 2 * (1 - rare).ln() ** 2  # of labels not listed: pure -log(1 - t), as GDP
        gaussian = Cost("gaussian", (self.rows**2 * changed / scale**2 + absent).sqrt())
        yield gaussian if noise == "gaussian" else Cost("pure", self.rows * changed / scale)


def check_certificate(plain: Any, guarantee: Any) -> tuple[float, list[Cost], D]:
    """Return epsilon and the costs of a certificate, and of the guarantee beside it, derived again."""
    need(isinstance(plain, dict), "there is no certificate", NotCovered)
    top, costs, parts, extra = Fields("the certificate", plain), list[Cost](), list[Cost](), D(0)
    for name, value in {**plain, "at_delta": plain["delta"]}.items():
        agrees = name in ("format", "version") or guarantee.get(name) in (None, value)
        need(agrees, f"{name} is not that of the guarantee")
    need((top.get("format"), top.get("version")) == ("dplangevin-certificate", 1), "its format is unknown")
    for release in top.get("releases") or [None]:
        derived, rare = Release(release).derive(top.get("adjacency"), top.count("rows_per_person"))
        costs, extra = costs + derived, extra + rare
    for part in [Fields("a part", each) for each in top.get("parts")]:
        kind = part.word("kind", *STATED)
        need(part.get("p") in (None, 1), "a part of this exponent has no rule", NotCovered)
        size = part.number(STATED[kind], zero=True) * (part.count("changed") if "p" in part.plain else 1)
        parts.append(Cost(kind, size, part.count("count")))
    for kind, power in zip(STATED, (2, 1, 1), strict=True):  # stated costs: those derived, or just above
        ours, theirs = ([cost for cost in each if cost.kind == kind] for each in (costs, parts))
        least, most = (sum((c.uses * c.value**power for c in each), D(0)) for each in (ours, theirs))
        uses, stated_uses = (sum(cost.uses for cost in each) for each in (ours, theirs))
        agrees = least <= most * (1 + SLACK) and most <= least * (1 + AGREES) + uses * TINY
        need(agrees and uses == stated_uses, f"{kind}: {least:.12} was derived, and {most:.12} is stated")
    stated, left = top.number("extra_delta", zero=True), top.number("delta", zero=True) - extra
    need(extra <= stated <= extra * (1 + AGREES) + D("1e-290"), f"additive delta {extra:.12} was derived")
    claim = top.number("epsilon", zero=True)
    top.check_read()
    need(composed_delta(costs, claim) <= left, f"epsilon = {claim:.10} does not hold")
    epsilon = float(bisect(lambda e: composed_delta(costs, e) <= left, claim, D(0)))
    return math.nextafter(epsilon, math.inf), costs, extra


def charge(state: list[Any], costs: list[Cost], extra: D, mode: Any, budget: Fields) -> list[Any]:
    """Return what a release leaves of epsilon, delta, and mu^2 once they are split (docs/theory/privacy_filter.md)."""
    epsilon, slack, square = state
    pure = [cost for cost in costs if cost.kind != "gaussian"]
    gaussian = D(sum(cost.uses * cost.value**2 for cost in costs if cost not in pure))
    if mode == "sum":
        need(gaussian == 0 and square is None, "a pure part of the budget is not left")
        epsilon, slack = epsilon - sum(cost.uses * cost.value for cost in pure), slack - extra
    else:
        need(mode == "parts", f"charge {mode!r} has no rule", NotCovered)
        if square is None:
            total, kept = epsilon, budget.number("delta_share") * slack
            held = [Cost("pure", min(budget.number("pure_reserve", zero=True), epsilon))]
            goal = (slack - kept) / (1 - kept)
            need(0 < kept < slack, "no delta is left to split")
            mu = bisect(lambda each: joint_delta(each, held, total) <= goal, D(0), 8 + 2 * epsilon)
            epsilon, slack, square = held[0].value, kept, mu**2
        for one in [cost._replace(uses=1) for cost in pure for _ in range(cost.uses)]:
            goal = 1 - 2 * tail(square.sqrt() / 2)[1]  # Theorem 3: v-GDP and a pure release are mu-GDP
            fits: Callable[[D], bool] = lambda v, one=one, goal=goal: joint_delta(v, [one], D(0)) <= goal  # type: ignore[misc]  # noqa: E731
            need(fits(D(0)), "a pure release does not fit")
            square = bisect(fits, D(0), square.sqrt()) ** 2
        overlap = math.prod(((2 / (1 + cost.value.exp())) ** cost.uses for cost in pure), start=D(1))
        square, slack = square - gaussian, slack - extra / (overlap * 2 * tail(gaussian.sqrt() / 2)[0])
    need(min(epsilon, slack, square or D(0)) >= 0, "the release does not fit")
    return [epsilon, slack, square]


def check_budget(budget: Fields) -> float:
    """Derive every entry of a data set in a ledger again, and that its filter admits them one after the other."""
    need(budget.get("fixed_cost_entries") == 0, "entries were admitted without a filter", NotCovered)
    states: dict[str, list[Any]] = {"": [budget.number("epsilon"), budget.number("delta", zero=True), None]}
    if budget.get("expects") == "counts":
        states[""] = charge(states[""], [], D(0), "parts", budget)
    for entry in budget.get("entries"):
        own, name, modes = entry["plan"].get("certificate"), entry["part"], entry["plan"].get("charged")
        _, costs, extra = check_certificate(own, entry["guarantee"])
        covered = own["rows_per_person"] >= budget.count("max_rows_per_person")
        need(covered and own["adjacency"] == budget.get("adjacency"), "it is not for these persons")
        for each in list(states) if name == "" else [name]:
            mode = modes.get(each, modes.get("")) if isinstance(modes, dict) else modes
            states[each] = charge(states.get(each, states[""]), costs, extra, mode, budget)
    return float(budget.number("epsilon"))


def check(plain: Any) -> list[float]:
    """Return epsilon of a certificate, a model or a plan, or of each budget of a ledger; raise Refused."""
    with localcontext(CONTEXT):
        try:
            bare = {name: value for name, value in plain.items() if name not in ("digest", "signature")}
            text = json.dumps(bare, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
            need(plain.get("digest") in (None, hashlib.sha256(text).hexdigest()), "it was altered afterwards")
            if plain.get("format") == "dplangevin-ledger":
                return [check_budget(Fields("the data set", each)) for each in plain["datasets"]]
            certificate = plain if "releases" in plain else plain.get("certificate")
            if plain.get("format") == "dplangevin-plan" and certificate is not None:
                need(certificate["releases"][0]["spec"] == plain["spec"], "it is that of another plan")
            return [check_certificate(certificate, plain.get("guarantee", {}))[0]]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise Refused(f"it is damaged: {error!r}") from None


def main() -> None:
    for path in sys.argv[1:]:
        try:
            print(f"{path}: epsilon = {check(json.loads(Path(path).read_text(encoding='utf-8')))}")
        except (Refused, OSError, ValueError) as error:
            sys.exit(f"{path}: refused: {error}")


if __name__ == "__main__":
    main()
