"""A U-Net with group norm; one way up is a transposed convolution, the other is resized."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    """(convolution => norm => ReLU) * 2"""

    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_ch, out_ch, 3, padding=1),
            nn.GroupNorm(2, out_ch),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_ch, out_ch, 3, padding=1),
            nn.GroupNorm(2, out_ch),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels=2, n_classes=3):
        super().__init__()
        self.inc = DoubleConv(n_channels, 4)
        self.down1 = DoubleConv(4, 6)
        self.down2 = DoubleConv(6, 8)
        self.up1 = nn.ConvTranspose2d(8, 6, kernel_size=2, stride=2)
        self.conv1 = DoubleConv(12, 6)
        self.reduce = nn.Conv2d(6, 4, 1)
        self.conv2 = DoubleConv(8, 4)
        self.outc = nn.Conv2d(4, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x = self.conv1(torch.cat([x2, self.up1(x3)], dim=1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = self.conv2(torch.cat([x1, self.reduce(x)], dim=1))
        return self.outc(x)


def network():
    torch.manual_seed(7)
    net = UNet()
    for module in net.modules():
        if isinstance(module, nn.GroupNorm):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.normal_(module.bias, std=0.2)
    return net


def batch():
    rng = np.random.default_rng(2)
    return rng.standard_normal((3, 2, 12, 12), dtype=np.float32), rng.integers(0, 3, (3, 12, 12))
