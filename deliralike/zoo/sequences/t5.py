"""T5: an encoder-decoder with relative positions, with Hugging Face's names.

Norms come before each part, without biases, as in the paper; FLAN-T5 has gated perceptrons.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.network.base import Network
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import Normal
from deliralike.zoo.inputs import Input
from deliralike.zoo.layouts import attend_heads, split_heads
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.language_model import named_outputs
from deliralike.zoo.sequences.tokens import (
    causal_bias,
    check_mask,
    check_tokens,
    padding_bias,
    position_numbers,
)
from deliralike.zoo.setting_checks import one_of, positive

# Rows of the table of distances, and the distance from which on all have the last one.
BUCKETS = 32
MAX_DISTANCE = 128
EPS = 1e-6
FEED_FORWARDS = ("relu", "gated-gelu")


class Attention(Network):
    """Attention without scaled scores; the first one of a stack holds the table of its positions.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self, width: int, heads: int, head_width: int, dropout: float, buckets: int = 0
    ) -> None:
        super().__init__()
        nn = self.nn
        self.heads = heads
        self.q = nn.Linear(width, heads * head_width, bias=False)
        self.k = nn.Linear(width, heads * head_width, bias=False)
        self.v = nn.Linear(width, heads * head_width, bias=False)
        self.o = nn.Linear(heads * head_width, width, bias=False)
        self.relative_attention_bias = nn.Embedding(buckets, heads) if buckets else None
        self.dropout = nn.Dropout(dropout)

    def keys(self, x):
        """Return keys and values, each ``(batch, heads, tokens, width)``."""
        key = split_heads(self.nn, self.k(x), self.heads)
        value = split_heads(self.nn, self.v(x), self.heads)
        return key, value

    def forward(self, x, keys, bias):
        key, value = keys
        query = split_heads(self.nn, self.q(x), self.heads)
        return self.o(
            attend_heads(self.nn, query, key, value, bias, self.dropout, scale=1.0)
        )


class SelfAttention(Network):
    """Attention to the tokens themselves, after a normalisation and beside a shortcut."""

    def __init__(self, width: int, dropout: float, **attention: Any) -> None:
        super().__init__()
        self.SelfAttention = Attention(width, dropout=dropout, **attention)
        self.layer_norm = self.nn.RMSNorm(width, EPS)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x, bias, cache=None):
        normed = self.layer_norm(x)
        keys = self.SelfAttention.keys(normed)
        if cache is not None:
            keys = cache.extend(*keys)
        return x + self.dropout(self.SelfAttention(normed, keys, bias))


class CrossAttention(Network):
    """Attention to the encoder's outputs, after a normalisation and beside a shortcut."""

    def __init__(self, width: int, dropout: float, **attention: Any) -> None:
        super().__init__()
        self.EncDecAttention = Attention(width, dropout=dropout, **attention)
        self.layer_norm = self.nn.RMSNorm(width, EPS)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x, keys, bias):
        return x + self.dropout(self.EncDecAttention(self.layer_norm(x), keys, bias))


class Perceptron(Sequential):
    """Two linear maps with ReLU between them."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        nn = self.nn
        layers = {
            "wi": nn.Linear(width, inner, bias=False),
            "act": nn.ReLU(),
            "dropout": nn.Dropout(dropout),
            "wo": nn.Linear(inner, width, bias=False),
        }
        super().__init__(layers)


class GatedPerceptron(Network):
    """A linear map of ``gelu(gate(x)) * linear(x)``, GELU in its tanh approximation."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.wi_0 = self.nn.Linear(width, inner, bias=False)
        self.wi_1 = self.nn.Linear(width, inner, bias=False)
        self.wo = self.nn.Linear(inner, width, bias=False)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x):
        gate = self.nn.gelu(self.wi_0(x), "tanh")
        return self.wo(self.dropout(gate * self.wi_1(x)))


class FeedForward(Network):
    """A perceptron, after a normalisation and beside a shortcut."""

    def __init__(self, width: int, inner: int, dropout: float, is_gated: bool) -> None:
        super().__init__()
        kind: Any = GatedPerceptron if is_gated else Perceptron
        self.DenseReluDense = kind(width, inner, dropout)
        self.layer_norm = self.nn.RMSNorm(width, EPS)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.DenseReluDense(self.layer_norm(x)))


