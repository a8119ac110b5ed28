"""Release noisy counts of public cells, and of the labels whose noisy count reaches the threshold."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.theorem import public_noise_grid
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.mechanism import ChargedRelease, Mechanism
from dplangevin.mechanisms.run_state import RunState
from dplangevin.sampling.exact_noise import (
    ByteSource,
    add_rounded_noise,
    gaussian_density_scale,
    sample_geometric_noise,
)
from dplangevin.sampling.float_noise import sample_discrete_laplace


class CellCounts(NamedTuple):
    """Exact counts of each number column's cells [numbers, cells] and of each category column's labels."""

    cells: Floats
    labels: Sequence[Mapping[str, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedSchemaRelease(ChargedRelease):
    """Noisy counts of cells, and of the selected labels of each category column, sorted by label."""

    cells: Floats
    labels: tuple[Mapping[str, float], ...]

    def digest(self) -> str:
        """Return a hash of the released numbers, for the ledger."""
        content = hashlib.sha256(np.ascontiguousarray(self.cells).tobytes())
        content.update(repr([dict(counts) for counts in self.labels]).encode())
        return content.hexdigest()


class LearnedSchemaMechanism(Mechanism[LearnedSchemaSpec, Callable[[], CellCounts], LearnedSchemaRelease]):
    """Add noise to every cell and to every label that occurs, and omit labels below the threshold."""

    def _check_inputs(self, plan: CertifiedSpec, data: Callable[[], CellCounts]) -> None:
        if not callable(data):
            raise InvalidParameter("learned-schema takes a function that reads the records and counts them.")

    def _release(
        self,
        plan: CertifiedSpec,
        data: Callable[[], CellCounts],
        run_state: RunState | None,
        rng: np.random.Generator,
        seeded: bool,
    ) -> LearnedSchemaRelease:
        spec, exact = cast(LearnedSchemaSpec, plan.spec), data()
        shape = (spec.n_numbers, spec.n_cells if spec.n_numbers else 0)
        if exact.cells.shape != shape or len(exact.labels) != spec.n_categories:
            raise InvalidParameter(
                f"the counts do not have the shape that the guarantee is for, {shape} cells and {spec.n_categories} "
                "category columns; nothing was released."
            )
        if run_state is not None:
            run_state.check_records(lambda salt: hash_counts(exact, salt))
        source = rng.bytes if seeded else os.urandom
        cells = _add_noise(spec, exact.cells, rng, source)
        released_labels = []
        for counts in exact.labels:
            labels = sorted(counts)  # so that the order of the rows does not change which noise a label gets
            noisy = _add_noise(spec, np.array([counts[label] for label in labels], float), rng, source)
            pairs = zip(labels, noisy.tolist(), strict=True)
            released_labels.append(
                {label: count for label, count in pairs if count >= _least_released_count(spec)}
            )
        return LearnedSchemaRelease(cells=cells, labels=tuple(released_labels), plan=plan, seeded=seeded)


def hash_counts(exact: CellCounts, salt: str) -> str:
    """Return a salted hash of exact counts."""
    content = hashlib.sha256(salt.encode())
    content.update(np.ascontiguousarray(exact.cells).tobytes())
    content.update(repr([sorted(counts.items()) for counts in exact.labels]).encode())
    return content.hexdigest()


def _add_noise(
    spec: LearnedSchemaSpec, counts: Floats, rng: np.random.Generator, source: ByteSource
) -> Floats:
    """Return the counts plus noise; exact noise is made from the source of bytes, and rounded with its count."""
    if not spec.secure:
        noise = (
            spec.scale * rng.standard_normal(counts.shape)
            if spec.noise == "gaussian"
            else sample_discrete_laplace(spec.scale, counts.shape, rng)
        )
        return np.asarray(counts + noise)
    whole = counts.astype(np.int64)
    if spec.noise == "geometric":
        return (whole + sample_geometric_noise(spec.scale, whole.size, source).reshape(whole.shape)).astype(
            float
        )
    return add_rounded_noise(whole, 1.0, gaussian_density_scale(spec.scale), 2.0, source)


def _least_released_count(spec: LearnedSchemaSpec) -> float:
    """Return the least noisy count with which a label is released.

    A rounded count is within half a step of the unrounded one, which must reach the threshold itself.
    """
    threshold = spec.threshold or 0.0
    if not spec.secure:
        return threshold
    return threshold + max(1.0, public_noise_grid(gaussian_density_scale(spec.scale))) / 2
