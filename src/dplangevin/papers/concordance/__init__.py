"""The concordance: every statement of the five papers, where it is, what was corrected, and its test."""

from __future__ import annotations

from dplangevin.papers.concordance import langevin, noisy_descent, noisy_sgd, rashomon, thesis
from dplangevin.papers.concordance._page import page
from dplangevin.papers.concordance._row import Paper as Paper, Row as Row

PAPERS: tuple[Paper, ...] = (
    Paper(
        key="ganesh-thakurta-upadhyay2022",
        heading="Ganesh, Thakurta and Upadhyay (2022): Langevin diffusion",
        link="https://doi.org/10.48550/arXiv.2204.01585",
    ),
    Paper(
        key="chourasia-ye-shokri2021",
        heading="Chourasia, Ye and Shokri (2021): noisy gradient descent",
        link="https://doi.org/10.48550/arXiv.2102.05855",
    ),
    Paper(
        key="altschuler-talwar2022",
        heading="Altschuler and Talwar (2022): noisy SGD",
        link="https://doi.org/10.48550/arXiv.2205.13710",
    ),
    Paper(
        key="ganesh-thakurta-upadhyay2023",
        heading="Ganesh, Thakurta and Upadhyay (2023): Rashomon sets",
        link="https://proceedings.mlr.press/v195/ganesh23a.html",
    ),
    Paper(
        key="ganesh2022",
        heading="Ganesh (2022): thesis",
        link="http://www2.eecs.berkeley.edu/Pubs/TechRpts/2022/EECS-2022-53.html",
    ),
)
ROWS: tuple[Row, ...] = (
    *langevin.ROWS,
    *noisy_descent.ROWS,
    *noisy_sgd.ROWS,
    *rashomon.ROWS,
    *thesis.ROWS,
)


def written() -> str:
    """docs/papers.md."""
    return page(PAPERS, ROWS)
