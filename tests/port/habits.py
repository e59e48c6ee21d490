"""Networks of PyTorch as repositories of papers have them."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import weight_norm

try:
    from a_package_that_is_not_here import FastNorm as Norm
    from a_package_that_is_not_here import fast_attention
except ImportError:
    from torch.nn import LayerNorm as Norm

    fast_attention = None


class Reporting(nn.Module):
    """Keeps its weights of attention for people to look at."""

    def __init__(self, width=6, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.attn = None
        self.last = None

    def attend(self, q, k, v):
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return weights @ v, weights

    def forward(self, x):
        q, k, v = self.qkv(x).split(split_size=x.shape[-1], dim=-1)
        x, self.attn = self.attend(q, k, v)
        self.last = x.detach()
        return x

    def plot(self):
        return self.attn.numpy(), self.last.numpy()


class Counting(nn.Module):
    """Makes whole numbers, and arrays from NumPy, where it runs."""

    def __init__(self, words=7, width=6, steps=3):
        super().__init__()
        self.steps, self.width = steps, width
        self.embedding = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, words)

    def forward(self, h):
        word = torch.zeros(h.size(0), dtype=torch.long, device=h.device)
        eye = torch.from_numpy(np.eye(self.width).astype(np.float32))
        h, outputs = h + eye[0], []
        for _ in range(self.steps):
            h = self.cell(self.embedding(word), h)
            outputs.append(self.out(h))
            word = outputs[-1].topk(1)[1].squeeze(-1).detach()
        return torch.stack(outputs, 1)


class Listed(nn.Module):
    """Keeps its heads in a plain list, and registers each by a name."""

    def __init__(self, heads=2):
        super().__init__()
        self.heads = [nn.Linear(5, 3) for _ in range(heads)]
        for i, head in enumerate(self.heads):
            self.add_module(f"head_{i}", head)

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=1)


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x * torch.sigmoid(x)
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0]
        s = torch.sigmoid(x)
        return gradient * (s * (1 + x * (1 - s)))


class ReverseFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg() * ctx.by, None


class Swishing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(SwishFunction.apply(self.fc(x)))


class Reversing(nn.Module):
    """Hands the gradient on with another sign: no derivative of what it computes."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(ReverseFunction.apply(self.fc(x), 0.5))


class Attending(nn.Module):
    """Drops weights of attention within PyTorch's function, and steps of a recurrence."""

    def __init__(self, width=6, dropout=0.2):
        super().__init__()
        self.dropout = dropout
        self.rnn = nn.GRU(width, width, 2, batch_first=True, dropout=dropout)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x, _ = self.rnn(x)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True
        )
        return y + F.scaled_dot_product_attention(
            q, k, v, None, self.drop.p if self.training else 0.0
        )


