"""Theorems about the privacy of noisy gradient runs."""
