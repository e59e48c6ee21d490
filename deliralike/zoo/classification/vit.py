"""Vision transformers: torchvision's, and DeiT (which is the same network under timm's names).

Unlike the paper's pre-training, the head is one linear layer. Epsilon 1e-6 as in the authors' code.
"""

import math
from typing import Any

import numpy as np

from deliralike.errors import ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Normal, XavierUniform
from deliralike.zoo.blocks import classifier
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.tables import resampled, square_side

_LAYER = r"encoder\.layers\.encoder_layer_(\d+)"
_TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"class_token": "cls_token",
            r"conv_proj\.(\w+)": r"patch_embed.proj.\1",
            r"encoder\.pos_embedding": "pos_embed",
            rf"{_LAYER}\.ln_(\d)\.(\w+)": r"blocks.\1.norm\2.\3",
            rf"{_LAYER}\.self_attention\.in_proj_(\w+)": r"blocks.\1.attn.qkv.\2",
            rf"{_LAYER}\.self_attention\.out_proj\.(\w+)": r"blocks.\1.attn.proj.\2",
            rf"{_LAYER}\.mlp\.0\.(\w+)": r"blocks.\1.mlp.fc1.\2",
            rf"{_LAYER}\.mlp\.3\.(\w+)": r"blocks.\1.mlp.fc2.\2",
            r"encoder\.ln\.(\w+)": r"norm.\1",
            r"heads\.pre_logits\.(\w+)": r"pre_logits.fc.\1",
            r"heads\.head\.(\w+)": r"head.\1",
        }
    ),
)


