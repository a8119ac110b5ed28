"""Runs inside the environment of InterpretML: DP-EBM with its defaults on the raw columns of Adult, JSON lines out.

Usage: python _peer_interpret.py adult.csv. Ranges and categories are given as public bounds, as they are to us.
"""

import json
import sys
import time
import warnings

import pandas as pd
from interpret.privacy import DPExplainableBoostingClassifier

warnings.simplefilter("ignore")
NUMBERS = {
    "age": (0, 90),
    "education_num": (0, 16),
    "capital_gain": (0, 99999),
    "capital_loss": (0, 4356),
    "hours_per_week": (0, 99),
}
NAMES = ["workclass", "marital_status", "occupation", "relationship", "race", "sex"]
data = pd.read_csv(sys.argv[1], keep_default_na=False)
train = data.split == "train"
X, y = data[[*NUMBERS, *NAMES]], (data.income == ">50K").astype(int)
bounds = dict(enumerate(NUMBERS.values()))
types = ["continuous"] * len(NUMBERS) + ["nominal"] * len(NAMES)
for epsilon in (0.1, 0.5, 1.0):
    for seed in range(5):
        model = DPExplainableBoostingClassifier(
            feature_types=types,
            epsilon=epsilon,
            delta=1e-5,
            privacy_bounds=bounds,
            random_state=seed,
            n_jobs=1,
        )
        start = time.process_time()
        model.fit(X[train], y[train])
        spent = time.process_time() - start
        accuracy = float((model.predict(X[~train]) == y[~train]).mean())
        print(
            json.dumps(
                {
                    "who": "DP-EBM, default, add-remove",
                    "epsilon": epsilon,
                    "accuracy": accuracy,
                    "seconds": spent,
                }
            ),
            flush=True,
        )
