"""Llama, Qwen and Gemma: decoders with rotary positions, gated perceptrons, shared heads.

They follow the papers' code; a head's halves hold the pairs that turn, as in Hugging Face's files.
"""

import math
from collections.abc import Mapping
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.inputs import Input
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.layouts import joined_heads, split_heads
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.language_model import Decoder, LanguageModel
from deliralike.zoo.sequences.rotary import angles, frequencies, rotated
from deliralike.zoo.sequences.tokens import (
    decoder_bias,
    decoder_positions,
)
from deliralike.zoo.setting_checks import positive

START = Normal(0.02)
GLOBAL = 6  # each so many layers of Gemma 3 one sees all tokens


class CenteredRMSNorm(Network):
    """Division by the root mean square, and a scale that is stored less one, as in Gemma."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = self.nn.Parameter((width,), ZEROS)

    def forward(self, x):
        return self.nn.rms_norm(x, self.weight.shape, 1.0 + self.weight, self.eps)


class Attention(Network):
    """Attention of each token to itself and those before it, with rotary positions.

    Groups of query heads share a head of keys and values.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_heads: int,
        head_width: int,
        qkv_bias: bool,
        qk_norm: bool,
        eps: float,
        scale: float,
        gemma: bool,
    ) -> None:
        super().__init__()
        nn = self.nn
        norm = CenteredRMSNorm if gemma else nn.RMSNorm
        self.scale = scale
        self.heads, self.key_heads = heads, key_heads
        self.q_proj = nn.Linear(width, heads * head_width, bias=qkv_bias)
        self.k_proj = nn.Linear(width, key_heads * head_width, bias=qkv_bias)
        self.v_proj = nn.Linear(width, key_heads * head_width, bias=qkv_bias)
        self.o_proj = nn.Linear(heads * head_width, width, bias=False)
        self.q_norm = norm(head_width, eps) if qk_norm else nn.Identity()
        self.k_norm = norm(head_width, eps) if qk_norm else nn.Identity()

    def forward(self, x, bias, turns, cache=None):
        nn = self.nn
        query = self.q_norm(split_heads(nn, self.q_proj(x), self.heads))
        key = self.k_norm(split_heads(nn, self.k_proj(x), self.key_heads))
        value = split_heads(nn, self.v_proj(x), self.key_heads)
        query = rotated(nn, query, *turns)
        key = rotated(nn, key, *turns)
        if cache is not None:
            key, value = cache.extend(key, value)
        y = attend_groups(nn, query, key, value, bias, self.scale)
        return self.o_proj(y)


def attend_groups(
    nn: Any, query: Any, key: Any, value: Any, bias: Any, scale: float
) -> Any:
    """Attend with groups of heads of queries that share a head of keys.

    The queries of a group count as further queries, so that no key is copied.

    Args:
        nn: The vocabulary.
        query: ``(batch, heads, queries, width)``.
        key, value: ``(batch, key heads, keys, width)``; their number divides that of the queries.
        bias: Added to the scores; the same for all heads of a group.
        scale: The factor of the scores.

    Returns:
        ``(batch, queries, heads * width)``.
    """
    batch, heads, queries, width = query.shape
    key_heads = key.shape[1]
    group = heads // key_heads
    query = nn.reshape(query, (batch, key_heads, group * queries, width))
    if bias.shape[-2] > 1:
        bias = nn.concatenate([bias] * group, dim=-2)
    y, _ = nn.attention(query, key, value, bias, None, scale, need_weights=False)
    return joined_heads(nn, nn.reshape(y, (batch, heads, queries, width)))


class MLP(Network):
    """A linear map of ``silu(gate(x)) * up(x)``. Source: Shazeer 2020, arXiv 2002.05202.

    Gemma has the approximate GELU in the place of SiLU.
    """

    def __init__(self, width: int, inner: int, gemma: bool) -> None:
        super().__init__()
        self.gemma = gemma
        self.gate_proj = self.nn.Linear(width, inner, bias=False)
        self.up_proj = self.nn.Linear(width, inner, bias=False)
        self.down_proj = self.nn.Linear(inner, width, bias=False)

    def forward(self, x):
        gate = self.gate_proj(x)
        if self.gemma:
            gate = self.nn.gelu(gate, approximate="tanh")
        else:
            gate = self.nn.silu(gate)
        return self.down_proj(gate * self.up_proj(x))


