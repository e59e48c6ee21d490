"""Small networks written once: nested blocks, lists, several inputs and outputs, control flow."""

from deliralike import Network, start


class Block(Network):
    def __init__(self, in_channels, channels, stride=1):
        super().__init__()
        self.conv = self.nn.Conv2d(
            in_channels, channels, 3, stride=stride, padding=1, bias=False
        )
        self.bn = self.nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.nn.relu(self.bn(self.conv(x)))


class Classifier(Network):
    """Nested blocks in a list; odd sizes and stride 2."""

    def __init__(self, in_channels=3, num_classes=4, p=0.0):
        super().__init__()
        nn = self.nn
        self.stages = nn.ModuleList([Block(in_channels, 5, stride=2), Block(5, 7)])
        self.head = nn.Sequential(nn.Dropout(p), nn.Linear(7, num_classes))

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(self.nn.mean(x, dim=(2, 3)))


class TwoInTwoOut(Network):
    """Two inputs, a dict of two outputs, a parameter of its own, and a branch on a setting."""

    def __init__(self, width=3, twice=False):
        super().__init__()
        self.twice = twice
        self.left, self.right = self.nn.Linear(4, width), self.nn.Linear(2, width)
        self.scale = self.nn.Parameter((width,), start.Uniform(0.5))

    def forward(self, a, b):
        a = self.left(a)
        if self.twice:
            a = a + a
        return {"sum": (a + self.right(b)) * self.scale, "left": a}
