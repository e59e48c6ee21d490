"""Multilayer perceptrons.

Unlike the paper they have ReLU instead of the logistic function by default.
"""

from collections.abc import Sequence

from deliralike.zoo.blocks import numbered
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers, one_of

ACTIVATIONS = {
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "elu": "ELU",
    "silu": "SiLU",
    "gelu": "GELU",
    "hardswish": "Hardswish",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "identity": "Identity",
}


def activation_layer(nn, name: str):
    """Make the activation of that name as a layer.

    Raises:
        SettingError: There is none.
    """
    one_of(name, ACTIVATIONS, "activation", "activation_layer")
    return getattr(nn, ACTIVATIONS[name])()


class MLP(Model):
    """Linear layers with an activation and dropout after each but the last.

    Source: Rumelhart, Hinton and Williams 1986, doi 10.1038/323533a0.

    Args:
        in_features: Width of the input; further axes after the batch are flattened first.
        out_features: Width of the output.
        hidden: Width of each hidden layer; none at all makes a linear model.
        activation: ``"relu"``, ``"gelu"``, ``"tanh"`` …
        dropout: Probability of dropping a hidden element in training.
        bias: Whether the linear layers have biases.

    Shapes:
        ``(batch, in_features)``, or any ``(batch, ...)`` with as many elements, gives
        ``(batch, out_features)``.

    Raises:
        SettingError: A width is not a whole number of at least 1, or there is no such activation.
        ShapeError: The input has another width; the error names the layer ``layers.0``.
    """

    stem_paths = ("layers.0",)
    outputs = "out_features"

    def __init__(
        self,
        in_features: int = 784,
        out_features: int = 10,
        hidden: Sequence[int] = (128, 64),
        activation: str = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        nn = self.nn
        widths = numbers(hidden, "hidden", "MLP", least=0)
        sizes = zip((in_features, *widths), (*widths, out_features), strict=True)
        self.layers = nn.ModuleList(
            [nn.Linear(before, after, bias) for before, after in sizes]
        )
        self.activation = activation_layer(nn, activation)
        # one for each layer, since masks are keyed by path
        self.dropouts = nn.ModuleList([nn.Dropout(dropout) for _ in widths])

    @property
    def head_paths(self):  # type: ignore[override]
        """The last linear layer."""
        return (f"layers.{len(self.layers) - 1}",)

    def forward(self, x):
        return self.layers[-1](self._hidden(x)[-1])

    def forward_stages(self, x):
        """Return the flattened input, then each hidden layer after its activation and dropout."""
        first, *hidden = self._hidden(x)
        return {"input": first} | numbered("hidden_", hidden, 1)

    def _hidden(self, x):
        hidden = [self.nn.flatten(x)]  # (batch, in_features)
        for layer, dropout in zip(self.layers, self.dropouts, strict=False):
            hidden.append(dropout(self.activation(layer(hidden[-1]))))
        return hidden


register(
    MLP,
    name="mlp",
    dims=(0, 1, 2, 3),
    source="Rumelhart et al. 1986, doi 10.1038/323533a0",
    shape=lambda settings: (settings["in_features"],),
)
