"""Specs of noisy gradient descent, in floating point and exactly on an integer grid, and the options that state them.

noise_multiplier is the noise on the SUM of clipped gradients in units of the clipping norm, sample_rate the probability
with which a record is in a batch. Composition depends on these and on the number of steps alone: neither the step size,
nor the clipping norm, nor the number of records plays a part, so none of them is asked for.

Formulas are arithmetic in t (from 1) and T. They are parsed into numbers, names and operators; no Python is
evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.plan import Capabilities, Spec
from dplangevin.accounting.target import QUESTION_OPTIONS, check_option_names
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import Constants

Sampling = Literal["full", "cyclic", "shuffle", "without-replacement", "poisson"]
SAMPLINGS: tuple[Sampling, ...] = ("full", "cyclic", "shuffle", "without-replacement", "poisson")
ReleaseMode = Literal["last-iterate", "average", "checkpoints", "trajectory", "last-state"]
RELEASE_MODES: tuple[ReleaseMode, ...] = (
    "last-iterate",
    "average",
    "checkpoints",
    "trajectory",
    "last-state",
)
STATE_GRADIENT_ERROR = 2.0**-36
"""Largest error of the mean gradients between states, in units of the bound on one record's gradient."""
IterateWeights = Literal["uniform", "geometric", "gated"]
ITERATE_WEIGHTS: tuple[IterateWeights, ...] = ("uniform", "geometric", "gated")
BatchOrder = Literal["public", "secret"]
StartKind = Literal["data-independent", "unknown"]


