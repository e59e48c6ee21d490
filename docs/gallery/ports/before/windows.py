"""Attention in windows that are shifted: views and permutations, `roll`, an index and a mask as buffers."""

import torch
import torch.nn as nn


def split_windows(x, size):
    """(batch, height, width, channels) to (batch * windows, size * size, channels)."""
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


def join_windows(windows, size, height, width):
    x = windows.view(-1, height // size, width // size, size, size, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(x.shape[0], height, width, -1)


class WindowAttention(nn.Module):
    def __init__(self, width, size, heads, scale=None):
        super().__init__()
        self.heads = heads
        self.scale = scale or (width // heads) ** -0.5
        # a bias for each pair of places, by how far they are from each other
        self.bias_table = nn.Parameter(torch.zeros((2 * size - 1) ** 2, heads))
        axis = torch.arange(size)
        places = torch.stack(torch.meshgrid([axis, axis], indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0).contiguous()
        apart += size - 1  # from zero on
        apart[:, :, 0] *= 2 * size - 1
        self.register_buffer("bias_index", apart.sum(-1))
        self.qkv = nn.Linear(width, width * 3)
        self.proj = nn.Linear(width, width)
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        qkv = (
            self.qkv(x)
            .reshape(b, n, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attention = q @ k.transpose(-2, -1)
        bias = self.bias_table[self.bias_index.view(-1)].view(n, n, self.heads)
        attention = attention + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            count = mask.shape[0]
            attention = attention.view(b // count, count, self.heads, n, n)
            attention = attention + mask.unsqueeze(1).unsqueeze(0)
            attention = attention.view(-1, self.heads, n, n)
        attention = torch.softmax(attention, dim=-1)
        return self.proj((attention @ v).transpose(1, 2).reshape(b, n, c))


class WindowBlock(nn.Module):
    def __init__(self, width, side, heads, size=3, shift=0):
        super().__init__()
        self.side, self.size, self.shift = side, size, shift
        self.norm1 = nn.LayerNorm(width)
        self.attention = WindowAttention(width, size, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        mask = None
        if self.shift > 0:
            # what is no neighbour in the picture does not see each other
            region = torch.zeros((1, side, side, 1))
            parts = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
            number = 0
            for rows in parts:
                for columns in parts:
                    region[:, rows, columns, :] = number
                    number += 1
            region = split_windows(region, size).squeeze(-1)
            mask = region.unsqueeze(1) - region.unsqueeze(2)
            mask = mask.masked_fill(mask != 0, float(-100.0)).masked_fill(
                mask == 0, 0.0
            )
        self.register_buffer("mask", mask)

    def forward(self, x):
        b, n, c = x.shape
        assert n == self.side * self.side, "another size of picture"
        y = self.norm1(x).view(b, self.side, self.side, c)
        if self.shift > 0:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attention(split_windows(y, self.size), mask=self.mask)
        y = join_windows(y, self.size, self.side, self.side)
        if self.shift > 0:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y.view(b, n, c)
        return x + self.mlp(self.norm2(x))


class Windows(nn.Module):
    def __init__(self, side=18, patch=3, width=6, depth=2, heads=2, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.blocks = nn.ModuleList(
            [
                WindowBlock(
                    width, side // patch, heads, shift=0 if (at % 2 == 0) else 1
                )
                for at in range(depth)
            ]
        )
        self.norm = nn.LayerNorm(width)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.head = nn.Linear(width, classes) if classes > 0 else nn.Identity()

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        x = self.pool(x.transpose(1, 2))
        return self.head(torch.flatten(x, 1))
