"""Mobile, written once: a port of before.inverted."""

from deliralike import Network


def rounded(channels, by=4):
    return max(by, by * round(channels / by))


class Excite(Network):
    def __init__(self, channels, ratio=0.25, gate="hardsigmoid"):
        super().__init__()
        nn = self.nn
        if gate == "hardsigmoid":
            gate = nn.hardsigmoid
        self.reduce = nn.Conv2d(channels, rounded(channels * ratio), 1)
        self.expand = nn.Conv2d(rounded(channels * ratio), channels, 1)
        self.gate = gate

    def forward(self, x):
        nn = self.nn
        scale = nn.mean(x, (2, 3), keepdim=True)
        scale = self.expand(nn.relu(self.reduce(scale)))
        return x * self.gate(scale)


class Inverted(Network):
    def __init__(
        self, inputs, outputs, kernel=3, stride=1, expand=2.0, excite=False, p=0.0
    ):
        super().__init__()
        nn = self.nn
        hidden = rounded(inputs * expand)
        bn = dict(eps=1e-3, momentum=0.01)
        self.adds, self.p = inputs == outputs and stride == 1, p
        self.pw = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden, **bn)
        self.dw = nn.Conv2d(
            hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False
        )
        self.bn2 = nn.BatchNorm2d(hidden, **bn)
        self.se = Excite(hidden) if excite else nn.Identity()
        self.pwl = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs, **bn)
        self.drop_path_layer = nn.DropPath(self.p)

    def forward(self, x):
        nn = self.nn
        y = nn.hardswish(self.bn1(self.pw(x)))
        y = nn.hardswish(self.bn2(self.dw(y)))
        y = self.bn3(self.pwl(self.se(y)))
        return self.drop_path_layer(y) + x if self.adds else y


class Mobile(Network):
    #: kernel, expansion, channels, squeeze, stride
    table = [
        [3, 1, 8, True, 2],
        [3, 3, 8, False, 1],
        [5, 2.5, 12, True, 2],
        [5, 2.5, 12, True, 1],
    ]

    def __init__(self, classes=10, width=1.0, dropout=0.2, drop_path_rate=0.1):
        super().__init__()
        nn = self.nn
        channels = rounded(8 * width)
        self.stem = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        blocks = []
        for at, (kernel, expand, outputs, excite, stride) in enumerate(self.table):
            outputs, p = rounded(outputs * width), drop_path_rate * at / len(self.table)
            blocks += [
                Inverted(channels, outputs, kernel, stride, expand, excite=excite, p=p)
            ]
            channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.dropout = dropout
        self.classifier = nn.Linear(channels, classes)
        self.dropout_layer = nn.Dropout(self.dropout)

    def features(self, x):
        return self.blocks(self.nn.hardswish(self.bn(self.stem(x))))

    def forward(self, x):
        nn = self.nn
        x = nn.flatten(nn.adaptive_avg_pool2d(self.features(x), 1), 1)
        if self.dropout > 0.0:
            x = self.dropout_layer(x)
        return self.classifier(x)