class Layer(Network):
    """Attention and perceptron, each after a normalisation and beside a shortcut.

    Gemma normalises after each of them, too.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self, width: int, inner: int, eps: float, gemma: bool, **attention: Any
    ) -> None:
        super().__init__()
        norm = CenteredRMSNorm if gemma else self.nn.RMSNorm
        self.gemma = gemma
        self.self_attn = Attention(width, eps=eps, gemma=gemma, **attention)
        self.mlp = MLP(width, inner, gemma)
        self.input_layernorm = norm(width, eps)
        self.post_attention_layernorm = norm(width, eps)
        if gemma:
            self.pre_feedforward_layernorm = norm(width, eps)
            self.post_feedforward_layernorm = norm(width, eps)

    def forward(self, x, bias, turns, cache=None):
        y = self.self_attn(self.input_layernorm(x), bias, turns, cache)
        if not self.gemma:
            x = x + y
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + self.post_attention_layernorm(y)
        y = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(y)


class Body(Decoder):
    """The decoder without its head, Hugging Face's ``LlamaModel``.

    It has an embedding, layers and a last normalisation.

    Shapes:
        Tokens and mask ``(batch, tokens)`` give ``(batch, tokens, width)``.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        inner: int,
        layers: int,
        eps: float,
        max_position_embeddings: int,
        turns: tuple[float, ...],
        local_turns: tuple[float, ...],
        window: int | None,
        gemma: bool,
        **attention: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.max_position_embeddings = max_position_embeddings
        self.turns, self.local_turns = turns, local_turns
        self.window = window
        self.factor = math.sqrt(width) if gemma else 1.0  # of the embedding
        self.embed_tokens = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(
            [Layer(width, inner, eps, gemma, **attention) for _ in range(layers)]
        )
        norm = CenteredRMSNorm if gemma else nn.RMSNorm
        self.norm = norm(width, eps)

    def forward_stages(self, input_ids, attention_mask=None, cache=None):
        """See `Llama.forward_stages`; with a `KeyValueCache` the tokens are those that are new."""
        most = self.max_position_embeddings
        positions = decoder_positions(
            self, input_ids, cache, most, "max_position_embeddings"
        )
        x = self.embed_tokens(input_ids)
        if self.factor != 1.0:
            x = x * self.factor
        bias = decoder_bias(self, input_ids, attention_mask, cache, x)
        everywhere = near = (bias, angles(self.nn, positions, self.turns, x))
        if self.window is not None:
            bias = decoder_bias(self, input_ids, attention_mask, cache, x, self.window)
            near = (bias, angles(self.nn, positions, self.local_turns, x))
        stages = {"embedding": x}
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, *(near if number % GLOBAL else everywhere), cache)
            stages[f"layer{number}"] = x
        stages["norm"] = self.norm(x)
        return stages


