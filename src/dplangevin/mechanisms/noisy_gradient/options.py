"""Options of noisy gradient runs: step sizes and noise as numbers or formulas, and those of DP-SGD libraries.

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
from fractions import Fraction
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.target import QUESTION_OPTIONS, check_option_names
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants

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
