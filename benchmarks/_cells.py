"""What other libraries reach on the data of the accuracy benchmark, cell by cell.

Classification figures are (accuracy %, log-loss), regression figures test R2. TUNED is the best accuracy and the best
log-loss of the peers under the same guarantee with hyper-parameters chosen on the test data (diffprivlib, output
perturbation, full-batch DP-GD, Opacus); UNTUNED is diffprivlib with its defaults, a pure guarantee. Ten seeds each.
"""

from __future__ import annotations

EPSILONS = (0.1, 0.5, 1.0, 2.0, 8.0)
Pair = tuple[float | None, float | None]
Pairs = tuple[Pair, ...]

TUNED: dict[tuple[str, str], Pairs] = {
    ("syn20", "pure"): ((85.34, 0.593), (87.35, 0.401), (87.39, 0.400), (87.45, 0.399), (87.51, 0.300)),
    ("syn20", "replace-one"): ((86.62, 0.584), (87.33, 0.324), (87.41, 0.440), (87.44, 0.286), (87.45, 0.286)),
    ("syn20", "add-remove"): ((87.26, 0.311), (87.41, 0.288), (87.44, 0.286), (87.45, 0.286), (87.57, 0.286)),
    ("syn100", "pure"): ((72.05, 0.638), (85.68, 0.461), (86.78, 0.460), (87.11, 0.320), (87.16, 0.288)),
    ("syn100", "replace-one"): ((83.78, 0.467), (87.02, 0.333), (87.17, 0.331), (87.16, 0.331), (87.16, 0.288)),
    ("syn100", "add-remove"): ((86.16, 0.390), (87.17, 0.331), (87.17, 0.331), (87.17, 0.294), (87.15, 0.288)),
    ("adult", "pure"): ((81.84, 0.385), (84.27, 0.341), (84.55, 0.335), (84.60, 0.334), (84.70, 0.330)),
    ("adult", "replace-one"): ((82.99, 0.367), (84.55, 0.335), (84.67, 0.333), (84.70, 0.333), (84.67, 0.333)),
    ("adult", "add-remove"): ((84.21, 0.342), (84.74, 0.331), (84.77, 0.331), (84.77, 0.331), (84.78, 0.331)),
    ("digits8", "pure"): ((90.22, 0.561), (90.22, 0.578), (90.22, 0.580), (90.22, 0.582), (92.56, 0.188)),
    ("digits8", "replace-one"): ((90.22, 0.432), (90.22, 0.418), (90.31, 0.268), (92.47, 0.200), (94.82, 0.143)),
    ("digits8", "add-remove"): ((90.22, 0.340), (90.22, 0.283), (92.44, 0.195), (93.44, 0.172), (95.38, 0.125)),
    ("breast_cancer", "pure"): ((68.88, 0.673), (82.31, 0.432), (86.01, 0.408), (89.44, 0.268), (94.55, 0.203)),
    ("breast_cancer", "replace-one"): (
        (59.44, 1.849), (83.99, 0.397), (90.77, 0.331), (91.89, 0.311), (95.52, 0.178),
    ),
    ("breast_cancer", "add-remove"): (
        (78.25, 0.511), (90.98, 0.328), (93.92, 0.196), (95.24, 0.181), (95.31, 0.141),
    ),
    ("bank", "replace-one"): ((86.83, 0.425),),
    ("digits10", "add-remove"): ((21.9, None), (67.6, None), (84.4, None), (89.5, None), (91.4, None)),
}  # fmt: skip

UNTUNED: dict[str, Pairs] = {
    "syn20": ((80.89, 0.478), (81.57, 1.129), (87.38, 0.288), (87.41, 0.286), (87.49, 0.286)),
    "syn100": ((63.33, 5.239), (64.15, 9.218), (85.96, 0.317), (87.05, 0.292), (87.15, 0.289)),
    "adult": ((76.77, 1.195), (76.55, 4.642), (83.98, 0.369), (84.60, 0.334), (84.70, 0.330)),
    "digits8": ((72.29, 3.137), (72.73, 6.826), (82.69, 1.495), (87.84, 0.387), (92.56, 0.188)),
    "breast_cancer": ((65.80, 2.565), (66.01, 7.743), (80.77, 0.790), (89.44, 0.268), (94.55, 0.203)),
}

CLASSIFICATION = ("adult", "syn20", "syn100", "bank", "fair", "digits8", "breast_cancer", "digits10")
GUARANTEES = ("replace-one", "add-remove", "pure")

RIDGE_EPSILONS = (0.1, 0.5, 1.0)
RIDGE_PEER = {
    "syn10": (0.714, 0.850, 0.862),
    "randhie": (0.044, 0.082, 0.087),
    "diabetes": (-1.15, 0.057, 0.186),
}
