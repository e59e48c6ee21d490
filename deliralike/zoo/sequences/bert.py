"""BERT: a transformer encoder over tokens of two segments, with Hugging Face's names.

It follows the paper, whose two pre-training heads are not part of it.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.blocks import classifier, each_output, numbered
from deliralike.zoo.inputs import Input
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.layouts import attend
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.tokens import (
    check_mask,
    check_tokens,
    padding_bias,
    position_numbers,
)
from deliralike.zoo.setting_checks import positive

EPS = 1e-12  # of every normalisation
PADDING = 0  # the token whose row of the table stays zero


class Embeddings(Network):
    """The sum of a token's, its position's and its segment's embedding, normalised."""

    def __init__(
        self, vocab_size: int, width: int, positions: int, segments: int, dropout: float
    ) -> None:
        super().__init__()
        nn = self.nn
        self.word_embeddings = nn.Embedding(vocab_size, width, padding_idx=PADDING)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(segments, width)
        self.LayerNorm = nn.LayerNorm(width, EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids, token_type_ids):
        positions = position_numbers(self.nn, input_ids)
        segments = positions * 0 if token_type_ids is None else token_type_ids
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(x + self.position_embeddings(positions)))


class SelfAttention(Network):
    """Attention of each token to all others."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = self.nn.Linear(width, width)
        self.key = self.nn.Linear(width, width)
        self.value = self.nn.Linear(width, width)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x, bias):
        query = self.query(x)
        key = self.key(x)
        value = self.value(x)
        return attend(self.nn, query, key, value, self.heads, bias, self.dropout)


class Output(Network):
    """A linear map, and the normalised sum with the shortcut."""

    def __init__(self, in_width: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dense = self.nn.Linear(in_width, width)
        self.LayerNorm = self.nn.LayerNorm(width, EPS)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x, shortcut):
        return self.LayerNorm(self.dropout(self.dense(x)) + shortcut)


class Attention(Network):
    """Attention with its own shortcut."""

    def __init__(
        self, width: int, heads: int, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.self = SelfAttention(width, heads, attention_dropout)
        self.output = Output(width, width, dropout)

    def forward(self, x, bias):
        return self.output(self.self(x, bias), x)


class Layer(Network):
    """Attention and perceptron, a normalisation after each.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout, attention_dropout)
        nn = self.nn
        hidden = {"dense": nn.Linear(width, inner), "intermediate_act_fn": nn.GELU()}
        self.intermediate = nn.Sequential(hidden)
        self.output = Output(inner, width, dropout)

    def forward(self, x, bias):
        x = self.attention(x, bias)
        return self.output(self.intermediate(x), x)


class Encoder(Network):
    """Layers one after the other; the outputs of all of them are returned."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.layer = self.nn.ModuleList(layers)

    def forward(self, x, bias):
        return each_output(x, self.layer, bias)


class Pooler(Network):
    """The first token's state through a linear map and tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = self.nn.Linear(width, width)
        self.activation = self.nn.Tanh()

    def forward(self, x):
        return self.activation(self.dense(x[:, 0]))


def _layout(name: str, prefix: str = "", to: str = "", old: bool = False) -> KeyMap:
    """Make a layout of our names with another prefix.

    With `old` it has the names of normalisations in files from TensorFlow.
    """
    patterns = {}
    if old:
        patterns[rf"{prefix}(.*LayerNorm)\.weight"] = rf"{to}\1.gamma"
        patterns[rf"{prefix}(.*LayerNorm)\.bias"] = rf"{to}\1.beta"
    patterns[rf"{prefix}(.*)"] = rf"{to}\1"
    return KeyMap(name, by_patterns(patterns))


class _BERTModel(Model):
    """The base of the encoder and the classifier."""

    channels_last = True
    # tables of numbers in older files, and the heads of the pretraining
    ignored_names = r"(^|\.)embeddings\.(position|token_type)_ids$|^cls\."
    start_values = {
        "*.weight": Normal(0.02),
        "*word_embeddings.weight": Normal(0.02, zero_row=PADDING),
        "*.bias": ZEROS,
        "*LayerNorm.weight": Normal(0.0, mean=1.0),
    }


