"""Networks of PyTorch in the habits of those who bring them, to be ported."""

import math
import numbers
from functools import partial, wraps
from typing import Callable, Optional

import torch
import torch.nn.functional as nnf
from einops import einsum, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from torch import Tensor, nn

WIDTHS = {"small": 8, "large": 12}


def conv3x3(inputs, outputs, stride=1):
    """A convolution that keeps the size, or halves it."""
    return nn.Conv2d(
        inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False
    )


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

    def __init__(
        self, classes=10, size="small", norm_layer=partial(nn.BatchNorm2d, eps=1e-3)
    ):
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


class Started(nn.Module):
    """Parameters with start values of many kinds, and none that a framework sets."""

    def __init__(self, width=4, init=0.5):
        super().__init__()
        self.zeros = nn.Parameter(0.02 * torch.zeros(width))
        self.scaled = nn.Parameter(init * torch.ones(width), requires_grad=True)
        self.nested = nn.Parameter(2 * (3 * torch.ones(1, width)))
        self.table = nn.Parameter(torch.arange(4.0) * torch.ones(width))
        self.near = nn.Parameter(torch.empty(width).normal_(mean=1.0, std=1e-7))
        self.full = nn.Parameter(torch.full((width,), 7.0))
        self.filled = nn.Parameter(torch.Tensor(width).fill_(0.25))
        self.small = nn.Parameter(torch.empty(1, width).uniform_(-1e-7, 1e-7))
        grid = torch.arange(12.0).view(3, 4).transpose(0, 1)
        grid = 2 * torch.from_numpy(grid.numpy() - 1) + torch.from_numpy(
            grid.numpy() + 1
        ).sum(0)
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
    """Layers that tables of the module name, and such with numbers in their names."""

    def __init__(self, activation="relu", width=6):
        super().__init__()
        self.fc = LAYERS[0](4, width)
        self.names = [name for name in ACTIVATIONS]
        self.activation = ACTIVATIONS[activation]()
        for number in range(2):
            setattr(self, f"side{number}", nn.Linear(width, 3))

    def forward(self, x):
        x = self.activation(self.fc(x))
        return sum(getattr(self, f"side{number}")(x) for number in range(2))


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
        self.bias = nn.Parameter(
            torch.empty((2 * window - 1) ** 2, 2).normal_(std=0.02)
        )

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
        self.width, self.hidden = width, hidden
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
            x = x + torch.bernoulli(torch.sigmoid(x))
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
        self.register_buffer(
            "order", torch.tensor([2**i for i in range(heads)]), persistent=False
        )
        self.linear = nn.Linear(5, heads)

    def forward(self, x):
        return self.linear(x) * self.slopes + self.order


class Patches(nn.Module):
    """Patches of a picture, moved and reduced by einops, as vision transformers are written."""

    def __init__(self, patch=2, dim=6):
        super().__init__()
        self.embed = nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=patch, q=patch),
            nn.Linear(3 * patch**2, dim),
        )
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.pool = Reduce("b n d -> b d", "max")

    def forward(self, img):
        x = self.embed(img)
        x = torch.cat((repeat(self.cls, "1 1 d -> b 1 d", b=img.shape[0]), x), dim=1)
        q, k, v = (
            rearrange(t, "b n (h d) -> b h n d", h=2)
            for t in self.qkv(x).chunk(3, dim=-1)
        )
        attn = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(dim=-1)
        x = rearrange(torch.einsum("bhij,bhjd->bhid", attn, v), "b h n d -> b n (h d)")
        return self.pool(x) + reduce(x, "b n d -> b d", "mean") * reduce(
            x, "b n d -> b 1", "sum"
        )


if hasattr(nnf, "mish"):

    def smooth(x):
        return nnf.mish(x)

    GAIN = 2.0

else:

    def smooth(x):
        return x * torch.tanh(nnf.softplus(x))

    GAIN = 3.0

RATES = [number / 4 for number in (1, 2, 3)]


def small_normal(module, std=0.02, draw=nn.init.normal_):
    if getattr(module, "weight", None) is not None:
        draw(module.weight.data, 0.0, std)


class Habits(nn.Module):
    """What is created on the way: rates of layers, places of later outputs, numbers from tables."""

    def __init__(self, width=5, depth=3):
        super().__init__()
        rates = [x.item() for x in torch.linspace(0, 0.4, depth)]
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in rates)
        self.drops = nn.ModuleList(nn.Dropout(rate) for rate in rates)
        self.heads = [torch.rand(1)] * depth
        self.register_buffer("rates", torch.tensor(RATES).sum() + torch.zeros(width))
        self.apply(small_normal)

    def forward(self, x, more=None):
        if more is not None and torch.jit.isinstance(more, torch.Tensor):
            x = x + more
        for number, (layer, drop) in enumerate(zip(self.layers, self.drops)):
            x = self.heads[number] = drop(smooth(layer(x)))
        return torch.as_tensor(x) * GAIN + self.rates


def drop_path(x, drop_prob: float = 0.0, training: bool = False):
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    random_tensor = keep_prob + torch.rand(
        (x.shape[0],) + (1,) * (x.ndim - 1), device=x.device
    )
    return x.div(keep_prob) * random_tensor.floor_()


