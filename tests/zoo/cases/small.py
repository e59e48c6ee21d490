"""Perceptrons and LeNet, for which there is no reference implementation to install."""

from tests.zoo.case import Case

CASES = [
    Case(
        "mlp",
        {"in_features": 7, "out_features": 3, "hidden": (9, 5), "activation": "gelu"},
        batch=5,
    ),
    Case("lenet", {"image_size": 21}, batch=3),
]
