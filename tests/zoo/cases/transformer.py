"""The classifier on PyTorch's transformer encoder, beside the same of plain modules."""

import math
from functools import partial

import torch
from torch import nn

from deliralike.zoo import Input
from tests.zoo.case import Case

SMALL = {
    "num_classes": 3,
    "vocab_size": 11,
    "max_tokens": 8,
    "d_model": 12,
    "nhead": 3,
    "num_layers": 2,
    "dim_feedforward": 10,
    "dropout": 0.0,
}
BEFORE = SMALL | {
    "activation": "gelu",
    "norm_first": True,
    "num_layers": 1,
}


class Positions(nn.Module):
    """The table of the tutorial "Language modeling with nn.Transformer"."""

    def __init__(self, count, width):
        super().__init__()
        position = torch.arange(count, dtype=torch.float64).unsqueeze(1)
        factor = torch.exp(
            torch.arange(0, width, 2, dtype=torch.float64)
            * (-math.log(10000.0) / width)
        )
        table = torch.zeros(count, width, dtype=torch.float64)
        table[:, 0::2], table[:, 1::2] = (
            torch.sin(position * factor),
            torch.cos(position * factor),
        )
        self.register_buffer("pe", table)


class Reference(nn.Module):
    """``torch.nn.TransformerEncoder`` between an embedding and a linear layer."""

    def __init__(
        self,
        num_classes=2,
        vocab_size=30000,
        max_tokens=512,
        d_model=512,
        nhead=8,
        num_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        norm_first=False,
    ):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = Positions(max_tokens, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            batch_first=True,
            norm_first=norm_first,
        )
        norm = nn.LayerNorm(d_model)
        self.encoder = nn.TransformerEncoder(
            layer, num_layers, norm, enable_nested_tensor=False
        )
        self.fc = nn.Linear(d_model, num_classes)

    def forward(self, tokens, padding=None):
        padding = None if padding is None else padding.bool()
        x = self.embedding(tokens) * self.scale + self.positions.pe[: tokens.shape[1]]
        x = self.encoder(x, src_key_padding_mask=padding)
        if padding is None:
            return self.fc(x.mean(1))
        return self.fc(
            torch.stack(
                [row[~out].mean(0) for row, out in zip(x, padding, strict=True)]
            )
        )


FULL = {"transformer_classifier": Reference}

CASES = [
    Case(
        "transformer_classifier",
        SMALL,
        [Input((7,), below=11), Input((7,), below=2)],
        reference=partial(Reference, **SMALL),
    ),
    Case(
        "transformer_classifier",
        BEFORE,
        (Input((8,), below=11)),
        of="normalised before",
        reference=partial(Reference, **BEFORE),
    ),
]
