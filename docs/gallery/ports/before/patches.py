"""Attention over patches, written with einops: a layer in a `Sequential`, `rearrange`, `repeat`, `einsum`."""

import torch
from einops import einsum, rearrange, repeat
from einops.layers.torch import Rearrange, Reduce
from torch import nn


class Branch(nn.Module):
    """A norm, a layer, and what came in."""

    def __init__(self, width, layer):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), layer

    def forward(self, x, **settings):
        return x + self.layer(self.norm(x), **settings)


class Attend(nn.Module):
    def __init__(self, width, heads=2, size=4, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.scale = size**-0.5
        self.to_all = nn.Linear(width, 3 * heads * size, bias=False)
        self.to_out = nn.Identity()
        if heads > 1 or size != width:
            self.to_out = nn.Sequential(
                nn.Linear(heads * size, width), nn.Dropout(dropout)
            )

    def forward(self, x):
        queries, keys, values = (
            rearrange(
                part,
                "batch place (head size) -> batch head place size",
                head=self.heads,
            )
            for part in self.to_all(x).chunk(3, dim=-1)
        )
        scores = einsum(queries, keys, "b h i d, b h j d -> b h i j") * self.scale
        x = torch.matmul(scores.softmax(dim=-1), values)
        return self.to_out(rearrange(x, "b h n d -> b n (h d)"))


class Patches(nn.Module):
    def __init__(
        self,
        *,
        side,
        patch,
        classes,
        width=8,
        depth=2,
        heads=2,
        token=True,
        dropout=0.0,
    ):
        super().__init__()
        assert side % patch == 0, "patches must fill the picture"
        places = (side // patch) ** 2
        self.embed = nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=patch, q=patch),
            nn.Linear(3 * patch * patch, width),
        )
        self.token = nn.Parameter(torch.randn(1, 1, width)) if token else None
        self.position = nn.Parameter(torch.randn(1, places + bool(token), width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            mlp = nn.Sequential(
                nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
            )
            pair = [
                Branch(width, Attend(width, heads, dropout=dropout)),
                Branch(width, mlp),
            ]
            self.layers.append(nn.ModuleList(pair))
        self.mean = Reduce("b n d -> b d", "mean")
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, picture):
        x = self.embed(picture)
        if self.token is not None:
            x = torch.cat(
                (repeat(self.token, "1 1 d -> b 1 d", b=x.shape[0]), x), dim=1
            )
        x += self.position
        x = self.dropout(x)
        for attend, mlp in self.layers:
            x = mlp(attend(x))
        x = x[:, 0] if self.token is not None else self.mean(x)
        return self.head(x)
