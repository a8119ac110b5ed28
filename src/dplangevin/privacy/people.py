"""From rows to persons: what a promise about one added or removed row is worth to a person with several rows."""

from __future__ import annotations

import math
from dataclasses import replace

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import Adjacency


def per_record(epsilon: float, delta: float, rows: int) -> float:
    """The epsilon one record may cost so that a person's `rows` records together cost epsilon."""
    if delta == 0:
        return epsilon / rows
    mu = cv.gdp_mu(epsilon, delta) / rows
    found = math.nextafter(cv.gdp_epsilon(mu, delta), 0.0)
    if not found > 0:
        raise CalibrationFailed(
            f"max_rows_per_person = {rows} leaves nothing of epsilon = {epsilon:g} for a row; lower it, or delta."
        )
    return found


def to_people(guarantee: Guarantee, rows: int, adjacency: Adjacency) -> Guarantee:
    """The promise to a person of whom at most `rows` rows are used, from one about a row that is added or removed.

    A person who joins or leaves adds or removes at most `rows` rows; one who is replaced by another removes at most
    `rows` and adds at most `rows`, whatever the two numbers are. (docs/theory/people.md.)

    Examples
    --------
    >>> from dplangevin.privacy.parts import Gaussian
    >>> row = Guarantee(parts=(Gaussian(mu=0.1),), adjacency="add-remove", release="draw", theorem="composition",
    ...                 reference="")
    >>> [round(to_people(row, 3, adjacency).mu, 6) for adjacency in ("add-remove", "replace-one")]
    [0.3, 0.6]
    """
    most = _check.count("max_rows_per_person", rows)
    if guarantee.adjacency != "add-remove" or guarantee.rows_per_person != 1:
        raise InvalidParameter("a promise to persons starts from one about a single added or removed row.")
    grouped = guarantee.group(most if adjacency == "add-remove" else 2 * most)
    return replace(
        grouped,
        adjacency=adjacency,
        assumptions=(
            *guarantee.assumptions,
            f"holds for all rows of a person: at most {most} of them are used, chosen at random and in secret",
        ),
        rows_per_person=most,
        composition=None,
    )