class Block(Network):
    """Attention to itself, in a decoder to the encoder as well, and a perceptron.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        dropout: float,
        is_gated: bool,
        is_decoder: bool,
        buckets: int,
        **attention: Any,
    ) -> None:
        super().__init__()
        layers = [SelfAttention(width, dropout, buckets=buckets, **attention)]
        if is_decoder:
            layers.append(CrossAttention(width, dropout, **attention))
        layers.append(FeedForward(width, inner, dropout, is_gated))
        self.layer = self.nn.ModuleList(layers)

    def memory_keys(self, memory):
        """Return keys and values of the encoder's outputs."""
        return self.layer[1].EncDecAttention.keys(memory)

    def forward(self, x, bias, memory_keys=None, memory_bias=None, cache=None):
        x = self.layer[0](x, bias, cache)
        if memory_keys is not None:
            x = self.layer[1](x, memory_keys, memory_bias)
        return self.layer[-1](x)


class Stack(Network):
    """The encoder or the decoder: an embedding, blocks and a last normalisation.

    Shapes:
        Tokens ``(batch, tokens)`` give a list of ``(batch, tokens, width)``: the embeddings, each
        block, and the normalisation.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        blocks: int,
        is_decoder: bool,
        buckets: int,
        max_distance: int,
        dropout: float,
        **block: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.is_decoder, self.buckets, self.max_distance = (
            is_decoder,
            buckets,
            max_distance,
        )
        self.embed_tokens = nn.Embedding(vocab_size, width)
        layers = []
        for number in range(blocks):
            own = 0 if number else buckets  # the first block's table holds for all
            layers.append(
                Block(
                    width, dropout=dropout, is_decoder=is_decoder, buckets=own, **block
                )
            )
        self.block = nn.ModuleList(layers)
        self.final_layer_norm = nn.RMSNorm(width, EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, tokens, bias, places, slots, memory=None, memory_bias=None, cache=None
    ):
        x = self.dropout(self.embed_tokens(tokens))
        relative = self._relative_bias(places, slots)
        bias = relative if bias is None else relative + bias
        outputs = [x]
        for number, block in enumerate(self.block):
            keys = None if memory is None else memory[number]
            x = block(x, bias, keys, memory_bias, cache)
            outputs.append(x)
        outputs.append(self.dropout(self.final_layer_norm(x)))
        return outputs

    def _relative_bias(self, places, slots):
        """Return the terms of the scores for distances between tokens.

        Places ``(1, queries)`` and slots ``(keys,)`` give ``(1, heads, queries, keys)``.
        """
        nn = self.nn
        count = slots.shape[0]
        numbers = self._bucket_numbers(nn.arange(1 - count, count, like=slots))
        # (queries, keys)
        steps = nn.reshape(slots, (1, -1)) - nn.permute(places, (1, 0))
        chosen = nn.select(numbers, steps + (count - 1), 0)
        bias = self.block[0].layer[0].SelfAttention.relative_attention_bias(chosen)
        return nn.unsqueeze(nn.permute(bias, (2, 0, 1)), 0)

    def _bucket_numbers(self, distances):
        """Return the row of the table for each distance from a query to a key, ``(distances,)``.

        In a decoder all later keys have row 0, in an encoder half of the rows.
        """
        rows = self.buckets if self.is_decoder else self.buckets // 2
        starts = bucket_starts(rows, self.max_distance)
        numbers = self._count_passed(-distances, starts)
        if not self.is_decoder:
            later = np.concatenate([np.ones(rows, int), starts])
            numbers = numbers + self._count_passed(distances, later)
        return self.nn.cast(numbers, "int64")

    def _count_passed(self, distances, starts):
        nn = self.nn
        passed = nn.constant(starts, like=distances) <= nn.unsqueeze(distances, 1)
        return nn.sum(nn.cast(passed, "float32"), 1)


def bucket_starts(buckets: int, max_distance: int) -> np.ndarray:
    """Return the least distance of each row of a side of the table but the first.

    Half of the rows are for one distance each, the others for ranges that grow by a factor up to
    `max_distance`, from which on all distances have the last row.

    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1.

    Example:
        >>> bucket_starts(8, 20).tolist()
        [1, 2, 3, 4, 6, 9, 14]
    """
    steps = np.arange(max_distance + 1)
    exact = buckets // 2
    # in single precision, as where the published weights were trained: a range's end depends on it
    ratio = np.log(np.maximum(steps, 1).astype(np.float32) / np.float32(exact))
    share = (
        ratio / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    )
    wide = np.minimum(exact + share.astype(np.int64), buckets - 1)
    rows = np.where(steps < exact, steps, wide)
    return np.searchsorted(rows, np.arange(1, buckets))


class T5(Model):
    """An encoder reads a text, and a decoder writes the answer, token by token.

    Source: Raffel et al. 2020, arXiv 1910.10683. Names, order, shapes and start values are those of
    Hugging Face's ``T5ForConditionalGeneration``.

    Args:
        vocab_size: Number of different tokens.
        d_model: Width of the tokens.
        d_kv: Width of a head.
        d_ff: Width inside the perceptrons.
        num_layers: Number of blocks of the encoder.
        num_decoder_layers: Number of blocks of the decoder; as many when not given.
        num_heads: Number of heads.
        dropout: Probability of dropping an element, or a weight of the attention.
        feed_forward_proj: ``"relu"``, or ``"gated-gelu"`` as in version 1.1 and FLAN-T5.
        tie_word_embeddings: Whether ``lm_head.weight`` is the embedding's own table, and what it
            reads is divided by the root of the width; in version 1.1 and FLAN-T5 it is not.

    Shapes:
        ``input_ids`` ``(batch, tokens)``, ``decoder_input_ids`` ``(batch, answer)``, and if given
        ``attention_mask`` (one for tokens, zero for padding) of the shape of ``input_ids``, give
        logits ``(batch, answer, vocab_size)``. For training, ``decoder_input_ids`` are the answer
        with the start token before it.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: An input has another shape.
        IndexRangeError: A token is not below `vocab_size`.
    """

    head_paths = ("lm_head",)
    outputs = "vocab_size"
    channels_last = True
    # a table of distances between texts, which older files hold and nobody reads
    ignored_names = r"\.EncDecAttention\.relative_attention_bias\.weight$"
    max_tokens = None
    # an answer begins with it; `generate` returns what follows
    decoder_start_token_id = 0

    def __init__(
        self,
        vocab_size: int = 32128,
        d_model: int = 512,
        d_kv: int = 64,
        d_ff: int = 2048,
        num_layers: int = 6,
        num_decoder_layers: int | None = None,
        num_heads: int = 8,
        dropout: float = 0.1,
        feed_forward_proj: str = "relu",
        tie_word_embeddings: bool = True,
    ) -> None:
        super().__init__()
        if num_decoder_layers is None:
            num_decoder_layers = num_layers
        positive(
            "T5",
            num_layers=num_layers,
            num_decoder_layers=num_decoder_layers,
            num_heads=num_heads,
        )
        one_of(feed_forward_proj, FEED_FORWARDS, "feed_forward_proj", "T5")
        self.sizes = (d_model, d_kv, d_ff, num_heads)
        self.vocab_size = vocab_size
        self.is_scaled = tie_word_embeddings
        stack: dict[str, Any] = {
            "buckets": BUCKETS,
            "max_distance": MAX_DISTANCE,
            "dropout": dropout,
            "inner": d_ff,
            "is_gated": feed_forward_proj == "gated-gelu",
            "heads": num_heads,
            "head_width": d_kv,
        }
        self.shared = self.nn.Embedding(vocab_size, d_model)
        self.encoder = Stack(vocab_size, d_model, num_layers, False, **stack)
        self.decoder = Stack(vocab_size, d_model, num_decoder_layers, True, **stack)
        self.lm_head = self.nn.Linear(d_model, vocab_size, bias=False)
        self.encoder.embed_tokens.weight = self.shared.weight
        self.decoder.embed_tokens.weight = self.shared.weight
        if tie_word_embeddings:
            self.lm_head.weight = self.shared.weight

    @property
    def start_values(self):  # type: ignore[override]
        """Hugging Face's start values, which make up for scores that are not scaled."""
        width, head_width, inner, heads = self.sizes
        plain = Normal(width**-0.5)
        return {
            "shared.weight": Normal(1.0),
            "lm_head.weight": Normal(1.0),
            "*.q.weight": Normal((width * head_width) ** -0.5),
            "*.k.weight": plain,
            "*.v.weight": plain,
            "*.o.weight": Normal((heads * head_width) ** -0.5),
            "*.relative_attention_bias.weight": plain,
            "*.wi*.weight": plain,
            "*.wo.weight": Normal(inner**-0.5),
        }

    def forward(self, input_ids, decoder_input_ids, attention_mask=None):
        last = self.last_stage(input_ids, decoder_input_ids, attention_mask)
        return self._logits(last)

    def forward_stages(self, input_ids, decoder_input_ids, attention_mask=None):
        """Return the embeddings, each block and the last normalisation of encoder and decoder.

        All are ``(batch, tokens, d_model)``.
        """
        encoded = self._encoder_outputs(input_ids, attention_mask)
        memory, memory_bias = self._memory(encoded[-1], attention_mask)
        check_tokens(self, decoder_input_ids)
        places = position_numbers(self.nn, decoder_input_ids)
        bias = causal_bias(self.nn, decoder_input_ids, encoded[-1])
        decoded = self.decoder(
            decoder_input_ids, bias, places, places[0], memory, memory_bias
        )
        return named_outputs("encoder", encoded) | named_outputs("decoder", decoded)

    def encode(self, input_ids, attention_mask):
        """Return what `next_logits` needs of the encoder's outputs."""
        encoded = self._encoder_outputs(input_ids, attention_mask)
        return self._memory(encoded[-1], attention_mask)

    def next_logits(self, tokens, cache, memory, memory_bias):
        """Return the logits after the last of new tokens; see `deliralike.zoo.generate`."""
        bias = cache.bias(tokens, memory_bias)
        places = cache.places(tokens)
        decoded = self.decoder(
            tokens, bias, places, cache.slots, memory, memory_bias, cache
        )
        return self._logits(decoded[-1][:, -1])

    def _encoder_outputs(self, tokens, attention_mask):
        nn = self.nn
        check_tokens(self, tokens)
        bias = None
        if attention_mask is not None:
            check_mask(self, attention_mask, tokens, "attention_mask")
            bias = padding_bias(nn, attention_mask, self.shared.weight)
        places = position_numbers(nn, tokens)
        return self.encoder(tokens, bias, places, places[0])

    def _memory(self, encoded, attention_mask):
        """Return each block's keys and values of the encoder's outputs, and the term for padding.

        The term is ``(batch, 1, 1, tokens)``.
        """
        nn = self.nn
        keys = [block.memory_keys(encoded) for block in self.decoder.block]
        if attention_mask is None:
            batch, tokens, _ = encoded.shape
            return keys, nn.zeros((batch, 1, 1, tokens), like=encoded)
        return keys, padding_bias(nn, attention_mask, encoded)

    def _logits(self, x):
        if self.is_scaled:
            x = x * self.lm_head.in_features**-0.5
        return self.lm_head(x)