class BERT(_BERTModel):
    """A transformer encoder with a pooler: Hugging Face's ``BertModel``.

    Source: Devlin et al. 2019, arXiv 1810.04805. Names, order, shapes and start values are Hugging
    Face's. As there, the row of the padding token (0) starts at zero and gets no gradient.

    Args:
        vocab_size: Number of different tokens.
        hidden_size: Width; a multiple of `num_attention_heads`.
        num_hidden_layers: Number of layers.
        num_attention_heads: Number of heads in each.
        intermediate_size: Width inside the perceptrons.
        max_position_embeddings: The longest sequence.
        type_vocab_size: Number of kinds of segments.
        dropout: Probability of dropping an element of the embeddings and of what a layer adds.
        attention_dropout: Probability of dropping a weight of the attention.

    Shapes:
        ``input_ids`` ``(batch, tokens)``, and if given ``attention_mask`` (one for tokens, zero for
        padding) and ``token_type_ids`` (the segment of each token; all 0 when not given) of the
        same shape, give a dict of ``last_hidden_state`` ``(batch, tokens, hidden_size)`` and
        ``pooler_output`` ``(batch, hidden_size)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The sequence is longer than `max_position_embeddings`, or an input has another
            shape.
        IndexRangeError: A token is not below `vocab_size`, or a segment not below
            `type_vocab_size`.
    """

    keymaps = (
        _layout("old", old=True),
        _layout("pretraining", to="bert."),
        _layout("old pretraining", to="bert.", old=True),
    )

    def __init__(
        self,
        vocab_size: int = 30522,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        positive(
            "BERT",
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=num_attention_heads,
        )
        checks.divides(
            hidden_size, num_attention_heads, "BERT: hidden_size", "num_attention_heads"
        )
        self.max_position_embeddings = max_position_embeddings
        self.embeddings = Embeddings(
            vocab_size, hidden_size, max_position_embeddings, type_vocab_size, dropout
        )
        layer = (
            hidden_size,
            num_attention_heads,
            intermediate_size,
            dropout,
            attention_dropout,
        )
        self.encoder = Encoder([Layer(*layer) for _ in range(num_hidden_layers)])
        self.pooler = Pooler(hidden_size)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        last = self.last_stage(input_ids, attention_mask, token_type_ids)
        return {"last_hidden_state": last, "pooler_output": self.pooler(last)}

    def forward_stages(self, input_ids, attention_mask=None, token_type_ids=None):
        """Return the embeddings and each layer, all ``(batch, tokens, hidden_size)``."""
        check_tokens(
            self, input_ids, self.max_position_embeddings, "max_position_embeddings"
        )
        for name, mask in (
            ("attention_mask", attention_mask),
            ("token_type_ids", token_type_ids),
        ):
            if mask is not None:
                check_mask(self, mask, input_ids, name)
        x = self.embeddings(input_ids, token_type_ids)
        bias = (
            None if attention_mask is None else padding_bias(self.nn, attention_mask, x)
        )
        return {"embedding": x} | numbered("layer", self.encoder(x, bias), 1)


class BERTClassifier(_BERTModel):
    """`BERT` with a linear classifier of whole sequences on its pooler.

    It is Hugging Face's ``BertForSequenceClassification``.

    Source: Devlin et al. 2019, arXiv 1810.04805. Names, order, shapes and start values are Hugging
    Face's.

    Args:
        num_classes: Number of outputs.
        dropout: As for `BERT`; also before the classifier.
        settings: Those of `BERT`.

    Shapes:
        Inputs as for `BERT`; they give ``(batch, num_classes)``.

    Raises:
        SettingError, ShapeError, IndexRangeError: As for `BERT`.
    """

    head_paths = ("classifier",)
    keymaps = (_layout("old", old=True), _layout("BertModel", prefix=r"bert\."))

    def __init__(
        self,
        num_classes: int = 2,
        hidden_size: int = 768,
        dropout: float = 0.1,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.bert = BERT(hidden_size=hidden_size, dropout=dropout, **settings)
        self.dropout = self.nn.Dropout(dropout)
        self.classifier = classifier(self.nn, hidden_size, num_classes, "BERT")

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        pooled = self.bert(input_ids, attention_mask, token_type_ids)["pooler_output"]
        return self.classifier(self.dropout(pooled))

    def forward_stages(self, input_ids, attention_mask=None, token_type_ids=None):
        """Return the embeddings and each layer, all ``(batch, tokens, hidden_size)``."""
        return self.bert.forward_stages(input_ids, attention_mask, token_type_ids)


def bert(
    vocab_size: int = 30522,
    hidden_size: int = 768,
    num_hidden_layers: int = 12,
    num_attention_heads: int = 12,
    intermediate_size: int = 3072,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 2,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    num_classes: int = 0,
) -> Any:
    """Make `BERT` where `num_classes` is 0, else `BERTClassifier`.

    Their names differ by the prefix ``bert.``.
    """
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_hidden_layers,
        "num_attention_heads": num_attention_heads,
        "intermediate_size": intermediate_size,
        "max_position_embeddings": max_position_embeddings,
        "type_vocab_size": type_vocab_size,
        "dropout": dropout,
        "attention_dropout": attention_dropout,
    }
    if num_classes == 0:
        return BERT(**settings)
    return BERTClassifier(num_classes, **settings)


_BERT = "Devlin et al. 2019, arXiv 1810.04805; Hugging Face BertModel"
_SMALL = "Turc et al. 2019, arXiv 1908.08962; Hugging Face BertModel"

# name: (layers, width, heads, parameters, source); the perceptrons are four times as wide
_VARIANTS = {
    "bert_tiny": (2, 128, 2, 4_385_920, _SMALL),
    "bert_mini": (4, 256, 4, 11_170_560, _SMALL),
    "bert_small": (4, 512, 8, 28_763_648, _SMALL),
    "bert_medium": (8, 512, 8, 41_373_184, _SMALL),
    "bert_base_uncased": (12, 768, 12, 109_482_240, _BERT),
    "bert_large_uncased": (24, 1024, 16, 335_141_888, _BERT),
}

for _name, (_layers, _width, _heads, _parameters, _source) in _VARIANTS.items():
    register(
        bert,
        name=_name,
        variant={
            "hidden_size": _width,
            "num_hidden_layers": _layers,
            "num_attention_heads": _heads,
            "intermediate_size": 4 * _width,
        },
        task="feature extraction",
        dims=(1,),
        source=_source,
        shape=lambda settings: Input(
            (settings["max_position_embeddings"],), below=settings["vocab_size"]
        ),
        parameters=_parameters,
    )
