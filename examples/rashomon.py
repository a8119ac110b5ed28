"""Equally good models that disagree: whose decision depends on the choice of model?

A lender fits a model of income. Many models are as good as the best one, within psi = 0.1 of its loss. Six of them are
drawn under one guarantee (epsilon = 3 for all six together), and compared on public applicants. Writes rashomon.png and
rashomon.html.
"""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from dplangevin import DPLogisticRegression
from dplangevin.datasets import load_income
from dplangevin.rashomon import Multiplicity, RashomonSampler
from dplangevin.report import rashomon_document, write_document


def plot(found: Multiplicity, path: str) -> None:
    """Plot the applicants' viable ranges, the Rashomon capacity and the range of the columns' importance."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    order = np.argsort(found.spread.mean)[::20]
    left.fill_between(
        range(len(order)), found.spread.low[order], found.spread.high[order], alpha=0.4, label="range"
    )
    left.plot(found.spread.mean[order], color="black", label="mean")
    left.axhline(0.5, linestyle=":", color="black")
    left.set(
        title="Chance of more than 50K", xlabel="public applicants, sorted", ylabel="predicted probability"
    )
    left.legend()
    middle.hist(found.capacity, bins=30)
    middle.set(title="Rashomon capacity", xlabel="classes left open (1 to 2)", ylabel="applicants")
    cloud = found.reliance
    assert cloud is not None
    places = np.arange(len(cloud.names))
    right.hlines(places, cloud.minimum, cloud.maximum, linewidth=6, alpha=0.4)
    right.plot(cloud.median, places, "k.")
    right.set(title="Model class reliance", xlabel="loss when exchanged / loss", yticks=places)
    right.set_yticklabels(cloud.names)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    people, schema = load_income(n=7000)
    private, public = people.iloc[:6000], people.iloc[6000:]
    sampler = RashomonSampler(
        DPLogisticRegression(schema=schema, radius=2.0),
        thresholds=0.1,
        n_models=6,
        epsilon=3.0,
        delta=1e-6,
        random_state=0,  # fixed for the example: leave it out for a real release
        verbose=True,
    )
    sampler.fit(private.drop(columns="income"), private["income"])
    found = sampler.multiplicity(
        public.drop(columns="income"), public["income"].to_numpy(), groups=public["married"], n_shifts=3
    )
    print(found)
    print(
        f"Applicants whose decision depends on the model: {int(found.conflicted_inputs.sum())} of {len(public)}"
    )
    print(
        "Coefficients whose sign depends on the model:",
        ", ".join(found.coefficients.sign_changes()) or "none",
    )
    gaps = found.fairness
    assert gaps is not None
    low, high = gaps.demographic_parity.min(), gaps.demographic_parity.max()
    print(
        f"Gap between married and unmarried applicants: from {low:.3f} to {high:.3f} over equally good models"
    )
    plot(found, "rashomon.png")
    write_document(rashomon_document(sampler, found, "1000 public applicants"), "rashomon.html")