def drop_connect(x, drop_ratio):
    mask = torch.empty([x.shape[0], 1], dtype=x.dtype, device=x.device)
    mask.bernoulli_(1.0 - drop_ratio)
    x.div_(1.0 - drop_ratio)
    x.mul_(mask[:, :, None, None])
    return x


class DropPath(nn.Module):
    def __init__(self, drop_prob=0.0):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return drop_path(x, self.drop_prob, self.training)


class Depth(nn.Module):
    """Stochastic depth in two ways, by functions of one's own."""

    def __init__(self, rate=0.4, data_format="channels_first"):
        super().__init__()
        self.data_format = data_format  # which is no array of a parameter
        self.drop_rate = rate
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
        self.drop_path = DropPath(rate) if rate > 0.0 else nn.Identity()

    def forward(self, x):
        x = x + self.drop_path(self.convs[0](x))
        out = self.convs[1](x)
        if self.training and self.drop_rate > 0:
            out = drop_connect(out, self.drop_rate)
        return out + x if self.data_format == "channels_first" else out


class States(nn.Module):
    """Recurrent layers that are given their first states."""

    def __init__(self, words=11, hidden=3):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Sequential(nn.Embedding(words, 4))
        self.lstm = nn.LSTM(
            4, hidden, num_layers=2, batch_first=True, bidirectional=True
        )
        self.gru, self.cell = nn.GRU(2 * hidden, hidden), nn.LSTMCell(hidden, 2)

    def init_hidden(self, count):
        weight = next(self.parameters())
        return weight.new_zeros(4, count, self.hidden), weight.new_zeros(
            4, count, self.hidden
        )

    def forward(self, tokens):
        self.lstm.flatten_parameters()
        out, (h, c) = self.lstm(self.embed(tokens), self.init_hidden(tokens.size(0)))
        first = torch.zeros(1, tokens.size(0), self.hidden).to(tokens.device)
        out, _ = self.gru(out.transpose(0, 1), first)
        hx, cx = torch.zeros(tokens.size(0), 2), torch.zeros(tokens.size(0), 2)
        for step in range(out.size(0)):
            hx, cx = self.cell(out[step], (hx, cx))
        return torch.cat([hx, h[-1], c[-2]], dim=1).max(dim=1).values


