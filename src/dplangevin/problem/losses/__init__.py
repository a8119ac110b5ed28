"""Losses of a linear score, each with bounds on its slope and curvature, and losses of whole records."""

from dplangevin.problem.losses.base import Clipped, Loss, ModelDefaults
from dplangevin.problem.losses.classification import (
    Logistic,
    MulticlassHinge,
    Sigmoid,
    SmoothedHinge,
    Softmax,
)
from dplangevin.problem.losses.record import Bump, RadialHuber, RecordLoss
from dplangevin.problem.losses.regression import Huber, Mean, Poisson, SmoothedPinball, Squared

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Logistic,
        Softmax,
        Squared,
        Huber,
        SmoothedPinball,
        SmoothedHinge,
        MulticlassHinge,
        Poisson,
        Sigmoid,
        Mean,
        RadialHuber,
        Bump,
    )
}
"""The losses whose bounds this library proves, by name. A new loss needs its class and a line here."""


__all__ = [
    "LOSSES",
    "Bump",
    "Clipped",
    "Huber",
    "Logistic",
    "Loss",
    "Mean",
    "ModelDefaults",
    "MulticlassHinge",
    "Poisson",
    "RadialHuber",
    "RecordLoss",
    "Sigmoid",
    "SmoothedHinge",
    "SmoothedPinball",
    "Softmax",
    "Squared",
]
