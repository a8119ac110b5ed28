"""The papers: printed formulas, figures redrawn."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.papers.gallery import FIGURES as FIGURES, figure as figure, reproduce as reproduce
    from dplangevin.papers.langevin_formulas import (
        paper_exponential_temperature as paper_exponential_temperature,
        paper_gibbs_temperature as paper_gibbs_temperature,
        paper_sgld_temperature as paper_sgld_temperature,
        safe_sgld_temperature as safe_sgld_temperature,
    )
    from dplangevin.papers.noisy_sgd_formulas import (
        chourasia_strongly_convex as chourasia_strongly_convex,
        theorem_4 as theorem_4,
    )

__getattr__, __dir__, __all__ = attach(__name__)
