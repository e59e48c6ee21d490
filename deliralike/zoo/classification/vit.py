"""Vision transformers: torchvision's, DeiT with and without distillation, DINOv2, and SigLIP.

DeiT without it is torchvision's network; timm has all of them under names of its own.

Unlike the paper's pre-training, the head is one linear layer. Epsilon 1e-6 as in the authors' code,
if no other is set.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.errors import SettingError, whole_number
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Constant, Normal, XavierUniform
from deliralike.zoo.blocks import Mlp, classifier, has_side, images_of_size
from deliralike.zoo.layouts import as_grid, as_tokens
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register, register_each
from deliralike.zoo.setting_checks import one_of, positive
from deliralike.zoo.tables import CORNERS, RESAMPLED, SMOOTH, Matrix, resampled_rows
from deliralike.zoo.vit_layouts import (
    TIMM,
    TRANSFORMERS,
    TRANSFORMERS_DINOV2,
    TRANSFORMERS_DISTILLED,
    TRANSFORMERS_REGISTERS,
    TRANSFORMERS_SIGLIP,
)


class LayerScale(Network):
    """A factor for each channel, which are the last axis."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.gamma = self.nn.Parameter((width,), Constant(start))

    def forward(self, x):
        return x * self.gamma


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
        eps: float,
        layer_scale: float | None,
        approximate: str,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=eps)
        self.self_attention = nn.MultiheadAttention(
            hidden_dim, num_heads, attention_dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=eps)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_dim, mlp_dim),
            nn.GELU(approximate),
            nn.Dropout(dropout),
            nn.Linear(mlp_dim, hidden_dim),
            nn.Dropout(dropout),
        )
        if layer_scale is None:
            self.ls_1, self.ls_2 = nn.Identity(), nn.Identity()
        else:
            self.ls_1 = LayerScale(hidden_dim, layer_scale)
            self.ls_2 = LayerScale(hidden_dim, layer_scale)

    def forward(self, x):
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.ls_1(self.dropout(y))
        return x + self.ls_2(self.mlp(self.ln_2(x)))


class Encoder(Network):
    """The position table, the blocks and the last normalisation; `VisionTransformer` runs them."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        hidden_dim: int,
        dropout: float,
        eps: float,
        *block: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.pos_embedding = nn.Parameter((1, seq_length, hidden_dim), Normal(0.02))
        self.dropout = nn.Dropout(dropout)
        blocks = {f"encoder_layer_{i}": EncoderBlock(*block) for i in range(num_layers)}
        self.layers = nn.ModuleDict(blocks)
        self.ln = nn.LayerNorm(hidden_dim, eps=eps)


class AttentionPool(Network):
    """Attention of one learned token to all tokens, and a perceptron beside a shortcut.

    Source: Lee et al. 2019, arXiv 1810.00825, equation 11; timm's ``AttentionPoolLatent``.

    Shapes:
        ``(batch, tokens, hidden_dim)`` gives ``(batch, hidden_dim)``.
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        eps: float,
        approximate: str,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.latent = nn.Parameter((1, 1, hidden_dim), Normal(hidden_dim**-0.5))
        self.attention = nn.MultiheadAttention(hidden_dim, num_heads, batch_first=True)
        self.norm = nn.LayerNorm(hidden_dim, eps=eps)
        self.mlp = Mlp(hidden_dim, mlp_dim, approximate)

    def forward(self, tokens):
        batch, _, width = tokens.shape
        query = self.nn.broadcast_to(self.latent, (batch, 1, width))
        x, _ = self.attention(query, tokens, tokens, need_weights=False)
        return (x + self.mlp(self.norm(x)))[:, 0]


