"""Lower bounds on the probability that a drawn model lies in the Rashomon set {F <= F* + psi}.

F convex on a convex set: the volume V(s) of {F <= F* + s} has V^(1/p) concave, so dV / (s^(p-1) ds) falls, and the law
exp(-beta h(F - F*)) puts at least A / (A + B) on the set, A = psi^p / p, B the integral of s^(p-1) e^(-beta h(s))
over s > psi. Equality for cones. Proof: docs/theory/rashomon.md.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaincc, gammaln, logsumexp

from dplangevin import _check
from dplangevin.problem.risk import hit_probability


def law_hit_probability(
    dimension: int, inverse_temperature: float, threshold: float, ramp: float = 0.0
) -> float:
    """The bound for one draw of the law, with a sharp threshold or a ramp; rounded down.

    Examples
    --------
    >>> round(law_hit_probability(20, 1500.0, 0.05), 4), round(law_hit_probability(20, 1500.0, 0.05, ramp=0.01), 4)
    (0.738, 0.231)
    """
    beta, psi = (
        _check.positive("inverse_temperature", inverse_temperature),
        _check.nonnegative("threshold", threshold),
    )
    tau, p = _check.nonnegative("ramp", ramp), _check.count("dimension", dimension)
    if psi == 0:
        return 0.0
    if tau == 0:
        return hit_probability(p, beta * psi) * (1 - 1e-9)
    # everything relative to psi: A = 1 / p
    nodes, weights = np.polynomial.legendre.leggauss(200)
    a = tau * (nodes + 1) / 2
    logs = (p - 1) * np.log1p(a / psi) - beta * a * (nodes + 1) / 4 + np.log(weights)  # beta a^2 / (2 tau)
    logs += math.log(tau) - math.log(2 * psi)
    beyond = _log_tail(p, beta, psi, tau)
    log_ratio = math.log(p) + float(logsumexp(np.append(logs, beyond)))
    return 0.0 if log_ratio > 700 else (1 - 1e-9) / (1 + math.exp(log_ratio))


def _log_tail(p: int, beta: float, psi: float, tau: float) -> float:
    """log of the integral of (s / psi)^(p-1) e^(-beta (s - psi - tau/2)) ds / psi over s > psi + tau, rounded up."""
    x = beta * (psi + tau)
    upper = float(gammaincc(p, x))
    if upper > 1e-290:
        log_gamma = float(gammaln(p)) + math.log(upper)
    elif x > p:
        # Gamma(p, x) <= x^p e^-x / (x - p + 1)
        log_gamma = p * math.log(x) - x - math.log(x - p + 1)
    else:
        return math.inf
    return log_gamma - p * math.log(beta * psi) + beta * (psi + tau / 2)


def chain_hit_probability(score_mean: float, slack: float, ramp: float) -> float:
    """P(F - F* <= psi + slack) >= 1 - E[h] / h(psi + slack), from a bound on the mean score (Markov).

    Examples
    --------
    >>> round(chain_hit_probability(0.01, 0.1, 0.0), 6), chain_hit_probability(1.0, 0.1, 0.0)
    (0.9, 0.0)
    """
    height = slack**2 / (2 * ramp) if slack <= ramp else slack - ramp / 2
    return max(0.0, 1 - _check.nonnegative("score_mean", score_mean) / height) if height > 0 else 0.0


def chain_score_mean(
    dimension: int,
    inverse_temperature: float,
    learning_rate: float,
    n_steps: int,
    diameter: float,
    smoothness: float,
    full_lipschitz: float,
) -> float:
    """E[h(F - F*)] at a point of the chain drawn uniformly from its second half; a = eta beta is the learning rate.

    From E|theta_(k+1) - theta*|^2 <= E|theta_k - theta*|^2 - 2a E<g, theta_k - theta*> + a^2 E|g|^2 + 2 eta p, summed:
    (D^2 / (2 a m) + p / beta) / (1 - a M) over m steps for an M-smooth score (|g|^2 <= 2 M h, a M < 1), else
    D^2 / (2 a m) + p / beta + a L_F^2 / 2.
    """
    kept = max(n_steps - n_steps // 2, 1)
    mean = diameter**2 / (2 * learning_rate * kept) + dimension / inverse_temperature
    if learning_rate * smoothness < 1:
        return mean / (1 - learning_rate * smoothness)
    return mean + learning_rate * full_lipschitz**2 / 2


def rounded_down(probability: float) -> str:
    """Four decimals for a sentence with "at least".

    Examples
    --------
    >>> rounded_down(0.59778), rounded_down(1e-9)
    ('0.5977', '0')
    """
    return f"{math.floor(1e4 * probability) / 1e4:.4g}"
