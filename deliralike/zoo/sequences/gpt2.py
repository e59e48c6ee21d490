"""GPT-2: a transformer that predicts the next token, with Hugging Face's names and stored matrices.

It follows the paper's code. ``gpt_mini`` is a small one for a laptop.
"""

import math

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.blocks import each_output, numbered
from deliralike.zoo.inputs import Input
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.layouts import attend_heads, split_heads
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.language_model import Decoder, LanguageModel
from deliralike.zoo.sequences.tokens import (
    decoder_bias,
    decoder_positions,
)
from deliralike.zoo.setting_checks import positive

START = Normal(0.02)


class Conv1D(Network):
    """``x @ weight + bias``, with a matrix that is stored as ``(in_features, out_features)``.

    Hugging Face keeps the matrices of the original TensorFlow files so; other models store them the
    other way round.

    Shapes:
        ``(..., in_features)`` gives ``(..., out_features)``.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = self.nn.Parameter((in_features, out_features), START)
        self.bias = self.nn.Parameter((out_features,), ZEROS)

    def forward(self, x):
        checks.last_axes(self, x, (self.in_features,))
        return self.nn.linear(x, self.nn.permute(self.weight, (1, 0)), self.bias)


class Attention(Network):
    """Attention of each token to itself and those before it.

    Query, key and value come from one product.
    """

    def __init__(
        self, width: int, heads: int, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)
        self.attn_dropout = self.nn.Dropout(attention_dropout)
        self.resid_dropout = self.nn.Dropout(dropout)

    def forward(self, x, bias, cache=None):
        nn = self.nn
        query, key, value = nn.split(self.c_attn(x), x.shape[-1], dim=-1)
        query = split_heads(nn, query, self.heads)
        key = split_heads(nn, key, self.heads)
        value = split_heads(nn, value, self.heads)
        if cache is not None:
            key, value = cache.extend(key, value)
        y = attend_heads(nn, query, key, value, bias, self.attn_dropout)
        return self.resid_dropout(self.c_proj(y))


class Block(Network):
    """Attention and perceptron, each after a normalisation and beside a shortcut.

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
        self.ln_1 = self.nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout, attention_dropout)
        self.ln_2 = self.nn.LayerNorm(width)
        perceptron = {
            "c_fc": Conv1D(width, inner),
            "act": self.nn.GELU("tanh"),
            "c_proj": Conv1D(inner, width),
            "dropout": self.nn.Dropout(dropout),
        }
        self.mlp = self.nn.Sequential(perceptron)

    def forward(self, x, bias, cache=None):
        x = x + self.attn(self.ln_1(x), bias, cache)
        return x + self.mlp(self.ln_2(x))


