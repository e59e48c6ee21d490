"""Losses as layers: each calls the function of its row with the settings it was made with."""

from deliralike.nn.layers.function_layers import FunctionOfSeveral, function_layers

# The function of each layer, and its settings. A `weight` is a buffer.
_LOSSES = {
    "L1Loss": "l1_loss reduction",
    "MSELoss": "mse_loss reduction",
    "SmoothL1Loss": "smooth_l1_loss reduction beta",
    "HuberLoss": "huber_loss reduction delta",
    "CrossEntropyLoss": "cross_entropy weight ignore_index reduction label_smoothing",
    "NLLLoss": "nll_loss weight ignore_index reduction",
    "BCELoss": "binary_cross_entropy weight reduction",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits weight reduction pos_weight",
    "KLDivLoss": "kl_div reduction log_target",
    "PoissonNLLLoss": "poisson_nll_loss log_input full eps reduction",
    "GaussianNLLLoss": "gaussian_nll_loss full eps reduction",
    "SoftMarginLoss": "soft_margin_loss reduction",
    "HingeEmbeddingLoss": "hinge_embedding_loss margin reduction",
    "MarginRankingLoss": "margin_ranking_loss margin reduction",
    "CosineEmbeddingLoss": "cosine_embedding_loss margin reduction",
    "MultiMarginLoss": "multi_margin_loss p margin weight reduction",
    "MultiLabelMarginLoss": "multilabel_margin_loss reduction",
    "CTCLoss": "ctc_loss blank reduction zero_infinity",
    "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss weight reduction",
    "TripletMarginLoss": "triplet_margin_loss margin p eps swap reduction",
    "TripletMarginWithDistanceLoss": (
        "triplet_margin_with_distance_loss distance_function margin swap reduction"
    ),
}

globals().update(function_layers(FunctionOfSeveral, __name__, _LOSSES))
