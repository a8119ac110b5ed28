"""What second moments of the rows can show, from public numbers: which branch of the default fit is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplangevin.planner.request import Request

SHARE = 0.1
"""Of mu^2, for second moments."""
SEEN = 0.6
"""Largest edge of the noise spectrum at which a moment is worth its share."""
FINE = 0.5
"""Largest p times the edge of half the share at which a second look pays."""
ROOMY = 0.125
"""What that number may be with longer rows: they blur the second look, and the gradients, room^2 times more."""
WIDEST = 256
"""Columns beyond which one look, which then leaves most directions unresolved, is not bought."""
PURE_SHARES = (0.1, 0.2)
"""Of epsilon, for the second moment of a pure promise: the larger one where the smaller one's edge is below PURE_FINE,
since noise on the minimiser is then small beside what unseen directions cost."""
PURE_FINE = 0.0625
PURE_SEEN = 0.5
"""As SEEN, for the pure moment."""
PURE_EDGE = 1.6651
"""Edge of the spectrum of the noise of a pure moment over (p + 1) scale, by free convolution of two Wishart laws:
(1 + u) / (2 sqrt(u) (1 - u)) at u = sqrt(5) - 2."""
PURE_MODELS = ("logistic", "ridge")
"""Models whose default fit under a pure promise may buy a second moment."""
MODELS = ("logistic", "ridge", "multinomial", "huber", "quantile", "svc", "multiclass-svc", "poisson")
"""Models whose default fit is whitened descent."""


@dataclass(frozen=True, kw_only=True)
class Looks:
    """What second moments are worth under a promise with delta > 0.

    Parameters
    ----------
    records : n mu / s. number : of looks, two where the records allow it.
    edge : f = tau sqrt(2 p), the edge of the noise spectrum of one of them.
    room : length up to which whitened rows count in full, over the expected one: the bias of weights falls with it.
    pay : whether they are worth their share.
    """

    records: float
    number: int
    edge: float
    room: float
    pay: bool

    @classmethod
    def of(cls, request: Request) -> Looks:
        """tau = a / (records sqrt(share)), a = 1 (add-remove) 1 / sqrt 2 (replaced rows move x x' by sqrt 2, not 2).

        p times the edge of half the share is the noise of a second look over the eigenvalues of white rows.
        """
        records, columns = request.records(pure=False), request.columns
        sensitivity = math.sqrt(0.5) if request.adjacency == "replace-one" else 1.0
        whole, half = (
            sensitivity / (records * math.sqrt(share)) * math.sqrt(2 * columns)
            for share in (SHARE, SHARE / 2)
        )
        blur = columns * half
        two = blur <= FINE
        return cls(
            records=records,
            number=2 if two else 1,
            edge=half if two else whole,
            room=math.sqrt(max(1.0, ROOMY / blur)),
            pay=whole <= SEEN and (columns <= WIDEST or two),
        )


def could(request: Request) -> bool:
    """Whether the default fit may be whitened descent, as far as it is not for the number of records to say; anything
    stated about the fit keeps descent."""
    return (
        request.model in MODELS
        and request.delta > 0
        and not request.secure
        and request.mechanism == "auto"
        and request.theorem is None
        and request.alpha is None
        and request.radius is None
    )


@dataclass(frozen=True, kw_only=True)
class PureLook:
    """What a second moment can show under a pure promise. records : n epsilon / s. columns : p."""

    records: float
    columns: int

    @classmethod
    def of(cls, request: Request) -> PureLook:
        """For any promise: delta plays no part."""
        return cls(records=request.n * request.epsilon / request.sides, columns=request.columns)

    def edge(self, share: float) -> float:
        """Of the spectrum of the noise of a moment that is given this share of epsilon."""
        return PURE_EDGE * (self.columns + 1) / (share * self.records)

    @property
    def share(self) -> float:
        """Of epsilon, for the moment."""
        small, large = PURE_SHARES
        return large if self.edge(small) <= PURE_FINE else small

    @property
    def pay(self) -> bool:
        """Whether the moment is worth its share."""
        return self.edge(self.share) <= PURE_SEEN


def purely_by_default(request: Request) -> bool:
    """Whether the default fit of this pure request is whitened; anything stated about the fit keeps its route."""
    return (
        request.model in PURE_MODELS
        and request.delta == 0
        and not request.secure
        and request.mechanism == "auto"
        and request.theorem is None
        and request.alpha is None
        and request.radius is None
        and PureLook.of(request).pay
    )