class Body(Decoder):
    """GPT-2 without its head, Hugging Face's ``GPT2Model``.

    It has embeddings, blocks and a last normalisation.

    Shapes:
        Tokens and mask ``(batch, tokens)`` give ``(batch, tokens, n_embd)``.
    """

    def __init__(
        self,
        vocab_size: int,
        n_positions: int,
        n_embd: int,
        n_layer: int,
        n_head: int,
        n_inner: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.n_positions = n_positions
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(n_positions, n_embd)
        self.drop = nn.Dropout(dropout)
        block = (n_embd, n_head, n_inner, dropout, attention_dropout)
        self.h = nn.ModuleList([Block(*block) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)

    def forward_stages(self, input_ids, attention_mask=None, cache=None):
        """See `GPT2.forward_stages`; with a `KeyValueCache` the tokens are those that are new."""
        most = self.n_positions
        positions = decoder_positions(self, input_ids, cache, most, "n_positions")
        x = self.drop(self.wte(input_ids) + self.wpe(positions))
        bias = decoder_bias(self, input_ids, attention_mask, cache, x)
        outputs = each_output(x, self.h, bias, cache)
        last = {"norm": self.ln_f(outputs[-1])}
        return {"embedding": x} | numbered("layer", outputs, 1) | last


class GPT2(LanguageModel):
    """A language model: it predicts the next token from the tokens so far.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Names,
    order, shapes and start values are those of Hugging Face's ``GPT2LMHeadModel``: the matrices of
    ``c_attn``, ``c_fc`` and ``c_proj`` are stored as ``(in, out)``, and ``lm_head.weight`` is the
    embedding's own table.

    Args:
        vocab_size: Number of different tokens.
        n_positions: The longest sequence.
        n_embd: Width; a multiple of `n_head`.
        n_layer: Number of blocks.
        n_head: Number of heads in each.
        n_inner: Width inside the perceptrons; four times `n_embd` when not given.
        dropout: Probability of dropping an element of the embeddings and of what a block adds.
        attention_dropout: Probability of dropping a weight of the attention.

    Shapes:
        ``input_ids`` ``(batch, tokens)``, and if given ``attention_mask`` (one for tokens, zero for
        padding) of the same shape, give logits ``(batch, tokens, vocab_size)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The sequence is longer than `n_positions`, or an input has another shape.
        IndexRangeError: A token is not below `vocab_size`.
    """

    body = "transformer"
    keymaps = (KeyMap("GPT2Model", by_patterns({r"transformer\.(.*)": r"\1"})),)
    ignored_names = r"\.attn\.(masked_)?bias$"  # causal masks in older files

    def __init__(
        self,
        vocab_size: int = 50257,
        n_positions: int = 1024,
        n_embd: int = 768,
        n_layer: int = 12,
        n_head: int = 12,
        n_inner: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        sizes = {
            "vocab_size": vocab_size,
            "n_positions": n_positions,
            "n_embd": n_embd,
            "n_layer": n_layer,
            "n_head": n_head,
            "n_inner": 4 * n_embd if n_inner is None else n_inner,
        }
        positive("GPT2", **sizes)
        checks.divides(n_embd, n_head, "GPT2: n_embd", "n_head")
        self.n_layer = n_layer
        self.vocab_size = vocab_size
        self.max_tokens = n_positions
        self.transformer = Body(
            **sizes, dropout=dropout, attention_dropout=attention_dropout
        )
        self.lm_head = self.nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    @property
    def start_values(self):  # type: ignore[override]
        """Hugging Face's start values.

        They are normal, and narrower where a block ends, by the number of residual branches.
        """
        ends = Normal(0.02 / math.sqrt(2 * self.n_layer))
        return {
            "*.wte.weight": START,
            "*.wpe.weight": START,
            "lm_head.weight": START,
            "*.c_proj.weight": ends,
        }


_SOURCE = (
    'Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Hugging Face '
    "GPT2LMHeadModel"
)
_MINI = (
    "Karpathy 2020, minGPT (gpt-mini, a character of tiny Shakespeare a token); Hugging Face "
    "GPT2LMHeadModel"
)

# name: (settings, parameters)
_VARIANTS = {
    "gpt_mini": (
        {
            "vocab_size": 65,
            "n_positions": 128,
            "n_embd": 192,
            "n_layer": 6,
            "n_head": 6,
        },
        None,
    ),
    "gpt2": ({}, 124_439_808),
    "gpt2_medium": ({"n_embd": 1024, "n_layer": 24, "n_head": 16}, 354_823_168),
    "gpt2_large": ({"n_embd": 1280, "n_layer": 36, "n_head": 20}, 774_030_080),
    "gpt2_xl": ({"n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_557_611_200),
}

for _name, (_settings, _parameters) in _VARIANTS.items():
    register(
        GPT2,
        name=_name,
        variant=_settings,
        task="language modelling",
        dims=(1,),
        source=_MINI if _name == "gpt_mini" else _SOURCE,
        shape=lambda settings: Input(
            (settings["n_positions"],), below=settings["vocab_size"]
        ),
        parameters=_parameters,
    )
