"""Documentation that all estimators share, inserted into their docstrings in place of markers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from textwrap import fill

from dplangevin.accounting.registry import plannable_mechanisms

EXPECTED_FAILED_CHECKS = {
    "check_all_zero_sample_weights_error": "weights are private: an error that depends on them would leak",
    "check_sample_weight_equivalence_on_dense_data": "the divisor n is public and never the sum of the weights",
    "check_class_weight_classifiers": "weights of classes need the public set of labels, which the check leaves out",
    "check_sample_weight_equivalence_on_sparse_data": "the divisor n is public and never the sum of the weights",
}
"""Checks of scikit-learn that a private estimator cannot pass, with the reasons, for `check_estimator`."""

PARAMETERS_DOC = """\
    epsilon, delta : the privacy guarantee of the fit; delta = 0 or None asks for pure epsilon-DP.
    data_norm : stated bound on the norm of a row of X (without the intercept); longer rows are scaled back.
        "learn" learns it within the guarantee (data_norm_).
    schema : instead of data_norm, a public schema that encodes a DataFrame (see SchemaEncoder), or Schema.learn(...),
        whose ranges and categories the fit learns within its guarantee (schema_ has them).
    radius : stated bound on the norm of the coefficients; None leaves the choice to the planner.
    alpha : ridge per sample, (1/n) sum loss + (alpha/2) |(w, intercept)|^2; None leaves the choice to the planner.
    fit_intercept : add a constant column, which counts in the norm of a row.
    adjacency : "replace-one" (neighbours differ in one record's value) or "add-remove" (in one record's presence).
    n_public : public divisor of the mean under add-remove; the table may have more or fewer rows. "learn" releases the
        number of rows with noise, within the guarantee, and plans the fit for it (n_public_). None takes the number of
        rows, which is then public.
    mechanism : "auto" or one of
        {mechanisms}.
    mechanism_options : for mechanism="langevin": a dictionary with any of inverse_temperature, time and n_steps; the
        others are chosen.
    theorem : name of the accounting theorem to use; None leaves the choice to the planner.
    objective : "empirical", or "population": sample a model, with the ridge that minimizes the bound on the risk of
        new records.
    weight_bound : stated bound on sample weights; larger ones are clipped (None: 1, with a warning).
    bad_rows : what to do with a row that has a cell that is not a finite number: raise ("refuse"), or treat it as the
        zero row ("zero"); None means "zero" under a strict ledger, else "refuse". With a schema no cell raises.
    max_rows_per_person : the guarantee covers all rows of a person who has at most this many.
    person : the column that identifies the person of a row. At most max_rows_per_person rows of each person are then
        used, chosen at random in secret; None trusts the stated bound. Needs n_public.
    intervals : release the curvature that standard errors and confidence intervals need, under the same guarantee.
    interval_budget : fraction of the budget to spend on the curvature; None means 0.05, or more where that would be
        too noisy (counts, objective perturbation).
    secure : None (default): sums over records are exact integers and their noise is drawn exactly, wherever that is
        proved (delta > 0); the plan says where it is not, and why. True: exact or refused, and random_state is
        refused. False: floating point, whose low-order bits no guarantee covers (see docs/trust.md).
    public_data : (X_public, y_public), records that need no protection; they give the starting point and the geometry
        of the private steps.
    public_method : "mirror", "mirror-loss", "mix", or the baselines "warm-start" and "public-only".
    compare : also compare the methods on held-out public rows (public_comparison_; see compare_public_methods).
    ledger : a BudgetAccount that is charged before the data are read.
    random_state : None draws from the operating system; a seed voids the guarantee against those who know it.
    checkpoint : path of a private file from which the same fit resumes after a crash, with its noise and its charge.
    verbose : print the plan before running.
""".replace("{mechanisms}", fill(", ".join(plannable_mechanisms()), 112, subsequent_indent=8 * " "))
ATTRIBUTES_DOC = """\
    coef_, intercept_ : the released model.
    privacy_ : the guarantee, with its conditions and assumptions.
    plan_ : mechanism and parameters, the reasons for them, and the predicted excess risk.
    standard_errors_, confidence_intervals(level) : with intervals, for coef_ and then the intercept.
    geometry_ : for which directions of the joint rows the eigenvalue of the noisy second moment stands above the
        noise (`resolved`), and for squared and logistic losses an estimate of the excess risk due to noise
        (`excess_risk`).
    n_iter_ : number of steps. n_public_ : the released number of rows, with n_public="learn".
    n_features_in_, feature_names_in_ : of the training table.
"""


PRIVACY_DOC = """\
    **Privacy.** The fit is (epsilon, delta)-DP for all rows of a person with at most max_rows_per_person rows, and is
    charged to the ledger once, before the data are read. `privacy_` names the theorem, its conditions and its
    assumptions; everything computed from the fitted attributes is post-processing and costs nothing.
"""
CLASSES_DOC = """\
    class_weight : {label: weight}, public; every sensitivity is multiplied by the largest one. Other labels weigh 1.
    classes : the public set of labels (classes_ after the fit); None reads it from y, a condition of privacy_.
"""
TARGET_BOUNDS_DOC = """\
    target_bounds : (low, high), the stated range of y (of counts: (0, high)); targets beyond it are clipped.
"""


@dataclass(frozen=True)
class DocExample:
    """Estimator-specific parts of the docstring example.

    Parameters
    ----------
    targets : expression for y.
    target_arguments : keyword arguments about the targets.
    min_score : score that the fit exceeds.
    schema : expression for the schema; "" uses data_norm.
    """

    targets: str
    target_arguments: str
    min_score: float
    schema: str = ""

    def render(self, name: str) -> str:
        """Return the Examples section for the estimator of this name."""
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
{first}    >>> model = {name}(epsilon=1.0, delta=1e-6, {rows}, {self.target_arguments}, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > {self.min_score}), bool(model.privacy_.epsilon() <= 1.0)
    (True, True)
"""


def fill_docstring(name: str, docstring: str | None, own_parameters: str, example: DocExample) -> str | None:
    """Return the docstring with the shared parts in place of its markers; `own_parameters` come first."""
    if docstring is None:  # python -OO
        return None
    shared = (
        f"{own_parameters}{PARAMETERS_DOC}\n    Attributes\n    ----------\n{ATTRIBUTES_DOC}"
        f"\n    Notes\n    -----\n{PRIVACY_DOC}"
    )
    docstring = docstring.replace("    {parameters}\n", "    Parameters\n    ----------\n    {shared}\n")
    return docstring.replace("    {shared}\n", shared).replace("    {example}\n", example.render(name))


@cache
def documentation_address() -> str:
    """Return the address of the documentation as the installed package states it; empty while it states none."""
    try:
        addresses = metadata("dplangevin").get_all("Project-URL") or []
    except PackageNotFoundError:  # used from its source without being installed
        return ""
    return next((each.partition(", ")[2] for each in addresses if each.startswith("Documentation, ")), "")


class DocumentationLinkMixin:
    """Mixin that links an estimator's HTML form to its page of the documentation, once that has an address."""

    @property
    def _doc_link_module(self) -> str:
        return "dplangevin" if documentation_address() else ""

    @property
    def _doc_link_template(self) -> str:
        return documentation_address().rstrip("/") + "/reference/api/{page}.html"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        kind = type(self)
        package = ".".join(kind.__module__.split(".")[:2])
        is_there = kind.__name__ in getattr(sys.modules[package], "__all__", ())
        return {"page": f"{package if is_there else 'dplangevin'}.{kind.__name__}"}
