"""A number per step from a short formula such as "0.5 / sqrt(t)": arithmetic in t (from 1) and T, and nothing else.

No Python is ever run: the text is read character by character into numbers, names and signs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter

LONGEST_TEXT = 200
MOST_STEPS = 10**7
_DEEPEST = 20
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


def per_step(name: str, text: str, steps: float) -> float | tuple[float, ...]:
    """The number, or the value of the formula at t = 1, ..., steps; `name` is the option that errors speak of.

    Examples
    --------
    >>> per_step("step_size", "0.5 / sqrt(t)", 4)
    (0.5, 0.35355339059327373, 0.2886751345948129, 0.25)
    >>> per_step("step_size", "2e-1", float("inf"))
    0.2
    """
    reader = _Reader(name, text, steps)
    value = reader.read()
    if not reader.varies:
        return float(value[0])
    return tuple(float(item) for item in value)


class _Reader:
    """sum := product (("+"|"-") product)*; product := power (("*"|"/") power)*; power := atom ("^" power)?"""

    def __init__(self, name: str, text: str, steps: float) -> None:
        self.name, self.text, self.steps = name, text, steps
        self.varies = False
        self.depth = 0
        self.tokens = self._split()
        self.place = 0

    def read(self) -> Floats:
        with np.errstate(all="ignore"):
            value = np.atleast_1d(self._sum())
        if self.place < len(self.tokens):
            raise self._wrong(f"nothing may follow at {self.tokens[self.place]!r}")
        return value

    def _wrong(self, why: str) -> InvalidParameter:
        return InvalidParameter(
            f"{self.name} = {self.text[:60]!r} cannot be read: {why}. Give a number, or a formula in t, T, + - * / ^, "
            "sqrt, log, exp, min and max, such as 0.5/sqrt(t)."
        )

    def _split(self) -> list[str]:
        if not self.text.strip() or len(self.text) > LONGEST_TEXT:
            raise self._wrong(f"it must have 1 to {LONGEST_TEXT} characters")
        found, place, text = [], 0, self.text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._wrong(f"{text[place:].strip()[0]!r} has no meaning here")
            found.append(match.group().strip())
            place = match.end()
        return found

    def _next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._next()
        if token not in wanted:
            raise self._wrong(f"expected {' or '.join(map(repr, wanted))}, got {token or 'the end'!r}")
        self.place += 1
        return token

    def _sum(self) -> Floats:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._wrong("it is nested too deeply")
        value = self._product()
        while self._next() in ("+", "-"):
            sign = self._take("+", "-")
            other = self._product()
            value = value + other if sign == "+" else value - other
        self.depth -= 1
        return value

    def _product(self) -> Floats:
        value = self._signed()
        while self._next() in ("*", "/"):
            sign = self._take("*", "/")
            other = self._signed()
            value = value * other if sign == "*" else value / other
        return value

    def _signed(self) -> Floats:
        minus = False
        while self._next() == "-":
            self._take("-")
            minus = not minus
        value = self._power()
        return -value if minus else value

    def _power(self) -> Floats:
        value = self._atom()
        if self._next() in ("^", "**"):
            self._take("^", "**")
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self._wrong("it is nested too deeply")
            value = value ** self._signed()
            self.depth -= 1
        return value

    def _atom(self) -> Floats:
        token = self._next()
        if not token:
            raise self._wrong("it ends too early")
        if token == "(":
            self._take("(")
            value = self._sum()
            self._take(")")
            return value
        if token[0].isdigit() or token[0] == ".":
            self.place += 1
            return np.asarray(float(token))
        if token in ("t", "T"):
            self.place += 1
            return self._step(token)
        if token in _FUNCTIONS:
            return self._call(token)
        raise self._wrong(f"{token!r} has no meaning here")

    def _step(self, token: str) -> Floats:
        if not 1 <= self.steps <= MOST_STEPS or self.steps != int(self.steps):
            raise self._wrong(f"a formula in {token} needs a number of steps between 1 and {MOST_STEPS}")
        self.varies = True
        count = int(self.steps)
        return np.arange(1, count + 1, dtype=float) if token == "t" else np.full(count, float(count))

    def _call(self, name: str) -> Floats:
        count, function = _FUNCTIONS[name]
        self.place += 1
        self._take("(")
        values = [self._sum()]
        for _ in range(count - 1):
            self._take(",")
            values.append(self._sum())
        self._take(")")
        return np.asarray(function(*values))
