"""Names of the columns that a fitted model has coefficients for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dplangevin.estimators.schema_encoder import SchemaEncoder, schema_of

INTERCEPT = "intercept"


class WithNames:
    """Coefficients by name, with and without a schema."""

    schema: Any
    coef_: Any
    intercept_: Any

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns of coef_: the encoded ones of the schema, those of the table, or x0, x1, ..."""
        check_is_fitted(self)
        return column_names(self, np.atleast_2d(self.coef_).shape[1], input_features)

    def coefficients(self) -> dict[Any, Any]:
        """The coefficients by name, and the intercept: {name: value}, or {class: {name: value}} with many classes.

        With two classes they are for the second. With a schema numbers are on the scale of [-1, 1] and rows have
        norm row_norm, so that coefficients compare with one another rather than in the units of the table.

        Examples
        --------
        >>> import numpy as np
        >>> from dplangevin import DPRidge
        >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
        >>> model = DPRidge(epsilon=1.0, data_norm=1.5, target_bounds=(-1, 1), random_state=0).fit(X, X[:, 0])
        >>> sorted(model.coefficients())
        ['intercept', 'x0', 'x1']
        """
        names = [*self.get_feature_names_out(), INTERCEPT]
        weights, constants = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        tables = [
            dict(zip(names, map(float, (*row, constant)), strict=True))
            for row, constant in zip(weights, constants, strict=True)
        ]
        if len(tables) == 1:
            return tables[0]
        labels = [getattr(label, "item", lambda label=label: label)() for label in self.classes_]  # type: ignore[attr-defined]
        return dict(zip(labels, tables, strict=True))


def column_names(model: WithNames, n_features: int, given: Any = None) -> NDArray[Any]:
    """Names of the encoded columns, once a table was read: those of the schema, the table's, or x0, x1, ..."""
    if model.schema is not None:
        return SchemaEncoder(schema_of(model)).get_feature_names_out()
    names = getattr(model, "feature_names_in_", given)
    if names is None:
        names = [f"x{position}" for position in range(n_features)]
    return np.asarray(names, dtype=object)