@dataclass(frozen=True, kw_only=True)
class NoisyGradientSpec(Spec):
    """Projected noisy gradient descent: theta <- project(theta - eta_t (G_t + Z_t)), Z_t ~ N(0, noise_std_t^2 I).

    G_t is the sum of the batch's gradients over the public divisor batch_size, plus the ridge's gradient once.

    Parameters
    ----------
    step_size : eta_t, a number or one number per step.
    noise_std : standard deviation of the noise on the MEAN gradient, a number or one number per step.
    n_steps : number of steps; infinity asks the accountant for a bound that holds for every number of steps.
    batch_size : public divisor (expected size for Poisson); None for the whole data set.
    sampling : full; cyclic (fixed partition, same order each epoch); shuffle (fresh uniform permutation each
        epoch); without-replacement (fresh uniform subset each step); poisson (each record independently).
    release : what is released. Averages are functions of the whole path and are accounted as such. "last-state" is the
        last iterate of an exact run whose iterates lie on public grids, as theorems that hide iterates need.
    checkpoints : the steps whose iterates are released, when release is "checkpoints".
    average_from : first step (from 0) of the tail that is averaged, when release is "average".
    weights : of the average: "uniform" over the iterates after step average_from; "geometric", over all that steps
        lead to, with weights proportional to a_t / ((1 - a_0 ridge) ... (1 - a_t ridge)), a_t the step sizes, for
        strongly convex objectives; "gated", uniform from average_from on unless the path indicates weak effects, then
        by empirical Bayes (momentum, full batch).
    momentum : Nesterov momentum t / (t + 3); accounted by composition only.
    order : for cyclic, whether the partition comes from a "secret" uniform permutation drawn by the mechanism.
    start : "unknown" when the starting point may depend on the private data (a warm start not accounted for).
    start_scale : standard deviation of a Gaussian start around 0, projected on the set; 0 starts at 0.
    secure : whether gradients are summed in integers and their noise is drawn exactly on a public grid. Its size and
        the sensitivity are the same; of the theorems that hide iterates `optimal-shift` covers it, for "last-state".
    """

    mechanism: ClassVar[str] = "noisy-gradient"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, holds_beyond_n=True, checkpoints=True)
    step_size: float | tuple[float, ...]
    noise_std: float | tuple[float, ...]
    n_steps: int | float
    batch_size: int | None = None
    sampling: Sampling = "full"
    release: ReleaseMode = "last-iterate"
    checkpoints: tuple[int, ...] = ()
    average_from: int = 0
    momentum: bool = False
    order: BatchOrder = "public"
    start: StartKind = "data-independent"
    start_scale: float = 0.0
    weights: IterateWeights = "uniform"
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            step_size=_check.check_per_step,
            noise_std=_check.check_per_step,
            n_steps=_check.check_count_or_infinity,
        )
        _check.set_frozen(self, sampling=_check.check_choice("sampling", self.sampling, SAMPLINGS))
        _check.set_frozen(self, release=_check.check_choice("release", self.release, RELEASE_MODES))
        _check.set_frozen(self, order=_check.check_choice("order", self.order, ("public", "secret")))
        _check.set_frozen(
            self, start=_check.check_choice("start", self.start, ("data-independent", "unknown"))
        )
        _check.validate_fields(self, start_scale=_check.check_nonnegative, secure=_check.check_flag)
        _check.set_frozen(self, weights=_check.check_choice("weights", self.weights, ITERATE_WEIGHTS))
        _check.set_frozen(self, average_from=_check.check_count("average_from", self.average_from, minimum=0))
        self._check_batches()
        self._check_lengths()
        self._check_release()

    def _check_batches(self) -> None:
        if self.sampling == "full":
            if self.batch_size is not None:
                raise InvalidParameter(
                    f"batch_size = {self.batch_size!r} has no meaning with sampling='full'; "
                    "leave it out or choose another sampling."
                )
        elif self.batch_size is None:
            raise InvalidParameter(f"sampling={self.sampling!r} needs a batch_size.")
        else:
            _check.validate_fields(self, batch_size=_check.check_count)

    def _check_lengths(self) -> None:
        for name in ("step_size", "noise_std"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.n_steps:
                raise InvalidParameter(
                    f"{name} has {len(value)} entries but n_steps is {self.n_steps}; give one number, or one per step."
                )

    def _check_release(self) -> None:
        if self.release == "last-state" and (not self.secure or self.sampling != "full" or self.momentum):
            raise InvalidParameter(
                "release='last-state' is of exact runs (secure=True) of plain full-batch steps; use 'last-iterate'."
            )
        if self.release == "checkpoints":
            steps = tuple(_check.check_count("checkpoints", step) for step in self.checkpoints)
            if not steps or any(b <= a for a, b in pairwise(steps)) or steps[-1] > self.n_steps:
                raise InvalidParameter(
                    f"checkpoints must be increasing steps between 1 and n_steps = {self.n_steps}; "
                    f"got {self.checkpoints!r}."
                )
            _check.set_frozen(self, checkpoints=steps)
        elif self.checkpoints:
            raise InvalidParameter("checkpoints were given; set release='checkpoints' to have them covered.")
        if self.release == "average" and self.average_from >= self.n_steps:
            raise InvalidParameter(
                f"average_from = {self.average_from} leaves nothing to average of n_steps = {self.n_steps}."
            )
        self._check_weights()

    def _check_weights(self) -> None:
        if self.weights == "uniform":
            return
        if self.weights == "gated":
            if (
                self.release != "average"
                or not self.momentum
                or self.sampling != "full"
                or not self.is_constant
            ):
                raise InvalidParameter(
                    "gated weights need release='average', momentum, full batches, one step size and one noise_std."
                )
            return
        if self.release != "average" or self.average_from:
            raise InvalidParameter(
                f"weights={self.weights!r} are of the average of all iterates; use release='average' and "
                "average_from=0, or leave weights out."
            )
        if self.weights == "geometric" and self.momentum:
            raise InvalidParameter("geometric weights need plain steps, without momentum.")

    def check_combination(self, constants: Constants) -> None:
        """Refuse combinations of sampling, adjacency and batch size for which no theorem exists."""
        sampling, adjacency, size = self.sampling, constants.adjacency, self.batch_size
        if size is not None and size > constants.n:
            raise InvalidParameter(f"batch_size = {size} is larger than n = {constants.n}; lower batch_size.")
        if sampling in ("cyclic", "shuffle", "without-replacement") and adjacency == "add-remove":
            raise InvalidParameter(
                f"sampling={sampling!r} is not defined under adjacency='add-remove' (removing a record moves others "
                "between batches); use adjacency='replace-one', or sampling='poisson' or 'full'."
            )

    @classmethod
    def from_diffusion(
        cls,
        *,
        step_size: float,
        sigma: float,
        n_steps: int | float,
        strong_convexity: float = 0.0,
        release: ReleaseMode = "last-iterate",
    ) -> NoisyGradientSpec:
        """Return the spec of theta - eta grad + sqrt(2 eta) sigma N(0, I), as in Chourasia, Ye and Shokri (2021).

        With strong_convexity > 0 the run starts at N(0, 2 sigma^2 / strong_convexity), as in that paper.
        """
        step = _check.check_scale("step_size", step_size)
        scale = _check.check_positive("sigma", sigma)
        curvature = _check.check_nonnegative("strong_convexity", strong_convexity)
        return cls(
            step_size=step,
            noise_std=scale * math.sqrt(2 / step),
            n_steps=n_steps,
            release=release,
            start_scale=scale * math.sqrt(2 / curvature) if curvature else 0.0,
        )

    @property
    def is_constant(self) -> bool:
        """Whether step size and noise are the same at every step."""
        return not isinstance(self.step_size, tuple) and not isinstance(self.noise_std, tuple)

    @property
    def time_step(self) -> float | tuple[float, ...]:
        """eta_t of the same run as Langevin steps, theta - eta beta grad + N(0, 2 eta): (step_size noise_std)^2/2."""
        return _number_or_tuple(np.multiply(self.step_size, self.noise_std) ** 2 / 2)

    @property
    def inverse_temperature(self) -> float | tuple[float, ...]:
        """beta_t of the same run as Langevin steps: 2 / (step_size noise_std^2)."""
        return _number_or_tuple(2.0 / np.multiply(self.step_size, np.square(self.noise_std)))

    def divisor(self, n: int) -> int:
        """Return the public divisor of the gradient sum."""
        return n if self.batch_size is None else self.batch_size

    def step_sizes(self) -> NDArray[np.float64]:
        """Return eta_t for every step (finite n_steps only)."""
        return np.broadcast_to(np.asarray(self.step_size, float), (int(self.n_steps),)).copy()

    def noise_stds(self) -> NDArray[np.float64]:
        """Return noise_std_t for every step (finite n_steps only)."""
        return np.broadcast_to(np.asarray(self.noise_std, float), (int(self.n_steps),)).copy()


def _number_or_tuple(values: NDArray[np.float64]) -> float | tuple[float, ...]:
    plain = values.tolist()
    return tuple(plain) if isinstance(plain, list) else float(plain)


DP_SGD_OPTIONS = ("noise_multiplier", "sample_rate", "epochs")
_UNUSED_OPTIONS = (
    "lipschitz",
    "step_size",
    "noise_std",
    "smoothness",
    "strong_convexity",
    "diameter",
    "momentum",
)
_STATED_RECORDS = 10**18
"""Records of a run that states a rate: fractions of it give every rate, rounded up by less than 10^-18."""


def translate_dp_sgd_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the language of noisy gradient runs; unchanged unless some are those of DP-SGD.

    Without a noise multiplier (which `calibrate` finds) the noise is left out.

    Examples
    --------
    >>> run = translate_dp_sgd_options({"noise_multiplier": 1.1, "n": 60_000, "batch_size": 256, "epochs": 60})
    >>> run["n_steps"], run["sampling"], run["adjacency"], round(run["noise_std"] * 256, 12)
    (14063, 'poisson', 'add-remove', 1.1)
    """
    if not any(options.get(name) is not None for name in DP_SGD_OPTIONS):
        return dict(options)
    for name in _UNUSED_OPTIONS:
        if options.get(name) not in (None, False):
            raise InvalidParameter(
                f"{name} plays no part in a run that is stated by noise_multiplier and sample_rate; leave it out."
            )
    rest = {name: value for name, value in options.items() if name not in (*DP_SGD_OPTIONS, *_UNUSED_OPTIONS)}
    n, batch_size = _read_batches(options)
    run = {"sampling": "full" if batch_size == n else "poisson", "adjacency": "add-remove", **rest, "n": n}
    run |= {"lipschitz": 1.0, "step_size": 1.0}
    if run["sampling"] == "full":
        run.pop("batch_size", None)
    else:
        run["batch_size"] = batch_size
    if options.get("noise_multiplier") is not None:
        noise = _check.check_positive("noise_multiplier", options["noise_multiplier"])
        run["noise_std"] = noise / (n if run["sampling"] == "full" else batch_size)
    if options.get("epochs") is not None:
        if options.get("n_steps") is not None:
            raise InvalidParameter("epochs and n_steps are both given; state one of them.")
        epochs = _check.check_positive("epochs", options["epochs"])
        run["n_steps"] = math.ceil(epochs / (options.get("sample_rate") or batch_size / n))
    return run


def check_dp_sgd_options(options: Mapping[str, Any]) -> None:
    """Raise if a run that is stated in the words of DP-SGD lacks its noise or its number of steps."""
    if not any(options.get(name) is not None for name in DP_SGD_OPTIONS):
        return
    if options.get("noise_multiplier") is None:
        raise InvalidParameter("noise_multiplier is missing; state it, or use calibrate to find it.")
    if options.get("epochs") is None and options.get("n_steps") is None:
        raise InvalidParameter("epochs or n_steps is missing; state one of them.")


def noise_multiplier_of(run: Mapping[str, Any], noise_std: float) -> float:
    """Return the noise multiplier of a translated run with this noise, rounded up."""
    divisor = run.get("batch_size") or run["n"]
    return math.nextafter(noise_std * divisor * (1 + 4e-16), math.inf)


def _read_batches(options: Mapping[str, Any]) -> tuple[int, int]:
    """Return n and the batch size, whose ratio is the sample rate, rounded up."""
    n, batch_size, rate = (options.get(name) for name in ("n", "batch_size", "sample_rate"))
    if rate is None:
        if n is None or batch_size is None:
            raise InvalidParameter("sample_rate is missing; state it, or n and batch_size.")
        size = _check.check_count("batch_size", batch_size)
        if size > _check.check_count("n", n):
            raise InvalidParameter(f"batch_size = {size} is larger than n = {n}; lower batch_size.")
        return int(n), size
    if batch_size is not None or n is not None:
        raise InvalidParameter("sample_rate already states batch_size / n; leave n and batch_size out.")
    if not 0 < _check.check_positive("sample_rate", rate) <= 1:
        raise InvalidParameter(f"sample_rate must be at most 1, got {rate!r}.")
    return _STATED_RECORDS, math.ceil(Fraction(rate) * _STATED_RECORDS)


MAX_FORMULA_LENGTH = 200
MAX_FORMULA_STEPS = 10**7
_MAX_DEPTH = 20
_FUNCTIONS: dict[str, tuple[int, Callable[..., Floats]]] = {
    "sqrt": (1, np.sqrt),
    "log": (1, np.log),
    "exp": (1, np.exp),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
}
_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z]+)|(\*\*|[-+*/^(),]))"
)


def parse_per_step(name: str, text: str, steps: float) -> float | tuple[float, ...]:
    """Return the number, or the values of the formula at t = 1, ..., steps; `name` is the option that errors name.

    Examples
    --------
    >>> parse_per_step("step_size", "0.5 / sqrt(t)", 4)
    (0.5, 0.35355339059327373, 0.2886751345948129, 0.25)
    >>> parse_per_step("step_size", "2e-1", float("inf"))
    0.2
    """
    parser = _FormulaParser(name, text, steps)
    value = parser.parse()
    if not parser.is_varying:
        return float(value[0])
    return tuple(float(item) for item in value)


class _FormulaParser:
    """A recursive-descent parser: sum := product (("+"|"-") product)*; product := power (("*"|"/") power)*; power :=
    atom ("^" power)?"""

    def __init__(self, name: str, text: str, steps: float) -> None:
        self.name, self.text, self.steps = name, text, steps
        self.is_varying = False
        self.depth = 0
        self.tokens = self._tokenize()
        self.position = 0

    def parse(self) -> Floats:
        with np.errstate(all="ignore"):
            value = np.atleast_1d(self._parse_sum())
        if self.position < len(self.tokens):
            raise self._error(f"nothing may follow at {self.tokens[self.position]!r}")
        return value

    def _error(self, why: str) -> InvalidParameter:
        return InvalidParameter(
            f"{self.name} = {self.text[:60]!r} cannot be read: {why}. Give a number, or a formula in t, T, + - * / ^, "
            "sqrt, log, exp, min and max, such as 0.5/sqrt(t)."
        )

    def _tokenize(self) -> list[str]:
        if not self.text.strip() or len(self.text) > MAX_FORMULA_LENGTH:
            raise self._error(f"it must have 1 to {MAX_FORMULA_LENGTH} characters")
        tokens, position, text = [], 0, self.text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"{text[position:].strip()[0]!r} has no meaning here")
            tokens.append(match.group().strip())
            position = match.end()
        return tokens

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _expect(self, *expected: str) -> str:
        token = self._peek()
        if token not in expected:
            raise self._error(f"expected {' or '.join(map(repr, expected))}, got {token or 'the end'!r}")
        self.position += 1
        return token

    def _parse_sum(self) -> Floats:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self._error("it is nested too deeply")
        value = self._parse_product()
        while self._peek() in ("+", "-"):
            sign = self._expect("+", "-")
            other = self._parse_product()
            value = value + other if sign == "+" else value - other
        self.depth -= 1
        return value

    def _parse_product(self) -> Floats:
        value = self._parse_signed()
        while self._peek() in ("*", "/"):
            sign = self._expect("*", "/")
            other = self._parse_signed()
            value = value * other if sign == "*" else value / other
        return value

    def _parse_signed(self) -> Floats:
        is_negative = False
        while self._peek() == "-":
            self._expect("-")
            is_negative = not is_negative
        value = self._parse_power()
        return -value if is_negative else value

    def _parse_power(self) -> Floats:
        value = self._parse_atom()
        if self._peek() in ("^", "**"):
            self._expect("^", "**")
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise self._error("it is nested too deeply")
            value = value ** self._parse_signed()
            self.depth -= 1
        return value

    def _parse_atom(self) -> Floats:
        token = self._peek()
        if not token:
            raise self._error("it ends too early")
        if token == "(":
            self._expect("(")
            value = self._parse_sum()
            self._expect(")")
            return value
        if token[0].isdigit() or token[0] == ".":
            self.position += 1
            return np.asarray(float(token))
        if token in ("t", "T"):
            self.position += 1
            return self._step_values(token)
        if token in _FUNCTIONS:
            return self._parse_call(token)
        raise self._error(f"{token!r} has no meaning here")

    def _step_values(self, token: str) -> Floats:
        if not 1 <= self.steps <= MAX_FORMULA_STEPS or self.steps != int(self.steps):
            raise self._error(
                f"a formula in {token} needs a number of steps between 1 and {MAX_FORMULA_STEPS}"
            )
        self.is_varying = True
        count = int(self.steps)
        return np.arange(1, count + 1, dtype=float) if token == "t" else np.full(count, float(count))

    def _parse_call(self, name: str) -> Floats:
        count, function = _FUNCTIONS[name]
        self.position += 1
        self._expect("(")
        values = [self._parse_sum()]
        for _ in range(count - 1):
            self._expect(",")
            values.append(self._parse_sum())
        self._expect(")")
        return np.asarray(function(*values))


MECHANISMS = ("noisy-gd", "noisy-sgd")
"""Mechanisms with full batches, and with mini-batches."""


def parse_descent_options(
    *,
    n: int,
    lipschitz: float,
    noise_std: float | str | Sequence[float],
    step_size: float | str | Sequence[float],
    n_steps: int | float,
    mechanism: str | None = None,
    batch_size: int | None = None,
    sampling: str | None = None,
    smoothness: float = math.inf,
    strong_convexity: float = 0.0,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
    release: str = "last-iterate",
    checkpoints: Sequence[int] = (),
    momentum: bool = False,
) -> tuple[Constants, NoisyGradientSpec]:
    """Return the constants and the spec of a run, from the options of the command line.

    noise_std and step_size may be formulas in the step t, such as "0.5/sqrt(t)".
    """
    n_steps = _check.check_count_or_infinity("n_steps", n_steps)
    if sampling is None:
        if mechanism == "noisy-sgd" or batch_size is not None:
            raise InvalidParameter(
                "sampling is missing; state how batches are drawn: cyclic, shuffle, without-replacement or poisson."
            )
        sampling = "full"
    if mechanism is not None:
        _check.check_choice("mechanism", mechanism, MECHANISMS)
        if (mechanism == "noisy-gd") != (sampling == "full"):
            raise InvalidParameter(
                f"mechanism={mechanism!r} does not fit sampling={sampling!r}; noisy-gd uses the full batch, "
                "noisy-sgd a mini-batch."
            )
    constants = Constants(
        n=n, lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity, diameter=diameter,
        adjacency=adjacency,  # type: ignore[arg-type]
    )  # fmt: skip
    spec = NoisyGradientSpec(
        step_size=_parse_if_formula("step_size", step_size, n_steps),  # type: ignore[arg-type]
        noise_std=_parse_if_formula("noise_std", noise_std, n_steps),  # type: ignore[arg-type]
        n_steps=n_steps,
        batch_size=batch_size,
        sampling=sampling,  # type: ignore[arg-type]
        release=release,  # type: ignore[arg-type]
        checkpoints=tuple(checkpoints),
        momentum=momentum,
    )
    spec.check_combination(constants)
    return constants, spec


def _parse_if_formula(
    name: str, value: float | str | Sequence[float], n_steps: float
) -> float | Sequence[float]:
    return parse_per_step(name, value, n_steps) if isinstance(value, str) else value


def read_descent_options(options: Mapping[str, object]) -> tuple[Constants, NoisyGradientSpec]:
    """Check the names of the options, and return the constants and the spec of the run."""
    given_options = check_option_names(options, parse_descent_options, QUESTION_OPTIONS)
    return parse_descent_options(**given_options)  # type: ignore[arg-type]
