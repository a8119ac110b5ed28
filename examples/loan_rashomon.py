"""A loan model, three applicants whose decision is arbitrary, and what to do about it.

A lender fits a private model of income. Many models are as good, within psi = 0.01 of its log-loss per record. One
release (epsilon = 2 in all) certifies hundreds of them, and shows which applicants would be decided otherwise by a
model that is just as good. For them the decision is a coin that the lender tossed when choosing a model. Writes
loan_rashomon.html.
"""

import numpy as np

from dplangevin import DPLogisticRegression
from dplangevin.datasets import income
from dplangevin.rashomon import RashomonRegion
from dplangevin.report import region_document, write_document

PSI = 0.01

table, schema = income(n=21_000, seed=0)
private, applicants = table.iloc[:20_000], table.iloc[20_000:20_300]
model = DPLogisticRegression(schema=schema)
region = RashomonRegion(
    model,
    thresholds=(0.002, PSI),
    epsilon=2.0,
    delta=1e-6,
    public_inputs=applicants.drop(columns="income"),
    public_labels=applicants["income"],
    groups=applicants["married"],
    n_models=50,
    random_state=0,
)

# 1. Before anything is spent: is this threshold worth asking at this size and budget?
print(region.plan(len(private), 14))

# 2. One release; everything below is post-processing.
region.fit(private.drop(columns="income"), private["income"])
found = region.multiplicity()
level = found.level(PSI)
print(
    f"\nAt least {level.ambiguity:.0%} of the applicants are decided otherwise by some model as good as this one."
)

# 3. Three of them: the ones for whom an equally good model differs most easily.
arbitrary = [i for i in np.argsort(found.flip_costs) if level.changes[i]][:3]
for i in arbitrary:
    deciding = ", ".join(f"{name} = {found.public.values[i][name]}" for name, _ in found.deciding(i)[:3])
    print(
        f"Applicant {i}: the released model says {found.decisions[i]} ({found.centre[i]:.2f}); equally good ones say "
        f"{level.low[i]:.2f} to {level.high[i]:.2f}. Mostly decided by {deciding}."
    )

# 4. What to do about it. Decide alike whatever model was chosen: let a person look at the arbitrary cases, or average.
clear = ~level.changes
print(
    f"\nDecide {clear.mean():.0%} of the cases by the model, and refer the other {1 - clear.mean():.0%} to a person."
)
votes = np.mean(
    [m.predict_proba(applicants.drop(columns="income"))[arbitrary, 1] for m in region.models(PSI)], axis=0
)
print("Or decide by the mean of the certified models, which no single choice tips:", votes.round(2))
low, high = level.fairness["demographic parity"]
print(
    f"The gap between married and unmarried applicants ranges from {low:.2f} to {high:.2f}: choose a smaller one."
)

write_document(region_document(region, found, "300 public applicants"), "loan_rashomon.html")
