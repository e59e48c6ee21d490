"""Small networks of PyTorch that call for many entries of the port's table."""

import torch
import torch.nn.functional as nnf
from torch import nn


class Shapes(nn.Module):
    """Methods that move elements, and a table that is made in construction."""

    def __init__(self):
        super().__init__()
        table = torch.arange(6.0).view(2, 3)
        table = torch.cat([table, torch.full((1, 3), 0.5)], 0).transpose(0, 1)
        self.register_buffer("table", table.unsqueeze(0).repeat(2, 1, 1))
        self.fc = nn.Linear(6, 9)

    def forward(self, x):
        b, n = x.size(0), x.size(1)
        h = self.fc(x).view(b, n, 3, 3).permute(0, 2, 1, 3).flatten(2)
        h = h.reshape(b, 3, -1) + x.new_full((1, 3, 1), 0.5)
        first, second = h.chunk(2, dim=2)
        h = torch.cat([first.expand(b, -1, -1), second.flip(2)], 1)
        h = h.view(b, 2, 3, -1)[:, :, :, :3] * self.table.unsqueeze(0).expand(
            b, -1, -1, -1
        )
        return h.transpose(1, 2).squeeze(0).roll(1, 2).repeat(1, 1, 1, 2)


class Numbers(nn.Module):
    """Functions and reductions of the values."""

    def __init__(self):
        super().__init__()
        steps = torch.linspace(0.0, 1.0, 5).pow(2)
        self.scale = nn.Parameter(torch.ones(5) * 0.5)
        self.register_buffer("steps", torch.stack([steps, steps.sqrt()], 1).sum(1))

    def forward(self, x):
        x = x * self.scale + self.steps
        low = torch.zeros(3, 1, device=x.device)
        h = (
            x.softmax(dim=1)
            + x.std(1, unbiased=False, keepdim=True)
            + torch.var(x, 1, True)[:, None]
        )
        h = (
            h.clamp(min=0.1, max=0.9)
            + x.mean(1, keepdim=True)
            + x.sum(dim=1, keepdim=True)
            + low
        )
        h = h + x.masked_fill(x > 0, -1.0) + torch.where(x > 0.5, x, 0.5 * x).cumsum(1)
        h = (
            h
            + torch.linalg.norm(x, dim=1, keepdim=True)
            + x.norm(p=2, dim=-1, keepdim=True)
        )
        return h + torch.arange(5, device=x.device) * x.max(dim=1)[0].unsqueeze(-1)


class Pictures(nn.Module):
    """What is computed on pictures, and written into them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        grid = torch.meshgrid(torch.arange(5), torch.arange(6), indexing="ij")
        self.register_buffer("grid", torch.stack(grid).float() / 5)

    def forward(self, x):
        h = self.conv(x) + self.grid.sum(0, keepdim=True)
        h += x.mean((2, 3), keepdim=True).repeat(1, 2, 1, 1)
        h = nnf.leaky_relu(h, 0.2)
        h = h.clone()
        h[:, 0] = 0.5
        small = nnf.avg_pool2d(nnf.pad(h, (1, 0, 0, 1)), 2, stride=2)
        h = h + nnf.interpolate(
            small, size=h.shape[2:], mode="bilinear", align_corners=False
        )
        h = h.view(h.shape[0], 2, 2, *h.shape[2:]).transpose(1, 2).flatten(1, 2)
        return nnf.normalize(h, dim=1).mT.amax(dim=3).sum(2)
