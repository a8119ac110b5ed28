"""Bounds for noisy gradient runs, one a file."""
