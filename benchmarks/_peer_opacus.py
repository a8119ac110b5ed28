"""Runs inside the environment of Opacus: DP-SGD logistic regression with its own loader and with direct indexing."""

import json
import sys
import time
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)
data = np.load(sys.argv[1])
X, y = torch.tensor(data["X"], dtype=torch.float32), torch.tensor(data["y"], dtype=torch.float32)
X_test, y_test = torch.tensor(data["X_test"], dtype=torch.float32), data["y_test"]
EPOCHS, BATCH, RATE = 15, 1024, 4.0


def fit(epsilon: float, stock: bool) -> float:
    model = torch.nn.Linear(X.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    share = BATCH / len(X)
    noise = get_noise_multiplier(
        target_epsilon=epsilon, target_delta=1e-5, sample_rate=share, epochs=EPOCHS, accountant="prv"
    )
    start = time.process_time()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=DataLoader(TensorDataset(X, y), batch_size=BATCH),
        noise_multiplier=noise, max_grad_norm=1.0,
    )  # fmt: skip
    for _ in range(EPOCHS):
        batches = (
            loader
            if stock
            else (
                (X[rows], y[rows]) for rows in (torch.rand(len(X)) < share for _ in range(round(1 / share)))
            )
        )
        for features, labels in batches:
            if len(labels) == 0:
                continue
            optimizer.zero_grad()
            loss_of(model(features)[:, 0], labels).backward()
            optimizer.step()
    spent = time.process_time() - start
    with torch.no_grad():
        right = ((model(X_test)[:, 0] > 0).numpy() == (y_test == 1)).mean()
    name = "Opacus, its own loader" if stock else "Opacus, direct indexing"
    print(
        json.dumps({"who": name, "epsilon": epsilon, "accuracy": float(right), "seconds": spent}), flush=True
    )
    return spent


fit(1.0, False)  # warm
for wanted in (0.1, 0.5, 1.0):
    fit(wanted, False)
fit(1.0, True)