def sincos(length, dim, temperature: int = 10000, dtype=torch.float32):
    omega = 1.0 / temperature ** (torch.arange(dim // 2) / (dim // 2 - 1))
    angles = torch.arange(length)[:, None] * omega[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=1).type(dtype)


def split_in_windows(x, size):
    """In the network of pictures, and of a mask while it is created."""
    count, length, channels = x.shape
    return x.view(count, length // size, size, channels).reshape(-1, size, channels)


class Tables(nn.Module):
    """Tables of positions that are computed on the way, and a mask that is before."""

    def __init__(self, dim=4, window=2):
        super().__init__()
        self.window = window
        mask = torch.zeros(1, 6, 1)
        mask[:, window:] = 1
        self.register_buffer("mask", split_in_windows(mask, window).squeeze(2))
        self.register_buffer(
            "slow", torch.arange(0, dim, 2).float() / dim, persistent=False
        )
        self.order = nn.Buffer(torch.arange(6).expand((1, -1)), persistent=False)
        self.fused = hasattr(torch.nn.functional, "scaled_dot_product_attention")
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        x = (
            self.proj(x + sincos(n, d).to(x.device, dtype=x.dtype))
            * torch.cos(self.slow).sum()
        )
        parts = split_in_windows(x, self.window)
        dots = parts @ parts.transpose(1, 2)
        apart = self.mask.repeat(b, 1).unsqueeze(1) > 0
        dots = dots.masked_fill(~apart, -torch.finfo(dots.dtype).max)
        index = torch.arange(0, n, dtype=torch.long, device=x.device)
        dots = dots / apart.cumsum(1, dtype=torch.float32).sum(-1, keepdim=True).clamp(
            min=1.0
        )
        dots = dots + self.order[:, :1]
        return dots.softmax(dim=-1) @ parts if self.fused else index


class ConvAct(nn.Module):
    default_act = nn.SiLU()  # of the class

    def __init__(self, inputs, outputs, conv=conv3x3, act=True):
        super().__init__()
        self.conv = conv(inputs, outputs)
        self.act = self.default_act if act is True else nn.Identity()

    def forward(self, x):
        return self.act(self.conv(x))


class Recursive(nn.Module):
    """Members by name, one of which may be None, and a mask that is not trained."""

    def __init__(self, depth=2, shifted=False):
        super().__init__()
        for level in range(depth):
            self.add_module("level" + str(level), ConvAct(3, 3))
        self.mask = nn.Parameter(
            torch.Tensor([[[1.0]], [[0.0]], [[2.0]]]), requires_grad=False
        )
        self.register_buffer("shift", torch.ones(3, 1, 1) if shifted else None)

    @torch.no_grad()
    def scale(self, x):
        return (
            torch.autograd.Variable(x.float()).mean(dim=(2, 3), keepdim=True)
            if x.is_cuda
            else 2.0
        )

    def level(self, x, number):
        x = self._modules["level" + str(number)](x) * self.mask
        return (
            self.level(self.__getattr__(f"level{number - 1}")(x), number - 1)
            if number
            else x
        )

    def forward(self, x):
        x = self.level(x, 1) * self.scale(x)
        return x if self.shift is None else x + self.shift


class Ordered(nn.Module):
    """Trains what another class has as a buffer of this name."""

    def __init__(self, size):
        super().__init__()
        self.order = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.order


class Keeping(nn.Module):
    """What is the same for all batches of evaluation is kept, for each device."""

    def __init__(self, size=4):
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1.0, 1.0, size))
        self.register_buffer("order", torch.arange(size).flip(0), persistent=False)
        self.kept = {}
        with torch.device("cpu"):
            self.scale = Ordered(size)

    def biases(self, device):
        if self.training:
            return self.table[self.order]
        key = str(device)
        if key not in self.kept:
            self.kept[key] = self.table[self.order]
        return self.kept[key]

    def forward(self, x):
        parts = torch.jit.annotate(list[Tensor], [])
        parts.append(self.scale(x) + self.biases(x.device))
        return parts[0]


class Late(nn.Module):
    """Imports where they are needed, and asks what it was given."""

    def __init__(self, width=5, norm="layer"):
        super().__init__()
        from torch.nn import LayerNorm
        from torch.nn.modules.activation import GELU as Smooth

        self.norm = LayerNorm(width) if norm == "layer" else None
        self.smooth = Smooth()

    def forward(self, x, scale=2.0):
        from math import sqrt

        import torch.nn.functional as functional

        if torch.is_tensor(scale) or not x.is_floating_point():
            raise TypeError("a number, and an array of numbers")
        match scale:
            case math.pi:
                scale = 3.0
            case numbers.Integral():
                scale = float(scale)
        return functional.elu(self.smooth(self.norm(x))) * sqrt(scale)


class Gate(nn.Module):
    def __init__(self, width, act=nn.ReLU):
        super().__init__()
        self.fc, self.act = nn.Linear(width, width), act()

    def forward(self, x):
        return x * self.act(self.fc(x))


class Gated(nn.Module):
    def __init__(self, width=4, gate=Gate):
        super().__init__()
        self.gate = gate(width)

    def forward(self, x):
        return self.gate(x)


class Standardised(nn.Conv2d):
    """A convolution whose weight is standardised by the function of batch norm."""

    def forward(self, x):
        weight = nnf.batch_norm(
            self.weight.reshape(1, self.out_channels, -1),
            None,
            None,
            training=True,
            momentum=0.0,
            eps=1e-6,
        ).reshape_as(self.weight)
        return nnf.conv2d(x, weight, self.bias, self.stride, self.padding)


class Pretrained(nn.Module):
    def __init__(self, words=11, dim=6):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(torch.randn(words, dim), freeze=False)
        self.conv = Standardised(1, 3, (2, dim), stride=2)

    def forward(self, tokens):
        return self.conv(self.embed(tokens).unsqueeze(1)).squeeze(3).amax(2)


def doubled(function):
    @wraps(function)
    def double(self, x):
        return 2.0 * function(self, x)

    return double


class Moded(nn.Module):
    """Sets the modes of its members itself, and calls them one after the other."""

    def __init__(self, frozen=False):
        super().__init__()
        self.frozen = frozen
        self.encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.act, self.drop = nn.ReLU(), nn.Dropout(0.3)

    def train(self, mode=True):
        self.training = mode
        for name, module in self.named_children():
            if not (self.frozen and name == "encoder"):
                module.train(mode)
        return self

    @doubled
    def forward(self, x):
        for child in self.children():
            x = child(x)
        return x


class Rated(nn.Module):
    """Tells each block with which rate it drops."""

    def __init__(self, depth=2, rate=0.4):
        super().__init__()
        self.rate = rate
        self.blocks = nn.ModuleList(RatedBlock() for _ in range(depth))

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = block(x, drop_rate=self.rate * (number + 1) / len(self.blocks))
        return x


class RatedBlock(nn.Module):
    def __init__(self, name="conv"):
        super().__init__()
        self.name = name
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x, drop_rate=None):
        out = self.get_submodule(self.name)(x)
        out = nnf.dropout(out, drop_rate, self.training)
        if drop_rate is not None and drop_rate > 0:
            out = drop_path(out, drop_rate, self.training)
        return out + x


class Overwriting(nn.Module):
    """Methods that write over what they belong to, as statements."""

    def __init__(self, width=5):
        super().__init__()
        self.width = width
        steps = torch.arange(-(self.width - 1), self.width, 2, dtype=torch.float32)
        steps /= self.width
        self.register_buffer("steps", steps)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        x = self.fc(x)
        x.mul_(self.steps).clamp_(min=-1.0)
        y = x.clone()
        y[:, 1:3].zero_()
        y.add_(x)
        x[0].fill_(0.5)
        return y.masked_fill_(y < -0.5, 2.0) + x
