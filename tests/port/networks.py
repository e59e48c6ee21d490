"""Networks of PyTorch in the habits of those who bring them, to be ported."""

import math
from collections import OrderedDict
from functools import partial
from typing import Callable, Optional

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn
from torch.nn import Module, ModuleList

WIDTHS = {"small": 8, "large": 12}


def conv3x3(inputs, outputs, stride=1):
    """A convolution that keeps the size, or halves it."""
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


def drop_nothing(x):
    return x


class Block(nn.Module):
    expansion = 1

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int = 1,
        norm_layer: Optional[Callable[..., nn.Module]] = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.norm1 = norm_layer(outputs) if norm_layer is not None else nn.Identity()
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(outputs, outputs)
        self.short = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.GroupNorm(2, outputs),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.conv2(out)
        out += self.short(x)  # the shortcut
        return nnf.relu(out, inplace=True)


class Residual(nn.Module):
    """A small residual network."""

    def __init__(self, classes=10, size="small", norm_layer=partial(nn.BatchNorm2d, eps=1e-3)):
        super(Residual, self).__init__()
        width = WIDTHS[size]
        self.stem = conv3x3(3, width)
        self.layers = self._make_layer(Block, width, [1, 2], norm_layer)
        self.last = Block(width, width, norm_layer=None)
        self.head = nn.Linear(width, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
            elif isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)

    def _make_layer(self, block, width, strides, norm_layer):
        layers = []
        for stride in strides:
            layers.append(block(width, width * block.expansion, stride, norm_layer))
        return nn.Sequential(*layers)

    def _forward_features(self, x):
        return self.last(self.layers(self.stem(x)))

    def forward(self, x):
        x = self._forward_features(x)
        x = nnf.adaptive_avg_pool2d(x, 1).view(x.size(0), -1)
        return self.head(x)

    def never_called(self):
        return torch.load("nothing")


class Attention(Module):
    def __init__(self, dim, heads=2, drop=0.0):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf"))
        attn = nnf.dropout(attn.softmax(dim=-1), p=self.drop, training=self.training)
        x = (attn @ v).transpose(1, 2).contiguous().flatten(2)
        return self.proj(x)