class VisionTransformer(Model):
    """A transformer over the patches of an image, with a class token, as torchvision builds it.

    Source: Dosovitskiy et al. 2021, arXiv 2010.11929; DeiT: Touvron et al. 2021, arXiv 2012.12877.
    Names, order, shapes and start values are those of ``torchvision.models.vision_transformer``.
    timm's ``VisionTransformer``, which its DeiT is too, is the same network, and its
    ``VisionTransformerDistilled`` is the distilled one; the key map ``"timm"`` has their names.
    Hugging Face's ``ViTModel`` and ``DeiTModel`` are these with another epsilon; the key map
    ``"transformers"`` has the names in their files.

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
        in_channels: Number of input channels.
        eps: The normalisations' epsilon; 1e-12 for weights of Hugging Face.
        distilled: Whether there are a second token and a second head (``heads.head_dist``), which
            learn what a teacher says; the outputs are the average of both heads'.
        distilled_training: Whether both heads' outputs come, one after the other, in training mode.
        layer_scale: Where the scales of both parts of each block start; None for no scales.
        register_tokens: Number of tokens that nothing reads from, after the class token. With them
            only the patches have positions, as in timm's DINOv2.
        attention_pool: Whether attention of a learned token to the patches gives the features;
            there is no class token then.
        approximate: ``"none"`` for the exact GELU, or ``"tanh"``, as in ``nn.GELU``.

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``; with
        `distilled_training` two of these in training mode.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of channels (the error names ``conv_proj``) or
            another size.
    """

    stem_paths = ("conv_proj",)
    resampling = staticmethod(CORNERS)  # of position tables, as in torchvision

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
        in_channels: int = 3,
        eps: float = 1e-6,
        distilled: bool = False,
        distilled_training: bool = False,
        layer_scale: float | None = None,
        register_tokens: int = 0,
        attention_pool: bool = False,
        approximate: str = "none",
    ) -> None:
        super().__init__()
        positive(
            "VisionTransformer",
            image_size=image_size,
            patch_size=patch_size,
            num_layers=num_layers,
        )
        checks.divides(
            image_size, patch_size, "VisionTransformer: image_size", "patch_size"
        )
        if distilled_training and not distilled:
            raise SettingError(
                "VisionTransformer: distilled_training=True needs distilled=True"
            )
        whole_number("VisionTransformer: register_tokens", register_tokens, 0)
        one_of(approximate, ("none", "tanh"), "approximate", "VisionTransformer")
        if attention_pool and (distilled or register_tokens):
            raise SettingError(
                "VisionTransformer: attention_pool=True goes with no other tokens than patches"
            )
        nn = self.nn
        self.image_size = image_size
        self.patch_size = patch_size
        self.in_channels = in_channels
        self.distilled = distilled
        self.distilled_training = distilled_training
        self.attention_pool = bool(attention_pool)
        heads = int(not attention_pool) + int(distilled)
        self.prefixes = heads + register_tokens  # the tokens before those of patches
        self.positioned = 0 if register_tokens else heads  # of them, in the table
        if not attention_pool:
            self.class_token = nn.Parameter((1, 1, hidden_dim), ZEROS)
        if distilled:
            self.distillation_token = nn.Parameter((1, 1, hidden_dim), Normal(0.02))
        if register_tokens:
            shape = (1, register_tokens, hidden_dim)
            self.register_token = nn.Parameter(shape, Normal(1e-6))
        self.conv_proj = nn.Conv2d(in_channels, hidden_dim, patch_size, patch_size)
        tokens = (image_size // patch_size) ** 2 + self.positioned
        block = (
            num_heads,
            hidden_dim,
            mlp_dim,
            dropout,
            attention_dropout,
            eps,
            layer_scale,
            approximate,
        )
        self.encoder = Encoder(tokens, num_layers, hidden_dim, dropout, eps, *block)
        if attention_pool:
            self.attn_pool = AttentionPool(
                num_heads, hidden_dim, mlp_dim, eps, approximate
            )
        self.heads = nn.ModuleDict()
        for path in self.head_paths:
            name = path.removeprefix("heads.")
            head = classifier(nn, hidden_dim, num_classes, "VisionTransformer")
            self.heads[name] = head

    @property
    def keymaps(self):  # type: ignore[override]
        """The layouts of timm and of Hugging Face."""
        return (TIMM, TRANSFORMERS_DISTILLED if self.distilled else TRANSFORMERS)

    @property
    def head_paths(self):  # type: ignore[override]
        """The paths of the one or two heads."""
        return ("heads.head", "heads.head_dist") if self.distilled else ("heads.head",)

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        It truncates at 2, which is dozens of standard deviations, so at nothing.
        """
        return {
            "conv_proj.weight": Normal(
                1 / math.sqrt(self.in_channels * self.patch_size**2)
            ),
            "conv_proj.bias": ZEROS,
            "heads.*": ZEROS,
        }

    def forward(self, x):
        tokens = self._tokens(self.conv_proj(self._checked(x)))
        for _, layer in self.encoder.layers.items():
            tokens = layer(tokens)
        if self.distilled:
            return self._two_heads(self.encoder.ln(tokens[:, :2]))
        return self.heads["head"](self._features(tokens))

    def _features(self, tokens):
        """Return ``(batch, hidden_dim)``: the normalised class token, or what attention pools."""
        if self.attention_pool:
            return self.attn_pool(self.encoder.ln(tokens))
        return self.encoder.ln(tokens[:, 0])

    def _two_heads(self, tokens):
        by_label = self.heads["head"](tokens[:, 0])
        by_teacher = self.heads["head_dist"](tokens[:, 1])
        if self.training and self.distilled_training:
            return by_label, by_teacher
        return (by_label + by_teacher) / 2

    def forward_stages(self, x):
        """Return the patches, each block, and the class token after the last one.

        Patches and blocks are ``(batch, hidden_dim, *size / patch_size)``, not normalised. The
        class token is ``(batch, hidden_dim)`` and normalised; ``attn_pool`` stands in its place
        where attention pools the patches.
        """
        stages = {"patches": self.conv_proj(self._checked(x))}
        size = stages["patches"].shape[2:]
        tokens = self._tokens(stages["patches"])
        for name, layer in self.encoder.layers.items():
            tokens = layer(tokens)
            stages[name] = as_grid(self.nn, tokens[:, self.prefixes :], size)
        last = "attn_pool" if self.attention_pool else "class_token"
        return stages | {last: self._features(tokens)}

    def _tokens(self, patches):
        """Return the class token, that of distillation, the registers, and the patches.

        They are ``(batch, tokens, hidden_dim)``, with their positions.
        """
        nn = self.nn
        rows, positions = as_tokens(nn, patches), self.encoder.pos_embedding
        if self.attention_pool:
            tokens = rows + positions
        elif self.distilled:
            first = [self.class_token, self.distillation_token]
            tokens = after(nn, first, rows) + positions
        elif self.positioned:
            tokens = after(nn, [self.class_token], rows) + positions
        else:
            first = [self.class_token, self.register_token]
            tokens = after(nn, first, rows + positions)
        return self.encoder.dropout(tokens)

    def _checked(self, x):
        has_side(self, x, self.image_size, RESAMPLED)
        return x

    def adapt_weight(
        self,
        name: str,
        value: np.ndarray,
        shape: tuple[int, ...],
        resampling: Matrix | None = None,
    ) -> np.ndarray | None:
        """Resample the position table of another image size; other tokens' rows are kept.

        Whose rule is followed says the layout of the file, or else the network.
        """
        if (
            name != "encoder.pos_embedding"
            or value.ndim != 3
            or value.shape[2] != shape[2]
        ):
            return None
        matrix = resampling or self.resampling
        rows = resampled_rows(value[0], shape[1], matrix, self.positioned)
        return None if rows is None else rows[None]


class DeiT(VisionTransformer):
    """A `VisionTransformer` whose weights timm publishes, with timm's rule for other image sizes.

    Source: Touvron et al. 2021, arXiv 2012.12877; timm.
    """

    resampling = staticmethod(SMOOTH)


class DINOv2(DeiT):
    """A vision transformer with scaled blocks, trained without labels, with and without registers.

    Source: Oquab et al. 2023, arXiv 2304.07193; registers: Darcet et al. 2023, arXiv 2309.16588;
    timm. The published networks have no head: they give the normalised class token. The key map
    ``"transformers"`` is that of ``Dinov2Model`` or, with registers, ``Dinov2WithRegistersModel``,
    whose tokens for hidden patches are left out.
    """

    @property
    def keymaps(self):  # type: ignore[override]
        """The layouts of timm and of Hugging Face."""
        if self.positioned:
            return (TIMM, TRANSFORMERS_DINOV2)
        return (TIMM, TRANSFORMERS_REGISTERS)


class SigLIP(DeiT):
    """A vision transformer whose patches attention pools, trained with the texts of pictures.

    Source: Zhai et al. 2023, arXiv 2303.15343; timm, whose activation is the exact GELU. The
    published networks have no head. The key map ``"transformers"`` is that of
    ``SiglipVisionModel``, which has ``approximate="tanh"``; of the files of a whole SigLIP the
    transformer over text is left out.
    """

    keymaps = (TIMM, TRANSFORMERS_SIGLIP)


def after(nn: Any, first: Sequence[Any], tokens: Any) -> Any:
    """Put learned tokens ``(1, count, width)`` before each sample's tokens."""
    batch, _, width = tokens.shape
    spread = []
    for token in first:
        spread.append(nn.broadcast_to(token, (batch, token.shape[1], width)))
    return nn.concatenate([*spread, tokens], dim=1)


_VIT = "Dosovitskiy et al. 2021, arXiv 2010.11929; torchvision"
_DEIT = (
    "Touvron et al. 2021, arXiv 2012.12877; timm's network, under torchvision's names"
)

_DISTILLED = (
    "Touvron et al. 2021, arXiv 2012.12877; timm, under names like torchvision's"
)

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
    "deit_tiny_distilled_patch16_224": (16, 12, 3, 192, 5_910_800, _DISTILLED),
    "deit_small_distilled_patch16_224": (16, 12, 6, 384, 22_436_432, _DISTILLED),
    "deit_base_distilled_patch16_224": (16, 12, 12, 768, 87_338_192, _DISTILLED),
}


