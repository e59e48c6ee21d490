"""Windows, written once: a port of before.windows."""

import numpy as np

from deliralike import Network, start


def split_windows(nn, x, size):
    """(batch, height, width, channels) to (batch * windows, size * size, channels)."""
    b, h, w, c = x.shape
    x = nn.reshape(x, (b, h // size, size, w // size, size, c))
    return nn.reshape(nn.permute(x, (0, 1, 3, 2, 4, 5)), (-1, size * size, c))


def split_windows_np(x, size):
    """(batch, height, width, channels) to (batch * windows, size * size, channels)."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // size, size, w // size, size, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def join_windows(nn, windows, size, height, width):
    x = nn.reshape(
        windows, (-1, height // size, width // size, size, size, windows.shape[-1])
    )
    return nn.reshape(
        nn.permute(x, (0, 1, 3, 2, 4, 5)), (x.shape[0], height, width, -1)
    )


class WindowAttention(Network):
    def __init__(self, width, size, heads, scale=None):
        super().__init__()
        nn = self.nn
        self.heads = heads
        self.scale = scale or (width // heads) ** -0.5
        # a bias for each pair of places, by how far they are from each other
        self.bias_table = nn.Parameter(((2 * size - 1) ** 2, heads), start.ZEROS)
        axis = np.arange(size)
        places = np.stack(
            [
                part.ravel()
                for part in np.stack(np.meshgrid(*[axis, axis], indexing="ij"))
            ]
        )
        apart = (places[:, :, None] - places[:, None, :]).transpose(1, 2, 0)
        apart += size - 1  # from zero on
        apart[:, :, 0] *= 2 * size - 1
        self.bias_index = nn.Buffer(apart.sum(-1))
        self.qkv = nn.Linear(width, width * 3)
        self.proj = nn.Linear(width, width)

    def forward(self, x, mask=None):
        nn = self.nn
        b, n, c = x.shape
        qkv = nn.permute(
            nn.reshape(self.qkv(x), (b, n, 3, self.heads, c // self.heads)),
            (2, 0, 3, 1, 4),
        )
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attention = q @ nn.transpose(k, -2, -1)
        bias = nn.reshape(
            self.bias_table[nn.reshape(self.bias_index, (-1,))], (n, n, self.heads)
        )
        attention = attention + nn.unsqueeze(nn.permute(bias, (2, 0, 1)), 0)
        if mask is not None:
            count = mask.shape[0]
            attention = nn.reshape(attention, (b // count, count, self.heads, n, n))
            attention = attention + nn.unsqueeze(nn.unsqueeze(mask, 1), 0)
            attention = nn.reshape(attention, (-1, self.heads, n, n))
        attention = nn.softmax(attention, dim=-1)
        return self.proj(nn.reshape(nn.transpose((attention @ v), 1, 2), (b, n, c)))


class WindowBlock(Network):
    def __init__(self, width, side, heads, size=3, shift=0):
        super().__init__()
        nn = self.nn
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
            region = np.zeros((1, side, side, 1))
            parts = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
            number = 0
            for rows in parts:
                for columns in parts:
                    region[:, rows, columns, :] = number
                    number += 1
            region = split_windows_np(region, size).squeeze(-1)
            mask = np.expand_dims(region, 1) - np.expand_dims(region, 2)
            mask = np.where(mask == 0, 0.0, np.where(mask != 0, float(-100.0), mask))
        self.mask = nn.Buffer(mask)

    def forward(self, x):
        nn = self.nn
        b, n, c = x.shape
        assert n == self.side * self.side, "another size of picture"
        y = nn.reshape(self.norm1(x), (b, self.side, self.side, c))
        if self.shift > 0:
            y = nn.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attention(split_windows(nn, y, self.size), mask=self.mask)
        y = join_windows(nn, y, self.size, self.side, self.side)
        if self.shift > 0:
            y = nn.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + nn.reshape(y, (b, n, c))
        return x + self.mlp(self.norm2(x))


class Windows(Network):
    def __init__(self, side=18, patch=3, width=6, depth=2, heads=2, classes=5):
        super().__init__()
        nn = self.nn
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
        nn = self.nn
        x = nn.transpose(nn.flatten(self.patches(x), 2), 1, 2)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        x = self.pool(nn.transpose(x, 1, 2))
        return self.head(nn.flatten(x, 1))
