"""UNet++ with a classifier as its encoder, as segmentation_models_pytorch's UnetPlusPlus.

Unlike the paper: no deep supervision; the decoder is segmentation_models_pytorch's.
"""

from typing import Any

from deliralike.network.base import Network
from deliralike.zoo.blocks import images
from deliralike.zoo.registry import register
from deliralike.zoo.segmentation.encoder_unet import Block, EncoderUNet, doubled


class UNetPlusPlus(EncoderUNet):
    """A U-Net whose skips are dense blocks.

    Each node joins all nodes of its level so far with the one below.

    Source: Zhou et al. 2018, arXiv 1807.10165; names, order, shapes and start values are those of
    segmentation_models_pytorch's ``UnetPlusPlus``, whose nodes are numbered from the coarsest
    level.

    Args:
        encoder_depth: How often the encoder halves the size, 2 to 5; the others are as in
            `EncoderUNet`.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size)``; each axis is a
        multiple of ``2 ** encoder_depth``.

    Raises:
        UnknownName: The zoo has no such encoder.
        SettingError: A setting makes no sense, or the encoder has no stage at a size that the
            decoder takes.
        ShapeError: The size is no such multiple.
    """

    least_depth = 2

    def _make_decoder(
        self,
        channels: tuple[int, ...],
        out: tuple[int, ...],
        center: bool,
        dims: int,
    ) -> Any:
        self.multiple = 2 ** len(channels)
        return Decoder(channels, out, center, dims)


class Decoder(Network):
    """A decoder of nodes ``x_i_j``.

    `j` is the level, from the coarsest; `i` is the level at which the node's path starts.

    Shapes:
        The encoder's stages, from the finest to the coarsest, and the size of the input; gives
        ``(batch, decoder_channels[-1], *size)``.
    """

    def __init__(
        self,
        channels: tuple[int, ...],
        out: tuple[int, ...],
        center: bool,
        dims: int,
    ) -> None:
        super().__init__()
        *skips, width = channels
        self.levels = len(skips)
        skips = skips[::-1]
        befores = (width, *out)
        # The reference creates this and never calls it: a VGG encoder's last stage is joined as it
        # is.
        if center:
            self.center = doubled(self.nn, width, width, dims)
        else:
            self.center = self.nn.Identity()
        blocks = {}
        for level, skip in enumerate(skips):
            joined = skip * (level + 1)
            blocks[f"x_0_{level}"] = Block(befores[level], joined, out[level], dims)
            for start in range(1, level + 1):
                joined = skip * (level + 1 - start)
                blocks[f"x_{start}_{level}"] = Block(
                    skips[level - 1], joined, skip, dims
                )
        blocks[f"x_0_{self.levels}"] = Block(
            befores[self.levels], 0, out[self.levels], dims
        )
        self.blocks = self.nn.ModuleDict(blocks)

    def forward(self, features, size):
        *skips, x = features
        skips = skips[::-1]
        coarser = [x, *skips]
        nodes: dict[tuple[int, int], Any] = {}
        for level, skip in enumerate(skips):
            for start in range(level, -1, -1):
                below = coarser[level] if start == level else nodes[start, level - 1]
                joined = skip
                if start < level:
                    before = [nodes[i, level] for i in range(start + 1, level + 1)]
                    joined = self.nn.concatenate([*before, skip], dim=1)
                block = self.blocks[f"x_{start}_{level}"]
                nodes[start, level] = block(below, skip.shape[2:], joined)
        return self.blocks[f"x_0_{self.levels}"](nodes[0, self.levels - 1], size)


register(
    UNetPlusPlus,
    name="unetplusplus",
    task="segmentation",
    dims=(1, 2, 3),
    source="Zhou et al. 2018, arXiv 1807.10165; segmentation_models_pytorch UnetPlusPlus",
    shape=images(224),
)
