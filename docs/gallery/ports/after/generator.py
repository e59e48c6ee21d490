"""Generator, written once: a port of before.generator."""

from deliralike import Network


class Double(Network):
    """Twice the size."""

    def __init__(self, channels, ksize=4, norm=True, activation="relu", *, in_channels):
        super(Double, self).__init__()
        nn = self.nn
        if activation == "relu":
            activation = nn.relu
        self.activation = activation
        self.norm = norm
        self.conv = nn.ConvTranspose2d(
            in_channels, channels, ksize, stride=2, padding=1, bias=not norm
        )
        if norm:
            self.bn = nn.BatchNorm2d(channels, eps=2e-5)

    def forward(self, x):
        h = self.conv(x)
        if self.norm:
            h = self.bn(h)
        return self.activation(h)


class Generator(Network):
    def __init__(self, latent, side=3, channels=8):
        super(Generator, self).__init__()
        nn = self.nn
        self.side, self.channels = side, channels
        self.project = nn.Linear(latent, side * side * channels)
        self.bn = nn.BatchNorm1d(side * side * channels, eps=2e-5)
        self.doubled = nn.Sequential(
            Double(channels // 2, in_channels=8), Double(channels // 4, in_channels=4)
        )
        self.last = Double(1, ksize=3, norm=False, activation=nn.tanh, in_channels=2)

    def forward(self, z):
        nn = self.nn
        h = nn.leaky_relu(self.bn(self.project(z)), negative_slope=0.2)
        h = nn.reshape(h, (len(z), self.channels, self.side, self.side))
        h = self.last(self.doubled(h))
        return nn.max_pool2d(h, kernel_size=3, stride=2, ceil_mode=True)