_T5 = "Raffel et al. 2020, arXiv 1910.10683; Hugging Face T5ForConditionalGeneration"
_FLAN = "Chung et al. 2022, arXiv 2210.11416; Hugging Face T5ForConditionalGeneration"

_BASE = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
_LARGE = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

# name: (source, settings, parameters)
_VARIANTS = {
    "t5_small": (_T5, {}, 60_506_624),
    "t5_base": (_T5, _BASE, 222_903_552),
    "t5_large": (_T5, _LARGE, 737_668_096),
    "flan_t5_small": (
        _FLAN,
        _GATED | {"d_ff": 1024, "num_layers": 8, "num_heads": 6},
        76_961_152,
    ),
    "flan_t5_base": (_FLAN, _GATED | _BASE | {"d_ff": 2048}, 247_577_856),
    "flan_t5_large": (_FLAN, _GATED | _LARGE | {"d_ff": 2816}, 783_150_080),
}


def _sample(settings: Mapping[str, Any]) -> list[Input]:
    """Return a text of 512 tokens, as in training, and an answer of 114."""
    below = settings["vocab_size"]
    return [Input((512,), below=below), Input((114,), below=below)]


for _name, (_source, _settings, _parameters) in _VARIANTS.items():
    register(
        T5,
        name=_name,
        variant=_settings,
        task="text to text",
        dims=(1,),
        source=_source,
        shape=_sample,
        parameters=_parameters,
    )
