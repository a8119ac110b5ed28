"""Runs inside the environment of diffprivlib: coefficients of many fits on two neighbouring data sets, as a file.

Arguments: epsilon, data_norm, runs per data set, seed, output file. Two records of one feature; the second is a row of
norm data_norm, or a row of zeros. Only numpy and diffprivlib are used here; the audit itself runs elsewhere.
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")
epsilon, norm, runs, seed = (float(word) for word in sys.argv[1:5])
labels = np.array([0, 1])
coefficients = {}
for side, row in enumerate((norm, 0.0)):
    values = []
    for run in range(int(runs)):
        state = np.random.RandomState(int(seed) + 1_000_003 * side + run)
        model = LogisticRegression(epsilon=epsilon, data_norm=norm, fit_intercept=False, random_state=state)
        values.append(float(model.fit(np.array([[0.0], [row]]), labels).coef_[0, 0]))
    coefficients[f"side{side}"] = values
np.savez(sys.argv[5], **coefficients)
