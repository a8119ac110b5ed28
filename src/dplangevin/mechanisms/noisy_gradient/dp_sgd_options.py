"""Options of DP-SGD as its libraries state them: noise multiplier, sample rate, and epochs or steps.

noise_multiplier is the noise on the SUM of clipped gradients in units of the clipping norm, sample_rate the probability
with which a record is in a batch. Composition depends on these and on the number of steps alone: neither the step size,
nor the clipping norm, nor the number of records plays a part, so none of them is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dplangevin import _check
from dplangevin.errors import InvalidParameter

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