class Llama(LanguageModel):
    """A language model: it predicts the next token from the tokens so far.

    Source: Touvron et al. 2023, arXiv 2302.13971 (Llama); Grattafiori et al. 2024, arXiv 2407.21783
    (Llama 3); Yang et al. 2024, arXiv 2412.15115 (Qwen2.5); Yang et al. 2025, arXiv 2505.09388
    (Qwen3); Gemma Team 2025, arXiv 2503.19786 (Gemma 3). Names, order, shapes and start values are
    those of Hugging Face's ``LlamaForCausalLM``, ``Qwen2ForCausalLM`` (with `qkv_bias`),
    ``Qwen3ForCausalLM`` (with `qk_norm`) and ``Gemma3ForCausalLM`` (with `gemma` and `qk_norm`).

    Args:
        vocab_size: Number of different tokens.
        hidden_size: Width of the tokens.
        intermediate_size: Width inside the perceptrons.
        num_hidden_layers: Number of layers.
        num_attention_heads: Number of heads of queries.
        num_key_value_heads: Number of heads of keys and values; it divides that of the queries,
            which it is when not given.
        head_dim: Width of a head; ``hidden_size / num_attention_heads`` when not given.
        max_position_embeddings: The longest sequence.
        rms_norm_eps: Epsilon of the normalisations.
        rope_theta: Base of the rotary positions; see `frequencies`.
        rope_scaling: Llama 3's numbers of scaled frequencies, as in Hugging Face's configuration.
        tie_word_embeddings: Whether ``lm_head.weight`` is the embedding's own table.
        qkv_bias: Whether the maps to queries, keys and values have biases.
        qk_norm: Whether each head of queries and keys is normalised.
        gemma: Whether the layers are Gemma's: both parts between two normalisations, a gate of the
            approximate GELU, and embeddings times the square root of their width.
        query_pre_attn_scalar: The scores are divided by its square root; `head_dim` when not given.
        sliding_window: Number of tokens that a token sees at most, itself among them, in all but
            each sixth layer; all that came before when not given.
        rope_local_base_freq: Base of the rotary positions in layers with a window.

    Shapes:
        ``input_ids`` ``(batch, tokens)``, and if given ``attention_mask`` (one for tokens, zero for
        padding) of the same shape, give logits ``(batch, tokens, vocab_size)``. Padding at the end
        changes nothing; for texts of several lengths see `deliralike.zoo.generate`.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The sequence is longer than `max_position_embeddings`, or an input has another
            shape.
        IndexRangeError: A token is not below `vocab_size`.
    """

    body = "model"
    keymaps = (KeyMap("LlamaModel", by_patterns({r"model\.(.*)": r"\1"})),)
    ignored_names = r"\.inv_freq$"  # frequencies in older files
    start_values = {
        "*.embed_tokens.weight": START,
        "*_proj.weight": START,
        "lm_head.weight": START,
    }

    def __init__(
        self,
        vocab_size: int = 32000,
        hidden_size: int = 4096,
        intermediate_size: int = 11008,
        num_hidden_layers: int = 32,
        num_attention_heads: int = 32,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        max_position_embeddings: int = 4096,
        rms_norm_eps: float = 1e-5,
        rope_theta: float = 10000.0,
        rope_scaling: Mapping[str, Any] | None = None,
        tie_word_embeddings: bool = False,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        gemma: bool = False,
        query_pre_attn_scalar: int | None = None,
        sliding_window: int | None = None,
        rope_local_base_freq: float = 10000.0,
    ) -> None:
        super().__init__()
        key_heads = num_key_value_heads
        if key_heads is None:
            key_heads = num_attention_heads
        positive(
            "Llama",
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=num_attention_heads,
            num_key_value_heads=key_heads,
            max_position_embeddings=max_position_embeddings,
        )
        checks.divides(
            num_attention_heads,
            key_heads,
            "Llama: num_attention_heads",
            "num_key_value_heads",
        )
        if head_dim is None:
            checks.divides(
                hidden_size,
                num_attention_heads,
                "Llama: hidden_size",
                "num_attention_heads",
            )
            head_dim = hidden_size // num_attention_heads
        if sliding_window is not None:
            checks.positive(sliding_window, "sliding_window", "Llama")
        scalar = head_dim if query_pre_attn_scalar is None else query_pre_attn_scalar
        positive("Llama", head_dim=head_dim, query_pre_attn_scalar=scalar)
        self.vocab_size = vocab_size
        self.max_tokens = max_position_embeddings
        self.model = Body(
            vocab_size,
            hidden_size,
            intermediate_size,
            num_hidden_layers,
            rms_norm_eps,
            max_position_embeddings,
            frequencies(head_dim, rope_theta, rope_scaling),
            frequencies(head_dim, rope_local_base_freq),
            sliding_window,
            gemma,
            heads=num_attention_heads,
            key_heads=key_heads,
            head_width=head_dim,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            scale=scalar**-0.5,
        )
        self.lm_head = self.nn.Linear(hidden_size, vocab_size, bias=False)
        if tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight


_LLAMA2 = "Touvron et al. 2023, arXiv 2307.09288; Hugging Face LlamaForCausalLM"
_LLAMA3 = "Grattafiori et al. 2024, arXiv 2407.21783; Hugging Face LlamaForCausalLM"
_TINY = "Zhang et al. 2024, arXiv 2401.02385; Hugging Face LlamaForCausalLM"
_SMOL = "Ben Allal et al. 2025, arXiv 2502.02737; Hugging Face LlamaForCausalLM"
_QWEN2 = "Yang et al. 2024, arXiv 2412.15115; Hugging Face Qwen2ForCausalLM"
_GEMMA = "Gemma Team 2025, arXiv 2503.19786; Hugging Face Gemma3ForCausalLM"
_QWEN3 = "Yang et al. 2025, arXiv 2505.09388; Hugging Face Qwen3ForCausalLM"