class EncoderBlock(Network):
    """Attention and a perceptron over tokens, each after a normalisation and beside a shortcut.

    Source: Dosovitskiy et al. 2021, arXiv 2010.11929, figure 1 right; torchvision.

    Shapes:
        ``(batch, tokens, hidden_dim)`` gives the same.
    """

    start_values = {"mlp.?.weight": XavierUniform(), "mlp.?.bias": Normal(1e-6)}

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(
            hidden_dim, num_heads, attention_dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_dim, mlp_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(mlp_dim, hidden_dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        return x + self.mlp(self.ln_2(x))


class Encoder(Network):
    """The position table, the blocks and the last normalisation; `VisionTransformer` runs them."""

    def __init__(
        self, seq_length: int, num_layers: int, hidden_dim: int, dropout: float, *block: Any
    ) -> None:
        super().__init__()
        nn = self.nn
        self.pos_embedding = nn.Parameter((1, seq_length, hidden_dim), Normal(0.02))
        self.dropout = nn.Dropout(dropout)
        blocks = {f"encoder_layer_{i}": EncoderBlock(*block) for i in range(num_layers)}
        self.layers = nn.ModuleDict(blocks)
        self.ln = nn.LayerNorm(hidden_dim, eps=1e-6)


class VisionTransformer(Model):
    """A transformer over the patches of an image, with a class token, as torchvision builds it.

    Source: Dosovitskiy et al. 2021, arXiv 2010.11929; DeiT without distillation: Touvron et al.
    2021, arXiv 2012.12877. Names, order, shapes and start values are those of
    ``torchvision.models.vision_transformer``. timm's ``VisionTransformer``, which its DeiT is too,
    is the same network; the key map ``"timm"`` has its names.

    Args:
        image_size: Side of the (square) images. A position table for another size is resampled when
            it is loaded.
        patch_size: Side of a patch; divides `image_size`.
        num_layers: Number of blocks.
        num_heads: Number of heads; divides `hidden_dim`.
        hidden_dim: Width of the tokens.
        mlp_dim: Width of the hidden layer in each block.
        dropout, attention_dropout: Probabilities of dropping elements of the tokens and of the
            attention weights.
        num_classes: Number of outputs; 0 for no head: the class token.
        representation_size: Width of a layer (with tanh) before the head; None for none.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of channels (the error names ``conv_proj``) or
            another size.
    """

    stem_paths = ("conv_proj",)
    head_paths = ("heads.head",)
    keymaps = (_TIMM,)

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        num_layers: int = 12,
        num_heads: int = 12,
        hidden_dim: int = 768,
        mlp_dim: int = 3072,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        checks.positive(image_size, "image_size", "VisionTransformer")
        checks.positive(patch_size, "patch_size", "VisionTransformer")
        checks.positive(num_layers, "num_layers", "VisionTransformer")
        checks.divides(image_size, patch_size, "VisionTransformer: image_size", "patch_size")
        nn = self.nn
        self.image_size = image_size
        self.patch_size = patch_size
        self.in_channels = in_channels
        self.class_token = nn.Parameter((1, 1, hidden_dim), ZEROS)
        self.conv_proj = nn.Conv2d(in_channels, hidden_dim, patch_size, patch_size)
        tokens = (image_size // patch_size) ** 2 + 1
        block = (num_heads, hidden_dim, mlp_dim, dropout, attention_dropout)
        self.encoder = Encoder(tokens, num_layers, hidden_dim, dropout, *block)
        heads: dict[str, Any] = {}
        width = hidden_dim
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
            width = representation_size
        heads["head"] = classifier(nn, width, num_classes, "VisionTransformer")
        self.heads = nn.ModuleDict(heads)

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        It truncates at 2, which is dozens of standard deviations, so at nothing.
        """
        return {
            "conv_proj.weight": Normal(1 / math.sqrt(self.in_channels * self.patch_size**2)),
            "conv_proj.bias": ZEROS,
            "heads.pre_logits.weight": Normal(1 / math.sqrt(self.class_token.shape[-1])),
            "heads.pre_logits.bias": ZEROS,
            "heads.head.*": ZEROS,
        }

    def forward(self, x):
        tokens = self._tokens(self.conv_proj(self._checked(x)))
        for _, layer in self.encoder.layers.items():
            tokens = layer(tokens)
        x = self.encoder.ln(tokens[:, 0])
        for _, layer in self.heads.items():
            x = layer(x)
        return x

    def forward_stages(self, x):
        """Return the patches, each block, and the class token after the last one.

        Patches and blocks are ``(batch, hidden_dim, *size / patch_size)``, not normalised. The
        class token is ``(batch, hidden_dim)`` and normalised.
        """
        nn = self.nn
        stages = {"patches": self.conv_proj(self._checked(x))}
        size = tuple(stages["patches"].shape)
        tokens = self._tokens(stages["patches"])
        for name, layer in self.encoder.layers.items():
            tokens = layer(tokens)
            stages[name] = nn.reshape(nn.permute(tokens[:, 1:], (0, 2, 1)), size)
        stages["class_token"] = self.encoder.ln(tokens[:, 0])
        return stages

    def _tokens(self, patches):
        """Return the class token and the patches with their positions.

        They are ``(batch, 1 + patches, hidden_dim)``.
        """
        nn = self.nn
        batch, width = patches.shape[:2]
        tokens = nn.permute(nn.reshape(patches, (batch, width, -1)), (0, 2, 1))
        class_token = nn.broadcast_to(self.class_token, (batch, 1, width))
        tokens = nn.concatenate([class_token, tokens], dim=1)
        return self.encoder.dropout(tokens + self.encoder.pos_embedding)

    def _checked(self, x):
        side = self.image_size
        if len(x.shape) == 4 and tuple(x.shape[2:]) != (side, side):
            raise ShapeError(
                f"{checks.where(self)}: got images of shape {tuple(x.shape)}, wanted height and "
                f"width of {side}: build it with another image_size, its position table is "
                "resampled when weights are loaded"
            )
        return x

    def adapt_weight(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Resample the position table of another image size; the class token's row is kept."""
        if name != "encoder.pos_embedding" or value.ndim != 3 or value.shape[2] != shape[2]:
            return None
        old = square_side(value.shape[1] - 1)
        new = square_side(shape[1] - 1)
        if old is None or new is None:
            return None
        grid = value[0, 1:].reshape(old, old, -1)
        patches = resampled(grid, new, align_corners=True)  # as in torchvision
        patches = patches.reshape(1, new * new, -1)
        return np.concatenate([value[:, :1], patches], axis=1)


_VIT = "Dosovitskiy et al. 2021, arXiv 2010.11929; torchvision"
_DEIT = "Touvron et al. 2021, arXiv 2012.12877; timm's network, under torchvision's names"

# name: (patch, blocks, heads, width of the tokens, parameters, source)
_VARIANTS = {
    "vit_b_16": (16, 12, 12, 768, 86_567_656, _VIT),
    "vit_b_32": (32, 12, 12, 768, 88_224_232, _VIT),
    "vit_l_16": (16, 24, 16, 1024, 304_326_632, _VIT),
    "vit_l_32": (32, 24, 16, 1024, 306_535_400, _VIT),
    "vit_h_14": (14, 32, 16, 1280, 632_045_800, _VIT),
    "deit_tiny_patch16_224": (16, 12, 3, 192, 5_717_416, _DEIT),
    "deit_small_patch16_224": (16, 12, 6, 384, 22_050_664, _DEIT),
    "deit_base_patch16_224": (16, 12, 12, 768, 86_567_656, _DEIT),
}


def _shape(settings: Any) -> tuple[int, ...]:
    return (settings["in_channels"], settings["image_size"], settings["image_size"])


for _name, (_patch, _layers, _heads, _width, _parameters, _source) in _VARIANTS.items():
    register(
        VisionTransformer,
        name=_name,
        variant={
            "patch_size": _patch,
            "num_layers": _layers,
            "num_heads": _heads,
            "hidden_dim": _width,
            "mlp_dim": 4 * _width,
        },
        source=_source,
        shape=_shape,
        parameters=_parameters,
    )
