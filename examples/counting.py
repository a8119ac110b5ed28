"""Two-way tables and a few counting queries on a private table, with the error known in advance."""

import numpy as np
import pandas as pd

from dplangevin.queries import column, count_marginals, count_queries
from dplangevin.schema import Schema

rng = np.random.default_rng(0)
people = pd.DataFrame(
    {
        "age": rng.integers(17, 91, 20_000),
        "job": rng.choice(["nurse", "teacher", "clerk", "other"], 20_000),
        "income": rng.lognormal(10, 0.6, 20_000),
    }
)
schema = Schema.from_dict(
    {
        "columns": {
            "age": {"range": [17, 90]},
            "job": {"categories": ["nurse", "teacher", "clerk"], "other": "own"},
            "income": {"range": [0, 200_000], "transform": "log1p"},
        }
    }
)

pairs = count_marginals(people, schema, ways=2, bins=8, epsilon=1.0, delta=1e-6)
print(pairs.describe_error())
print(pairs.postprocess(total=len(people)).to_pandas().head(8).to_string(index=False))

questions = {
    "nurses of 60 and more": (column("job") == "nurse") & (column("age") >= 60),
    "income above 50,000": column("income") > 50_000,
    "teachers under 30": (column("job") == "teacher") & (column("age") < 30),
}
answers = count_queries(people, questions, epsilon=0.5, delta=1e-6)
low, high = answers.intervals(0.95)
for name, value, a, b in zip(questions, answers.values, low, high, strict=True):
    print(f"{name}: {value:.0f} (95% interval {a:.0f} to {b:.0f})")
print(
    f"both releases together: epsilon {(pairs.guarantee + answers.guarantee).epsilon(1e-5):.3f} at delta 1e-5"
)
