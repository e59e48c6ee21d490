"""Losses as layers: each calls the function of its row with the settings it was made with."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.network.base import Network

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
_BUFFERS = ("weight", "pos_weight")


class _Loss(Network):
    function: str
    settings: Mapping[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = inspect.signature(type(self).__init__).bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name in self.settings:
            value = bound.arguments[name]
            if name in _BUFFERS and value is not None:
                value = self.nn.Buffer(np.asarray(value, np.float64))
            setattr(self, name, value)

    def forward(self, *inputs):
        settings = {name: getattr(self, name) for name in self.settings}
        return getattr(self.nn, self.function)(*inputs, **settings)


def _loss(name: str, function: str, settings: Mapping[str, Any]) -> type:
    """Make the layer of one row, with a signature of its own."""

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        _Loss.__init__(self, *args, **kwargs)

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", either)]
    for setting, default in settings.items():
        parameters.append(inspect.Parameter(setting, either, default=default))
    initialise.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body = {
        "__init__": initialise,
        "__doc__": f"The function `{function}` as a layer.",
        "__module__": __name__,
        "function": function,
        "settings": settings,
    }
    metaclass: Any = type(_Loss)
    return metaclass(name, (_Loss,), body)


globals().update({name: _loss(name, *row) for name, row in _LOSSES.items()})