for _name, (_patch, _layers, _heads, _width, _parameters, _source) in _VARIANTS.items():
    register(
        VisionTransformer if _source is _VIT else DeiT,
        name=_name,
        variant={
            "patch_size": _patch,
            "num_layers": _layers,
            "num_heads": _heads,
            "hidden_dim": _width,
            "mlp_dim": 4 * _width,
            "distilled": _source is _DISTILLED,
        },
        source=_source,
        shape=images_of_size,
        parameters=_parameters,
    )


_DINOV2 = "Oquab et al. 2023, arXiv 2304.07193; timm, under names like torchvision's"
_REGISTERS = (
    "Darcet et al. 2023, arXiv 2309.16588; timm, under names like torchvision's"
)
# size: (blocks, heads, width of the tokens, parameters, those with registers)
_DINOV2_SIZES = {
    "small": (12, 6, 384, 22_056_192, 22_057_344),
    "base": (12, 12, 768, 86_579_712, 86_582_016),
    "large": (24, 16, 1024, 304_367_616, 304_370_688),
}

for _size, (_layers, _heads, _width, *_both) in _DINOV2_SIZES.items():
    for _kind, _registers, _parameters in zip(
        ("dinov2", "reg4_dinov2"), (0, 4), _both, strict=True
    ):
        register(
            DINOv2,
            name=f"vit_{_size}_patch14_{_kind}",
            variant={
                "image_size": 518,
                "patch_size": 14,
                "num_layers": _layers,
                "num_heads": _heads,
                "hidden_dim": _width,
                "mlp_dim": 4 * _width,
                "num_classes": 0,
                "layer_scale": 1e-5,
                "register_tokens": _registers,
            },
            source=_REGISTERS if _registers else _DINOV2,
            shape=images_of_size,
            parameters=_parameters,
        )


# name: (image, patch, blocks, heads, width of the tokens, inner width, parameters)
_SIGLIP = {
    "vit_base_patch16_siglip_224": (224, 16, 12, 12, 768, 3072, 92_884_224),
    "vit_large_patch16_siglip_256": (256, 16, 24, 16, 1024, 4096, 315_956_224),
    "vit_so400m_patch14_siglip_224": (224, 14, 27, 16, 1152, 4304, 427_680_704),
}

_COLUMNS = (
    "image_size",
    "patch_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "mlp_dim",
)

register_each(
    SigLIP,
    by_column(_COLUMNS, _SIGLIP, num_classes=0, attention_pool=True),
    source="Zhai et al. 2023, arXiv 2303.15343; timm, under names like torchvision's",
    shape=images_of_size,
)
