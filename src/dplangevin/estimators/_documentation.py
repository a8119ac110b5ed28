"""What every estimator's help says: written once, put in place of markers."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill

from dplangevin.privacy.registry import recipes_by_name

PARAMETERS = """\
    epsilon, delta : the promise; delta = 0 or None asks for pure epsilon-DP.
    data_norm : stated bound on the norm of a row of X (without the intercept); longer rows are scaled back.
        "learn" learns it inside the promise (data_norm_).
    schema : instead of data_norm, a public schema that encodes a DataFrame (see SchemaEncoder), or Schema.learn(...),
        whose ranges and categories the fit learns inside its promise (schema_ has them).
    radius : stated bound on the norm of the coefficients; None leaves the choice to the planner.
    alpha : ridge per sample, (1/n) sum loss + (alpha/2) |(w, intercept)|^2; None leaves it to the planner.
    fit_intercept : add a constant column inside the joint norm.
    adjacency : "replace-one" (a record is exchanged) or "add-remove".
    n : public divisor of the mean under add-remove; the table may have more or fewer rows. None is the number of rows,
        which is then public.
    mechanism : "auto" or one of
        {mechanisms}.
    theorem : pin the accounting theorem by name.
    objective : "empirical", or "population": a draw whose ridge makes the bound on the risk of new records smallest.
    weight_bound : stated bound on sample weights; larger ones are clipped (None: 1, with a warning).
    bad_rows : a row with a cell that is no finite number is refused ("refuse"), or counts as the zero row ("zero");
        None is "zero" under a strict ledger, else "refuse". With a schema no cell is refused.
    max_rows_per_person : the promise covers all rows of a person who owns at most so many.
    person : the column that says whose a row is. At most max_rows_per_person rows of each person are then used, chosen
        at random in secret; None believes the bound. Needs n.
    intervals : True or a share of the budget (0.15) pays for the curvature that standard errors need.
    secure : exact noise on integers, safe against attacks on floating point (where: see docs/trust.md; delta > 0).
    public_data : (X_public, y_public), records that need no protection: start and geometry of the private steps.
    public_method : "mirror", "mirror-loss", "mix", or the baselines "warm-start" and "public-only".
    compare : also compare the methods on held-out public rows (public_comparison_; see compare_public).
    ledger : a Spender that is charged before the data is read.
    random_state : None draws from the operating system; a seed voids the promise against those who know it.
    state : path of a private file from which the same fit goes on after a crash, with its noise and its charge.
    verbose : print the plan before running.
""".replace("{mechanisms}", fill(", ".join(recipes_by_name()), 112, subsequent_indent=8 * " "))
ATTRIBUTES = """\
    coef_, intercept_ : the released model.
    plan_ : what was chosen, why, and the predicted excess risk. privacy_ : what was promised.
    standard_errors_, confidence_intervals(level) : with intervals, for coef_ and then the intercept.
    geometry_ : which directions of the joint rows stood above the noise of their second moment (`resolved`), and for
        squared and logistic losses what the fit is expected to have lost to noise (`excess_risk`, an estimate).
    n_iter_ : number of steps. n_features_in_, feature_names_in_ : of the training table.
"""


CLASSES = """\
    class_weight : {label: weight}, stated; the largest one counts in every sensitivity. A label left out weighs 1.
    classes : the public set of labels; None reads it from y and says so in privacy_. classes_ : those of the fit.
"""
TARGET_BOUNDS = """\
    target_bounds : (low, high), the stated range of y (of counts: (0, high)); targets beyond it are clipped.
"""


@dataclass(frozen=True)
class Example:
    """What an estimator's example says of its own: how targets arise, what is stated of them, a score it exceeds, and
    the schema that it needs."""

    targets: str
    stated: str
    score: float
    schema: str = ""

    def written(self, name: str) -> str:
        """The example of the estimator of this name."""
        rows, first = (
            ("schema=schema", f"    >>> schema = {self.schema}\n")
            if self.schema
            else ("data_norm=3**0.5", "")
        )
        return f"""\
    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import {name}
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = {self.targets}
{first}    >>> model = {name}(epsilon=1.0, delta=1e-6, {rows}, {self.stated}, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > {self.score}), bool(model.privacy_.epsilon() <= 1.0)
    (True, True)
"""


def documented(name: str, text: str | None, own: str, example: Example) -> str | None:
    """The docstring with what is shared in place of its markers; among the parameters, `own` come first."""
    if text is None:  # python -OO
        return None
    shared = f"{own}{PARAMETERS}\n    Attributes\n    ----------\n{ATTRIBUTES}"
    text = text.replace("    {parameters}\n", "    Parameters\n    ----------\n    {shared}\n")
    return text.replace("    {shared}\n", shared).replace("    {example}\n", example.written(name))