class Packing(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return self.rnn(packed)[1][-1]


class Gridding(nn.Module):
    """Makes a grid by a static method, which has no array at hand."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    @staticmethod
    def grid(width, height):
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        return torch.stack((x, y)).float()

    def forward(self, x):
        return self.conv(x) + self.grid(*x.shape[:1:-1])


class Normalised(nn.Module):
    """Weights as a length times a direction, of each kind of layer."""

    def __init__(self, width=4):
        super().__init__()
        self.up = weight_norm(nn.ConvTranspose1d(3, width, 5, 2, padding=1))
        self.convs = nn.Sequential(
            weight_norm(nn.Conv1d(width, 6, 3, stride=2, groups=2, bias=False)),
            nn.LeakyReLU(0.2),
            weight_norm(nn.Conv1d(6, 2, kernel_size=3, padding=2, dilation=2)),
        )
        self.picture = weight_norm(nn.Conv2d(1, 3, (2, 3), 2))
        self.out = weight_norm(nn.Linear(3, 2))
        self.convs[0].weight.data.normal_(0, 0.01)

    def forward(self, x):
        x = self.convs(self.up(x))
        return self.out(self.picture(x.unsqueeze(1)).mean((2, 3)))


class NormalisedLater(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        weight_norm(self.fc)
        self.wave = weight_norm(nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect"))

    def forward(self, x):
        return self.wave(self.fc(x)[:, None])


class Following(nn.Module):
    """A network of which a copy follows, whose parameters are not trained."""

    def __init__(self, width=5):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))
        self.target = copy.deepcopy(self.online)
        for one, other in zip(self.online.parameters(), self.target.parameters()):
            other.data.copy_(one.data)
            other.requires_grad = False
        self.shift = nn.Linear(width, width)
        self.shift.requires_grad_(False)
        self.head = nn.Linear(width, width)
        self.head.bias.requires_grad = False

    @torch.no_grad()
    def distance(self, x, y):
        return ((x - y) ** 2).mean(axis=1, keepdims=True)

    def forward(self, x):
        online = self.head(self.online(x))
        with torch.no_grad():
            target = self.shift(self.target(x)) * 2
            scale = 1 + self.distance(online, target)
        return scale * (online - target)


class Causal(nn.Conv2d):
    """A convolution with a mask that it fills once it is there."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("mask", self.weight.data.clone())
        rows, columns = self.weight.shape[2:]
        self.mask.fill_(1)
        self.mask[:, :, rows // 2, columns // 2 :] = 0
        self.mask[:, :, rows // 2 + 1 :].zero_()

    def forward(self, x):
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)


class Masked(nn.Module):
    """Start values that are written over, and a plain module that holds others."""

    def __init__(self):
        super().__init__()
        self.first = Causal(2, 3, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(3, 1, 1).div_(4))
        self.parts = nn.Module()
        self.parts.shift = nn.Conv2d(3, 2, 1)
        self.parts.register_buffer("noise", torch.randn(2, 1, 1))
        self.ones = np.array([0, 1, 0])
        self.activation = nn.ELU()

    def forward(self, x):
        if x.dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        x = self.activation(self.first(x) * self.scale)
        x = x[:, x.new_tensor(self.ones).long()]
        x.data.clamp_(max=10.0)
        device = x.device
        rows, columns = map(
            lambda n: torch.linspace(0, 1, n, device=device), x.shape[2:]
        )
        x = x + rows[:, None] * columns
        return torch.einsum("bchw,bchw->bc", [self.parts.shift(x), x[:, :2]])


class MaskedInPlace(Causal):
    def forward(self, x):
        self.weight.data *= self.mask
        return super(Causal, self).forward(x)


class NamedLikeFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.nn = nn.Linear(3, 3)
        self.backend = nn.Linear(3, 3)

    def forward(self, x):
        return self.backend(self.nn(x))


class Placed(nn.Module):
    """Puts words where they are already, and makes words of a mask."""

    def __init__(self, words=7):
        super().__init__()
        self.embedding, self.out = nn.Embedding(words, 4), nn.Linear(4, 3)
        self.at = "cpu"

    def forward(self, words):
        words = words.to(self.at).to("cpu").type_as(words)
        known = (words != 0).type_as(words)
        x = self.embedding(words * known) + self.embedding(words.float().long())
        return self.out(x * known.to(x).unsqueeze(-1))


class Reading(nn.Module):
    """Words that are not trained, a device that it keeps, a mask of later places."""

    def __init__(self, rows=7, width=6):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.randn(rows, width))
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        setattr(self.layers, "1", nn.Tanh())
        self.encoder = self.encoder_of(width)
        self.sizes = [width]
        self.kept = {}

    @classmethod
    def encoder_of(cls, width):
        layer = nn.TransformerEncoderLayer(width, 2, 8, batch_first=True)
        return nn.TransformerEncoder(layer, 1)

    def forward(self, tokens):
        x = self.layers(self.words(tokens.to(self.device)))
        size = tokens.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(size).to(self.device)
        x = self.encoder(x, mask=mask)
        self.kept["features"] = x
        F.relu_(x)
        return x.select(1, 0) + x.select(-1, 2).mean(dim=1, keepdim=True)


class Hooking(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.seen = {}
        self.layer.register_forward_hook(self.keep)
        self.register_buffer("shift", self.doubled(torch.ones(3)))
        limits = torch.randn(3)
        limits.clamp_(0, 1)
        limits.add_(1.0, alpha=2.0)
        self.activation = eval("nn.ELU()")

    def keep(self, module, inputs, output):
        self.seen["layer"] = output

    @staticmethod
    def doubled(x):
        return x.view(-1, 3) * 2

    def forward(self, x):
        return self.activation(self.layer(self.doubled(x) + self.shift))


class Coded(nn.Module):
    """A codebook that follows what it codes, without gradients."""

    def __init__(self, width=3, codes=4, decay=0.9):
        super().__init__()
        self.codes, self.decay = codes, decay
        self.proj = nn.Linear(5, width)
        rows = F.normalize(torch.randn(codes, width), dim=1)
        self.register_buffer("rows", F.normalize(torch.randn(codes, width), dim=1))
        self.register_buffer("sums", rows.clone())
        self.register_buffer("sizes", torch.ones(codes))

    @torch.no_grad()
    def follow(self, x, hits):
        self.sizes.data.mul_(self.decay).add_(hits.sum(0), alpha=1 - self.decay)
        self.sums.lerp_(hits.t() @ x, 1 - self.decay)
        self.rows.copy_(self.sums / self.sizes.unsqueeze(1))

    def forward(self, x):
        x = self.proj(x)
        code = torch.cdist(x, self.rows).argmin(1)
        found = F.embedding(code, self.rows)
        if self.training:
            self.follow(x, F.one_hot(code, self.codes).type(x.dtype))
        return (
            x + (found - x).detach(),
            (found.detach() - x).pow(2).mean(),
            self.rows.sum(),
        )


class Trailing(nn.Module):
    """Moves the weights of a teacher in each call."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(3, 4), nn.Linear(3, 4)
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def move(self):
        for s, t in zip(self.student.parameters(), self.teacher.parameters()):
            t.data = 0.9 * t.data + 0.1 * s.data

    def forward(self, x):
        self.move()
        return self.student(x) - self.teacher(x)


class Probing(nn.Module):
    """Tells PyTorch of an array of its own that it is differentiated."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        shift = torch.zeros_like(x)
        shift.requires_grad_(True)
        return self.fc(x + shift)


class Filled(nn.Module):
    """Two buffers that are written into, one by the other."""

    def __init__(self, size=4):
        super().__init__()
        self.fc = nn.Linear(size, size)
        self.register_buffer("steps", torch.arange(float(size)))
        self.register_buffer("share", torch.ones(size))
        self.steps[0] = 5
        self.share /= self.steps.sum()

    def forward(self, x):
        return self.fc(x * self.steps) + self.share


def drawn_evenly(tensor):
    bound = tensor.shape[-1] ** -0.5
    tensor.uniform_(-bound, bound)
    return tensor


def expanded_along(x, dim, count):
    x = x.unsqueeze(dim)
    sizes = [-1] * len(x.shape)
    sizes[dim] = count
    return x.expand(*sizes)


class Offsets(nn.Module):
    """Tables are filled, taken apart and limited while the network is created."""

    def __init__(self, dim=4, size=3, radius=1.0):
        super().__init__()
        scale = torch.zeros(1, dim).fill_(0.5)
        self.scale = nn.Parameter(scale)
        steps = torch.arange(size).float()
        grid = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), dim=-1)
        rows, columns = grid.reshape(-1, 2).unbind(dim=-1)
        later, _ = torch.unbind(torch.stack((columns, rows)))
        self.register_buffer("rows", (rows - 1).clamp(min=-radius, max=0.5))
        self.register_buffer("columns", torch.clamp(later, max=radius))
        self.register_buffer("start", torch.ones(size * size).zero_())
        places = torch.stack((rows, columns), dim=-1)
        near = torch.cdist(places, places) < 1.5
        self.register_buffer("near", near)
        self.register_buffer("others", ~torch.eye(size * size, dtype=torch.bool))
        self.fc = nn.Linear(dim, size * size)
        self.projection = nn.Parameter(drawn_evenly(torch.zeros(dim, dim)))

    def forward(self, x):
        y = (
            self.fc(x @ self.projection * self.scale) * self.rows
            + self.columns
            + self.start
        )
        scores = expanded_along(y, 1, y.shape[-1]) * y[:, :, None]
        itself = torch.eye(scores.shape[-1], device=x.device, dtype=torch.bool)
        λ = torch.finfo(scores.dtype).max
        scores = scores.masked_fill(itself, -λ).flatten(1).reshape(scores.shape)
        scores = scores.softmax(-1) * self.near
        return scores @ self.others.to(x.dtype) + y[:, None]


