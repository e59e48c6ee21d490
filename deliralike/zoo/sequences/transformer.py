"""A classifier of token sequences on PyTorch's transformer encoder.

The encoder is the paper's; normalisation comes after each part as in the paper, or before it.
"""

import math

from deliralike.network.base import Network
from deliralike.nn.start import Normal
from deliralike.zoo.blocks import classifier
from deliralike.zoo.inputs import Input
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.tokens import check_mask, check_tokens, sinusoids
from deliralike.zoo.setting_checks import one_of, positive

ACTIVATIONS = ("relu", "gelu")


class Positions(Network):
    """Add sines and cosines of each position; see `sinusoids`.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(self, max_tokens: int, width: int) -> None:
        super().__init__()
        self.pe = self.nn.Buffer(sinusoids(max_tokens, width))

    def forward(self, x):
        return x + self.pe[: x.shape[1]]


class TransformerClassifier(Model):
    """A classifier of token sequences on a transformer encoder.

    It has an embedding, positions, the encoder, the mean over the tokens that are no padding, and a
    linear head.

    Source: Vaswani et al. 2017, arXiv 1706.03762 (encoder, and the positions of section 3.5). The
    encoder's names are those of ``torch.nn.TransformerEncoder``, with a normalisation at the end as
    in ``torch.nn.Transformer``; the embedding's rows have norm 1 at the start.

    Args:
        num_classes: Number of outputs; 0 for no head: the pooled features.
        vocab_size: Number of different tokens.
        max_tokens: The longest sequence.
        d_model: Width of the tokens; a multiple of `nhead`.
        nhead: Number of heads.
        num_layers: Number of layers.
        dim_feedforward: Width inside the perceptrons.
        dropout: Probability of dropping an element of what a layer adds, or a weight of the
            attention.
        activation: ``"relu"`` or ``"gelu"``.
        norm_first: Normalise before attention and perceptron instead of after the sums.

    Shapes:
        Tokens ``(batch, tokens)``, and if given ``padding_mask`` (true for padding) of the same
        shape, give ``(batch, num_classes)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The sequence is longer than `max_tokens`, or an input has another shape.
        IndexRangeError: A token is not below `vocab_size`.
    """

    head_paths = ("fc",)
    channels_last = True

    def __init__(
        self,
        num_classes: int = 2,
        vocab_size: int = 30000,
        max_tokens: int = 512,
        d_model: int = 512,
        nhead: int = 8,
        num_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        nn = self.nn
        positive("TransformerClassifier", max_tokens=max_tokens, num_layers=num_layers)
        one_of(activation, ACTIVATIONS, "activation", "TransformerClassifier")
        self.max_tokens = max_tokens
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = Positions(max_tokens, d_model)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            batch_first=True,
            norm_first=norm_first,
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(d_model))
        self.fc = classifier(nn, d_model, num_classes, "TransformerClassifier")

    @property
    def start_values(self):  # type: ignore[override]
        """Start values that make up for the embedding's factor, the root of the width."""
        return {"embedding.weight": Normal(1.0 / math.sqrt(self.d_model))}

    def forward(self, tokens, padding_mask=None):
        last = self.last_stage(tokens, padding_mask)
        return self.fc(self._pooled(last, padding_mask))

    def forward_stages(self, tokens, padding_mask=None):
        """Return the embeddings, each layer, and the last normalisation.

        All are ``(batch, tokens, d_model)``.
        """
        check_tokens(self, tokens, self.max_tokens, "max_tokens")
        if padding_mask is not None:
            check_mask(self, padding_mask, tokens, "padding_mask")
            padding_mask = self.nn.cast(padding_mask, "bool")
        x = self.embedding(tokens) * math.sqrt(self.d_model)
        x = self.dropout(self.positions(x))
        stages = {"embedding": x}
        for number, layer in enumerate(self.encoder.layers, 1):
            x = layer(x, src_key_padding_mask=padding_mask)
            stages[f"layer{number}"] = x
        return stages | {"norm": self.encoder.norm(x)}

    def _pooled(self, x, padding_mask):
        """Return the mean of the tokens that are no padding, ``(batch, d_model)``."""
        if padding_mask is None:
            return self.nn.mean(x, 1)
        valid = 1.0 - self.nn.cast(padding_mask, x)  # (batch, tokens)
        total = self.nn.einsum("btc,bt->bc", x, valid)
        return total / self.nn.sum(valid, 1, keepdim=True)

    def adapt_weight(self, name, value, shape):
        """Compute the table of positions anew."""
        return sinusoids(*shape) if name == "positions.pe" else None


register(
    TransformerClassifier,
    name="transformer_classifier",
    task="text classification",
    dims=(1,),
    source="Vaswani et al. 2017, arXiv 1706.03762; torch.nn.TransformerEncoder",
    shape=lambda settings: Input(
        (settings["max_tokens"],), below=settings["vocab_size"]
    ),
)
