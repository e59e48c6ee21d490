"""Whisper: an encoder of spectrograms and a decoder of text, with Hugging Face's names.

It follows the paper. The spectrograms come from elsewhere, for example from the feature extractor
of transformers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.errors import ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ONES, ZEROS, Normal
from deliralike.zoo.blocks import each_output
from deliralike.zoo.inputs import Input
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register_each
from deliralike.zoo.sequences.language_model import named_outputs
from deliralike.zoo.sequences.tokens import (
    Attention,
    decoder_bias,
    decoder_positions,
)
from deliralike.zoo.setting_checks import positive

STRIDE = 2  # of the second convolution: frames of a spectrogram for each position


class Layer(Network):
    """Attention to itself, in a decoder to the encoder as well, and a perceptron.

    Each comes after a normalisation and beside a shortcut.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        heads: int,
        dropout: float,
        is_decoder: bool,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.self_attn = Attention(width, heads, key_bias=False)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        if is_decoder:
            self.encoder_attn = Attention(width, heads, key_bias=False)
            self.encoder_attn_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)
        self.final_layer_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, bias=None, memory_keys=None, cache=None):
        normed = self.self_attn_layer_norm(x)
        keys = self.self_attn.keys(normed)
        if cache is not None:
            keys = cache.extend(*keys)
        x = x + self.dropout(self.self_attn(normed, keys, bias))
        if memory_keys is not None:
            normed = self.encoder_attn_layer_norm(x)
            x = x + self.dropout(self.encoder_attn(normed, memory_keys))
        inner = self.nn.gelu(self.fc1(self.final_layer_norm(x)))
        return x + self.dropout(self.fc2(inner))