class Encoder(nn.Module):
    """The mean and the logarithm of the variance of a latent vector, and a sample of it."""

    def __init__(self, features=12, latent=3):
        super().__init__()
        self.latent = latent
        self.both = nn.Linear(features, 2 * latent)
        self.decode = nn.Sequential(nn.Linear(latent, features), nn.Sigmoid())

    def sampled(self, mean, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mean + eps * std

    def forward(self, x):
        mean, logvar = self.both(x.view(-1, 12)).chunk(2, dim=1)
        return self.decode(self.sampled(mean, logvar)), mean, logvar


class DrawnEncoder(Encoder):
    """Samples by the framework's own distribution."""

    def sampled(self, mean, logvar):
        return torch.normal(mean, (0.5 * logvar).exp())


class Injected(nn.Module):
    """Adds noise of one channel to every layer, as generators of faces do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = (
            nn.Conv2d(2, 3, 3, padding=1),
            nn.Conv2d(3, 2, 3, stride=2),
        )
        self.strength = nn.Parameter(torch.full((1, 3, 1, 1), 0.3))

    def forward(self, x, noise=None):
        x = self.first(x)
        if noise is None:
            batch, _, height, width = x.shape
            noise = x.new_empty(batch, 1, height, width).normal_()
        x = self.last(x + self.strength * noise)
        uniform = torch.rand(x.size(0), 1, *x.shape[2:], device=x.device, dtype=x.dtype)
        return x + 0.1 * uniform + torch.empty_like(x).uniform_(-1, 2)


def sampled_outside(mean, logvar):
    return mean + torch.randn_like(mean) * torch.exp(logvar / 2)


class OutsideEncoder(Encoder):
    """Samples in a function of the module, which has no layers."""

    def sampled(self, mean, logvar):
        return sampled_outside(mean, logvar)


class Optional(nn.Module):
    """Takes what an installed package would do faster, and functions by their names."""

    def __init__(self, width=4):
        super().__init__()
        self.norm, self.activation = Norm(width), getattr(torch, "tanh")

    def forward(self, x):
        if fast_attention is not None and x.is_cuda:
            return fast_attention(x)
        variance, mean = torch.var_mean(x, dim=[1], keepdim=True, unbiased=False)
        return self.activation(self.norm(x - mean)) / (variance + 1.0)


class Assigning(nn.Module):
    """Writes over elements of masks, and over what a dict holds."""

    def __init__(self, width=6):
        super().__init__()
        self.token = nn.Parameter(torch.linspace(-1.0, 1.0, width))
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        hidden = x[..., 0] > 0.3
        parts = {"x": x.clone()}
        parts["x"] += 0.5
        x = parts["x"]
        x[hidden] = self.token
        y = self.proj(x)
        y[y < 0] *= 0.1
        outputs = torch.zeros_like(y)
        outputs[~hidden] = 2 * y[~hidden]
        places = torch.arange(y.size(1), device=y.device)
        ones = torch.ones_like(places, dtype=y.dtype)
        return outputs * ones.cumsum(0)[:, None]


class Called(nn.Module):
    """Computes in ``__call__``, and has no method `forward`."""

    def __init__(self, width=6):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def __call__(self, x, scale=2.0):
        return self.fc(x) * scale


class CalledBelow(Called):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)

    def __call__(self, x):
        return self.out(super().__call__(x))


class CalledAround(nn.Module):
    """Has both methods."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return self.fc(x)

    def __call__(self, x):
        return 2 * super().__call__(x)


class DroppingInTraining(nn.Module):
    """Asks for the mode before it drops."""

    def __init__(self, width=6):
        super().__init__()
        self.fc, self.p = nn.Linear(width, width), 0.2

    def forward(self, x):
        if self.training and x.dim() == 2:
            x = x * 1.0
        if self.training:
            x = F.dropout(x, self.p)
        return self.fc(x)


class Windowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x.unfold(1, 2, 2))


class AssigningByValues(Assigning):
    def forward(self, x):
        y = self.proj(x)
        y[y < 0] = y[y < 0].mean()
        return y