class LanguageModel(nn.Module):
    def __init__(self, words, dim=8, depth=2):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.cls = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.gamma = nn.Parameter(0.5 * torch.ones(dim), requires_grad=True)
        position = torch.arange(64).unsqueeze(1).float()
        step = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(10000.0) / dim))
        table = torch.zeros(64, dim)
        table[:, 0::2] = torch.sin(position * step)
        table[:, 1::2] = torch.cos(position * step)
        self.register_buffer("table", table.unsqueeze(0))
        self.blocks = ModuleList([Attention(dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, words, bias=False)
        self.head.weight = self.embed.weight
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1)
        x = x + self.table[:, : x.size(1)]
        for block in self.blocks:
            x = x + self.gamma * block(self.norm(x))
        return self.head(x[:, 1:])


class Dropping(nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.p = p
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = nnf.dropout(nnf.relu(self.fc1(x)), self.p, self.training)
        return nnf.dropout(self.fc2(x), p=0.25, training=self.training)


class Started(nn.Module):
    """Parameters with start values of many kinds, and none that a framework sets."""

    def __init__(self, width=4, init=0.5):
        super().__init__()
        self.zeros = nn.Parameter(0.02 * torch.zeros(width))
        self.scaled = nn.Parameter(init * torch.ones(width))
        self.nested = nn.Parameter(2 * (3 * torch.ones(1, width)))
        self.table = nn.Parameter(torch.arange(4.0) * torch.ones(width))
        self.near = nn.Parameter(torch.empty(width).normal_(mean=1.0, std=1e-7))
        self.full = nn.Parameter(torch.full((width,), 7.0))
        self.filled = nn.Parameter(torch.Tensor(width).fill_(0.25))
        self.small = nn.Parameter(torch.empty(1, width).uniform_(-1e-7, 1e-7))
        grid = torch.arange(12.0).view(3, 4).transpose(0, 1)
        grid = 2 * torch.from_numpy(grid.numpy() - 1) + torch.from_numpy(grid.numpy() + 1).sum(0)
        self.register_buffer("grid", 0.1 * grid)
        self.register_buffer("nothing", None if width else grid)

    def forward(self, x):
        x = x * self.scaled + self.zeros + self.nested + self.table
        x = x * self.near + self.full * self.filled + self.small
        return (x @ self.grid).flatten() * 0.1


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("shift", torch.zeros(4), persistent=False)
        self.drawn = nn.Parameter(torch.empty(4).uniform_(0, 1))

    def forward(self, x):
        return x * self.scale + self.shift + self.drawn


ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
LAYERS = [nn.Linear, conv3x3]


class Chosen(nn.Module):
    """Layers that tables of the module name."""

    def __init__(self, activation="relu", width=6):
        super().__init__()
        self.fc = LAYERS[0](4, width)
        self.names = [name for name in ACTIVATIONS]
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x):
        return self.activation(self.fc(x))


class DenseLayer(nn.Sequential):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.add_module("relu", nn.ReLU(inplace=True))
        self.conv = conv3x3(inputs, growth)

    def forward(self, x):
        new = super().forward(x)
        return torch.cat([x, new], 1)


class Dense(nn.Module):
    def __init__(self, growth=3, depth=2):
        super().__init__()
        layers = OrderedDict([("conv0", nn.Conv2d(3, 4, 3, 2, 1))])
        self.features = nn.Sequential(layers)
        for number in range(depth):
            self.features.add_module(f"dense{number}", DenseLayer(4 + number * growth, growth))
        self.heads = nn.ModuleDict({"a": nn.Linear(4 + depth * growth, 2)})
        for number in range(2):
            setattr(self, f"side{number}", nn.Linear(4 + depth * growth, 3))

    def forward(self, x: Tensor):
        features = self.features(x).mean([2, 3])
        sides = [getattr(self, f"side{number}")(features) for number in range(2)]
        return {"a": self.heads["a"](features), "sides": torch.stack(sides, dim=0).sum(0)}


class Shifted(nn.Module):
    """Windows that are masked, as a shifted window attention has them."""

    def __init__(self, window=3):
        super().__init__()
        self.window = window
        coords = torch.stack(torch.meshgrid([torch.arange(window)] * 2, indexing="ij"))
        flat = torch.flatten(coords, 1)
        relative = (flat[:, :, None] - flat[:, None, :]).permute(1, 2, 0).contiguous()
        relative[:, :, 0] += window - 1
        relative[:, :, 1] += window - 1
        relative[:, :, 0] *= 2 * window - 1
        self.register_buffer("index", relative.sum(-1))
        self.bias = nn.Parameter(torch.empty((2 * window - 1) ** 2, 2).normal_(std=0.02))

    @staticmethod
    def windows(x, size):
        b, h, w, c = x.shape
        x = x.view(b, h // size, size, w // size, size, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)

    def forward(self, x):
        size = self.window
        x = x.permute(0, 2, 3, 1)
        x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        mask = x.new_zeros((x.size(1), x.size(2)))
        mask[: size - 1] = 1
        mask[size - 1 :, -size:] = 2
        parts = self.windows(x, size)
        bias = self.bias[self.index.view(-1)].view(size * size, size * size, -1).sum(-1)
        kinds = self.windows(mask[None, :, :, None], size).squeeze(-1)
        apart = kinds.unsqueeze(1) - kinds.unsqueeze(2)
        attn = parts @ parts.transpose(1, 2) + bias
        attn = attn + apart.masked_fill(apart != 0, -100.0).repeat(x.shape[0], 1, 1)
        return torch.softmax(attn, -1) @ parts


class Masked(nn.Module):
    """Inputs by name, one of which is by name alone."""

    def __init__(self, width=5, hidden=4):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, 2)

    def forward(self, x, *, mask=None):
        x = torch.tanh(self.fc1(x))
        return {"logits": self.fc2(x if mask is None else x * mask.unsqueeze(-1))}


class Handed(nn.Module):
    """Networks that exist already are its arguments."""

    def __init__(self, backbone: nn.Module, head: nn.Module):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, x):
        return self.head(self.backbone(x)["logits"])


class NotPortable(nn.Module):
    """Depends on values, and on random numbers of its own."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        if x.sum().item() > 0:
            x = x + torch.randn_like(x)
        return nnf.dropout(self.fc(x), 0.5)


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.contiguous_format)
        return self.fc(x) if x.dtype is not torch.float16 else x


def make_residual():
    return Residual(classes=3, size="large")


class Sloped(nn.Module):
    """Biases that fall with the distance, from a buffer that is not saved."""

    def __init__(self, heads=3):
        super().__init__()
        slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
        self.register_buffer("slopes", slopes, persistent=False)
        self.register_buffer("order", torch.tensor([2**i for i in range(heads)]), persistent=False)
        self.linear = nn.Linear(5, heads)

    def forward(self, x):
        return self.linear(x) * self.slopes + self.order
