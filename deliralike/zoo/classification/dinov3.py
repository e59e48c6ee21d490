"""DINOv3's vision transformer, as timm builds it.

Positions are rotary, so it takes images of any size. Unlike in the paper, features are the mean of
the patches if they are not asked for at the class token.
"""

import math

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Constant, Normal
from deliralike.zoo.blocks import Mlp, classifier, images
from deliralike.zoo.classification.vit import after
from deliralike.zoo.layouts import as_grid, as_tokens, attend_heads, unpacked_heads
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.sequences.rotary import frequencies, rotated
from deliralike.zoo.setting_checks import one_of, positive
from deliralike.zoo.vit_layouts import TRANSFORMERS_DINOV3

_EPS = 1e-5
_REGISTERS = 4  # tokens that nothing reads from
_LAYER_SCALE = 1e-5  # where the scales of both parts of each block start
_PREFIXES = 1 + _REGISTERS  # tokens before those of patches
_BASE = 100.0  # of the rotary positions


class DINOv3(Model):
    """A vision transformer whose patches have rotary positions, with a class token and registers.

    Source: Siméoni et al. 2025, arXiv 2508.10104. Names, order and shapes are those of timm's
    ``Eva``, start values those of Hugging Face's ``DINOv3ViTModel``, whose names the key map
    ``"transformers"`` has. The published networks have no head. Unlike in the paper's training,
    positions do not move at random.

    Args:
        patch_size: Side of a patch.
        num_layers: Number of blocks.
        num_heads: Number of heads, whose width is a multiple of 4.
        hidden_dim: Width of the tokens.
        num_classes: Number of outputs; 0 for no head: the features.
        in_channels: Number of input channels.
        qkv_bias: Whether queries and values have biases, as in Hugging Face's; timm leaves them
            out, since they are zero in the published files.
        global_pool: ``"avg"`` for features that are the mean of the patches, timm's; ``"token"``
            for the class token, Hugging Face's.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``. What is left of a size
        beyond the last whole patch is not read.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of channels; the error names ``patch_embed.proj``.
    """

    stem_paths = ("patch_embed.proj",)
    head_paths = ("head",)
    keymaps = (TRANSFORMERS_DINOV3,)
    start_values = {
        "*_token": Normal(0.02),
        "*.proj.weight": Normal(0.02),
        "*.qkv.weight": Normal(0.02),
        "*.bias": ZEROS,
    }

    def __init__(
        self,
        patch_size: int = 16,
        num_layers: int = 12,
        num_heads: int = 12,
        hidden_dim: int = 768,
        num_classes: int = 0,
        in_channels: int = 3,
        qkv_bias: bool = False,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        nn = self.nn
        positive("DINOv3", num_layers=num_layers, num_heads=num_heads)
        checks.divides(hidden_dim, 4 * num_heads, "DINOv3: hidden_dim", "4 * num_heads")
        one_of(global_pool, ("avg", "token"), "global_pool", "DINOv3")
        self.global_pool = global_pool
        # each of both coordinates turns half of the pairs
        self.turns = frequencies(hidden_dim // num_heads // 2, _BASE)
        self.cls_token = nn.Parameter((1, 1, hidden_dim), ZEROS)
        self.reg_token = nn.Parameter((1, _REGISTERS, hidden_dim), ZEROS)
        proj = nn.Conv2d(in_channels, hidden_dim, patch_size, patch_size)
        self.patch_embed = nn.ModuleDict({"proj": proj})
        blocks = [Block(hidden_dim, num_heads, qkv_bias) for _ in range(num_layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(hidden_dim, eps=_EPS)
        self.head = classifier(nn, hidden_dim, num_classes, "DINOv3")

    def forward(self, x):
        features = self.last_stage(x)
        return self.head(features)

    def forward_stages(self, x):
        """Return the patches, each block, and the features ``(batch, hidden_dim)``.

        Patches and blocks are ``(batch, hidden_dim, *size / patch_size)``, not normalised.
        """
        nn = self.nn
        stages = {"patches": self.patch_embed["proj"](x)}
        size = stages["patches"].shape[2:]
        tokens = as_tokens(nn, stages["patches"])
        tokens = after(nn, [self.cls_token, self.reg_token], tokens)
        cosines, sines = self._angles(size, tokens)
        for i, block in enumerate(self.blocks):
            tokens = block(tokens, cosines, sines)
            stages[f"blocks.{i}"] = as_grid(nn, tokens[:, _PREFIXES:], size)
        tokens = self.norm(tokens)
        if self.global_pool == "token":
            return stages | {"features": tokens[:, 0]}
        return stages | {"features": nn.mean(tokens[:, _PREFIXES:], dim=1)}

    def _angles(self, size, like):
        """Return the cosines and sines of all tokens' angles; those before the patches do not turn.

        A patch's coordinates are those of its centre in an image from -1 to 1.
        """
        axes = [(2 * np.arange(count) + 1) / count - 1 for count in size]
        places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        turned = 2 * math.pi * places.reshape(-1, 2, 1) * np.asarray(self.turns)
        turned = np.tile(turned.reshape(len(turned), -1), 2)  # (patches, head's width)
        turned = np.pad(turned, ((_PREFIXES, 0), (0, 0)))
        nn = self.nn
        return nn.constant(np.cos(turned), like), nn.constant(np.sin(turned), like)


class Block(Network):
    """Attention and a perceptron over tokens, each normalised before and scaled beside a shortcut.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(self, width: int, num_heads: int, qkv_bias: bool) -> None:
        super().__init__()
        nn = self.nn
        self.gamma_1 = nn.Parameter((width,), Constant(_LAYER_SCALE))
        self.gamma_2 = nn.Parameter((width,), Constant(_LAYER_SCALE))
        self.norm1 = nn.LayerNorm(width, eps=_EPS)
        self.attn = Attention(width, num_heads, qkv_bias)
        self.norm2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = TokenMlp(width, 4 * width)

    def forward(self, x, cosines, sines):
        x = x + self.gamma_1 * self.attn(self.norm1(x), cosines, sines)
        return x + self.gamma_2 * self.mlp(self.norm2(x))


class TokenMlp(Mlp):
    """Two linear layers and a GELU between them, with timm's start values for transformers."""

    start_values = {"fc?.weight": Normal(0.02), "fc?.bias": ZEROS}


class Attention(Network):
    """Attention of tokens to each other, whose queries and keys are turned by their positions."""

    def __init__(self, width: int, num_heads: int, qkv_bias: bool) -> None:
        super().__init__()
        nn = self.nn
        self.num_heads = num_heads
        self.q_bias = nn.Parameter((width,), ZEROS) if qkv_bias else None
        self.v_bias = nn.Parameter((width,), ZEROS) if qkv_bias else None
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x, cosines, sines):
        nn = self.nn
        packed = self.qkv(x)
        if self.q_bias is not None:
            none = nn.zeros_like(self.q_bias)
            packed = packed + nn.concatenate([self.q_bias, none, self.v_bias])
        query, key, value = unpacked_heads(nn, packed, self.num_heads)
        query = rotated(nn, query, cosines, sines)
        key = rotated(nn, key, cosines, sines)
        return self.proj(attend_heads(nn, query, key, value))


# name: (blocks, heads, width of the tokens, parameters)
_VARIANTS = {
    "vit_small_patch16_dinov3": (12, 6, 384, 21_586_944),
    "vit_base_patch16_dinov3": (12, 12, 768, 85_641_216),
    "vit_large_patch16_dinov3": (24, 16, 1024, 303_079_424),
}

_COLUMNS = ("num_layers", "num_heads", "hidden_dim")

register_each(
    DINOv3,
    by_column(_COLUMNS, _VARIANTS),
    source="Siméoni et al. 2025, arXiv 2508.10104; timm",
    shape=images(256),
)
