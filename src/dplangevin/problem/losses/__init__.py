"""Losses of a linear score, each with its slope and curvature bounds, and losses of whole records."""

from dplangevin.problem.losses.base import Loss
from dplangevin.problem.losses.bump import Bump
from dplangevin.problem.losses.clipped import Clipped
from dplangevin.problem.losses.huber import Huber
from dplangevin.problem.losses.logistic import Logistic
from dplangevin.problem.losses.mean import Mean
from dplangevin.problem.losses.model_defaults import ModelDefaults
from dplangevin.problem.losses.poisson import Poisson
from dplangevin.problem.losses.radial_huber import RadialHuber
from dplangevin.problem.losses.record import RecordLoss
from dplangevin.problem.losses.several_hinge import SeveralHinge
from dplangevin.problem.losses.sigmoid import Sigmoid
from dplangevin.problem.losses.smoothed_hinge import SmoothedHinge
from dplangevin.problem.losses.smoothed_pinball import SmoothedPinball
from dplangevin.problem.losses.softmax import Softmax
from dplangevin.problem.losses.squared import Squared

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Logistic,
        Softmax,
        Squared,
        Huber,
        SmoothedPinball,
        SmoothedHinge,
        SeveralHinge,
        Poisson,
        Sigmoid,
        Mean,
        RadialHuber,
        Bump,
    )
}
"""The losses whose bounds this library proves. A new one is its class and a line here."""


def is_proved(loss: Loss) -> bool:
    """Whether it is a loss of this library itself, clipped or not, and not of a subclass."""
    while type(loss) is Clipped:
        loss = loss.loss
    return type(loss) in LOSSES.values()


__all__ = [
    "LOSSES",
    "Bump",
    "Clipped",
    "Huber",
    "Logistic",
    "Loss",
    "Mean",
    "ModelDefaults",
    "Poisson",
    "RadialHuber",
    "RecordLoss",
    "SeveralHinge",
    "Sigmoid",
    "SmoothedHinge",
    "SmoothedPinball",
    "Softmax",
    "Squared",
    "is_proved",
]
