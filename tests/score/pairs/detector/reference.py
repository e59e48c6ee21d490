"""A small detector on PyTorch: a pyramid of two levels, one head for classes and one for boxes."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, ANCHORS = 2, 2


def make_anchors(sizes, strides=(2, 4)):
    """Centres and sizes of all anchors: level by level, row by row, the anchors of a cell last."""
    anchors = []
    for (height, width), stride in zip(sizes, strides):
        for row in range(height):
            for column in range(width):
                for ratio in (1.0, 2.0):
                    anchors.append(
                        [
                            (column + 0.5) * stride,
                            (row + 0.5) * stride,
                            2.0 * stride * ratio,
                            2.0 * stride / ratio,
                        ]
                    )
    return torch.tensor(anchors)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.norm1 = nn.GroupNorm(2, 6)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(2, 8)

    def forward(self, x):
        fine = F.relu(self.norm1(self.conv1(x)))
        coarse = F.relu(self.norm2(self.conv2(fine)))
        return fine, coarse


class FPN(nn.Module):
    def __init__(self, channels=5):
        super().__init__()
        self.lateral1 = nn.Conv2d(6, channels, 1)
        self.lateral2 = nn.Conv2d(8, channels, 1)
        self.smooth = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, fine, coarse):
        top = self.lateral2(coarse)
        down = self.lateral1(fine) + F.interpolate(top, scale_factor=2, mode="nearest")
        return [self.smooth(down), top]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.fpn = FPN()
        self.cls_head = nn.Conv2d(5, ANCHORS * CLASSES, 3, padding=1)
        self.box_head = nn.Conv2d(5, ANCHORS * 4, 3, padding=1)
        self.register_buffer("anchors", make_anchors([(8, 6), (4, 3)]))

    def forward(self, images):
        features = self.fpn(*self.backbone(images))
        scores = torch.cat([flat(self.cls_head(level), CLASSES) for level in features], dim=1)
        deltas = torch.cat([flat(self.box_head(level), 4) for level in features], dim=1)
        centres = self.anchors[:, :2] + deltas[..., :2] * self.anchors[:, 2:]
        sizes = self.anchors[:, 2:] * deltas[..., 2:].exp()
        return {"scores": scores, "boxes": torch.cat([centres, sizes], dim=-1)}


def flat(x, size):
    """(n, anchors * size, height, width) to (n, height * width * anchors, size)."""
    return x.permute(0, 2, 3, 1).reshape(len(x), -1, size)


def network():
    torch.manual_seed(5)
    model = Detector()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch():
    """Two images, and for each anchor a box and flags of its classes."""
    rng = np.random.default_rng(6)
    images = rng.normal(size=(2, 3, 16, 12)).astype("float32")
    boxes = rng.uniform(1, 12, size=(2, 120, 4))
    flags = rng.uniform(size=(2, 120, CLASSES)) < 0.2
    return images, np.concatenate([boxes, flags], axis=-1).astype("float32")


def loss(network, images, target):
    output = network(images)
    boxes, flags = target[..., :4], target[..., 4:]
    positive = (flags.sum(dim=-1) > 0).to(boxes.dtype)
    distance = F.smooth_l1_loss(output["boxes"], boxes, beta=0.5, reduction="none").sum(dim=-1)
    regression = (distance * positive).sum() / positive.sum().clamp(min=1)
    return F.binary_cross_entropy_with_logits(output["scores"], flags) + 0.5 * regression
