"""Closed convex sets with exact Euclidean projections and diameters."""

from dplangevin.problem.constraints.ball import Ball
from dplangevin.problem.constraints.base import ConstraintSet
from dplangevin.problem.constraints.box import Box
from dplangevin.problem.constraints.l1_ball import L1Ball
from dplangevin.problem.constraints.simplex import Simplex
from dplangevin.problem.constraints.whole_space import WholeSpace

CONSTRAINTS: dict[str, type[ConstraintSet]] = {
    constraint.name: constraint for constraint in (Ball, Box, Simplex, L1Ball, WholeSpace)
}

__all__ = ["CONSTRAINTS", "Ball", "Box", "ConstraintSet", "L1Ball", "Simplex", "WholeSpace"]