class Sines(Network):
    """A table of sines and cosines of the positions, which is not trained."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = self.nn.Buffer(sines_then_cosines(count, width))

    def forward(self, x):
        return x + self.weight


def sines_then_cosines(count: int, width: int) -> np.ndarray:
    """Return the sines of each position at several wavelengths, and the cosines after them.

    The wavelengths go from ``2 pi`` to ``10000 * 2 pi``, both included.

    Example:
        >>> sines_then_cosines(2, 4).round(4).tolist()
        [[0.0, 0.0, 1.0, 1.0], [0.8415, 0.0001, 0.5403, 1.0]]
    """
    frequencies = np.logspace(0, -4, width // 2)
    angles = np.arange(count)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


class Encoder(Network):
    """Two convolutions, positions, layers and a last normalisation.

    Shapes:
        Spectrograms ``(batch, mel_bins, 2 * positions)`` give a list of
        ``(batch, positions, width)``: the embeddings, each layer, and the normalisation.
    """

    def __init__(
        self, mel_bins: int, positions: int, width: int, layers: int, **layer: Any
    ) -> None:
        super().__init__()
        nn = self.nn
        self.conv1 = nn.Conv1d(mel_bins, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=STRIDE, padding=1)
        self.embed_positions = Sines(positions, width)
        self.layers = nn.ModuleList(
            [Layer(width, is_decoder=False, **layer) for _ in range(layers)]
        )
        self.layer_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(layer["dropout"])
        self.frames = STRIDE * positions

    def forward(self, x):
        nn = self.nn
        x = nn.gelu(self.conv1(x))
        self._check_length(x)
        x = nn.permute(nn.gelu(self.conv2(x)), (0, 2, 1))
        x = self.dropout(self.embed_positions(x))
        outputs = each_output(x, self.layers)
        return [x, *outputs, self.layer_norm(outputs[-1])]

    def _check_length(self, x):
        if x.shape[2] != self.frames:
            raise ShapeError(
                f"{checks.where(self)}: got spectrograms of {x.shape[2]} frames, wanted "
                f"{self.frames}: pad them with silence, or cut them"
            )


class Decoder(Network):
    """Embeddings of tokens and positions, layers and a last normalisation.

    Shapes:
        Tokens ``(batch, tokens)`` give a list of ``(batch, tokens, width)``: the embeddings, each
        layer, and the normalisation.
    """

    def __init__(
        self, vocab_size: int, positions: int, width: int, layers: int, **layer: Any
    ) -> None:
        super().__init__()
        nn = self.nn
        self.positions = positions
        self.embed_tokens = nn.Embedding(vocab_size, width)
        self.embed_positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(
            [Layer(width, is_decoder=True, **layer) for _ in range(layers)]
        )
        self.layer_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(layer["dropout"])

    def memory_keys(self, encoded):
        """Return each layer's keys and values of the encoder's outputs."""
        return [layer.encoder_attn.keys(encoded) for layer in self.layers]

    def forward(self, tokens, memory, cache=None):
        positions = decoder_positions(
            self, tokens, cache, self.positions, "max_target_positions"
        )
        x = self.embed_tokens(tokens) + self.embed_positions(positions)
        x = self.dropout(x)
        bias = decoder_bias(self, tokens, None, cache, x)
        outputs = [x]
        for layer, memory_keys in zip(self.layers, memory, strict=True):
            x = layer(x, bias, memory_keys, cache)
            outputs.append(x)
        return [*outputs, self.layer_norm(x)]


class Whisper(Model):
    """An encoder reads the spectrogram of speech, and a decoder writes the text, token by token.

    Source: Radford et al. 2022, arXiv 2212.04356. Names, order, shapes and start values are those
    of Hugging Face's ``WhisperForConditionalGeneration``; ``proj_out.weight`` is the table of the
    tokens. The encoder's table of sines is saved and not trained, so it is no parameter. No token
    is padding: its row of the table is trained as any other.

    Args:
        vocab_size: Number of different tokens.
        num_mel_bins: Number of channels of a spectrogram.
        d_model: Width of the tokens; even, and a multiple of `num_attention_heads`.
        encoder_layers: Number of layers of the encoder.
        decoder_layers: Number of layers of the decoder.
        num_attention_heads: Number of heads in each layer.
        ffn_dim: Width inside the perceptrons.
        max_source_positions: Number of the encoder's tokens; a spectrogram has twice as many
            frames.
        max_target_positions: The longest text.
        dropout: Probability of dropping an element of the embeddings and of what a layer adds.

    Shapes:
        ``input_features``, log-mel spectrograms ``(batch, num_mel_bins, 2 *
        max_source_positions)``, and ``decoder_input_ids`` ``(batch, tokens)`` give logits
        ``(batch, tokens, vocab_size)``. Padding at the end of a text changes nothing before it.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A spectrogram has another length, a text is longer than `max_target_positions`,
            or an input has another shape.
        IndexRangeError: A token is not below `vocab_size`.
    """

    stem_paths = ("model.encoder.conv1",)
    head_paths = ("proj_out",)
    outputs = "vocab_size"
    channels_last = True
    keymaps = (KeyMap("WhisperModel", by_patterns({r"model\.(.*)": r"\1"})),)
    start_values = {
        "*.weight": Normal(0.02),
        "*.bias": ZEROS,
        "*layer_norm.weight": ONES,
    }

    def __init__(
        self,
        vocab_size: int = 51865,
        num_mel_bins: int = 80,
        d_model: int = 384,
        encoder_layers: int = 4,
        decoder_layers: int = 4,
        num_attention_heads: int = 6,
        ffn_dim: int = 1536,
        max_source_positions: int = 1500,
        max_target_positions: int = 448,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        positive(
            "Whisper",
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
            num_attention_heads=num_attention_heads,
            max_source_positions=max_source_positions,
        )
        checks.divides(
            d_model, num_attention_heads, "Whisper: d_model", "num_attention_heads"
        )
        checks.divides(d_model, 2, "Whisper: d_model", "2 (sines and cosines)")
        layer: dict[str, Any] = {
            "inner": ffn_dim,
            "heads": num_attention_heads,
            "dropout": dropout,
        }
        self.vocab_size = vocab_size
        self.max_tokens = max_target_positions
        encoder = Encoder(
            num_mel_bins, max_source_positions, d_model, encoder_layers, **layer
        )
        decoder = Decoder(
            vocab_size, max_target_positions, d_model, decoder_layers, **layer
        )
        self.model = self.nn.ModuleDict({"encoder": encoder, "decoder": decoder})
        self.proj_out = self.nn.Linear(d_model, vocab_size, bias=False)
        self.proj_out.weight = decoder.embed_tokens.weight

    def forward(self, input_features, decoder_input_ids):
        stages = self.forward_stages(input_features, decoder_input_ids)
        return self.proj_out(stages["decoder_norm"])

    def forward_stages(self, input_features, decoder_input_ids):
        """Return the embeddings, each layer and the last normalisation of encoder and decoder.

        All are ``(batch, tokens, d_model)``.
        """
        decoder = self.model["decoder"]
        encoded = self.model["encoder"](input_features)
        decoded = decoder(decoder_input_ids, decoder.memory_keys(encoded[-1]))
        return named_outputs("encoder", encoded) | named_outputs("decoder", decoded)

    def encode_features(self, input_features):
        """Return what `next_logits` needs of the encoder's outputs."""
        encoded = self.model["encoder"](input_features)
        return self.model["decoder"].memory_keys(encoded[-1])

    def next_logits(self, tokens, cache, *memory):
        """Return the logits after the last of new tokens; see `deliralike.zoo.generate`."""
        return self.proj_out(self.model["decoder"](tokens, memory, cache)[-1][:, -1])


def _variant(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "d_model": width,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "num_attention_heads": heads,
        "ffn_dim": 4 * width,
    }


_LARGE = _variant(1280, 32, 20) | {"vocab_size": 51866, "num_mel_bins": 128}

# name: (settings, parameters)
_VARIANTS = {
    "whisper_tiny": ({}, 37_184_640),
    "whisper_base": (_variant(512, 6, 8), 71_825_920),
    "whisper_small": (_variant(768, 12, 12), 240_582_912),
    "whisper_medium": (_variant(1024, 24, 16), 762_321_920),
    "whisper_large_v3": (_LARGE, 1_541_570_560),
    "whisper_large_v3_turbo": (_LARGE | {"decoder_layers": 4}, 806_958_080),
}


def _sample(settings: Mapping[str, Any]) -> list[Any]:
    frames = STRIDE * settings["max_source_positions"]
    text = Input((settings["max_target_positions"],), below=settings["vocab_size"])
    return [(settings["num_mel_bins"], frames), text]


register_each(
    Whisper,
    _VARIANTS,
    task="speech recognition",
    dims=(1,),
    source="Radford et al. 2022, arXiv 2212.04356; Hugging Face "
    "WhisperForConditionalGeneration",
    shape=_sample,
)
