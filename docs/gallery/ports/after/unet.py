"""UNet, written once: a port of before.unet."""

from deliralike import Network


def twice(nn, inputs, outputs, dropout=0.0):
    """Two convolutions with norms."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.InstanceNorm2d(outputs, affine=True),
        nn.LeakyReLU(0.1),
        nn.Dropout2d(dropout),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.InstanceNorm2d(outputs, affine=True),
        nn.LeakyReLU(0.1),
    )


class Climb(Network):
    """Go up to the size of ``beside``, join, convolve."""

    def __init__(self, below, beside, outputs, learned):
        super().__init__()
        nn = self.nn
        if learned:
            self.up = nn.ConvTranspose2d(below, outputs, kernel_size=2, stride=2)
        else:
            resize = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.up = nn.Sequential(resize, nn.Conv2d(below, outputs, 1))
        self.conv = twice(nn, outputs + beside, outputs)

    def forward(self, x, beside):
        nn = self.nn
        x = self.up(x)
        # odd sizes: the picture is made as large as the one beside it
        rows = beside.shape[-2] - x.shape[-2]
        columns = beside.shape[-1] - x.shape[-1]
        x = nn.pad(
            x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]
        )
        return self.conv(nn.cat((beside, x), dim=1))


class UNet(Network):
    """Masks of pictures."""

    def __init__(
        self, channels=3, classes=2, widths=(4, 6, 8), learned=False, deep=True
    ):
        super().__init__()
        nn = self.nn
        self.deep = deep
        self.down = nn.ModuleList()
        self.climb = nn.ModuleList()
        for width in widths:
            self.down.append(twice(nn, channels, width))
            channels = width
        for width in reversed(widths[:-1]):
            self.climb.append(Climb(channels, width, width, learned))
            channels = width
        self.out = nn.Conv2d(widths[0], classes, kernel_size=1)
        if self.deep:
            self.middle = nn.Conv2d(widths[1], classes, kernel_size=1)

    def forward(self, x):
        beside = []
        for level in self.down[:-1]:
            x = level(x)
            beside.append(x)
            x = self.nn.max_pool2d(x, 2)
        x = self.down[-1](x)
        steps = []
        for level in self.climb:
            x = level(x, beside.pop())
            steps.append(x)
        if self.deep and self.training:
            return self.out(x), self.middle(steps[0])
        return self.out(x)
