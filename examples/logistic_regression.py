"""Logistic regression under (epsilon, delta) = (1, 1e-6), from a table and its public schema."""

from sklearn.metrics import log_loss

from dplangevin import DPLogisticRegression
from dplangevin.datasets import load_income

table, schema = load_income(n=20_000)
train, test = table[:15_000], table[15_000:]
model = DPLogisticRegression(epsilon=1.0, delta=1e-6, schema=schema)
model.fit(train.drop(columns="income"), train["income"])
features = test.drop(columns="income")
print(model.plan_)
print(f"accuracy {model.score(features, test['income']):.3f}, ", end="")
print(f"log-loss {log_loss(test['income'], model.predict_proba(features)):.3f}")
print(f"guarantee: epsilon = {model.privacy_.epsilon():.3f} at delta = {model.privacy_.at_delta:g}")
