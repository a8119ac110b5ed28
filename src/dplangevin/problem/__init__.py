"""What is solved: stated bounds, losses, constraint sets, and the constants privacy depends on."""

from dplangevin.problem.bounds import DataBounds
from dplangevin.problem.constants import ADJACENCIES, Adjacency, Constants
from dplangevin.problem.constraints import CONSTRAINTS, Ball, Box, ConstraintSet, L1Ball, Simplex, WholeSpace
from dplangevin.problem.losses import (
    LOSSES,
    Bump,
    Clipped,
    Huber,
    Logistic,
    Loss,
    Mean,
    ModelDefaults,
    Poisson,
    RadialHuber,
    RecordLoss,
    SeveralHinge,
    Sigmoid,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    Squared,
    is_proved,
)
from dplangevin.problem.problem import Problem

__all__ = [
    "ADJACENCIES",
    "CONSTRAINTS",
    "LOSSES",
    "Adjacency",
    "Ball",
    "Box",
    "Bump",
    "Clipped",
    "Constants",
    "ConstraintSet",
    "DataBounds",
    "Huber",
    "L1Ball",
    "Logistic",
    "Loss",
    "Mean",
    "ModelDefaults",
    "Poisson",
    "Problem",
    "RadialHuber",
    "RecordLoss",
    "SeveralHinge",
    "Sigmoid",
    "Simplex",
    "SmoothedHinge",
    "SmoothedPinball",
    "Softmax",
    "Squared",
    "WholeSpace",
    "is_proved",
]
