"""CLIP: a transformer over pictures and one over text that meet in one space of features.

Names are Hugging Face's; it follows the paper's code.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.errors import ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Constant, Normal
from deliralike.zoo.blocks import each_output, has_side, images_of_size
from deliralike.zoo.inputs import Input
from deliralike.zoo.layouts import as_tokens
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register_each
from deliralike.zoo.sequences.tokens import (
    Attention,
    causal_bias,
    check_mask,
    check_tokens,
    padding_bias,
    position_numbers,
)
from deliralike.zoo.setting_checks import one_of, positive
from deliralike.zoo.tables import EDGES, RESAMPLED, resampled_rows

ACTIVATIONS = ("quick_gelu", "gelu")


class CLIP(Model):
    """Two transformers whose features are alike where a text describes a picture.

    Source: Radford et al. 2021, arXiv 2103.00020. Names, order, shapes and start values are those
    of Hugging Face's ``CLIPModel``.

    Args:
        projection_dim: Width of the features.
        vocab_size: Number of different tokens.
        max_position_embeddings: The longest text.
        text_hidden_size, text_num_hidden_layers, text_num_attention_heads, text_intermediate_size:
            Width, layers, heads, and width inside the perceptrons of the transformer over text.
        image_size: Side of the (square) pictures. A position table for another size is resampled
            when it is loaded.
        patch_size: Side of a patch; divides `image_size`.
        in_channels: Channels of the pictures.
        vision_hidden_size, vision_num_hidden_layers: Width and layers of the transformer over
            pictures.
        vision_num_attention_heads, vision_intermediate_size: Its heads, and the width inside its
            perceptrons.
        hidden_act: ``"quick_gelu"`` (``x * sigmoid(1.702 * x)``, OpenAI's) or ``"gelu"`` (exact).
        eos_token_id: The token that ends a text, where its features are read (at its first place).
            With 2, as in Hugging Face's first files, they are read at the largest token.

    Shapes:
        ``input_ids`` ``(texts, tokens)``, ``pixel_values`` ``(images, in_channels, image_size,
        image_size)`` and if given ``attention_mask`` (one for tokens, zero for padding) of the
        shape of the tokens give a dict: ``logits_per_image`` ``(images, texts)``,
        ``logits_per_text`` ``(texts, images)``, and the features of length 1, ``text_embeds``
        ``(texts, projection_dim)`` and ``image_embeds`` ``(images, projection_dim)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A text is too long, or pictures have another size or (the error names
            ``vision_model.embeddings.patch_embedding``) number of channels.
        IndexRangeError: A token is not below `vocab_size`.
    """

    stem_paths = ("vision_model.embeddings.patch_embedding",)
    channels_last = True
    ignored_names = r"\.position_ids$"  # tables of numbers in older files

    def __init__(
        self,
        projection_dim: int = 512,
        vocab_size: int = 49408,
        max_position_embeddings: int = 77,
        text_hidden_size: int = 512,
        text_num_hidden_layers: int = 12,
        text_num_attention_heads: int = 8,
        text_intermediate_size: int = 2048,
        image_size: int = 224,
        patch_size: int = 32,
        in_channels: int = 3,
        vision_hidden_size: int = 768,
        vision_num_hidden_layers: int = 12,
        vision_num_attention_heads: int = 12,
        vision_intermediate_size: int = 3072,
        hidden_act: str = "quick_gelu",
        eos_token_id: int = 49407,
    ) -> None:
        super().__init__()
        nn = self.nn
        one_of(hidden_act, ACTIVATIONS, "hidden_act", "CLIP")
        checks.divides(image_size, patch_size, "CLIP: image_size", "patch_size")
        text_sizes = {
            "text_hidden_size": text_hidden_size,
            "text_num_hidden_layers": text_num_hidden_layers,
            "text_num_attention_heads": text_num_attention_heads,
            "text_intermediate_size": text_intermediate_size,
        }
        vision_sizes = {
            "vision_hidden_size": vision_hidden_size,
            "vision_num_hidden_layers": vision_num_hidden_layers,
            "vision_num_attention_heads": vision_num_attention_heads,
            "vision_intermediate_size": vision_intermediate_size,
        }
        self.widths = {"text": text_hidden_size, "visual": vision_hidden_size}
        self.logit_scale = nn.Parameter((), Constant(2.6592))
        text = _encoder(text_sizes, hidden_act)
        self.text_model = TextModel(
            vocab_size, max_position_embeddings, text, eos_token_id
        )
        vision = _encoder(vision_sizes, hidden_act)
        self.vision_model = VisionModel(image_size, patch_size, in_channels, vision)
        self.visual_projection = nn.Linear(
            vision_hidden_size, projection_dim, bias=False
        )
        self.text_projection = nn.Linear(text_hidden_size, projection_dim, bias=False)

    @property
    def start_values(self):  # type: ignore[override]
        """Hugging Face's start values of the projections."""
        values = {}
        for tower, width in self.widths.items():
            values[f"{tower}_projection.weight"] = Normal(width**-0.5)
        return values

    def forward(self, input_ids, pixel_values, attention_mask=None):
        nn = self.nn
        image = nn.normalize(self.get_image_features(pixel_values), dim=-1)
        text = nn.normalize(self.get_text_features(input_ids, attention_mask), dim=-1)
        similarity = nn.matmul(text, nn.permute(image, (1, 0)))  # (texts, images)
        logits = similarity * nn.exp(self.logit_scale)
        return {
            "logits_per_image": nn.permute(logits, (1, 0)),
            "logits_per_text": logits,
            "text_embeds": text,
            "image_embeds": image,
        }

    def forward_stages(self, input_ids, pixel_values, attention_mask=None):
        """Return the embeddings and each layer, all ``(batch, tokens, width)``.

        Those of the pictures come first.
        """
        stages = {}
        for number, x in enumerate(self.vision_model.layers(pixel_values)):
            stages[f"vision_{number}"] = x
        for number, x in enumerate(self.text_model.layers(input_ids, attention_mask)):
            stages[f"text_{number}"] = x
        return stages

    def get_image_features(self, pixel_values):
        """Return the features of pictures, ``(images, projection_dim)``, of any length."""
        return self.visual_projection(self.vision_model(pixel_values))

    def get_text_features(self, input_ids, attention_mask=None):
        """Return the features of texts, ``(texts, projection_dim)``, of any length."""
        return self.text_projection(self.text_model(input_ids, attention_mask))

    def contrastive_loss(self, logits):
        """Return how far texts and pictures of the same number are from finding each other.

        It is the mean of the cross-entropies over rows and over columns of either logits
        ``(batch, batch)``.

        Raises:
            ShapeError: There are not as many texts as pictures.
        """
        nn = self.nn
        rows, columns = logits.shape
        if rows != columns:
            raise ShapeError(
                f"{checks.where(self)}: got logits of shape {(rows, columns)}, wanted as many "
                "texts as pictures, the n-th text for the n-th picture"
            )
        labels = nn.arange(rows, like=logits)
        across = nn.cross_entropy(logits, labels)
        down = nn.cross_entropy(nn.permute(logits, (1, 0)), labels)
        return (across + down) / 2.0

    def adapt_weight(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Resample the positions of another image size."""
        is_table = name == "vision_model.embeddings.position_embedding.weight"
        if not is_table or value.shape[1:] != shape[1:]:
            return None
        return resampled_rows(value, shape[0], EDGES, first=1)  # as in Hugging Face


def _encoder(sizes: Mapping[str, int], hidden_act: str) -> Any:
    """Make one transformer.

    Args:
        sizes: Width, layers, heads and inner width, in this order, by the names of the settings.

    Raises:
        SettingError: A size is no positive whole number, or the heads do not divide the width.
    """
    positive("CLIP", **sizes)
    names = list(sizes)
    width, layers, heads, inner = sizes.values()
    checks.divides(width, heads, f"CLIP: {names[0]}", names[2])
    return Encoder(width, layers, heads, inner, hidden_act)


class TextModel(Network):
    """A transformer in which tokens see those before them.

    Shapes:
        ``(texts, tokens)`` gives the last token's state, ``(texts, width)``.
    """

    def __init__(
        self,
        vocab_size: int,
        positions: int,
        encoder: Any,
        eos_token_id: int,
    ) -> None:
        super().__init__()
        self.positions = positions
        self.eos_token_id = eos_token_id
        self.embeddings = TextEmbeddings(vocab_size, positions, encoder.width)
        self.encoder = encoder
        self.final_layer_norm = self.nn.LayerNorm(encoder.width)

    def forward(self, input_ids, attention_mask=None):
        nn = self.nn
        last = self.final_layer_norm(self.layers(input_ids, attention_mask)[-1])
        index = nn.reshape(self._ends(input_ids), (-1, 1, 1))
        index = nn.broadcast_to(index, (last.shape[0], 1, last.shape[2]))
        return nn.gather(last, 1, index)[:, 0]

    def layers(self, input_ids, attention_mask=None):
        """Return the embeddings and each layer."""
        check_tokens(self, input_ids, self.positions, "max_position_embeddings")
        x = self.embeddings(input_ids)
        bias = causal_bias(self.nn, input_ids, x)  # (tokens, tokens)
        if attention_mask is not None:
            check_mask(self, attention_mask, input_ids, "attention_mask")
            # (texts, 1, tokens, tokens)
            bias = bias + padding_bias(self.nn, attention_mask, x)
        return self.encoder(x, bias)

    def _ends(self, input_ids):
        """Return the place of the token that ends each text; see ``eos_token_id`` of `CLIP`."""
        nn = self.nn
        if self.eos_token_id == 2:
            return nn.argmax(input_ids, dim=1)
        like = self.final_layer_norm.weight
        return nn.argmax(nn.cast(input_ids == self.eos_token_id, like), dim=1)


class TextEmbeddings(Network):
    """The sum of a token's and its position's embedding."""

    start_values = {"*.weight": Normal(0.02)}

    def __init__(self, vocab_size: int, positions: int, width: int) -> None:
        super().__init__()
        self.token_embedding = self.nn.Embedding(vocab_size, width)
        self.position_embedding = self.nn.Embedding(positions, width)

    def forward(self, input_ids):
        positions = self.position_embedding(position_numbers(self.nn, input_ids))
        return self.token_embedding(input_ids) + positions


class VisionModel(Network):
    """A transformer over the patches of a picture, with a class token.

    Shapes:
        ``(images, in_channels, side, side)`` gives the class token's state, ``(images, width)``.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        in_channels: int,
        encoder: Any,
    ) -> None:
        super().__init__()
        width = encoder.width
        self.embeddings = VisionEmbeddings(image_size, patch_size, in_channels, width)
        self.pre_layrnorm = self.nn.LayerNorm(width)  # the reference's spelling
        self.encoder = encoder
        self.post_layernorm = self.nn.LayerNorm(width)

    def forward(self, pixel_values):
        return self.post_layernorm(self.layers(pixel_values)[-1][:, 0])

    def layers(self, pixel_values):
        """Return the normalised embeddings and each layer."""
        return self.encoder(self.pre_layrnorm(self.embeddings(pixel_values)), None)


class VisionEmbeddings(Network):
    """The class token and the patches, with their positions."""

    start_values = {"*_embedding.weight": Normal(0.02)}

    def __init__(
        self, image_size: int, patch_size: int, in_channels: int, width: int
    ) -> None:
        super().__init__()
        nn = self.nn
        self.image_size = image_size
        self.class_embedding = nn.Parameter((width,), Normal(width**-0.5))
        self.patch_embedding = nn.Conv2d(
            in_channels, width, patch_size, patch_size, bias=False
        )
        self.position_embedding = nn.Embedding(
            (image_size // patch_size) ** 2 + 1, width
        )

    def forward(self, pixel_values):
        nn = self.nn
        has_side(self, pixel_values, self.image_size, RESAMPLED)
        patches = as_tokens(nn, self.patch_embedding(pixel_values))
        batch, _, width = patches.shape
        class_token = nn.broadcast_to(self.class_embedding, (batch, 1, width))
        return nn.cat([class_token, patches], dim=1) + self.position_embedding.weight


class Encoder(Network):
    """Layers one after the other; their input and the outputs of all are returned."""

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        inner: int,
        hidden_act: str,
    ) -> None:
        super().__init__()
        self.width = width
        settings = (width, heads, inner, hidden_act)
        self.layers = self.nn.ModuleList([Layer(*settings) for _ in range(layers)])

    @property
    def start_values(self):  # type: ignore[override]
        """Hugging Face's start values, narrower in what many layers add up."""
        width = self.width
        narrow = Normal((2 * width * len(self.layers)) ** -0.5)
        return {
            "*_proj.weight": narrow,
            "*.out_proj.weight": Normal(width**-0.5),
            "*.fc1.weight": Normal((2 * width) ** -0.5),
            "*.fc2.weight": narrow,
            "*.bias": ZEROS,
        }

    def forward(self, x, bias):
        return [x, *each_output(x, self.layers, bias)]


class Layer(Network):
    """Attention and perceptron, each after a normalisation and beside a shortcut.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        hidden_act: str,
    ) -> None:
        super().__init__()
        self.self_attn = Attention(width, heads)
        self.layer_norm1 = self.nn.LayerNorm(width)
        self.mlp = MLP(width, inner, hidden_act)
        self.layer_norm2 = self.nn.LayerNorm(width)

    def forward(self, x, bias):
        normed = self.layer_norm1(x)
        x = x + self.self_attn(normed, self.self_attn.keys(normed), bias)
        return x + self.mlp(self.layer_norm2(x))


class MLP(Network):
    """Two linear maps with an activation between them."""

    def __init__(self, width: int, inner: int, hidden_act: str) -> None:
        super().__init__()
        self.quick = hidden_act == "quick_gelu"
        self.fc1 = self.nn.Linear(width, inner)
        self.fc2 = self.nn.Linear(inner, width)

    def forward(self, x):
        nn = self.nn
        x = self.fc1(x)
        x = x * nn.sigmoid(1.702 * x) if self.quick else nn.gelu(x)
        return self.fc2(x)


_LARGE = {
    "projection_dim": 768,
    "text_hidden_size": 768,
    "text_num_attention_heads": 12,
    "text_intermediate_size": 3072,
    "patch_size": 14,
    "vision_hidden_size": 1024,
    "vision_num_hidden_layers": 24,
    "vision_num_attention_heads": 16,
    "vision_intermediate_size": 4096,
}

# name: (settings, parameters)
_VARIANTS = {
    "clip_vit_b_32": ({}, 151_277_313),
    "clip_vit_b_16": ({"patch_size": 16}, 149_620_737),
    "clip_vit_l_14": (_LARGE, 427_616_513),
}


def _inputs(settings: Mapping[str, Any]) -> list[Any]:
    text = Input((settings["max_position_embeddings"],), below=settings["vocab_size"])
    return [text, images_of_size(settings)]


register_each(
    CLIP,
    _VARIANTS,
    task="feature extraction",
    source="Radford et al. 2021, arXiv 2103.00020; Hugging Face CLIPModel",
    shape=_inputs,
)
