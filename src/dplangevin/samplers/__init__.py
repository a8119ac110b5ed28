"""Draws from exp(-V) on a convex body. Samplers never mint guarantees."""