_LLAMA3_SETTINGS = {
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
_QWEN2_SETTINGS = {
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "qkv_bias": True,
}
_QWEN3_SETTINGS = {
    "vocab_size": 151936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "qk_norm": True,
}
_GEMMA_SETTINGS = {
    "vocab_size": 262144,
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "qk_norm": True,
    "gemma": True,
    "sliding_window": 512,
}


def _sizes(
    width: int, inner: int, layers: int, heads: int, key_heads: int
) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
    }


def _llama3_scaling(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


_TIED = {"tie_word_embeddings": True}
_SMOL_SETTINGS = {
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
}

# name: (source, settings, parameters)
_VARIANTS = {
    "llama_2_7b": (_LLAMA2, {}, 6_738_415_616),
    "llama_3_1_8b": (
        _LLAMA3,
        _LLAMA3_SETTINGS
        | _sizes(4096, 14336, 32, 32, 8)
        | {"rope_scaling": _llama3_scaling(8.0)},
        8_030_261_248,
    ),
    "llama_3_2_1b": (
        _LLAMA3,
        _LLAMA3_SETTINGS
        | _sizes(2048, 8192, 16, 32, 8)
        | {"rope_scaling": _llama3_scaling(32.0)}
        | _TIED,
        1_235_814_400,
    ),
    "llama_3_2_3b": (
        _LLAMA3,
        _LLAMA3_SETTINGS
        | _sizes(3072, 8192, 28, 24, 8)
        | {"rope_scaling": _llama3_scaling(32.0)}
        | _TIED,
        3_212_749_824,
    ),
    "tinyllama_1_1b": (
        _TINY,
        _sizes(2048, 5632, 22, 32, 4) | {"max_position_embeddings": 2048},
        1_100_048_384,
    ),
    "smollm2_135m": (
        _SMOL,
        _SMOL_SETTINGS | _sizes(576, 1536, 30, 9, 3) | _TIED,
        134_515_008,
    ),
    "smollm2_360m": (
        _SMOL,
        _SMOL_SETTINGS | _sizes(960, 2560, 32, 15, 5) | _TIED,
        361_821_120,
    ),
    "qwen2_5_0_5b": (
        _QWEN2,
        _QWEN2_SETTINGS | _sizes(896, 4864, 24, 14, 2) | _TIED,
        494_032_768,
    ),
    "qwen2_5_1_5b": (
        _QWEN2,
        _QWEN2_SETTINGS
        | _sizes(1536, 8960, 28, 12, 2)
        | _TIED
        | {"max_position_embeddings": 131072},
        1_543_714_304,
    ),
    "qwen2_5_7b": (
        _QWEN2,
        _QWEN2_SETTINGS
        | _sizes(3584, 18944, 28, 28, 4)
        | {"vocab_size": 152064, "max_position_embeddings": 131072},
        7_615_616_512,
    ),
    "qwen3_0_6b": (
        _QWEN3,
        _QWEN3_SETTINGS | _sizes(1024, 3072, 28, 16, 8) | _TIED,
        596_049_920,
    ),
    "qwen3_1_7b": (
        _QWEN3,
        _QWEN3_SETTINGS | _sizes(2048, 6144, 28, 16, 8) | _TIED,
        1_720_574_976,
    ),
    "qwen3_4b": (
        _QWEN3,
        _QWEN3_SETTINGS | _sizes(2560, 9728, 36, 32, 8) | _TIED,
        4_022_468_096,
    ),
    "qwen3_8b": (
        _QWEN3,
        _QWEN3_SETTINGS | _sizes(4096, 12288, 36, 32, 8),
        8_190_735_360,
    ),
    "gemma_3_270m": (
        _GEMMA,
        _GEMMA_SETTINGS | _sizes(640, 2048, 18, 4, 1),
        268_098_176,
    ),
    "gemma_3_1b": (
        _GEMMA,
        _GEMMA_SETTINGS | _sizes(1152, 6912, 26, 4, 1),
        999_885_952,
    ),
}


def _sample(settings: Mapping[str, Any]) -> Input:
    """Return a text of at most 2048 tokens, the longest that all variants take."""
    return Input(
        (min(settings["max_position_embeddings"], 2048),), below=settings["vocab_size"]
    )


for _name, (_source, _settings, _parameters) in _VARIANTS.items():
    register(
        Llama,
        name=_name,
        variant=_settings,
        task="language modelling",
        dims=(1,),
        source=_source,
        shape=_sample,
        parameters=_parameters,
    )
