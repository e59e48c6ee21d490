"""The image encoder of Segment Anything 2, beside Hugging Face's, which has timm's trunk."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.llama import in_double_precision
from tests.zoo.cases.vit import Renamed

transformers = Later("transformers")

SMALL = {
    "embed_dim": 6,
    "num_heads": 2,
    "layers": (1, 2, 2, 1),
    "window_size": (8, 4, 6, 3),
    "global_attn_indexes": (4,),
    "coarse_positions": 3,
    "neck_chans": 5,
    "in_channels": 2,
}


class Encoder(torch.nn.Module):
    """Hugging Face's encoder within a network, as in its files; it adds maps in double precision.

    Its tables of positions do not start at zero, so that gradients reach what they are made of.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        layers,
        window_size,
        global_attn_indexes,
        coarse_positions,
        neck_chans=256,
        in_channels=3,
    ):
        super().__init__()
        widths = [embed_dim * 2**stage for stage in range(4)]
        trunk = transformers.Sam2HieraDetConfig(
            hidden_size=embed_dim,
            num_channels=in_channels,
            window_positional_embedding_background_size=[coarse_positions] * 2,
            blocks_per_stage=list(layers),
            embed_dim_per_stage=widths,
            num_attention_heads_per_stage=[num_heads * 2**stage for stage in range(4)],
            window_size_per_stage=list(window_size),
            global_attention_blocks=list(global_attn_indexes),
        )
        config = transformers.Sam2VisionConfig(
            backbone_config=trunk,
            backbone_channel_list=widths[::-1],
            fpn_hidden_size=neck_chans,
        )
        self.vision_encoder = transformers.Sam2VisionModel(config)
        for name, value in self.named_parameters():
            if "pos_embed" in name and not value.is_meta:
                torch.nn.init.normal_(value)

    def forward(self, x):
        with in_double_precision():
            return self.vision_encoder(x).fpn_hidden_states


def reference(name, settings, **sizes):
    """Hugging Face's network with the names of ours."""
    return Renamed(partial(Encoder, **sizes), settings, name, "transformers")


WINDOWS = (8, 4, 14, 7)
# width, heads, blocks of each stage, windows, blocks across the image, side of coarse positions
SIZES = {
    "sam2_hiera_tiny": (96, 1, (1, 2, 7, 2), WINDOWS, (5, 7, 9), 7),
    "sam2_hiera_small": (96, 1, (1, 2, 11, 2), WINDOWS, (7, 10, 13), 7),
    "sam2_hiera_base_plus": (112, 2, (2, 3, 16, 3), WINDOWS, (12, 16, 20), 14),
    "sam2_hiera_large": (144, 2, (2, 6, 36, 4), (8, 4, 16, 8), (23, 33, 43), 7),
}
FULL = {
    name: partial(reference, name, {}, **dict(zip(SMALL, sizes, strict=False)))
    for name, sizes in SIZES.items()
}

CASES = [
    Case(
        "sam2_hiera_tiny",
        SMALL,
        (2, 61, 31),
        covers=tuple(FULL),
        reference=partial(reference, "sam2_hiera_tiny", SMALL, **SMALL),
    ),
]
