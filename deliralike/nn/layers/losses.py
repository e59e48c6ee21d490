"""Losses as layers: each calls the function of its row with the settings it was made with."""

from collections.abc import Mapping
from typing import Any

from deliralike.nn.layers.function_layers import FunctionOfSeveral, function_layer

# The function of a layer, and its settings with their defaults. A `weight` is a buffer.
_LOSSES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "L1Loss": ("l1_loss", {"reduction": "mean"}),
    "MSELoss": ("mse_loss", {"reduction": "mean"}),
    "SmoothL1Loss": ("smooth_l1_loss", {"reduction": "mean", "beta": 1.0}),
    "HuberLoss": ("huber_loss", {"reduction": "mean", "delta": 1.0}),
    "CrossEntropyLoss": (
        "cross_entropy",
        {
            "weight": None,
            "ignore_index": -100,
            "reduction": "mean",
            "label_smoothing": 0.0,
        },
    ),
    "NLLLoss": (
        "nll_loss",
        {"weight": None, "ignore_index": -100, "reduction": "mean"},
    ),
    "BCELoss": ("binary_cross_entropy", {"weight": None, "reduction": "mean"}),
    "BCEWithLogitsLoss": (
        "binary_cross_entropy_with_logits",
        {"weight": None, "reduction": "mean", "pos_weight": None},
    ),
    "KLDivLoss": ("kl_div", {"reduction": "mean", "log_target": False}),
    "PoissonNLLLoss": (
        "poisson_nll_loss",
        {"log_input": True, "full": False, "eps": 1e-8, "reduction": "mean"},
    ),
    "GaussianNLLLoss": (
        "gaussian_nll_loss",
        {"full": False, "eps": 1e-6, "reduction": "mean"},
    ),
    "SoftMarginLoss": ("soft_margin_loss", {"reduction": "mean"}),
    "HingeEmbeddingLoss": (
        "hinge_embedding_loss",
        {"margin": 1.0, "reduction": "mean"},
    ),
    "MarginRankingLoss": ("margin_ranking_loss", {"margin": 0.0, "reduction": "mean"}),
    "CosineEmbeddingLoss": (
        "cosine_embedding_loss",
        {"margin": 0.0, "reduction": "mean"},
    ),
    "MultiMarginLoss": (
        "multi_margin_loss",
        {"p": 1, "margin": 1.0, "weight": None, "reduction": "mean"},
    ),
    "MultiLabelMarginLoss": ("multilabel_margin_loss", {"reduction": "mean"}),
    "CTCLoss": ("ctc_loss", {"blank": 0, "reduction": "mean", "zero_infinity": False}),
    "MultiLabelSoftMarginLoss": (
        "multilabel_soft_margin_loss",
        {"weight": None, "reduction": "mean"},
    ),
    "TripletMarginLoss": (
        "triplet_margin_loss",
        {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, "reduction": "mean"},
    ),
    "TripletMarginWithDistanceLoss": (
        "triplet_margin_with_distance_loss",
        {"distance_function": None, "margin": 1.0, "swap": False, "reduction": "mean"},
    ),
}

for _name, (_function, _settings) in _LOSSES.items():
    globals()[_name] = function_layer(
        FunctionOfSeveral, _name, _function, __name__, **_settings
    )
