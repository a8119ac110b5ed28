"""The papers: printed formulas, figures redrawn."""
