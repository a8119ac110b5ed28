"""Runs inside the environment of diffprivlib: fits per epsilon on arrays from a file, JSON lines out."""

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")
data = np.load(sys.argv[1])
for epsilon in (0.1, 0.5, 1.0):
    for seed in range(5):
        model = LogisticRegression(epsilon=epsilon, data_norm=1.0, fit_intercept=False, random_state=seed)
        start = time.process_time()
        model.fit(data["X"], data["y"])
        spent = time.process_time() - start
        accuracy = float(model.score(data["X_test"], data["y_test"]))
        print(
            json.dumps(
                {
                    "who": "diffprivlib, default, pure",
                    "epsilon": epsilon,
                    "accuracy": accuracy,
                    "seconds": spent,
                }
            )
        )
